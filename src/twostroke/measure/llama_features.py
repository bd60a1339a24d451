"""Prints which CPU features a libllama was built with, as it says itself. A program: the library stays out of ours."""

import ctypes
import sys


def features(path: str) -> str:
    """Raises OSError or AttributeError where it is no libllama."""
    library = ctypes.CDLL(path)
    if hasattr(library, "ggml_backend_load_all"):  # a build whose kernels are libraries of their own
        library.ggml_backend_load_all()
    tell = library.llama_print_system_info
    tell.restype = ctypes.c_char_p
    words: bytes = tell()
    return words.decode().strip()


if __name__ == "__main__":
    print(features(sys.argv[1]))
