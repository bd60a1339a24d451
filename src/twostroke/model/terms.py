"""License terms a person reads and accepts before a model is fetched, made readable from the page that states them.

Called by the fetcher; shown by the doors. Accepts nothing by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser

_BODY_CLASS = "devsite-article-body"
_BLOCKS = {"p", "h1", "h2", "h3", "h4", "li", "div", "aside", "br", "ul", "ol", "tr"}


@dataclass(frozen=True, slots=True)
class Terms:
    """What is asked: `text` is the whole agreement in plain lines."""

    model: str
    title: str
    address: str
    text: str


AcceptTerms = bool | Callable[[Terms], bool]  # true: accepted already; a function: ask with it


def page_text(html: str) -> str:
    """Plain text of the article in the page; of the whole page where it has no article."""
    for is_body_only in (True, False):
        reader = _PageReader(is_body_only=is_body_only)
        reader.feed(html)
        lines = [" ".join(line.split()) for line in "".join(reader.pieces).splitlines()]
        text = "\n".join(line for line in lines if line)
        if text:
            break
    return text


class _PageReader(HTMLParser):
    """Collects text inside the article's body, with a line break at every block."""

    def __init__(self, *, is_body_only: bool) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._depth = 0 if is_body_only else 1  # of <div>s inside the body; 0 is outside
        self._silent = 0  # inside <style> or <script>

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "div":
            is_body = _BODY_CLASS in (dict(attrs).get("class") or "").split()
            self._depth += 1 if self._depth or is_body else 0
        if tag in ("style", "script"):
            self._silent += 1
        self._break_at(tag)

    def handle_endtag(self, tag: str) -> None:
        self._break_at(tag)
        if tag == "div" and self._depth:
            self._depth -= 1
        if tag in ("style", "script") and self._silent:
            self._silent -= 1

    def handle_data(self, data: str) -> None:
        if self._depth and not self._silent:
            self.pieces.append(data.replace("\n", " "))

    def _break_at(self, tag: str) -> None:
        if self._depth and tag in _BLOCKS:
            self.pieces.append("\n")
