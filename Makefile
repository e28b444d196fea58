# Everything a fresh machine needs: Python 3.11+, pip and a C++ compiler. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# One thread an operation: the tests run side by side, and numbers do not depend on the machine.
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_VERBOSITY ?= error
# Tests start many processes: each would compile the whole package anew.
unexport PYTHONDONTWRITEBYTECODE

# `make check test` checks types beside the tests: mypy uses one processor.
ifeq ($(sort $(MAKECMDGOALS)),check test)
MAKEFLAGS += --jobs=2
endif

.PHONY: help setup demo test test-zoo check format bench clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## make .venv with everything that the other targets need

$(STAMP): pyproject.toml benchmarks/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --requirement constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[zoo,plots,dev]' --editable ./benchmarks
	touch $(STAMP)

demo: $(STAMP)  ## plan and run a GPT-2 and a ResNet-50 training step at 60 % of their peak
	$(BIN)/python -m neaptide compare zoo:gpt2@small --peak 60%
	$(BIN)/python -m neaptide compare zoo:resnet50@small --peak 60%

test: $(STAMP)  ## the tests that every change must pass
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow and not gpu'

test-zoo: $(STAMP)  ## every zoo model, tiny and small, fp32 and bf16; all examples of the searches
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "slow and not gpu"
	HYPOTHESIS_PROFILE=full $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not gpu" tests/analysis tests/cost tests/ir tests/layout tests/linear tests/lower tests/copy_engines tests/ops tests/planner tests/report tests/runtime tests/schedule tests/symbolic tests/transform
	HYPOTHESIS_PROFILE=full $(BIN)/python -m pytest -n 2 --dist worksteal -m "not gpu" tests/corpus tests/peers

check: $(STAMP)  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)  ## put the source into its form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## the bars, measured (minutes)
	$(BIN)/python benchmarks/bars.py

clean:  ## remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
