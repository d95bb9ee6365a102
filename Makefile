# Two commands do everything: `make reproduce` and `make test`. Each sets up its own virtual environment.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PLANTS_VENV ?= .venv-plants
PLANTS_RUN ?= # such as --seeds 1 --episodes 4, for a quick look
PLANTS_STUDY := $(PLANTS_VENV)/bin/python -m tether_plants
PLANTS_INSTALL := $(PLANTS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help reproduce test lint format package bench docs plants clean

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /\1\t/' | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'

# What each target needs, and no more: an empty environment, the command line, what builds the site, all of it.
$(VENV)/.empty:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "tether needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.cli: $(VENV)/.empty pyproject.toml constraints.txt
	$(PIP_INSTALL) -e '.[cli,limit]'
	@touch $@

$(VENV)/.docs: $(VENV)/.empty pyproject.toml constraints.txt
	$(PIP_INSTALL) -e '.[docs]'
	@touch $@

$(VENV)/.dev: $(VENV)/.empty pyproject.toml constraints.txt
	$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.cli $(VENV)/.docs

# Both systems at once, one on each core; without animations, so that their reports do not overwrite each other. XLA's
# older emitter compiles in two thirds of the time, and its programs are a tenth slower: a quick run mostly compiles.
reproduce: $(VENV)/.cli ## Set up, run the paper's evaluation on embedded data, and build a report
	@rm -rf out/reproduce
	@export TTY_INTERACTIVE=0 XLA_FLAGS=--xla_cpu_use_fusion_emitters=false; \
	  $(BIN)/tether reproduce inference --out out/reproduce/inference & \
	  $(BIN)/tether reproduce carbon --out out/reproduce/carbon; carbon=$$?; \
	  wait $$! && exit $$carbon
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

package: $(VENV)/.empty ## Build wheel and sdist, and install them in clean environments: core and [all]
	$(BIN)/python tools/check_package.py

bench: $(VENV)/.dev ## Measure the guard and the rollout against their yardsticks
	$(BIN)/tether bench guard --out out/bench/guard

docs: $(VENV)/.docs ## Build the documentation as a site, out/docs/index.html
	$(BIN)/python tools/import_graph.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Documentation: out/docs/index.html"

# Other people's environments pin versions that contradict ours, so they live in an environment of their own.
$(PLANTS_VENV)/.plants: pyproject.toml constraints.txt plants/pyproject.toml plants/constraints.txt plants/unpinned.txt
	$(PYTHON) -m venv $(PLANTS_VENV)
	$(PLANTS_INSTALL) -c plants/constraints.txt -e '.[cli,sb3,serve]' -e plants pytest
	$(PLANTS_INSTALL) --no-deps -r plants/unpinned.txt
	@touch $@

# Two plants at a time, one on each core. What an earlier run has left is kept, and goes on where it was interrupted;
# `rm -r out/plants` to play everything again.
plants: $(PLANTS_VENV)/.plants ## Guard environments that other people published: tests, studies, out/plants/gallery.html
	cd plants && ../$(PLANTS_VENV)/bin/python -m pytest -q
	@$(PLANTS_STUDY) run microgrid anm $(PLANTS_RUN) --out out/plants & \
	  $(PLANTS_STUDY) run building evcharging $(PLANTS_RUN) --out out/plants; first=$$?; \
	  wait $$! && exit $$first
	$(PLANTS_STUDY) page out/plants

clean: ## Remove the virtual environment and everything that was made
	rm -rf $(VENV) $(PLANTS_VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis
