# Everything happens in .venv, which is made on first use and re-used while
# pyproject.toml and constraints.txt stay as they are.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# Bytecode is kept even where the environment forbids it: without, each worker of the tests
# would compile every module anew, in each run.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test fast fuzz check mutants format docs shots clean gpu imports-min test-min test-max nightly
.DEFAULT_GOAL := help

help: ## Show this help.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# Dependency groups need pip 25.1 or newer.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q "pip>=25.1"

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install -q -c constraints.txt torch
	$(PIP) install -q -c constraints.txt -e ".[all]"
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install -q "pip>=25.1"
	$(PIP) install -q -c constraints.txt -e ".[all]" --group dev
	@touch $@

demo: $(VENV)/.installed ## Watch a real local model choose, remember and save, next to simple baselines.
	$(BIN)/ecs-plugins model install
	$(BIN)/python -m examples.demo

check: $(VENV)/.installed-dev ## Lint, format, types, layers, dead code, unsafe code, known vulnerabilities.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/vulture
	$(BIN)/mypy
	$(BIN)/bandit -q -c pyproject.toml -r ecs_plugins
	@$(BIN)/pip-audit --local --timeout 5 --progress-spinner off >.audit 2>&1; \
	if grep '^Found' .audit; then cat .audit; exit 1; fi  # without a network there is nothing to say

test: check ## Run every check and every test, with the bundled model.
	$(BIN)/ecs-plugins model install
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

fast: $(VENV)/.installed-dev ## The quick tests of the package, without a model.
	ECS_PLUGINS_FUZZ=10 $(BIN)/python -m pytest tests -m "not model and not slow and not gpu" -n auto --maxprocesses 4 --dist loadfile

fuzz: $(VENV)/.installed-dev ## 120,000 odd inputs to settings, files, engines and commands.
	ECS_PLUGINS_FUZZ=6000 $(BIN)/python -m pytest tests/fuzz -n auto --maxprocesses 4

FRAMEWORKS := langchain langchain-core langchain-classic langgraph langgraph-checkpoint llama-index-core
FLOORS = $$($(1)/bin/python -c 'import re, tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(*{re.sub(r">=([^,]+).*", r"==\1", each) for group in ("langchain", "llama-index") for each in extras[group]})')

EVERY = import importlib, pkgutil, ecs_plugins as p; [importlib.import_module(m.name) for m in pkgutil.walk_packages(p.__path__, "ecs_plugins.") if not m.name.endswith("__main__")]

$(VENV)-min/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)-min
	$(VENV)-min/bin/python -m pip install -q "pip>=25.1"
	$(VENV)-min/bin/python -m pip install -q -c constraints.txt torch
	$(VENV)-min/bin/python -m pip install -q -e ".[all]" --group dev $(call FLOORS,$(VENV)-min)
	@touch $@

imports-min: $(VENV)-min/.installed ## Import every module with the lowest versions of the frameworks.
	$(VENV)-min/bin/python -W ignore -c '$(EVERY)'

test-min: $(VENV)-min/.installed ## The integration tests with the lowest versions of the frameworks that are declared.
	$(VENV)-min/bin/python -m pytest tests/integration -m "not model and not slow"

test-max: ## The integration tests with the newest versions of the frameworks that are declared.
	$(PYTHON) -m venv $(VENV)-max
	$(VENV)-max/bin/python -m pip install -q "pip>=25.1"
	$(VENV)-max/bin/python -m pip install -q -c constraints.txt torch
	$(VENV)-max/bin/python -m pip install -q -U -e ".[all]" --group dev $(FRAMEWORKS)
	$(VENV)-max/bin/python -m pytest tests/integration -m "not model and not slow"

nightly: export ECS_PLUGINS_KILLS := 3
nightly: test fuzz test-min test-max ## Everything that can be tested without a GPU.

gpu: $(VENV)/.installed-dev ## Check and measure a CUDA card, in at most 8 minutes; figures go to out/gpu.json.
	$(BIN)/python -m pytest tests/unit/lm/test_gpu.py -m gpu
	$(BIN)/python -m benchmarks gpu --out out

mutants: $(VENV)/.installed-dev ## Small faults in the store and the ledger; prints those that no test notices.
	$(PIP) install -q -c constraints.txt --group mutants
	$(BIN)/mutmut run
	$(BIN)/mutmut results

docs: $(VENV)/.installed ## The site of the docs, in build/site; a warning is an error.
	$(PIP) install -q -c constraints.txt --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

shots: docs ## Pages of the site as pictures at two widths, light and dark, in out/site; needs Chromium.
	$(BIN)/python docs/shots.py build/site out/site

format: $(VENV)/.installed-dev ## Format and fix what can be fixed.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python docs/wrapping.py

clean: ## Remove the virtual environment and all caches.
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
