# make demo    partition a transformer's training step over 8 simulated devices and check every number
# make test    the default tests (minutes); make test-slow the others; make test-again those that other releases can change
# make lint    formatting, linting, types
# make docs    writes the pages that the code knows best: errors.md, ops.md
# make site    builds the documentation with an API reference: build/site/index.html
# make constraints    keeps the versions that are installed as those that were tested
#
# Each creates .venv and installs the project into it, once, with the versions that were tested; NEWEST=1 takes the newest.
# With another PYTHON=/path/to/python3.13 it is .venv-3.13.

PYTHON ?= python3
MINOR := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(MINOR))
BIN := $(VENV)/bin
READY := $(VENV)/.installed
WORKERS ?= 2
TESTED := $(if $(NEWEST),,$(wildcard constraints/$(MINOR).txt))

# Other releases of what we depend on change what jax writes, what XLA computes and how Python and Numba behave. They
# change neither the arithmetic of estimates nor searches over programs that are imported already.
AGAIN := $(filter-out tests/architecture/ tests/cost/ tests/search/,$(wildcard tests/*/)) tests/test_jax_internals.py \
  tests/search/test_ilp.py tests/search/test_workers.py tests/search/test_executors.py tests/cost/test_xla_compile.py autopart

.PHONY: demo test test-again test-slow lint docs site constraints clean

demo: $(READY)
	$(BIN)/python -m experiments.demo

test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

test-again: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(AGAIN)

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

constraints: $(READY)
	$(BIN)/python docs/tested_versions.py

clean:
	rm -rf .venv .venv-*

$(READY): pyproject.toml $(TESTED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "autopart needs Python 3.11 or later: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(NEWEST),--upgrade --upgrade-strategy eager) \
	  $(addprefix -c ,$(TESTED)) -e '.[dev]'
	touch $@
