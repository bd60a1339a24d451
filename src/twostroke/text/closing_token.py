"""The token a file wants behind every text that is embedded: models that take the last token's state are trained so.

Called by the loader for models that embed; prompts to be continued never get one.
"""

from collections.abc import Iterator, Mapping
from typing import Any


def closing_token(data: Mapping[str, Any]) -> int | None:
    """What the post-processor of a tokenizer.json puts behind a text."""
    ids = {token.get("content"): token.get("id") for token in data.get("added_tokens") or ()}
    for step in _steps(data.get("post_processor")):
        single = step.get("single") if step.get("type") == "TemplateProcessing" else None
        if single and "SpecialToken" in single[-1]:
            found = ids.get(single[-1]["SpecialToken"]["id"])
            return found if isinstance(found, int) else None
    return None


def _steps(stage: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    if stage and stage.get("type") == "Sequence":
        for member in stage.get("processors", ()):
            yield from _steps(member)
    elif stage:
        yield stage
