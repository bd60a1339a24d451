"""A failed pip in one sentence: what cannot be reached, why, and what to do; no warnings, addresses or passwords."""

import pytest

from twostroke.model.pip_words import failure

WANTED = "tiny-model==1.2.3"
ENDS = [
    f"ERROR: Could not find a version that satisfies the requirement {WANTED} (from versions: none)",
    f"ERROR: No matching distribution found for {WANTED}",
]
RETRYING = "WARNING: Retrying (Retry(total=0, connect=None, read=None)) after connection broken by "
LOCATIONS = ["Looking in links: /wheels", "WARNING: Location 'file:///x/tiny-model/' is ignored: it is neither."]


def told(*lines: str) -> str:
    return failure(WANTED, lines, exit_code=1)


@pytest.mark.parametrize(
    ("error", "host", "cause"),
    [
        (
            (
                "'NewConnectionError(\"HTTPSConnection(host='index.example', port=443): Failed to establish a new "
                "connection: [Errno 111] Connection refused\")': /simple/tiny-model/"
            ),
            "the package index at index.example",
            "Connection refused",
        ),
        (
            (
                "'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f3a>: Failed to "
                "establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/tiny-model/"
            ),
            "pip's package index",
            "Temporary failure in name resolution",
        ),
        (
            (
                "'ReadTimeoutError(\"HTTPConnectionPool(host='index.example', port=80): Read timed out. "
                "(read timeout=15.0)\")': /simple/tiny-model/"
            ),
            "the package index at index.example",
            "timed out",
        ),
        (
            "'ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 403 Forbidden'))': /simple/",
            "pip's package index",
            "Tunnel connection failed: 403 Forbidden",
        ),
        (
            (
                "'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
                "self-signed certificate (_ssl.c:1006)'))': /simple/tiny-model/"
            ),
            "pip's package index",
            "certificate verify failed: self-signed certificate",
        ),
        ("'RemoteDisconnected'", "pip's package index", None),
    ],
)
def test_what_cannot_be_reached_is_named_with_why_and_the_fix(error: str, host: str, cause: str | None) -> None:
    why = f" ({cause})" if cause else ""
    assert told(*LOCATIONS, RETRYING + error, RETRYING + error, *ENDS) == (
        f"{WANTED} cannot be fetched, {host} cannot be reached{why}: connect to it, "
        "or give a GGUF file in place of the name (-m FILE.gguf)"
    )


def test_the_host_is_taken_from_the_list_of_indexes_without_its_password() -> None:
    said = told("Looking in indexes: https://me:secret@index.example:8443/simple, file:///x", RETRYING + "'x'", *ENDS)
    assert "the package index at index.example cannot be reached" in said
    assert "secret" not in said


def test_a_broken_download_names_the_host_of_the_file() -> None:
    said = told(
        "Collecting tiny-model==1.2.3",
        "ERROR: Could not install packages due to an OSError: HTTPSConnectionPool(host='files.example', port=443): "
        "Max retries exceeded with url: /x.whl (Caused by NewConnectionError('[Errno 101] Network is unreachable'))",
    )
    assert "the package index at files.example cannot be reached (Network is unreachable)" in said


def test_nowhere_to_look_names_the_setting_that_forbids_it() -> None:
    said = told(*LOCATIONS, *ENDS)
    assert said.startswith(f"pip finds no {WANTED} where it looks: let it ask a package index")
    assert "PIP_NO_INDEX" in said
    assert said.endswith("(-m FILE.gguf)")


def test_other_failures_are_quoted_without_noise() -> None:
    said = told(*LOCATIONS, "", "WARNING: The repository at index.example is not a trusted or secure host", *ENDS)
    assert said.splitlines() == [
        f"pip could not fetch {WANTED} (exit code 1):",
        "WARNING: The repository at index.example is not a trusted or secure host",
        *ENDS,
    ]
