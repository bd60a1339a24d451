"""Words for what a file that is no model really is. Called by the readers with its first bytes; opens nothing."""

_HEADS = (
    (b"version https://git-lfs", "it is a Git LFS pointer, the weights were not downloaded: run `git lfs pull` there"),
    (b"<!doctype", "it is an HTML page, probably a failed download: fetch the file again"),
    (b"<html", "it is an HTML page, probably a failed download: fetch the file again"),
    (b"PK\x03\x04", "it is a ZIP archive (PyTorch or a Python wheel): use GGUF or safetensors"),
    (b"\x80\x02", "it is a Python pickle, which is not loaded because it can run code: use GGUF or safetensors"),
    (b"GGUF", "it is a GGUF file: give it the ending .gguf"),
    (b"{", "it is JSON"),
)


def explain_wrong_file(head: bytes) -> str | None:
    """What a file with these first bytes is, when it is something people mistake for a model; else None."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for start, meaning in _HEADS:
        if text[: len(start)].lower() == start.lower():
            return meaning
    return None
