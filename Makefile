# Needs make and Python 3.11 or newer; everything else goes into .venv, from PyPI.
# Another interpreter: make PYTHON=python3.12 run

PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
PY := $(BIN)/python
ORACLE := .venv-oracle
ORACLE_BIN := $(subst $(VENV),$(ORACLE),$(BIN))
PIP := $(PY) -m pip --quiet --disable-pip-version-check
QUESTION := search deepseek-v3 h200 8x2 --slo 20 --table

.PHONY: help run test test-slow oracle lint format types contract bench wheel readme check clean

help:
	@echo "make run        install into .venv and answer one real question"
	@echo "make test       tests and doctests, all cores"
	@echo "make test-slow  the tests that take minutes"
	@echo "make oracle     FLOP counts against running models, in torch (gigabytes, an environment of its own)"
	@echo "make lint       ruff check, ruff format --check"
	@echo "make format     let ruff rewrite what it can"
	@echo "make types      mypy --strict"
	@echo "make contract   import directions between the rooms"
	@echo "make bench      benchmarks"
	@echo "make wheel      build the wheel, install it elsewhere, use it there"
	@echo "make readme     run the commands of README.md and write their output back into it"
	@echo "make check      test, lint, types, contract, wheel"
	@echo "make clean      remove what these targets made"

run: $(VENV)/.installed
	$(BIN)/inferometer $(QUESTION)

test: $(VENV)/.dev
	$(PY) -m pytest -n auto

test-slow: $(VENV)/.dev
	$(PY) -m pytest -n auto -m slow

oracle: $(ORACLE)/.installed
	$(ORACLE_BIN)/python scripts/flop_oracle.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

types: $(VENV)/.dev
	$(BIN)/mypy --strict

contract: $(VENV)/.dev
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(PY) benchmarks/run.py

# A wheel that only works beside its checkout is broken: use it from another directory.
wheel: $(VENV)/.python
	rm -rf dist
	$(PIP) wheel --no-deps --wheel-dir dist .
	set -e; \
	elsewhere=$$(mktemp -d); \
	trap 'rm -rf "$$elsewhere"' EXIT; \
	$(PY) -m venv "$$elsewhere/venv"; \
	bin="$$elsewhere/$(subst $(VENV),venv,$(BIN))"; \
	"$$bin/python" -m pip --quiet --disable-pip-version-check install dist/*.whl; \
	cd "$$elsewhere"; \
	"$$bin/inferometer" --help > help.txt; \
	"$$bin/inferometer" $(QUESTION)

readme: $(VENV)/.dev
	$(PY) tests/repo/readme.py

check: test lint types contract wheel

clean:
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	rm -rf $(VENV) $(ORACLE) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.python:
	@$(PYTHON) -c "import sys; sys.exit('Python 3.11 or newer is needed: make PYTHON=...' if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv $(VENV)
	touch $@

# Compiled here, as pip does for a wheel: the first answers are as fast as the later ones.
$(VENV)/.installed: $(VENV)/.python pyproject.toml
	$(PIP) install --editable .
	$(PY) -m compileall -q src
	touch $@

$(ORACLE)/.installed: pyproject.toml
	$(PYTHON) -m venv $(ORACLE)
	$(ORACLE_BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(ORACLE_BIN)/python -m pip install --quiet --group oracle --editable .
	touch $@

# Dependency groups need pip 25.1; a Python may bring an older one.
$(VENV)/.dev: $(VENV)/.installed
	$(PIP) install --upgrade "pip>=25.1"
	$(PIP) install --group dev
	touch $@
