"""twostroke: an LLM inference engine for CPUs, built around the two phases of generation."""

from twostroke.core.event import Event, FinishEvent, TokenEvent
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
    RequestError,
    TwostrokeError,
    UnsupportedModelError,
)
from twostroke.handle import Handle
from twostroke.llm import LLM
from twostroke.params import SamplingParams

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "CapacityError",
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
    "RequestError",
    "Result",
    "SamplingParams",
    "TokenEvent",
    "TwostrokeError",
    "UnsupportedModelError",
]
