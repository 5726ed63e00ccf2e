# Needs Python 3.10 or newer (with venv), pip and make; everything else is installed into .venv on first use.
#
#   make demo    a small hazy scan, dehazed, with a preview
#   make test    linters, types and tests, on JOBS (2) cores
#   make docs    the API pages, build/api/usdehaze.html
#   make dist    wheel, source and bill of materials (CycloneDX) in dist/
#   make lock    requirements.lock anew, after constraints.txt
#
# Variables: PYTHON (python3), JOBS, PIP_ARGS (for instance --extra-index-url https://download.pytorch.org/whl/cpu, which
# spares a machine without an NVIDIA card the CUDA libraries that torch brings along on Linux).

PYTHON ?= python3
PIP_ARGS ?=
JOBS ?= 2
PUBLIC := usdehaze usdehaze.transforms usdehaze.validation.metrics usdehaze.validation.monai_metrics
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test lint docs dist lock format clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "usdehaze needs Python 3.10 or newer; name one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (torch is large: some minutes the first time)"
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt torch
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) --no-deps --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	@touch $@

demo: $(STAMP)
	$(BIN)/usdehaze simulate demo/scan.h5 --frames 8 --seed 28 --overwrite
	$(BIN)/usdehaze process demo/scan.h5 -o demo --overwrite --preview png
	@echo
	@echo "hazy scan, with its true tissue and haze:  demo/scan.h5"
	@echo "result (tissue, haze, input):              demo/scan.dehazed.h5"
	@echo "preview (input, tissue, haze):             demo/scan.dehazed.png"

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

docs: $(STAMP)
	$(BIN)/python -W error -m pdoc -o build/api --docformat google $(PUBLIC)

dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m validation.supply sbom dist/*.whl

lock: $(STAMP)
	$(BIN)/python -m validation.supply lock

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf demo build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
