"""Flags of `run` that would change nothing, refused by name: what is said is honoured, or told not to be."""

from collections.abc import Collection

from twostroke.cli.flag_words import flag_of
from twostroke.errors import ConfigError
from twostroke.params import SamplingParams

DETAIL_OF = {  # flags that say more about what another one turns on
    "dynatemp_exponent": "dynatemp_range",
    "xtc_threshold": "xtc_probability",
    "mirostat_eta": "mirostat_tau",
    "dry_base": "dry_multiplier",
    "dry_allowed_length": "dry_multiplier",
    "dry_penalty_last_n": "dry_multiplier",
    "dry_sequence_breakers": "dry_multiplier",
}
PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
STOPS = ("stop", "stop_regex", "stop_token_ids")


def refuse_details(said: Collection[str]) -> None:
    """Before any model is loaded: no model brings these. Raises ConfigError."""
    for name, main in DETAIL_OF.items():
        if name in said and main not in said:
            raise idle(name, [main])


def refuse_idle(said: Collection[str], params: SamplingParams) -> None:
    """What may belong to a penalty or a stop of the model's own, which `params` have. Raises ConfigError."""
    if "penalty_last_n" in said and "penalties" not in params.samplers and not set(PENALTIES) & set(said):
        raise idle("penalty_last_n", PENALTIES)
    if "include_stop" in said and not any(getattr(params, name) for name in STOPS):
        raise idle("include_stop", STOPS)


def idle(name: str, others: Collection[str]) -> ConfigError:
    """The refusal of a flag that needs one of the others."""
    *rest, last = [flag_of(other) for other in others]
    wanted = f"{', '.join(rest)} or {last}" if rest else last
    return ConfigError(f"{flag_of(name)} does nothing without {wanted}: add {'one' if rest else 'it'}, or leave it out")
