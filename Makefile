# Each target makes its own environment in .venv from Python 3.10 or newer; later runs find it and start at once.

PYTHON ?= python3
BIN := .venv/bin
TORCH := $(shell grep '^torch==' constraints.txt)
comma := ,

.PHONY: help demo test lint bench docs clean
.NOTPARALLEL:  # two pips in one environment get in each other's way

help:  ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/^([a-z]+):.*## */\1\t/' | awk -F '\t' '{printf "make %-8s %s\n", $$1, $$2}'

demo: .venv/.installed-experiments  ## compare estimators on latent clusters and latent trees, in a few minutes; ends with a report
	$(BIN)/pullback demo

test: .venv/.installed-dev+experiments  ## run all tests
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: .venv/.installed-dev+experiments  ## style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.installed-bench  ## measure against the peers; CASES="trees simplex.entmax" selects, DATA=folder for trees.parser, BASE=old/src for start_up
	$(BIN)/python -m benchmarks $(CASES) $(if $(DATA),--data $(DATA)) $(if $(BASE),--base $(BASE))

docs: .venv/.installed-docs  ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:  ## remove what the other targets leave behind, except .venv
	rm -rf build dist site runs/demo benchmarks/results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

# .installed-a+b: the extras a and b.  Torch goes first, by its pin: left to the resolver it may come as a newer
# version with gigabytes of CUDA packages.
.venv/.installed-%: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install $(TORCH)
	$(BIN)/python -m pip install -c constraints.txt -e '.[$(subst +,$(comma),$*)]'
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "pullback needs Python 3.10 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
