"""Which errors are a user's to mend; test_app.py has those a command raises."""

import pytest

from twostroke.cli.exit_code import ExitCode, code_of
from twostroke.errors import CapacityError, RemoteError, RequestError, TwostrokeError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CapacityError("x"), ExitCode.USER_MISTAKE),
        (RequestError("x"), ExitCode.FAILED),
        *(
            (RemoteError("x", kind=f"http {status}"), ExitCode.USER_MISTAKE)
            for status in (400, 401, 403, 404, 413, 422)
        ),
        *((RemoteError("x", kind=f"http {status}"), ExitCode.FAILED) for status in (408, 429, 500, 502, 503)),
        (RemoteError("x", kind="stream cut"), ExitCode.FAILED),
    ],
)
def test_what_another_try_does_not_mend_is_a_mistake_also_where_a_server_says_so(
    error: TwostrokeError, code: ExitCode
) -> None:
    assert code_of(error) is code
