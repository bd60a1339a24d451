"""What is told of a prompt that does not fit: each fix that is named is one."""

import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from twostroke.context_room import ChatShares, why_no_room


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (
            {
                "num_prompt": 31,
                "max_tokens": 256,
                "context": 40,
                "most_context": 2048,
                "shares": ChatShares(num_framing=30),
            },
            (
                "31 prompt tokens (30 of the chat template) + max_tokens of 256 = 287, the context is 40: "
                "max_tokens of at most 9 fits, or a context of at least 287 fits"
            ),
        ),
        (
            {
                "num_prompt": 31,
                "max_tokens": 256,
                "context": 10,
                "most_context": 2048,
                "shares": ChatShares(num_framing=30),
            },
            (
                "31 prompt tokens (30 of the chat template) + max_tokens of 256 = 287, the context is 10: "
                "a context of at least 287 fits"
            ),
        ),
        (
            {"num_prompt": 120, "max_tokens": 256, "context": 100},
            (
                "120 prompt tokens + max_tokens of 256 = 376, the context is 100: "
                "with max_tokens of 1 shorten the prompt by 21 tokens or more"
            ),
        ),
        (
            {"num_prompt": 120, "max_tokens": 20, "context": 100},
            (
                "120 prompt tokens + max_tokens of 20 = 140, the context is 100: "
                "shorten the prompt by 40 tokens or more, or with max_tokens of 1 shorten it by 21 tokens or more"
            ),
        ),
        (
            {"num_prompt": 11, "max_tokens": 0, "context": 10},
            "11 prompt tokens, the context is 10: shorten the prompt by 1 token or more",
        ),
        (
            {"num_prompt": 31, "max_tokens": 256, "context": 10, "shares": ChatShares(num_framing=30)},
            (
                "31 prompt tokens (30 of the chat template) + max_tokens of 256 = 287, the context is 10: "
                "use a model with a larger one"
            ),
        ),
        (
            {"num_prompt": 2, "max_tokens": 5, "context": 1},  # nothing is left of a prompt of no tokens
            "2 prompt tokens + max_tokens of 5 = 7, the context is 1: use a model with a larger one",
        ),
        (
            {
                "num_prompt": 400,
                "max_tokens": 256,
                "context": 300,
                "shares": ChatShares(num_framing=30, num_tools=360, has_system=True),
            },
            (
                "400 prompt tokens (30 of the chat template and the model's system text, 360 of the tools) + "
                "max_tokens of 256 = 656, the context is 300: shorten the messages or the tools by 356 tokens or more, "
                "or with max_tokens of 1 shorten them by 101 tokens or more"
            ),
        ),
    ],
)
def test_the_arithmetic_comes_with_what_would_fit(wish: dict[str, Any], words: str) -> None:
    assert why_no_room(**wish) == words


counts = st.integers(1, 50)


@given(counts, st.integers(0, 50), counts, st.none() | counts, st.integers(0, 50))
def test_every_fix_fits_and_none_a_token_less(
    num_prompt: int, max_tokens: int, context: int, most_context: int | None, num_framing: int
) -> None:
    num_framing = min(num_framing, num_prompt)
    shares = ChatShares(num_framing=num_framing)
    why = why_no_room(num_prompt, max_tokens, context=context, most_context=most_context, shares=shares)
    assert (why is None) is (num_prompt + max_tokens <= context)
    for fix in [] if why is None else why.partition("the context is ")[2].partition(": ")[2].split(", or "):
        (*_, number) = map(int, re.findall(r"\d+", fix.replace("max_tokens of 1 ", ""))) if "model" not in fix else (0,)
        if fix.startswith("max_tokens"):
            assert num_prompt + number == context
        elif fix.startswith("a context"):
            assert number == num_prompt + max_tokens
            assert most_context is not None
            assert context < number <= most_context
        elif number:
            answer = 1 if "with max_tokens" in fix else max_tokens
            assert num_prompt - number + answer == context
            assert num_prompt - number >= max(num_framing, 1)
