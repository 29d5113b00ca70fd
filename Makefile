# Everything a newcomer needs: `make demo`, `make test`, `make check`. Only Python 3.11 and make are asked for.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow check format clean
demo: .venv/installed
	$(BIN)/latentgp demo

test: .venv/installed-dev
	$(BIN)/python -m pytest

test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m slow

check: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright

format: .venv/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ .venv/installed

clean:
	rm -rf .venv .pytest_cache .ruff_cache dist build
