# Two commands do everything: `make reproduce` and `make test`. Each sets up its own virtual environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help reproduce test lint format bench docs clean

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'

$(VENV)/.core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tether needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e '.[limit]'
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@

# Both systems at once, one on each core; without animations, so that their reports do not overwrite each other.
reproduce: $(VENV)/.core ## Set up, run the paper's evaluation on embedded data, and build a report
	@rm -rf out/reproduce
	@export TTY_INTERACTIVE=0; \
	  $(BIN)/tether reproduce inference --out out/reproduce/inference & \
	  $(BIN)/tether reproduce carbon --out out/reproduce/carbon; carbon=$$?; \
	  wait $$! && exit $$carbon
	@export TTY_INTERACTIVE=0; for system in carbon inference; do \
	  $(BIN)/tether train $$system --methods acrl --certificate structured --lams 2 --bs 6 --seeds 2 \
	    --episodes 480 --passes 60 --out out/reproduce/$$system-structured > /dev/null & done; wait
	@export TTY_INTERACTIVE=0; for system in carbon inference; do \
	  $(BIN)/tether limit $$system --lams 2 --bs 6 --episodes 100 --processes 1 \
	    --policies out/reproduce/$$system-structured --out out/reproduce/$$system-limit & done; wait
	@$(BIN)/tether report out/reproduce --no-figures

test: $(VENV)/.dev lint ## Set up, lint, type-check and run every test
	$(BIN)/python -m pytest -n 2 --durations=10

lint: $(VENV)/.dev ## Check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## Format the code in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## Measure the guard and the rollout against their yardsticks
	$(BIN)/tether bench guard --out out/bench/guard

docs: $(VENV)/.dev ## Build the documentation as a site, out/docs/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Documentation: out/docs/index.html"

clean: ## Remove the virtual environment and everything that was made
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis
