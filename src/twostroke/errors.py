"""The tree of errors a user can meet.

    TwostrokeError
    |- ConfigError            a setting, flag or environment variable
    |- ParamsError            a field of a request
    |  `- PromptError         the prompt itself: empty, not text, ids outside the vocabulary
    |- CapacityError          context or KV memory are too small; carries the arithmetic
    |  `- QueueFullError      too many requests wait; asked again later it may fit
    |- ModelNotFoundError     no such name, path, file in a repository
    |- DownloadError          fetching failed or the bytes are not the pinned ones
    |  `- TermsError          the model's terms were not accepted
    |- ModelFileError         the file is damaged or not what it says; names file, key or tensor
    |- UnsupportedModelError  the file is fine but its architecture or tensor type is not supported
    |- ChatTemplateError      the template failed to compile or raised
    |- RequestError           one request failed while it ran
    |- RemoteError            a server that was called: unreachable, refusing, broken off
    `- KernelError            a native kernel returned a status

Every message tells the value, the limit, the arithmetic where there is one, and the cheapest fix.
"""


class TwostrokeError(Exception):
    """Root of every error raised on purpose."""


class ConfigError(TwostrokeError):
    """A setting, flag or environment variable is unknown or out of range.

    `field` is the argument of Python that the message begins with, where the command line has a flag of that name.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ParamsError(TwostrokeError):
    """A field of a request is unknown or out of range.

    `field` is the name the user wrote.
    """

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class PromptError(ParamsError):
    """The prompt is empty, is not text or has token ids outside the vocabulary."""

    def __init__(self, message: str, *, field: str = "prompt") -> None:
        super().__init__(message, field=field)


class CapacityError(TwostrokeError):
    """The request or model does not fit; the message carries the arithmetic.

    `field` is the one to make smaller where that is neither the prompt nor max_tokens.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class QueueFullError(CapacityError):
    """Too many requests wait already: the same request may be taken later."""


class ModelNotFoundError(TwostrokeError):
    """No model has this name or path."""


class DownloadError(TwostrokeError):
    """A download failed or its bytes are not the pinned ones."""


class TermsError(DownloadError):
    """The model has terms that must be accepted first, and they were not."""


class ModelFileError(TwostrokeError):
    """A model file is damaged or inconsistent; names the file and the key or tensor."""

    def __init__(self, file: object, problem: str) -> None:
        super().__init__(f"{file}: {problem}")
        self.file = str(file)
        self.problem = problem


class UnsupportedModelError(TwostrokeError):
    """The file is well-formed, but its architecture or a tensor type is not supported."""


class ChatTemplateError(TwostrokeError):
    """A chat template does not compile, raised, or broke a limit."""


class RequestError(TwostrokeError):
    """One request failed while it ran; its neighbours did not."""


class RemoteError(TwostrokeError):
    """A server that was called could not be reached, refused or broke off.

    `kind` is the same for alike failures, so that they can be counted.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class KernelError(TwostrokeError):
    """A native kernel returned a status other than ok."""
