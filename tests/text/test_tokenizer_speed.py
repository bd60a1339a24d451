"""Long texts take time in proportion to their length and leave other threads running."""

import random
import threading
import time
from collections.abc import Callable

import pytest

from tests.text.text_builders import byte_level_tokenizer, sentencepiece_tokenizer
from twostroke.text.tokenizer import Tokenizer

TEXTS: dict[str, Callable[[int], str]] = {
    "one letter": lambda size: "a" * size,
    "two letters": lambda size: "ab" * (size // 2),
    "random letters": lambda size: "".join(random.Random(size).choices("abcdefghij", k=size)),
    "spaces": lambda size: " " * size,
    "newlines": lambda size: "\n" * size,
}


def seconds(action: Callable[[], object]) -> float:
    """Least processor time of three runs."""
    times = []
    for _ in range(3):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.slow
@pytest.mark.parametrize("make", [byte_level_tokenizer, sentencepiece_tokenizer])
@pytest.mark.parametrize("kind", TEXTS)
def test_time_grows_with_the_length_of_the_text(make: Callable[[], Tokenizer], kind: str) -> None:
    tokenizer = make()
    short, long = TEXTS[kind](16_384), TEXTS[kind](262_144)
    assert seconds(lambda: tokenizer.encode(long)) < 2.6**4 * seconds(lambda: tokenizer.encode(short))


def test_other_threads_run_while_a_long_text_is_encoded() -> None:
    tokenizer = byte_level_tokenizer()
    done = threading.Event()

    def encode_long() -> None:
        tokenizer.encode("ab" * 200_000)
        done.set()

    thread = threading.Thread(target=encode_long)
    thread.start()
    count = 0
    while not done.is_set():
        tokenizer.encode("x")
        count += 1
    thread.join()
    assert count > 1
