PYTHON ?= python3
SURFACE ?= development
OUT ?= runs/$(SURFACE)-$(shell date +%Y%m%dT%H%M%S)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Small models and two busy processes: one thread each is faster than all of them fighting.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

.PHONY: help experiment test quick check format docs lock bench soak torture clean

help:  ## say what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

experiment: .venv/.base  ## run the experiment on the development surface, offline, and print the verdict
	$(BIN)/schemarouter run --surface $(SURFACE) --out $(OUT)
	$(BIN)/schemarouter gate $(OUT) || test $$? -eq 1

test: .venv/.dev  ## every test, about ten minutes on two cores
	$(BIN)/python -m pytest -n 2

quick: check  ## check, then the tests that are not slow, on few examples a law: under a minute
	SCHEMAROUTER_TEST_EXAMPLES=10 $(BIN)/python -m pytest -q -n 2 -m "not slow"

check: .venv/.dev  ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/mypy

format: .venv/.dev  ## mend what the linter and the formatter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.docs  ## build the site of docs/ in docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going docs docs/_build/html

lock: .venv/.base  ## write the lock of the surface
	$(BIN)/schemarouter lock write

bench: .venv/.bench  ## measure everything side by side; BENCH=--quick for half a minute
	$(BIN)/python -m benchmarks $(BENCH)

soak: .venv/.dev  ## every test five times, on fresh clones, with five seeds and no examples from before
	for seed in 1 2 3 4 5; do \
		rm -rf .soak && git clone -q . .soak && \
		(cd .soak && "$(CURDIR)"/$(BIN)/python -m pytest -q -n 2 --hypothesis-seed=$$seed) || exit 1; \
	done; rm -rf .soak

torture: .venv/.base  ## kill two hundred runs at random moments and compare
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

.venv/.docs: .venv/.base
	$(PIP) --editable '.[docs]'
	touch $@

clean:  ## take the environment and caches away
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis docs/_build
