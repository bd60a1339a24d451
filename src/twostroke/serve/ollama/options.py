"""The `options` of a request: each honoured, taken because it rightly changes nothing, or refused by name.

Called by `wish`. Absent options are the loaded model's defaults, the same at every door; documented in docs/serving.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from twostroke.errors import ParamsError
from twostroke.model.ollama_defaults import FIELDS
from twostroke.params import SamplingParams
from twostroke.serve.api_error import ApiError
from twostroke.serve.body import MAX_SHOWN, cut
from twostroke.serve.fields import Fields, shown
from twostroke.serve.harmless import Harmless, among, take_harmless

NUMBERS = {**{name: ours for name, ours in FIELDS.items() if name != "stop"}, "typical_p": "typical_p"}
WHOLE = ("seed", "top_k", "num_predict", "repeat_last_n")  # whole numbers; 40.0 is one too
MIROSTAT = ("mirostat_tau", "mirostat_eta")
USUAL_TAU = 5.0  # Ollama's
NO_FILTERS = {"top_k": None, "top_p": 1.0, "min_p": 0.0, "typical_p": 1.0}
FILL_CONTEXT = (-1, -2)  # of num_predict: no limit of its own, and up to the end of the context


def _is_whole(value: Any) -> bool:
    return type(value) is int


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


# No answer depends on these: memory, threads and batches are settled when the model is loaded.
_AT_LOAD = "it must be a {}; nothing is done with it, the model is loaded by the flags of this server"
HARMLESS_OPTIONS = (
    *(
        Harmless(name, _is_whole, _AT_LOAD.format("whole number"))
        for name in ("num_thread", "num_batch", "num_gpu", "main_gpu")
    ),
    *(Harmless(name, _is_flag, _AT_LOAD.format("flag")) for name in ("numa", "low_vram", "use_mmap", "use_mlock")),
    Harmless("num_keep", _is_whole, "it must be a whole number; nothing is done with it, no text is ever shifted out"),
    Harmless("tfs_z", among(1, 1.0), "tail-free sampling is not done here, leave it out"),
    Harmless("penalize_newline", among(True), "penalties treat line ends like any token, leave it out"),
    *(
        Harmless(name, among(False), "this server does not honour it, leave it out")
        for name in ("logits_all", "vocab_only", "embedding_only")
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`fills_context`: the answer may go on to the end of the context, whatever `params.max_tokens` says.

    `num_ctx`: most tokens of prompt and answer together, where that was said.
    """

    params: SamplingParams
    fills_context: bool = False
    num_ctx: int | None = None


def read_options(fields: Fields, defaults: SamplingParams, **wishes: Any) -> Options:
    """The defaults with every given option in place, and `wishes` that were read elsewhere. Raises ApiError."""
    options = fields.object("options") or Fields({}, place="options.")
    wishes |= _numbers(options)
    num_predict = wishes.get("max_tokens")
    fills_context = num_predict in FILL_CONTEXT
    if fills_context:
        del wishes["max_tokens"]
    seed = wishes.get("seed")
    if isinstance(seed, int) and seed < 0:  # Ollama's word for a random one
        wishes["seed"] = None
    stops = options.array("stop")
    if stops is not None:
        wishes["stop"] = _joined(defaults.stop, stops)
    _take_mirostat(options, wishes)
    num_ctx = options.whole("num_ctx", low=1, high=2**31)
    take_harmless(options, HARMLESS_OPTIONS)
    options.end()
    return Options(params=_params(defaults, wishes), fills_context=fills_context, num_ctx=num_ctx)


def _numbers(options: Fields) -> dict[str, Any]:
    """Numbers that have a counterpart in our words, under those."""
    values = {name: options.number(name) for name in NUMBERS}
    return {
        NUMBERS[name]: int(value) if name in WHOLE and float(value).is_integer() else value
        for name, value in values.items()
        if value is not None
    }


def _joined(defaults: tuple[str, ...], stops: Sequence[Any]) -> tuple[Any, ...]:
    """The model's own stop strings stay: those of a request come beside them."""
    return (*defaults, *(text for text in stops if text not in defaults))


def _take_mirostat(options: Fields, wishes: dict[str, Any]) -> None:
    """The second version of Mirostat, in place of every filter that the request itself does not ask for."""
    version = options.whole("mirostat", low=0, high=2)
    tau, eta = options.number("mirostat_tau"), options.number("mirostat_eta")
    if not version:  # then these change nothing, as with Ollama
        return
    if version == 1:
        raise ApiError("options.mirostat is 1: its second version is done here, send 2", param="options.mirostat")
    given = {"mirostat_tau": USUAL_TAU if tau is None else tau, **({} if eta is None else {"mirostat_eta": eta})}
    wishes |= {**NO_FILTERS, **wishes, **given}


def _params(defaults: SamplingParams, wishes: dict[str, Any]) -> SamplingParams:
    try:
        return replace(defaults, **wishes)
    except ParamsError as error:
        names = {ours: theirs for theirs, ours in NUMBERS.items()} | {name: name for name in (*MIROSTAT, "stop")}
        name = names.get(error.field)
        field = f"options.{name}" if name else error.field
        said = cut(str(error).replace(error.field, field, 1), 4 * MAX_SHOWN)
        if name == "num_predict":
            said += ", -1 or -2 for an answer that may fill the context"
        raise ApiError(said, param=field) from None


def limit_of(options: Options, context: int) -> int:
    """Most tokens of prompt and answer together. Raises ApiError where the loaded context cannot hold that."""
    if options.num_ctx is None:
        return context
    if options.num_ctx > context:
        raise ApiError(
            f"options.num_ctx is {shown(options.num_ctx)}: the model was loaded with a context of {context}; ask for "
            f"at most that, or start the server with --context {options.num_ctx}",
            param="options.num_ctx",
        )
    return options.num_ctx
