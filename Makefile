# make demo   install into .venv and optimise one task: no GPU, no key
# make test      everything that CI runs: some 15 minutes on two processors
# make test-all  whole matrices too, and the tests that take minutes or download something: hours
# make quick     the tests that take seconds
# make house     the structure of the code in six figures, each with its limit
# make site      the documentation as a site in out/site; a link that leads nowhere fails
# PIP_FLAGS reaches pip; on a machine without a GPU this saves 2 GB of CUDA libraries:
#   make demo PIP_FLAGS='--extra-index-url https://download.pytorch.org/whl/cpu'

PYTHON ?= python3
PIP_FLAGS ?=
VENV := .venv
BIN := $(VENV)/bin
CORPORA := .venv-corpora
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS)
OUT ?= out/demo
BUDGET ?= 12

# what is checked, installed and fetched before the tests waits for different things: three at once
MAKEFLAGS += --jobs=3

.PHONY: demo test test-all check quick house site clean
.DELETE_ON_ERROR:

# The stamps make a second `make` start at once; a changed pyproject.toml installs again.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.stamp-cpu: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[cpu]'
	@touch $@

$(VENV)/.stamp-test: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[cpu,test]'
	@touch $@ $(VENV)/.stamp-cpu

# A folder of packages over .venv: where torchvision is installed beside a build of torch for the CPU, transformers does
# not import it, so tests of training would fail in one environment with it.
$(CORPORA)/.stamp: pyproject.toml scripts/over.py $(VENV)/.stamp-test
	$(PYTHON) -m venv $(CORPORA)
	$(CORPORA)/bin/python scripts/over.py $(VENV) corpora > $(CORPORA)/requirements.txt
	$(CORPORA)/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -r $(CORPORA)/requirements.txt
	@touch $@

# AMD's own headers and hipRTC libraries of five releases: 400 MB to fetch, 1.2 GB; what cannot be fetched is named
.header-sets/.stamp: scripts/header-sets.sh | $(VENV)/.stamp-test
	PYTHON=$(BIN)/python scripts/header-sets.sh .header-sets
	@touch $@

demo: $(VENV)/.stamp-cpu
	@scripts/system-deps.sh bubblewrap
	$(BIN)/hipwright optimize examples/rmsnorm_swiglu.py --budget $(BUDGET) --out $(OUT)
	@echo "open $(OUT)/report.html"

test: check $(CORPORA)/.stamp .header-sets/.stamp
	@scripts/system-deps.sh bubblewrap g++ chromium postgresql
	$(BIN)/pytest -n 3 --dist worksteal --turns --durations=25

test-all: check $(CORPORA)/.stamp .header-sets/.stamp
	@scripts/system-deps.sh bubblewrap g++ chromium postgresql
	$(BIN)/pytest -n 2 --dist worksteal --all

check: $(VENV)/.stamp-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports

house:
	$(PYTHON) scripts/house.py

site: $(VENV)/.stamp-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

quick: $(VENV)/.stamp-test
	@scripts/system-deps.sh bubblewrap g++
	$(BIN)/pytest -n 2 --dist worksteal -m 'not slow'

clean:
	rm -rf $(VENV) $(CORPORA) .header-sets out .hipwright .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
