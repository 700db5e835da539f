# make quickstart   set up, and run FedMBO on the embedded digits
# make test         set up, lint, type-check and test
# make bench        rounds per second in one process and on client actors, as a ratio
# They need Python 3.11 or newer and nothing else; everything is installed into .venv.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: quickstart test lint bench clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

quickstart: .venv/ready
	$(BIN)/python -m fedmbo_ray.run

lint: .venv/ready
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pre-commit run --all-files

test: lint
	$(BIN)/python -m pytest

# Ratios of speed at the paper's setting, measured in one run.
bench: .venv/ready
	$(BIN)/python -m benchmarks.backends

clean:
	rm -rf .venv
