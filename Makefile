# Two commands for everyone: `make demo` and `make test`. The others are for developers; `make help` lists them.
# Both make an environment in .venv and install the package into it, once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet

# What the compiled parts are made from; a change rebuilds them before the next demo or test.
NATIVE_SOURCES := $(wildcard kernel/native/*.c kernel/native/guest/*.c kernel/native/*.h kernel/native/*.py kernel/syscalls/*.py) scopes/operations.py

# Nothing is written into the clone: it may belong to somebody else.
PYTEST := PYTHONDONTWRITEBYTECODE=1 $(PY) -m pytest -p no:cacheprovider
# Tests that start no VM have nothing to gain from a second pass under another user.
PURE_TESTS := tests/architecture tests/benchmarks tests/conformance tests/properties tests/scopes tests/kernel/egress tests/kernel/syscalls \
  $(addprefix tests/kernel/test_,bpf.py filter.py filter_arguments.py local_address.py) tests/fuzz/test_decoders_and_resolver.py

# Enough of the tests of real VMs to meet every kind of caller and message; SANITIZED_TESTS=tests/... chooses others.
SANITIZED_TESTS ?= tests/contracts tests/guest
SECONDS ?= 60

.PHONY: help demo test native fuzz sanitize slow lint clean

help:
	@echo 'make demo    install into .venv and show programs being allowed and refused'
	@echo 'make test    install into .venv and run the tests (as root: once more as uid 65534)'
	@echo 'make native  rebuild the C parts in place; SANITIZE=address,undefined for a checked supervisor'
	@echo 'make fuzz    fuzz the decoders and the path resolver, each for SECONDS (60); TARGETS="resolve glob" for some of them'
	@echo 'make sanitize  tests of VMs with supervisors that check their memory and undefined behaviour, and their threads'
	@echo 'make slow    the long forms of races, soaks, fuzzing, models and real software: half an hour'
	@echo 'make lint    ruff, mypy, pyright, import-linter and the compiler, all warnings being errors'
	@echo 'make clean   remove what the above made'

demo: $(VENV)/.installed
	@$(PY) -m examples.demo

test: $(VENV)/.installed
	$(PYTEST) -n auto $(ARGS)
	@if [ "$$(id -u)" = 0 ]; then \
	  echo '== the same once more as uid 65534, without the tests that start no VM'; \
	  PYTHONDONTWRITEBYTECODE=1 $(PY) tests/as_user.py $(PY) -m pytest -p no:cacheprovider -n auto \
	    $(addprefix --ignore=,$(PURE_TESTS)) $(ARGS); \
	fi

# The first interpreter that can do everything: new enough, able to make an environment, and with the headers that the C
# parts are compiled against. PYTHON=/path/to/python chooses another.
$(VENV)/.tools:
	@for python in $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3 /usr/bin/python3.11; do \
	  path=$$(command -v "$$python") || continue; \
	  "$$path" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "$$path: older than Python 3.11" >&2; continue; }; \
	  "$$path" -c 'import venv, ensurepip' 2>/dev/null || { echo "$$path: no venv module (Debian: apt-get install python3-venv)" >&2; continue; }; \
	  "$$path" -c 'import pathlib, sys, sysconfig; sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())' \
	    || { echo "$$path: no Python.h (Debian: apt-get install python3-dev)" >&2; continue; }; \
	  chosen=$$path; break; \
	done; \
	if [ -z "$${chosen:-}" ]; then echo 'No usable Python: 3.11 or newer with venv and Python.h is needed; see the lines above.' >&2; exit 1; fi; \
	echo "Making $(VENV) with $$chosen"; "$$chosen" -m venv $(VENV)
	@command -v $${CC:-gcc} >/dev/null || { echo 'No C compiler (Debian: apt-get install gcc libc6-dev)' >&2; exit 1; }
	@$(PIP) install 'setuptools>=80' 'cffi>=2.0'
	@touch $@

$(VENV)/.installed: $(VENV)/.tools pyproject.toml setup.py $(NATIVE_SOURCES)
	@echo 'Building and installing callgate into $(VENV)'
	@$(PIP) install --no-build-isolation --editable '.[test,mcp]'
	@touch $@

$(VENV)/.linters: $(VENV)/.tools pyproject.toml
	@$(PIP) install --no-build-isolation --editable '.[test,mcp,dev]'
	@touch $@

native: $(if $(wildcard $(PY)),,$(VENV)/.linters)
	@CALLGATE_SANITIZE='$(SANITIZE)' $(PY) setup.py --quiet build_ext --inplace

fuzz: $(VENV)/.installed
	$(PY) tests/fuzz/targets.py $(SECONDS) $(TARGETS)

sanitize: $(VENV)/.installed
	for kind in address,undefined thread; do \
	  $(PYTEST) -p tests.fuzz.supervisor_option --sanitize=$$kind -n auto -m 'not slow' $(SANITIZED_TESTS) $(ARGS); \
	done

slow: $(VENV)/.installed
	$(PYTEST) -n 2 -m slow $(ARGS)

lint: $(VENV)/.linters
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/pyright --pythonpath $(PY)
	PYTHONPATH=src $(VENV)/bin/lint-imports --no-cache
	CALLGATE_WERROR=1 $(PY) setup.py --quiet build_ext --inplace --force

clean:
	rm -rf build dist src/*.egg-info .mypy_cache .ruff_cache .venv
	rm -f kernel/native/syscall_table.h kernel/native/callgate-supervisor kernel/native/callgate-bindings kernel/native/*.so
