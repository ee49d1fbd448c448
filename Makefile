# make demo    partition a transformer's training step over 8 simulated devices and check every number
# make test    the default tests (minutes); make test-slow the others
# make lint    formatting, linting, types
# make docs    writes the pages that the code knows best: errors.md, ops.md
# make site    builds the documentation with an API reference: build/site/index.html
#
# Each creates .venv and installs the project into it, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed
WORKERS ?= 2

.PHONY: demo test test-slow lint docs site tested-versions clean

demo: $(READY)
	$(BIN)/python -m experiments.demo

test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

test-slow: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: $(READY)
	$(BIN)/python docs/reference.py docs

site: $(READY)
	$(BIN)/python docs/site/pages.py build

tested-versions: $(READY)
	$(BIN)/python docs/tested_versions.py > docs/tested-versions.md

clean:
	rm -rf $(VENV)

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "autopart needs Python 3.11 or later: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@
