# make demo   makes .venv with the core, trains on embedded data, prints a table, writes out/demo/
# make test   makes .venv with all extras, runs the whole test suite
# make check  formatting, lint, types, import layers, doctests

PYTHON ?= python3
BIN := .venv/bin
# The CPU build of PyTorch: asked for by a range, pip may bring several GB of CUDA.
TORCH := torch==2.13.0

.PHONY: demo test check format clean

demo: .venv/core
	@$(BIN)/tacit demo --out out/demo

test: .venv/all
	@$(BIN)/python -m pytest -n auto

check: .venv/all
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m pytest --doctest-modules src

format: .venv/all
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "tacit needs Python 3.11 or newer: install it, or run make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "Python's venv is missing: apt-get install python3-venv"; exit 1; }
	@$(PYTHON) -m venv .venv

NO_NETWORK := { echo "pip could not install tacit (see .venv/pip.log): check the network or your pip index"; exit 1; }

.venv/core: pyproject.toml | .venv/bin/python
	@echo "installing tacit into .venv"
	@$(BIN)/pip install --quiet --log .venv/pip.log --editable . >/dev/null 2>&1 || $(NO_NETWORK)
	@touch $@

.venv/all: pyproject.toml | .venv/bin/python
	@echo "installing tacit with all extras into .venv"
	@$(BIN)/pip install --quiet --log .venv/pip.log $(TORCH) >/dev/null 2>&1 || $(NO_NETWORK)
	@$(BIN)/pip install --quiet --log .venv/pip.log --editable '.[neural,federated,cluster,tables,docs,dev]' >/dev/null 2>&1 || $(NO_NETWORK)
	@touch $@ .venv/core

clean:
	rm -rf .venv out build .mypy_cache .ruff_cache .pytest_cache .hypothesis
