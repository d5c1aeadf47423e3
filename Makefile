# make demo   install, then carry a corpus to a champion on this machine
# make test   install, then formatter, linter, type checker and the fast tests
# make help   the rest

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COVERAGE := --cov --cov-append --cov-report=

.PHONY: help install demo dev test test-slow coverage lint bench recipes clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED) ## prepare .venv

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "found Python %d.%d, expected 3.11 or newer; set PYTHON=" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: install ## make everything, from corpus to champion
	@$(BIN)/python -m deploy.embedded demo

dev: install ## open the UI on http://127.0.0.1:3000 (SLIPWAY_PORT)
	@$(BIN)/python -m deploy.embedded dev

recipes: install ## validate the recipes
	@$(BIN)/python -m recipes

lint: install ## formatter, linter, type checker
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .

test: lint ## all of lint, and the fast tests
	rm -f .coverage .coverage.*
	$(BIN)/python -m pytest -m "not slow" --numprocesses auto --maxprocesses 4 --dist loadfile $(COVERAGE)

test-slow: install ## the tests that run for minutes: real daemons, kills, drills
	$(BIN)/python -m pytest -m slow --numprocesses 2 --dist loadfile $(COVERAGE)

coverage: install ## lines covered by the tests run so far, subprocesses included
	$(BIN)/coverage report --skip-covered --fail-under=85

bench: install ## every benchmark, a JSON line a metric
	@for script in benchmarks/*.py; do $(BIN)/python -m benchmarks.$$(basename $$script .py) || exit 1; done

clean: ## remove what make made, but not .slipway
	rm -rf $(VENV) .coverage* .mypy_cache .pytest_cache .ruff_cache *.egg-info
