"""Settings every test runs under; data comes from builders, not from fixtures."""

import gc
import os
import signal
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import settings

# Before the first import of NumPy. The matrices of tests are tiny: threads would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

FOLDERS = ("TWOSTROKE_HOME", "OLLAMA_MODELS")

# Derandomised: a red run is red for everybody. No deadline: two cores are shared with compilers.
settings.register_profile("twostroke", derandomize=True, deadline=None, database=None)
settings.register_profile("few", settings.get_profile("twostroke"), max_examples=20)  # `make unit`, between two edits
settings.load_profile("twostroke")


def pytest_collection_finish() -> None:
    """Thousands of tests and every module stay to the end: no collection need look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def users_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """As it was. Tests, and programs they start, keep their files in folders of their own: some delete models."""
    before = dict(os.environ)
    with pytest.MonkeyPatch.context() as patch:
        for name in FOLDERS:
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower())))
        yield before


@pytest.fixture
def users_models(users_environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test of what was pulled: the user's folders after all."""
    for name in FOLDERS:
        if name in users_environment:
            monkeypatch.setenv(name, users_environment[name])
        else:
            monkeypatch.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """A job that a script starts in the background begins with SIGINT ignored, and so would the programs it starts."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
