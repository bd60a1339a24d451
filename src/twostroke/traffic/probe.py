"""Finds out how to talk to a server before it is timed: which fields it takes, how many tokens it adds to a text.

Probes are requests of a few tokens; they warm the server up and are in no result.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from twostroke.errors import ConfigError, RemoteError
from twostroke.traffic.http_client import HttpClient
from twostroke.traffic.outcome import Outcome
from twostroke.traffic.prompts import WORDS, Count, PromptMaker, one_token_words
from twostroke.traffic.server import Api, Dialect, Server, can_tokenize, context_of, count_tokens, first_model

FEW_WORDS, MANY_WORDS = 32, 160  # two texts whose usage tells tokens per word and what is added


@dataclass(frozen=True, slots=True)
class Probed:
    """A server that answers, and how to make prompts for it. `counted_by` says who counts."""

    server: Server
    prompts: PromptMaker
    context: int | None
    counted_by: str


async def probe(
    client: HttpClient,
    *,
    model: str | None,
    api: Api,
    tokenizer: Path | None,
    counts_along: bool,
    timeout_s: float,
    extra: Mapping[str, Any],
) -> Probed:
    """Raises RemoteError where the server does not answer the plainest request, ConfigError for a bad tokenizer."""
    if model is None:
        model, context = await first_model(client)
    else:
        context = await context_of(client, model)
    server = await _speaking(client, model, api, counts_along, timeout_s, extra)
    count, counted_by = await _counter(client, model, tokenizer)
    few, many = await _usage(server, FEW_WORDS), await _usage(server, MANY_WORDS)
    if count is not None:
        overhead = 0 if few is None else few - await count(_text(FEW_WORDS))
        words = await one_token_words(count)
        return Probed(
            server, PromptMaker(words=words, count=count, tokens_per_word=1.0, overhead=overhead), context, counted_by
        )
    if few is None or many is None or many <= few:
        maker = PromptMaker(words=WORDS, count=None, tokens_per_word=1.0, overhead=0)
        return Probed(server, maker, context, "nobody: a word is taken for a token")
    per_word = (many - few) / (MANY_WORDS - FEW_WORDS)
    overhead = max(0, round(few - per_word * FEW_WORDS))
    maker = PromptMaker(words=WORDS, count=None, tokens_per_word=per_word, overhead=overhead)
    return Probed(server, maker, context, f"the usage of two probes: {per_word:.2f} tokens a word")


async def _speaking(
    client: HttpClient, model: str, api: Api, counts_along: bool, timeout_s: float, extra: Mapping[str, Any]
) -> Server:
    """The server with the richest dialect it takes."""
    dialects = [
        Dialect(has_lengths=has_lengths, has_usage=has_usage)
        for has_usage in (True, False)
        for has_lengths in (True, False)
    ]
    if counts_along:
        dialects = [
            Dialect(has_lengths=has_lengths, has_usage=True, counts_along=True) for has_lengths in (True, False)
        ]
    for dialect in dialects:
        server = Server(client=client, model=model, api=api, dialect=dialect, timeout_s=timeout_s, extra=extra)
        outcome = await _ask(server, FEW_WORDS)
        if outcome.error is None:
            return server
        if outcome.error not in ("http 400", "http 422"):  # another dialect would not help
            break
    raise RemoteError(f"{client.address.url}{api.path}: {outcome.error}: {outcome.problem}", kind=str(outcome.error))


async def _ask(server: Server, num_words: int) -> Outcome:
    body = server.body(_text(num_words), output_tokens=2)
    return await server.answer(body, Outcome(place=-1, wanted_prompt=num_words, wanted_output=2))


async def _usage(server: Server, num_words: int) -> int | None:
    return (await _ask(server, num_words)).prompt_tokens


def _text(num_words: int) -> str:
    return " ".join(WORDS[place % len(WORDS)] for place in range(num_words))


async def _counter(client: HttpClient, model: str, tokenizer: Path | None) -> tuple[Count | None, str]:
    """Who counts tokens: a tokenizer that was given, the server, or nobody."""
    if tokenizer is not None:
        file = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
        try:
            loaded = Tokenizer.from_file(str(file))
        except Exception as error:  # noqa: BLE001 - the library raises nothing narrower
            raise ConfigError(f"--tokenizer {file} cannot be read: {error}") from None

        async def count_here(text: str) -> int:
            return len(loaded.encode(text).ids)

        return count_here, str(file)
    if await can_tokenize(client, model):

        async def count_there(text: str) -> int:
            return await count_tokens(client, model, text)

        return count_there, "the server's /tokenize"
    return None, ""
