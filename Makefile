# Everything runs from a fresh clone with python3 (3.11 or newer) and make; Java comes with the dependencies.
#   make demo    make test    make test-all    make test-faults    make lint    make bench    make services
# Another interpreter: make PYTHON=python3.12 setup.  Arguments for pytest: make test ARGS="-k java -x" JOBS=0.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Newer than pyproject.toml when the environment holds what pyproject.toml asks for.
STAMP := $(VENV)/.installed
ARGS ?=
# So many processes run tests, each file in one of them.
JOBS ?= 2
# So long is load kept up by make soak.
MINUTES ?= 10

.PHONY: help setup demo services test test-all test-faults lint format bench soak clean

help:
	@echo 'make demo    run the demonstration'
	@echo 'make test    run the tests but for the slow ones'
	@echo 'make test-all  run all tests but for the whole fault matrix'
	@echo 'make test-faults  run the whole fault matrix of consistent regions, and write down what came of it'
	@echo 'make services  install what some tests need (PostgreSQL, Redis, Kafka, a browser) where that is possible'
	@echo 'make lint    check style and types'
	@echo 'make format  rewrite the code in the project style'
	@echo 'make bench   run the benchmarks'
	@echo 'make soak    minutes of load with random crashes (MINUTES=10)'
	@echo 'make setup   create or update .venv (the other targets do this first)'
	@echo 'make clean   remove caches and build output; .venv stays'

setup: $(STAMP)

demo: $(STAMP)
	$(BIN)/riprap demo $(ARGS)

# Always succeeds: tests whose server is missing are skipped.
services: $(STAMP)
	$(BIN)/python -m tests.services.install

# Files are handed out as they are listed: those that take longest are not among the last.
PYTEST := $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=20

test: $(STAMP)
	$(PYTEST) -m 'not slow and not faults' $(ARGS)

test-all: $(STAMP)
	$(PYTEST) -m 'not faults' $(ARGS)

# Its cases stand alone, each with processes of its own.
test-faults: $(STAMP)
	$(BIN)/pytest tests/regions -n $(JOBS) --faults-table tests/regions/matrix.md $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/riprap bench $(ARGS)

# Another length, other crashes, no loss of hosts: make soak MINUTES=1 ARGS="--seed 7 --no-hosts"
soak: $(STAMP)
	PYTHONPATH=benchmarks $(BIN)/python -m riprap_bench.soak --minutes $(MINUTES) $(ARGS)

clean:
	rm -rf demo runs bargains build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db artifacts derby.log
	find . -path ./$(VENV) -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# An environment that cannot run its own pip (half made, or moved) is made anew.
$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo 'riprap needs Python 3.11 or newer, and there is no $(PYTHON) here. Install one (Debian or Ubuntu:' >&2; \
	  echo '"apt install python3 python3-venv"; macOS: "brew install python"), then run make again.' >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "riprap needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo 'Install a newer one and name it, for example: make PYTHON=python3.12 setup' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo 'This Python cannot create virtual environments: its modules venv and ensurepip are missing.' >&2; \
	  echo 'Install them (Debian or Ubuntu: "apt install python3-venv"), then run make again.' >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
