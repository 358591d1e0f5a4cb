# Needs Python >= 3.11, pip and make. Every target makes what it needs in .venv first.
#
#   make demo      generate a little text     make lint    ruff
#   make test      the quick tests            make types   mypy --strict
#   make test-all  every test                 make bench   a first figure for this machine
#   make check     lint, types and test       make fuzz    hostile files, MINUTES of them
#   make test-arm  kernels on emulated ARM    make docs    the documents as a site
#   make test-real tests on published models  make clean   remove everything made here
#   make test-clients  real client programs; CLIENTS="llm_cli ollama_python" takes only these
#   make test-ray  Ray's tests; installs Ray, 750 MB
#   make wheel     a wheel that has machine code for x86-64 and AArch64
#   make sdist     the sources as they are published
#
# PYTHON chooses the interpreter. Tests run in WORKERS processes, PYTEST_ARGS goes to pytest:
# make test PYTEST_ARGS="-k gguf", make test WORKERS=0 PYTEST_ARGS="-x --pdb"

SHELL := /bin/sh
CANDIDATES := python3 python3.14 python3.13 python3.12 python3.11 python
PYTHON ?= $(shell for p in $(CANDIDATES); do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$p" && break; done)
VENV := .venv
RUN := $(VENV)/bin/python
# What is never imported is not compiled to bytecode: that takes half the time of an installation.
INSTALL := $(RUN) -m pip install --quiet --disable-pip-version-check --no-compile
PYTEST_ARGS ?=
# One more than the cores of a small machine, because tests also wait.
WORKERS ?= 3
# Compiling takes memory that a process never gives back, so it is done apart from the tests.
COMPILE = $(RUN) scripts/kernels/compile_kernels.py
PYTEST = $(RUN) -m pytest -n $(WORKERS) --dist worksteal
MINUTES ?= 10
SPACE := $() $()
FUZZ_ARGS ?=
ARM_ARGS ?=
CLIENTS ?=
BENCH_MODEL := build/bench.gguf

# Tests start many processes; without __pycache__ each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-arm test-real test-clients test-ray lint format types check bench fuzz docs wheel sdist clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

# The installation is editable, so that a change of the sources needs no second one; the wheel is
# tested by .ci/run. A change of pyproject.toml installs again.
demo: $(VENV)/installed
	$(RUN) -m trinity generate --prompt "Prince Andrew" -n 128

test: $(VENV)/installed-test
	$(COMPILE) --kinds
	$(PYTEST) -m "not full and not real and not clients" $(PYTEST_ARGS)

test-all: $(VENV)/installed-test
	$(COMPILE)
	$(PYTEST) -m "not real and not clients" $(PYTEST_ARGS)

# Needs QEMU's user mode and mmdebstrap; says so and ends well without them.
test-arm: $(VENV)/installed-test
	$(RUN) scripts/kernels/check_arm.py --workers $(WORKERS) $(ARM_ARGS)

# Downloads models (1.5 GB) once; tests of those that are not available skip. One process: each model
# uses all processors, and the models together need several GB of memory.
test-real: $(VENV)/installed-test
	$(RUN) scripts/models/real_models.py --allow-missing
	$(RUN) -m pytest tests/real $(PYTEST_ARGS)

# Client programs and two models are downloaded once; what cannot be had skips.
test-clients: $(VENV)/installed-test
	$(RUN) scripts/models/real_models.py --allow-missing smollm2 minilm gemma3-270m whisper-base
	$(RUN) tests/clients/environments.py --allow-missing $(CLIENTS)
	$(RUN) -m pytest tests/clients -k "$(subst $(SPACE), or ,$(strip $(CLIENTS)))" $(PYTEST_ARGS)

# One process, because the tests share a cluster.
test-ray: $(VENV)/installed-ray
	$(RUN) -m pytest tests/ray tests/test_imports.py $(PYTEST_ARGS)

lint: $(VENV)/installed-dev
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

format: $(VENV)/installed-dev
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

types: $(VENV)/installed-dev
	$(RUN) -m mypy

check: lint types test

bench: $(VENV)/installed $(BENCH_MODEL)
	$(RUN) -m trinity bench --model $(BENCH_MODEL)

fuzz: $(VENV)/installed
	$(RUN) tests/fuzzing/fuzz.py --minutes $(MINUTES) $(FUZZ_ARGS)

# build/site/index.html is its first page; a link that leads nowhere is an error.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

$(BENCH_MODEL): scripts/models/make_synthetic.py | $(VENV)/installed
	mkdir -p $(@D)
	$(RUN) scripts/models/make_synthetic.py llama-100m $@

$(VENV)/installed: pyproject.toml | $(RUN)
	$(INSTALL) --editable .
	touch $@

$(VENV)/installed-test: pyproject.toml | $(RUN)
	$(INSTALL) --editable '.[test]'
	touch $@ $(VENV)/installed

$(VENV)/installed-dev: pyproject.toml | $(RUN)
	$(INSTALL) --editable '.[dev]'
	touch $@ $(VENV)/installed-test $(VENV)/installed

$(VENV)/installed-docs: pyproject.toml | $(RUN)
	$(INSTALL) --editable '.[docs]'
	touch $@ $(VENV)/installed

$(VENV)/installed-ray: pyproject.toml | $(RUN)
	$(INSTALL) --no-compile --editable '.[test,ray]'
	touch $@ $(VENV)/installed-test $(VENV)/installed

# Some systems ship Python without ensurepip; the pip outside then fills the environment.
$(RUN):
	@test -n "$(PYTHON)" || { echo "make: needs Python 3.11 or newer on PATH, or PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(VENV)/bin/python install --quiet pip; }

# The wheel has machine code for x86-64 and AArch64, so a first run compiles nothing. What build/code
# has is kept, so an interrupted run can be continued.
wheel: $(VENV)/installed-dev
	$(RUN) scripts/kernels/package_code.py build/code --workers $(WORKERS)
	rm -rf build/wheel && mkdir -p build/wheel
	cp -R pyproject.toml setup.py README.md LICENSE trinity kernels build/wheel/
	find build/wheel -name __pycache__ -prune -exec rm -rf {} +
	cp -R build/code build/wheel/kernels/trinity_kernels/code
	chmod -R u=rwX,go=rX build/wheel
	umask 022 && $(RUN) -m build --wheel --outdir dist build/wheel

sdist: $(VENV)/installed-dev
	rm -rf build/sdist && mkdir -p build/sdist
	cp -R pyproject.toml setup.py README.md LICENSE trinity kernels build/sdist/
	find build/sdist -name __pycache__ -prune -exec rm -rf {} +
	$(RUN) -m build --sdist --outdir dist build/sdist

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find trinity kernels tests scripts examples -name __pycache__ -prune -exec rm -rf {} +
