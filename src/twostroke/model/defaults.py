"""What a model's publisher wishes where the user says nothing. Found by the catalog, applied by LLM alone.

Only an Ollama model has such wishes. Of a folder's generation_config.json the end tokens count and
nothing else: its sampling values are one library's defaults more often than anybody's choice, and
answers here are greedy unless somebody asked.
"""

from dataclasses import dataclass, field

from twostroke.params import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDefaults:
    """`params` stand in for params that were not given, `context` for a context, `system` for a system message.

    `why_no_template` is told instead of the usual words where the file has no chat template.
    """

    params: SamplingParams = field(default_factory=SamplingParams)
    context: int | None = None
    system: str | None = None
    why_no_template: str | None = None
