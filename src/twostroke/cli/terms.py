"""License terms are shown to whoever fetches a model, and accepted by a person or by a flag, never by default."""

import sys
from collections.abc import Callable

from twostroke.model.terms import AcceptTerms, Terms
from twostroke.view.terminal import Terminal


def ask_terms(terminal: Terminal, *, before: Callable[[], None]) -> AcceptTerms:
    """A function that shows terms and waits for yes; plain no where nobody can answer. `before` clears the line."""
    if not terminal.is_terminal or sys.stdin is None or not sys.stdin.isatty():
        return False

    def ask(terms: Terms) -> bool:
        before()
        terminal.write(f"{terms.text}\n\n{terms.model} is provided under the {terms.title} ({terms.address}).\n")
        terminal.write("Do you accept them? Type yes: ")
        answer = sys.stdin.readline()
        if not answer.endswith("\n"):  # Ctrl-D leaves the cursor behind the question
            terminal.write("\n")
        return answer.strip().lower() == "yes"

    return ask
