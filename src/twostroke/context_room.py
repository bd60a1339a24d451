"""Why a prompt and its answer do not fit a context: the arithmetic, and only fixes after which they do.

LLM asks it before anything is queued. Knows no model.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatShares:
    """Tokens of a conversation's prompt that are none of its messages'.

    num_framing: what the chat template writes by itself, with the model's own system text where it `has_system`.
    num_tools: what it writes because there are tools.
    """

    num_framing: int
    num_tools: int = 0
    has_system: bool = False

    def __str__(self) -> str:
        framing = "the chat template and the model's system text" if self.has_system else "the chat template"
        return f"{self.num_framing} of {framing}" + (f", {self.num_tools} of the tools" if self.num_tools else "")


def why_no_room(
    num_prompt: int,
    max_tokens: int,
    *,
    context: int,
    most_context: int | None = None,
    shares: ChatShares | None = None,
) -> str | None:
    """None where both fit.

    most_context: what the context may be raised to; None where nobody has stated it, so that it is as large as it gets.
    shares: of a conversation, so that nobody is told to shorten what is not his.
    """
    needed = num_prompt + max_tokens
    if needed <= context:
        return None
    said = counted(num_prompt, "prompt token")
    if shares is not None:
        said += f" ({shares})"
    if max_tokens:
        said += f" + max_tokens of {max_tokens} = {needed}"
    most_cut = num_prompt - max(1, 0 if shares is None else shares.num_framing)
    what = shortened(shares is not None and shares.num_tools > 0)
    fixes = _fixes(num_prompt, max_tokens, context=context, most_cut=most_cut, what=what)
    if most_context is not None and needed <= most_context:
        fixes.append(f"a context of at least {needed} fits")
    return f"{said}, the context is {context}: {', or '.join(fixes) or 'use a model with a larger one'}"


def _fixes(num_prompt: int, max_tokens: int, *, context: int, most_cut: int, what: str) -> list[str]:
    """What to ask for instead; `what` can be made shorter by at most `most_cut` tokens."""
    room, excess = context - num_prompt, num_prompt + max_tokens - context
    if room > 0:
        return [f"max_tokens of at most {room} fits"]
    fixes = [f"shorten {what} by {counted(excess)} or more"] if excess <= most_cut else []
    least = 1 - room  # leaves room for one token of an answer
    pronoun = "it" if what == "the prompt" else "them"
    if max_tokens > 1 and least <= most_cut:
        fixes.append(f"with max_tokens of 1 shorten {pronoun if fixes else what} by {counted(least)} or more")
    return fixes


def shortened(has_tools: bool) -> str:
    """What is somebody's to make shorter."""
    return "the messages or the tools" if has_tools else "the prompt"


def counted(number: int, noun: str = "token") -> str:
    """1 token, 2 tokens."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
