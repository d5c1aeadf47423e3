# make demo   install, then carry a corpus to a champion on this machine
# make test   install, then make lint and the fast tests
# make check  in less than a minute, while you work: make lint and the pure tests
# make help   the rest

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Tests wait for processes much of the time, so that one more than there are processors does not slow the others.
WORKERS ?= $(shell expr $$(nproc) + 1)
PYTEST := $(BIN)/python -m pytest
# Hundreds of processes import the same modules; where this is set, each of them compiles all of them again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install lock docs screenshots demo dev check changed test fast test-slow test-nightly coverage lint gate bench recipes clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED) ## prepare .venv, with the versions of requirements/

$(INSTALLED): pyproject.toml $(wildcard requirements/*.*)
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15) and "found Python %d.%d, expected 3.11 to 3.14; set PYTHON=" % sys.version_info[:2])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python requirements/install.py dev
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

$(BIN)/uv:
	$(MAKE) install

lock: $(BIN)/uv ## write requirements/ from pyproject.toml; with UPGRADE=1, newest versions
	$(BIN)/python requirements/lock.py $(if $(UPGRADE),--upgrade)

docs: install ## build the documentation into build/site; a dead link fails
	$(BIN)/zensical build --strict --clean

GATE := build/gate
$(GATE)/.installed: requirements/gate.txt
	$(PYTHON) -m venv $(GATE)
	$(GATE)/bin/python -m pip install --quiet --only-binary=:all: --requirement requirements/gate.txt
	touch $@

gate: install $(GATE)/.installed ## the deployment gate: objects, policies, rights, images and workflows, checked offline
	$(BIN)/python -m benchmarks.gate --tools $(GATE)/bin

screenshots: install ## take the pictures of the UI in docs/images anew; needs chromium
	$(PYTEST) tests/browser --pictures docs/images

demo: install ## make everything, from corpus to champion
	@$(BIN)/slipway demo

dev: install ## open the UI on http://127.0.0.1:3000 (SLIPWAY_PORT)
	@$(BIN)/slipway dev

recipes: install ## validate the recipes
	@$(BIN)/slipway recipes check

lint: install ## formatter, linter, who imports whom, type checker
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/mypy

check: lint ## lint, and the tests that start no process and import neither Dagster nor torch
	$(PYTEST) -p tests.pure --quiet --numprocesses $(WORKERS)

changed: lint ## lint, and the tests of the packages that differ from BASE (the last commit)
	$(PYTEST) -m "not slow and not nightly" --numprocesses $(WORKERS) --dist loadfile $$($(BIN)/python -m tests.changed $(BASE))

# The type checker is one process and the tests wait often, so that both at once take little more than the tests alone.
test: install ## lint, and beside it all tests but the slow ones
	$(MAKE) --no-print-directory --jobs 2 lint fast

fast:
	$(PYTEST) -m "not slow and not nightly" --numprocesses $(WORKERS) --dist loadfile --durations 50

# These wait for real processes. With RETRY=1, for a machine that has other work too, what fails beside the others runs
# once more alone, and what fails twice fails; pytest's exit status 1 says that every test ran and some failed. With
# WITHIN=SECONDS, those that would begin later are skipped.
SLOW := $(PYTEST) -m "slow and not nightly"
test-slow: install ## the tests that take more than 5 s: real daemons, kills, drills
	$(SLOW) --numprocesses $(WORKERS) --dist loadfile --durations 50 $(if $(WITHIN),--within $(WITHIN)) || { \
	test $$? = 1 && test -n "$(RETRY)" && $(SLOW) --last-failed --numprocesses 0; }

test-nightly: install ## what is too long for each change: kills at every point, bounds of memory, whole drills
	$(PYTEST) -m nightly --numprocesses $(WORKERS) --dist loadfile --durations 50

# The measure takes half as much time again. What all tests cover is more than what these do.
coverage: install ## the fast tests, and the lines that they cover, subprocesses included: at least 85 %
	rm -f .coverage .coverage.*
	$(PYTEST) -m "not slow and not nightly" --numprocesses $(WORKERS) --dist loadfile --cov --cov-report=
	$(BIN)/coverage report --skip-covered --fail-under=85

# `corpora` needs a folder of unpacked packages, and is run by itself.
BENCHMARKS = $(filter-out corpora,$(basename $(notdir $(wildcard benchmarks/*.py))))
bench: install ## every benchmark, a JSON line a metric; one that fails is named at the end
	@failed=; for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name || failed="$$failed $$name"; done; \
	test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

clean: ## remove what make made, but not .slipway
	rm -rf $(VENV) .coverage* .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .cache build *.egg-info
