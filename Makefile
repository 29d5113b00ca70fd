# Everything a newcomer needs: `make demo`, `make test`, `make check`. Only Python 3.11 and make are asked for.
PYTHON ?= python3
BIN := .venv/bin
DIST := dist

.PHONY: demo quick test test-all test-optimised test-wheels check format docs experiments wheel dist clean
demo: .venv/installed
	$(BIN)/latentgp demo

quick: .venv/installed-dev
	$(BIN)/python -m pytest -m "quick and not slow"

test: .venv/installed-dev
	$(BIN)/python -m pytest

test-all: .venv/installed-dev
	$(BIN)/python tests/support/all_cases.py

test-optimised: .venv/installed-dev
	OPTIMISED=1 $(BIN)/python -m pytest -m "slow or not slow" tests/surfaces/test_demo.py \
	  tests/statistical/test_gold_standard.py::test_every_method_by_name_is_near_long_chains \
	  tests/extensions/deep/test_deep_chains.py::test_one_layer_with_gaussian_noise_is_bayesian_linear_regression

check: .venv/installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/python tests/support/house.py

format: .venv/installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/installed-docs
	$(BIN)/python docs/site/make.py site

experiments: .venv/installed-dev
	$(BIN)/python experiments/all.py --data-dir $(DATA)

wheel: | $(BIN)/python
	rm -f $(DIST)/latentgp-*.whl
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(DIST) .

dist: .venv/installed-dist
	rm -f $(DIST)/latentgp-*
	$(BIN)/python -m build --outdir $(DIST) .
	$(BIN)/twine check --strict $(DIST)/latentgp-*
	tar -tzf $(DIST)/latentgp-*.tar.gz | grep -q '^latentgp-[^/]*/LICENSE$$'

test-wheels: dist
	$(BIN)/python tests/packaging/wheels.py $(DIST)/latentgp-*.whl

$(BIN)/python:
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

.venv/installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ .venv/installed

.venv/installed-docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@ .venv/installed

.venv/installed-dist: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --upgrade 'build>=1.6' 'twine>=7' 'uv>=0.13'
	touch $@

clean:
	rm -rf .venv .pytest_cache .ruff_cache dist build site
