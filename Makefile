# make quickstart   set up, and run FedMBO on the embedded digits
# make test         set up, lint, type-check and test
# make bench        rounds per second, next to loops written by hand and to other frameworks
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

# Speed as ratios in one run; other frameworks get environments of their own in .bench. Takes about ten minutes.
bench: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv .bench
