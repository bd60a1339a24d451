# The scripts CI runs are the scripts a person runs. VENV names another environment: make check VENV=~/env
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
SOURCES := $(shell git ls-files src native) CMakeLists.txt pyproject.toml
NATIVE_CODE := $(shell git ls-files 'native/*.h' 'native/*.cpp' 'tests/native/*.h' 'tests/native/*.cpp')

.PHONY: check test unit test-all test-neon bench docs native wheel clean

check: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(NATIVE_CODE)

test: $(VENV)/test.stamp
	$(BIN)/python -m pytest

# The rooms one by one, without whole engines, programs, kernels and oracles, laws tried with few examples: for the time
# between two edits, below a minute on two cores. `make test` has all of it. Tests as compiled stay for the next run, also
# where the environment says otherwise.
unit: export PYTHONDONTWRITEBYTECODE =
unit: $(VENV)/test.stamp
	$(BIN)/python -m pytest -n auto --hypothesis-profile=few -m 'not slow and not oracle' \
	  --ignore=tests/parity --ignore=tests/e2e --ignore=tests/clients --ignore=tests/native

test-all: $(VENV)/oracle.stamp test-neon
	$(BIN)/python -m pytest -m ''

# The kernels of 64-bit Arm, compiled here and run under emulation on three kinds of processor.
test-neon: $(VENV)/dev.stamp
	@if command -v aarch64-linux-gnu-g++ > /dev/null && command -v qemu-aarch64-static > /dev/null; then \
	  $(BIN)/cmake -S . -B build/neon -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
	    -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64_linux.cmake -DTWOSTROKE_KERNEL_TESTS=ON && \
	  $(BIN)/cmake --build build/neon && $(BIN)/ctest --test-dir build/neon --output-on-failure; \
	else \
	  echo "test-neon skipped: it needs aarch64-linux-gnu-g++ and qemu-aarch64-static" \
	    "(Debian, Ubuntu: apt-get install g++-aarch64-linux-gnu qemu-user-static)"; \
	fi

bench: $(VENV)/bench.stamp
	$(BIN)/twostroke bench --vs llama.cpp

# pdoc sees only names that have been imported; ours wait until they are used.
define PRINT_DOCS
from pathlib import Path
import pdoc
from twostroke import *
pdoc.render.configure(docformat="markdown")
pdoc.pdoc("twostroke", output_directory=Path("build/docs"))
endef
export PRINT_DOCS

docs: $(VENV)/docs.stamp
	$(BIN)/python -c "$$PRINT_DOCS"

# The extension beside the Python sources, for work with PYTHONPATH=src; rebuilds only what changed.
native: $(VENV)/dev.stamp
	$(BIN)/cmake -S . -B build/dev -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja -DPython_EXECUTABLE=$(abspath $(BIN))/python
	$(BIN)/cmake --build build/dev
	ln -sf $(CURDIR)/build/dev/_native*.so src/twostroke/

# One Linux wheel with every x86 path; its tag names the oldest C library it runs with.
wheel: $(VENV)/dev.stamp
	rm -rf build/wheel dist
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir build/wheel .
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist build/wheel/*.whl
	$(BIN)/python cmake/check_wheel.py dist

clean:
	rm -rf build src/twostroke/_native*.so

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/dev.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/pip install --quiet '.[dev,test]'
	touch $@

$(VENV)/test.stamp: $(SOURCES) | $(BIN)/python
	$(BIN)/pip install --quiet '.[test]'
	touch $@

$(VENV)/oracle.stamp: $(SOURCES) | $(BIN)/python
	$(BIN)/pip install --quiet '.[test,oracle]'
	touch $@

$(VENV)/bench.stamp: $(SOURCES) | $(BIN)/python
	$(BIN)/pip install --quiet '.[bench]'
	touch $@

$(VENV)/docs.stamp: $(SOURCES) | $(BIN)/python
	$(BIN)/pip install --quiet '.[docs]'
	touch $@
