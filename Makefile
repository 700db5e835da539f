# make quickstart   set up, and sweep FedMBO's step sizes on the embedded digits
# make report       the studies at their smallest scale, and a report of them
# make ui           look at all sweeps in MLflow
# make test         set up, lint, type-check, and test every part once: about ten minutes on two cores
# make test-all     all tests, and how much of the code they run: at most 30 minutes on two cores
# make cluster-test a cluster of several hosts within this machine: up, a sweep, a lost host, down (needs root)
# make chaos        faults of every kind at random moments: MINUTES=10 SEED=1 (power cuts need root)
# make bench        rounds per second, next to loops written by hand and to other frameworks
# make fuzz         thousands of configs with mistakes: COUNT=20000 SEED=1; each must be refused in one line, or run
# They need Python 3.11 or newer and nothing else; everything is installed into .venv.

PYTHON ?= python3
BIN := .venv/bin

PORT ?= 5000
MINUTES ?= 10
COUNT ?= 20000
SEED ?= 1

.PHONY: quickstart report ui lint test test-all cluster-test chaos fuzz bench clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

quickstart: .venv/ready
	$(BIN)/python -m fedmbo_ray.tune
	@echo "See it in MLflow with: make ui"

# A few minutes each way: continued if it was interrupted.
report: .venv/ready
	$(BIN)/python -m fedmbo_ray.study all --scale smoke --resume
	$(BIN)/python -m fedmbo_ray.report --scale smoke

ui: .venv/ready
	$(BIN)/fedmbo ui --port $(PORT)

lint: .venv/ready
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pre-commit run --all-files

test: lint
	$(BIN)/python -m pytest -m "not slow"

# Coverage counts what runs within pytest itself: commands, actors and trials are processes of their own.
test-all: lint
	$(BIN)/python -m pytest --cov --cov-report=term

# Debian's packages iproute2, openssh-server and rsync; where it can't be done, the reason is said.
cluster-test: .venv/ready
	$(BIN)/python -m pytest -n 0 -rs tests/slow/test_cluster.py tests/unit/test_cluster_files.py tests/slow/test_nodes.py

chaos: .venv/ready
	$(BIN)/python tests/chaos --minutes $(MINUTES) --seed $(SEED)

# Speed as ratios in one run; other frameworks get environments of their own in .bench. Takes about ten minutes.
bench: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m benchmarks

# A thousand a minute and more; a failure is printed with the command that repeats it.
fuzz: .venv/ready
	$(BIN)/python tests/fuzz --count $(COUNT) --seed $(SEED)

clean:
	rm -rf .venv .bench
