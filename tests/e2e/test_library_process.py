"""The library in a program of its own: what it leaves behind at its end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import twostroke
from tests.builders_llm import write_puppet


@pytest.fixture(scope="module")
def puppet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_puppet(tmp_path_factory.mktemp("library") / "puppet.gguf")


@pytest.mark.parametrize("keep", ["", "llm.me = llm", "stream = llm.stream(LOOP, params); next(stream)"])
def test_a_program_that_ends_in_the_middle_of_answers_ends_in_peace(puppet: Path, keep: str) -> None:
    code = f"""
import sys, time
from pathlib import Path
from tests.builders_llm import LOOP, open_llm
from twostroke.params import BeamSearch, SamplingParams
llm, params = open_llm(Path(sys.argv[1]), threads=2), SamplingParams(max_tokens=1000)
handles = [llm.submit(LOOP, params) for _ in range(4)]
{keep}
"""
    paths = [str(Path(__file__).parents[2]), str(Path(twostroke.__file__).parent.parent)]
    done = subprocess.run(
        [sys.executable, "-c", code, str(puppet)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
