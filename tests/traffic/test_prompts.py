"""Prompts have the asked number of tokens, whoever counts, and share exactly the pieces that items share."""

import pytest

from tests.traffic.traffic_builders import make_item, run
from twostroke.errors import ConfigError
from twostroke.traffic.prompts import WORDS, Count, PromptMaker, one_token_words
from twostroke.traffic.workload import Item, Piece


async def by_words(text: str) -> int:
    return len(text.split())


async def by_long_words(text: str) -> int:
    """Words of more than five letters are two tokens; a text has a beginning of its own."""
    return 1 + sum(2 if len(word) > 5 else 1 for word in text.split())


def make_maker(count: Count | None = by_words, *, per_word: float = 1.0, overhead: int = 0) -> PromptMaker:
    return PromptMaker(words=WORDS, count=count, tokens_per_word=per_word, overhead=overhead)


@pytest.mark.parametrize("length", [1, 2, 17, 300])
def test_counted_prompts_are_exact(length: int) -> None:
    text = run(make_maker().text_of(make_item(length)))
    assert run(by_words(text)) == length


@pytest.mark.parametrize("length", [2, 3, 17, 300])
def test_they_are_exact_where_words_are_not_tokens_too(length: int) -> None:
    text = run(make_maker(by_long_words).text_of(make_item(length)))
    assert run(by_long_words(text)) == length


def test_what_the_server_adds_belongs_to_the_length() -> None:
    text = run(make_maker(overhead=9).text_of(make_item(20)))
    assert run(by_words(text)) == 11


def test_a_prompt_shorter_than_what_the_server_adds_is_refused() -> None:
    with pytest.raises(ConfigError, match="the server adds 9 to every text: --input-tokens of at least 10 works"):
        run(make_maker(overhead=9).text_of(make_item(9)))


def test_a_length_no_words_have_is_refused() -> None:
    async def by_pairs(text: str) -> int:
        return 2 * len(text.split())

    with pytest.raises(ConfigError, match="no words make a text of exactly 7 tokens"):
        run(make_maker(by_pairs).text_of(make_item(7)))


def test_uncounted_prompts_have_words_at_the_measured_rate() -> None:
    text = run(make_maker(None, per_word=1.25, overhead=10).text_of(make_item(110)))
    assert len(text.split()) == 80


def test_equal_pieces_are_equal_text_and_others_are_not() -> None:
    def item(*names: str) -> Item:
        return Item(pieces=tuple(Piece(name, 40) for name in names), output_tokens=1)

    one, two = (run(make_maker().text_of(item(*names))).split() for names in (("a", "b"), ("a", "c")))
    assert one[:40] == two[:40]
    assert one[40:] != two[40:]
    assert run(make_maker().text_of(item("a", "b"))).split() == one


def test_only_words_of_one_token_are_taken_where_there_are_some() -> None:
    async def by_letters(text: str) -> int:
        return len(text)

    found = run(one_token_words(by_long_words))
    assert set(found) == {word for word in WORDS if len(word) <= 5}
    assert run(one_token_words(by_letters)) == WORDS


def test_words_are_short_common_and_different() -> None:
    assert len(set(WORDS)) == len(WORDS) > 90
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)
