"""twostroke: an LLM inference engine for CPUs, built around the two phases of generation.

Public names are imported when first used: `twostroke --version` and Ctrl-C need not wait for the engine.
"""

import importlib
import typing

if typing.TYPE_CHECKING:
    from twostroke.chat.answer import ChatAnswer, ToolCall
    from twostroke.chat.chat import Chat
    from twostroke.core.event import Beam, Event, FinishEvent, TokenEvent
    from twostroke.core.report import PhaseReport, PhaseUse, Result
    from twostroke.core.sequence import FinishReason
    from twostroke.errors import (
        CapacityError,
        ChatTemplateError,
        ConfigError,
        DownloadError,
        KernelError,
        ModelFileError,
        ModelNotFoundError,
        ParamsError,
        PromptError,
        QueueFullError,
        RemoteError,
        RequestError,
        TermsError,
        TwostrokeError,
        UnsupportedModelError,
    )
    from twostroke.handle import Handle
    from twostroke.llm import LLM
    from twostroke.params import BeamSearch, SamplingParams
    from twostroke.structure import Structure, StructureKind
else:

    def __getattr__(name: str) -> object:
        """PEP 562: the name from its home, kept for the next time."""
        for home, names in _HOMES.items():
            if name in names:
                value = globals()[name] = getattr(importlib.import_module(home), name)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__version__ = "0.1.0"

__all__ = [
    "LLM",
    "Beam",
    "BeamSearch",
    "CapacityError",
    "Chat",
    "ChatAnswer",
    "ChatTemplateError",
    "ConfigError",
    "DownloadError",
    "Event",
    "FinishEvent",
    "FinishReason",
    "Handle",
    "KernelError",
    "ModelFileError",
    "ModelNotFoundError",
    "ParamsError",
    "PhaseReport",
    "PhaseUse",
    "PromptError",
    "QueueFullError",
    "RemoteError",
    "RequestError",
    "Result",
    "SamplingParams",
    "Structure",
    "StructureKind",
    "TermsError",
    "TokenEvent",
    "ToolCall",
    "TwostrokeError",
    "UnsupportedModelError",
]

_HOMES = {
    "twostroke.chat.answer": ("ChatAnswer", "ToolCall"),
    "twostroke.chat.chat": ("Chat",),
    "twostroke.core.event": ("Beam", "Event", "FinishEvent", "TokenEvent"),
    "twostroke.core.report": ("PhaseReport", "PhaseUse", "Result"),
    "twostroke.core.sequence": ("FinishReason",),
    "twostroke.errors": tuple(name for name in __all__ if name.endswith("Error")),
    "twostroke.handle": ("Handle",),
    "twostroke.llm": ("LLM",),
    "twostroke.params": ("BeamSearch", "SamplingParams"),
    "twostroke.structure": ("Structure", "StructureKind"),
}
