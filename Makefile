PYTHON ?= python3
SURFACE ?= development
OUT ?= runs/$(SURFACE)-$(shell date +%Y%m%dT%H%M%S)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Small models and two busy processes: one thread each is faster than all of them fighting.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

.PHONY: experiment test check format lock bench torture clean

experiment: .venv/.base
	$(BIN)/schemarouter run --surface $(SURFACE) --out $(OUT)
	$(BIN)/schemarouter gate $(OUT) || test $$? -eq 1

test: .venv/.dev
	$(BIN)/python -m pytest -n 2

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/mypy

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: .venv/.base
	$(BIN)/schemarouter lock write

bench: .venv/.bench
	$(BIN)/python -m benchmarks $(BENCH)

torture: .venv/.base
	$(BIN)/python -m benchmarks.torture $(TORTURE)

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.11 ..." >&2; exit 2; }
	$(PYTHON) -m venv .venv

.venv/.base: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) --editable .
	touch $@

.venv/.dev: .venv/.base
	$(PIP) torch  # By itself first: its pinned build is settled before the rest asks for any.
	$(PIP) --editable '.[dense,dev]'
	touch $@

.venv/.bench: .venv/.base
	$(PIP) --editable '.[bench]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
