"""What one request wishes: frozen, checked when made, no defaults anywhere else."""

import math
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Literal

from twostroke.errors import ParamsError
from twostroke.param_checks import check_int, check_range, check_texts
from twostroke.samplers import (
    BREAKERS,
    SAMPLERS,
    check_bad_words,
    check_breakers,
    check_company,
    check_numbers,
    check_order,
)
from twostroke.stop_pattern import compile_patterns
from twostroke.structure import Structure

MAX_LOGPROBS = 20  # OpenAI's limit for top_logprobs
MAX_PROMPT_SCORES = 2**16  # of one request: some 10 MB in memory, and as much JSON
MAX_STOP_STRINGS = 16
MAX_STOP_PATTERNS = 4
MAX_STOP_SIZE = 4096  # characters; each is held back while it may still become a match
MAX_LOGIT_BIAS = 100.0  # OpenAI's limits: beyond them a token is out of reach or alone anyway
MAX_BIASED_TOKENS = 1024  # each is looked at in every step
MAX_SEED = 2**64 - 1  # the key of Philox4x32-10 has 64 bits
NUM_DRAWN_SEEDS = 2**53  # where none is given: clients whose numbers are all doubles can send it back too
ENDS_AT_ONCE = "every answer would end at once"
# What a search for the likeliest answer has no use for: said beside `beam`, these are an error.
NOT_WITH_BEAM = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "penalty_last_n",
    "typical_p",
    "top_n_sigma",
    "dynatemp_range",
    "dynatemp_exponent",
    "xtc_probability",
    "xtc_threshold",
    "mirostat_tau",
    "mirostat_eta",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "dry_sequence_breakers",
    "no_repeat_ngram_size",
    "bad_words",
    "sampler_order",
    "logit_bias",
    "min_tokens",
    "seed",
    "logprobs",
    "prompt_logprobs",
    "stop_regex",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearch:
    """Search for the likeliest answers: `width` of them grow side by side.

    An answer scores (sum of log-probabilities) / (length ** length_penalty), a stop id included; above 0 the
    penalty favours long answers. `early_stopping` True ends with `width` finished answers, False when the best
    running one cannot beat the worst finished as things stand, "never" when it cannot at any length up to
    max_tokens; one beam is greedy and ends with its first. `num_return` answers are reported. Definition and defaults
    are the transformers library's.

    Raises ParamsError that names the field, the value and the limit.
    """

    width: int = 4
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    num_return: int = 1

    def __post_init__(self) -> None:
        check_int("width", self.width, 1, None)
        check_range("length_penalty", self.length_penalty, -10.0, 10.0)  # no power of a length overflows
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise ParamsError(
                f"early_stopping is {self.early_stopping!r}: it must be true, false or 'never'", field="early_stopping"
            )
        check_int("num_return", self.num_return, 1, self.width)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the next token is chosen and when the answer ends.

    First come bans (grammar, `min_tokens`, `no_repeat_ngram_size`, `bad_words`) and the logit bias, then the samplers
    in use as `sampler_order` has them; docs/sampling.md defines each. `temperature` 0 is argmax, lowest id on ties,
    and leaves filters nothing to do. `top_k` 0, -1 and None mean off; so does a value above the vocabulary.
    Penalties look at prompt and answer (`repetition_penalty`) or at the answer alone (`presence_penalty`,
    `frequency_penalty`), of these at the `penalty_last_n` newest tokens (-1: all, 0: none), as does DRY with its own.
    `mirostat_tau` None is off; it takes the place of every filter. A bad word, a text or token ids, is forbidden at its
    last token. `logit_bias` is pairs of token id and what is added to its logit.
    Before `min_tokens` no end token is drawn and no stop string or pattern is looked for. An answer ends where the
    first of them is complete: `stop` strings or `stop_regex`, patterns in Python's syntax that need no backtracking
    (see stop_pattern.py). `include_stop` shows what ended the answer: the match, or the text of a stop id. `logprobs`
    is the number of best alternatives to report beside the sampled token (0: the sampled token alone; None: none at
    all), `prompt_logprobs` the same of every prompt token; then `max_tokens` may be 0. `structure` is a grammar the
    answer follows; what is not complete at max_tokens is cut there, finish reason length. `beam` searches for the
    likeliest answer instead of drawing one: it goes with max_tokens, stop, stop_token_ids, include_stop, ignore_eos,
    structure and a repetition_penalty of at least 1.

    Raises ParamsError that names the field, the value and the limit.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = -1
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    mirostat_tau: float | None = None
    mirostat_eta: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = BREAKERS
    no_repeat_ngram_size: int = 0
    bad_words: tuple[str | tuple[int, ...], ...] = ()
    sampler_order: tuple[str, ...] = SAMPLERS
    seed: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    max_tokens: int = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_regex: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structure: Structure | None = None
    beam: BeamSearch | None = None

    def __post_init__(self) -> None:
        check_range("temperature", self.temperature, 0.0, math.inf)
        check_range("top_p", self.top_p, 0.0, 1.0, low_open=True)
        check_range("min_p", self.min_p, 0.0, 1.0)
        check_range("repetition_penalty", self.repetition_penalty, 0.0, math.inf, low_open=True)
        check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if self.top_k is not None:
            check_int("top_k", self.top_k, -1, None)
        if self.seed is not None:
            check_int("seed", self.seed, 0, MAX_SEED)
        if self.logprobs is not None:
            check_int("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.prompt_logprobs is not None:
            check_int("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS)
        check_int("max_tokens", self.max_tokens, 1 if self.prompt_logprobs is None else 0, None)
        check_int("min_tokens", self.min_tokens, 0, None)
        if self.min_tokens > self.max_tokens:
            raise ParamsError(
                f"min_tokens is {self.min_tokens}: max_tokens is {self.max_tokens}, it must not be more",
                field="min_tokens",
            )
        _check_bias(self.logit_bias)
        self._check_samplers()
        for name, most in (("stop", MAX_STOP_STRINGS), ("stop_regex", MAX_STOP_PATTERNS)):
            check_texts(name, getattr(self, name), limit=most, longest=MAX_STOP_SIZE, why_not_empty=ENDS_AT_ONCE)
        compile_patterns(self.stop_regex)
        _check_ids("stop_token_ids", self.stop_token_ids)
        for name in ("ignore_eos", "include_stop"):
            if not isinstance(getattr(self, name), bool):
                raise ParamsError(f"{name} is {getattr(self, name)!r}: it must be true or false", field=name)
        if self.structure is not None:
            self._check_structure()
        if self.beam is not None:
            self._check_beam()

    @property
    def is_drawn(self) -> bool:
        """Whether the answer depends on a seed."""
        return self.temperature > 0 and self.beam is None

    def with_seed(self) -> "SamplingParams":
        """The same with a seed, where none is wished for one by chance: it names what several tries have in common."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(NUM_DRAWN_SEEDS))

    @property
    def num_sequences(self) -> int:
        """Sequences that grow side by side for one request."""
        return 1 if self.beam is None else self.beam.width

    @property
    def samplers(self) -> tuple[str, ...]:
        """Those in use, in the usual order."""
        in_use = {
            "penalties": (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1.0, 0.0, 0.0),
            "dry": self.dry_multiplier > 0,
            "temperature": self.temperature not in (0.0, 1.0) or self.dynatemp_range > 0,
            "top_k": self.top_k is not None and self.top_k > 0,
            "top_p": self.top_p < 1.0,
            "min_p": self.min_p > 0.0,
            "typical_p": self.typical_p < 1.0,
            "top_n_sigma": self.top_n_sigma > 0.0,
            "xtc": self.xtc_probability > 0.0,
        }
        return tuple(name for name in SAMPLERS if in_use[name])

    @property
    def looks_back(self) -> bool:
        """Whether what came before a token changes how it is chosen, beside its logits."""
        has_bans = self.no_repeat_ngram_size > 0 or bool(self.bad_words)
        return has_bans or self.mirostat_tau is not None or not {"penalties", "dry"}.isdisjoint(self.samplers)

    def limits(self) -> "SamplingParams":
        """Where the answer ends, without how tokens are chosen: what a beam search takes of a model's own settings."""
        return SamplingParams(
            max_tokens=self.max_tokens,
            stop=self.stop,
            stop_token_ids=self.stop_token_ids,
            include_stop=self.include_stop,
            ignore_eos=self.ignore_eos,
        )

    def and_stop(self, stop: Iterable[str]) -> tuple[str, ...]:
        """These stop strings behind the ones that are here: those a model brings end its answers whatever is asked."""
        return (*self.stop, *[text for text in stop if text not in self.stop])

    def _check_samplers(self) -> None:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        check_numbers(values)
        check_breakers(self.dry_sequence_breakers)
        check_bad_words(self.bad_words)
        in_use = self.samplers
        check_order(self.sampler_order, in_use)
        said = {each.name for each in fields(self) if values[each.name] != each.default}
        check_company(in_use, temperature=self.temperature, dynatemp_range=self.dynatemp_range, said=said)

    def _check_structure(self) -> None:
        if not isinstance(self.structure, Structure):
            raise ParamsError(f"structure is {self.structure!r}: it must be a Structure or None", field="structure")
        for name in ("ignore_eos", "min_tokens"):
            if getattr(self, name):
                raise ParamsError(
                    f"{name} is {getattr(self, name)!r}: a grammar says where the answer ends, leave out {name} "
                    "or structure",
                    field=name,
                )

    def _check_beam(self) -> None:
        if not isinstance(self.beam, BeamSearch):
            raise ParamsError(f"beam is {self.beam!r}: it must be a BeamSearch or None", field="beam")
        for each in fields(self):
            if each.name in NOT_WITH_BEAM and (value := getattr(self, each.name)) != each.default:
                raise ParamsError(
                    f"{each.name} is {value!r}: beam search finds the likeliest answer and has no use for it; "
                    f"leave out {each.name} or beam",
                    field=each.name,
                )
        if self.repetition_penalty < 1.0:
            raise ParamsError(
                f"repetition_penalty is {self.repetition_penalty:g}: with beam search it must be 1 or more",
                field="repetition_penalty",
            )


def _check_bias(logit_bias: object) -> None:
    if not isinstance(logit_bias, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in logit_bias):
        raise ParamsError("logit_bias must be a tuple of pairs (token id, bias)", field="logit_bias")
    if len(logit_bias) > MAX_BIASED_TOKENS:
        raise ParamsError(
            f"logit_bias has {len(logit_bias)} tokens: the limit is {MAX_BIASED_TOKENS}", field="logit_bias"
        )
    for token_id, bias in logit_bias:
        check_int("logit_bias", token_id, 0, None)
        check_range("logit_bias", bias, -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS)
    if len({token_id for token_id, _ in logit_bias}) < len(logit_bias):
        raise ParamsError("logit_bias has a token twice: keep one bias for each", field="logit_bias")


def _check_ids(name: str, token_ids: object) -> None:
    if not isinstance(token_ids, tuple):
        raise ParamsError(f"{name} is {token_ids!r}: it must be a tuple of ids", field=name)
    for token_id in token_ids:
        check_int(name, token_id, 0, None)
