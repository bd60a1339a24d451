"""What `make wheel` promises of the wheel it made: its size, and that it works where nothing of the sources is.

Run as: python cmake/check_wheel.py FOLDER. Exits with the reason when a promise is broken.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

MAX_BYTES = 10_000_000
# In a process of its own: every kernel of the wheel that this machine can run adds up the same sum.
PROBE = """
import numpy as np
import twostroke
from twostroke import _native
isas = _native.usable_isas()
assert "portable" in isas, isas
for isa in isas:
    out = np.empty(3, np.float32)
    _native.row_add(isa, np.ones(3, np.float32), np.ones(3, np.float32), out)
    assert out.tolist() == [2.0, 2.0, 2.0], (isa, out)
print(twostroke.__version__, "runs on", ", ".join(isas))
"""
# Every x86 path is inside, whatever this machine can run.
X86_FOLDERS = ("avx2", "avxvnni", "avx512")


def main(folder: Path) -> None:
    """Check the one wheel in `folder`."""
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"{folder} has {len(wheels)} wheels: there must be one")
    (wheel,) = wheels
    size = wheel.stat().st_size
    if size > MAX_BYTES:
        sys.exit(f"{wheel.name} has {size} bytes: the limit is {MAX_BYTES}")
    with tempfile.TemporaryDirectory() as home:
        python = Path(home) / "bin" / "python"
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", wheel.resolve()], check=True)
        said = subprocess.run([python, "-c", PROBE], check=True, capture_output=True, text=True, cwd=home).stdout
        (extension,) = (Path(home) / "lib").glob("python*/site-packages/twostroke/_native*.so")
        code = extension.read_bytes()
    missing = [isa for isa in X86_FOLDERS if "x86_64" in wheel.name and isa.encode() not in code]
    if missing:
        sys.exit(f"{wheel.name} lacks the kernels of {', '.join(missing)}")
    print(f"{wheel.name}: {size / 1e6:.2f} MB, {said.strip()}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
