# Everything a reader or an author runs. `make help` lists the targets.
# Each target does its own set-up in .venv; PYTHON=python3.12 chooses the interpreter, PORT=8001 the served port.

SHELL := /bin/sh
VENV  := .venv
BIN   := $(VENV)/bin
SITE  := _build/html
STAMP := $(VENV)/installed
PORT  ?= 8000

# The first interpreter that is new enough, as python3 alone may be an older one.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
            $$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done)

.DEFAULT_GOAL := help
.PHONY: help book test check bench links serve clean browser lab

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

book: $(STAMP) ## Build the book strictly into _build/html
	@$(BIN)/python -c 'import importlib.metadata as m, sys; v = m.version("jupyter-book"); \
	  sys.exit(None if v.startswith("1.") else f"jupyter-book {v} cannot build this book, it needs 1.x: run make clean")'
	$(BIN)/jupyter-book build . -n -W

test: book browser lab ## Build the book, then run every test, in a browser too
	$(BIN)/python -m pytest

check: $(STAMP) ## Lint, formatting and the fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -m "not site and not build"

bench: $(STAMP) ## Measure speed, as ratios within one run
	$(BIN)/python -m benchmarks

# Sphinx writes what it found among the pages, where it does not belong.
links: $(STAMP) ## Follow every link that leads out of the book
	@$(BIN)/jupyter-book build . --builder linkcheck; found=$$?; \
	  mkdir -p _build/links; mv $(SITE)/output.txt $(SITE)/output.json _build/links/; exit $$found

serve: $(STAMP) ## Serve the built site on this machine
	@test -f $(SITE)/index.html || { echo "There is no site yet: run make book first." >&2; exit 1; }
	@echo "The book is at http://127.0.0.1:$(PORT)/ (Ctrl-C stops it)"
	@$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory $(SITE)

clean: ## Remove the build and the environment
	rm -rf _build $(VENV)

browser: $(STAMP)
	@$(BIN)/python -m tests.browser

lab: $(STAMP)
	@$(BIN)/python -m tests.lab

# The stamp is touched last, so that an install that stopped half-way is taken up again.
$(STAMP): requirements.lock pyproject.toml
	@rm -f $@
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found. Install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { echo "$(PYTHON) is too old or does not run: Python 3.11 or newer is needed." >&2; exit 1; }
	@{ $(BIN)/python -c '$(NEW_ENOUGH)' && $(BIN)/python -m pip --version; } >/dev/null 2>&1 \
	  || $(PYTHON) -m venv --clear $(VENV) \
	  || { echo "Could not create $(VENV). On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing the versions of requirements.lock into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
