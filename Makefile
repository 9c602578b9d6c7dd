# The local commands are CI's commands. Each says what it does and sets up what it needs.
PY := .venv/bin/python
STAMP := .venv/.installed

.PHONY: help demo test lint bench clean setup
help:
	@echo "make demo    set everything up and watch two training jobs share a link, with and without rm"
	@echo "make test    set everything up and run the tests"
	@echo "make lint    ruff and mypy (strict)"
	@echo "make bench   the speed figures"
	@echo "make clean   remove the virtual environment and caches"

demo: $(STAMP)
	@scripts/prerequisites.sh lab
	@.venv/bin/rmx demo $(ARGS)

test: $(STAMP)
	@scripts/prerequisites.sh test
	$(PY) -m pytest $(ARGS)

lint: $(STAMP)
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

bench: $(STAMP)
	@scripts/prerequisites.sh lab
	$(PY) -m bench $(ARGS)

setup: $(STAMP)

$(STAMP): pyproject.toml requirements.lock
	@scripts/prerequisites.sh venv
	@echo "Making the virtual environment .venv (this takes a minute the first time)"
	@python3 -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(STAMP)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build *.egg-info
