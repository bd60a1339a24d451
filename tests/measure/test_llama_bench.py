"""A llama-bench program as a peer: how it is asked, which reports count, and what is refused."""

from pathlib import Path

import pytest

from tests.measure.peer_builders import write_bench
from twostroke.errors import ConfigError, TwostrokeError
from twostroke.measure.cell import Cell, Kind
from twostroke.measure.llama_bench import LlamaBench, features_of

MODEL = Path("/models/tiny.gguf")
PREFILL = Cell(Kind.PREFILL, prompt=512)
DECODE = Cell(Kind.DECODE, generate=128)
LATE_PREFILL = Cell(Kind.PREFILL, prompt=512, depth=4096)
LATE_DECODE = Cell(Kind.DECODE, generate=128, depth=4096)
REQUEST = Cell(Kind.REQUESTS, prompt=128, generate=64)


def open_bench(path: Path, manner: str = "well", **options: object) -> LlamaBench:
    return LlamaBench(write_bench(path / "llama-bench", manner, **options), MODEL, threads=2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cell", "seconds"),
    [(PREFILL, 0.512), (DECODE, 1.28), (LATE_PREFILL, 0.512), (LATE_DECODE, 1.28), (REQUEST, 0.768)],
)
def test_one_repetition_is_one_measurement(tmp_path: Path, cell: Cell, seconds: float) -> None:
    with open_bench(tmp_path) as peer:
        assert peer.version.endswith("llama-bench, build 7 (abc)")
        assert peer.refusal(cell) is None
        assert peer.measure(cell) == pytest.approx(seconds)


def test_an_older_one_times_decode_behind_a_prompt_and_no_prompt_behind_another(tmp_path: Path) -> None:
    with open_bench(tmp_path, has_depth=False) as peer:
        assert peer.refusal(LATE_DECODE) is None
        assert peer.measure(LATE_DECODE) == pytest.approx(4.096 + 1.28)  # this fake counts both
        assert peer.refusal(LATE_PREFILL) == "llama-bench has no option for the depth of prefill"


def test_several_sequences_at_once_are_refused(tmp_path: Path) -> None:
    with open_bench(tmp_path) as peer:
        assert peer.refusal(Cell(Kind.DECODE, generate=4, batch=2)) == "llama-bench runs one sequence at a time"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_filename": "other.gguf"}, "reports model_filename 'other.gguf', asked for was '/models/tiny.gguf'"),
        ({"n_threads": 8}, "reports n_threads 8, asked for was 2"),
        ({"n_prompt": 77}, "reports n_prompt 77, asked for was 1"),
        ({"n_depth": 5}, "reports n_depth 5"),
        ({"backends": "CUDA"}, "runs on CUDA: comparisons are of CPUs"),
        ({"vulkan": True}, "runs on vulkan"),
        ({"rpc": "1"}, "runs on rpc"),
    ],
)
def test_a_report_of_something_else_is_no_measurement(tmp_path: Path, changes: dict[str, object], words: str) -> None:
    with pytest.raises(TwostrokeError, match=words):
        open_bench(tmp_path, changes=changes)


@pytest.mark.parametrize("samples", [[], [1, 2], None, "fast"])
def test_a_report_without_its_one_sample_is_no_measurement(tmp_path: Path, samples: object) -> None:
    with (
        open_bench(tmp_path, changes={"samples_ns": samples}) as peer,
        pytest.raises(TwostrokeError, match="samples_ns"),
    ):
        peer.measure(PREFILL)


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        ("other", "it is no llama-bench"),
        ("cannot-load", r"llama-bench ended with status 1: cannot load /models/tiny\.gguf"),
        ("no-json", r"answered 'hello!\\n', which is not JSON"),
        ("twice", "one test was asked for"),
    ],
)
def test_a_program_that_is_none_or_fails_is_told(tmp_path: Path, manner: str, words: str) -> None:
    with pytest.raises(TwostrokeError, match=words):
        open_bench(tmp_path, manner)


def test_a_file_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    program = tmp_path / "llama-bench"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    with pytest.raises(ConfigError, match="it cannot be run: "):
        LlamaBench(program, MODEL, threads=1)


def test_a_program_without_a_library_says_no_features(tmp_path: Path) -> None:
    assert features_of(write_bench(tmp_path / "llama-bench")) == ""


@pytest.mark.oracle
def test_a_library_says_its_own_features() -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    (library, *_) = sorted((Path(llama_cpp.__file__).parent / "lib").glob("libllama.so*"))
    assert features_of(library) == "", "it loads no libllama: it is one"
    from twostroke.measure.llama_features import features

    assert features(str(library)) == llama_cpp.llama_print_system_info().decode().strip()
