"""Why a prompt and its answer do not fit a context: the arithmetic, and only fixes after which they do.

LLM asks it before anything is queued. Knows no model.
"""


def why_no_room(
    num_prompt: int, max_tokens: int, *, context: int, most_context: int | None = None, num_framing: int = 0
) -> str | None:
    """None where both fit.

    most_context: what the context may be raised to; None where nobody has stated it, so that it is as large as it gets.
    num_framing: prompt tokens that no message said: those of a chat template.
    """
    needed = num_prompt + max_tokens
    if needed <= context:
        return None
    said = counted(num_prompt, "prompt token")
    if num_framing:
        said += f" ({num_framing} of the chat template)"
    if max_tokens:
        said += f" + max_tokens of {max_tokens} = {needed}"
    fixes = _fixes(num_prompt, max_tokens, context=context, most_cut=num_prompt - max(num_framing, 1))
    if most_context is not None and needed <= most_context:
        fixes.append(f"a context of at least {needed} fits")
    return f"{said}, the context is {context}: {', or '.join(fixes) or 'use a model with a larger one'}"


def _fixes(num_prompt: int, max_tokens: int, *, context: int, most_cut: int) -> list[str]:
    """What to ask for instead; at most `most_cut` tokens of the prompt are somebody's to leave out."""
    room, excess = context - num_prompt, num_prompt + max_tokens - context
    if room > 0:
        return [f"max_tokens of at most {room} fits"]
    fixes = [f"shorten the prompt by {counted(excess)} or more"] if excess <= most_cut else []
    least = 1 - room  # leaves room for one token of an answer
    if max_tokens > 1 and least <= most_cut:
        fixes.append(f"with max_tokens of 1 shorten {'it' if fixes else 'the prompt'} by {counted(least)} or more")
    return fixes


def counted(number: int, noun: str = "token") -> str:
    """1 token, 2 tokens."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
