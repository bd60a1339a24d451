"""Errors as clients know them: a status, and {"error": {message, type, param, code}} or Ollama's {"error": message}."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from twostroke.errors import CapacityError, ChatTemplateError, ParamsError, QueueFullError, RequestError

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
OLLAMA_PATHS = "/api/"


class ApiError(Exception):
    """Ends a request with this status and body. `param` is the field at fault, as the client wrote it."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.headers = headers
        self.status = status
        self.param = param
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        kind = SERVER_ERROR if self.status >= 500 else INVALID_REQUEST
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    @property
    def ollama_body(self) -> dict[str, Any]:
        return {"error": str(self)}

    def body_for(self, path: str) -> dict[str, Any]:
        """In the form of the API that the path of the request belongs to."""
        return self.ollama_body if path.startswith(OLLAMA_PATHS) else self.body


def error_response(error: ApiError, *, path: str) -> Response:
    """What the client of a request to `path` gets instead of its answer."""
    return JSONResponse(error.body_for(path), status_code=error.status, headers=error.headers)


def as_api_error(
    error: Exception, *, prompt_field: str, message: str, structure_field: str = "response_format"
) -> ApiError | None:
    """The answer to an error of the model's door; None for one that is our own fault.

    `prompt_field` and `structure_field` are what the client called the prompt and the answer's form;
    `message` is the error's, fit for strangers.
    """
    if isinstance(error, ParamsError):
        fields = {"prompt": prompt_field, "structure": structure_field}
        field = fields.get(error.field, error.field)
        is_named = message.startswith(("structure", "prompt["))  # not only spoken of
        return ApiError(message.replace(error.field, field, 1) if is_named else message, param=field)
    if isinstance(error, ChatTemplateError):
        return ApiError(message, param=prompt_field, code="chat_template")
    if isinstance(error, QueueFullError):
        return ApiError(message, status=429, code="queue_full", headers={"Retry-After": "1"})
    if isinstance(error, CapacityError) and error.field is not None:
        return ApiError(message, param={"width": "beam_width"}.get(error.field, error.field))
    if isinstance(error, CapacityError):
        return ApiError(message, param=prompt_field, code="context_length_exceeded")
    if isinstance(error, RequestError):
        return ApiError(message, status=500)
    return None
