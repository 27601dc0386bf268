# `make demo` and `make test` work on a fresh machine with Python 3.11; everything else hangs on the same set-up.

VENV     ?= .venv
PYTHON   ?= $(shell for p in python3.11 python3; do \
                      $$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && echo $$p && break; done)
DURATION ?= 30
FUZZ_COUNT ?= 20000
FUZZ_SEED ?= 1
FUZZ_SECONDS ?= 60
ROUNDS   ?= 500
SEED     ?=
JOBS     ?= 2
CHURN_SECONDS ?= 60
SOAK_SECONDS ?= 30
EPOCHS   ?= 2000
BIN      := $(VENV)/bin
# The set-up runs again only when what it installs has changed.
STAMP    := $(VENV)/.installed
PIP      := $(BIN)/python -m pip --disable-pip-version-check install -qq --constraint constraints.txt

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench-epoch bench-cpu bench-hosts bench-shared bench-windows bench-bridge bench-state bench-state-operator bench-batch-policy bench-planner \
        bench-functions bench-formats bench-ingress bench-listing bench-serve screenshots fuzz-expressions fuzz-formats fuzz-http soak-kill soak-faults soak-growth soak-ingress soak-churn soak-schedules \
        test-cluster clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make the virtual environment and install

$(STAMP): pyproject.toml constraints.txt
	@if [ -z "$(PYTHON)" ]; then \
	  echo "headrace needs Python 3.11: install it, or name one with PYTHON=/path/to/python3" >&2; exit 2; fi
	@if ! [ -x $(BIN)/python ]; then \
	  echo "set-up: virtual environment $(VENV) ($$($(PYTHON) --version))"; \
	  $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	    echo "this Python cannot make virtual environments: install its venv package (Debian: python3-venv)" >&2; exit 2; }; fi
	@echo "set-up 1 of 4: Spark (its source package is 450 MB: some minutes, once)"
	@$(PIP) pyspark
	@echo "set-up 2 of 4: headrace and its libraries"
	@$(PIP) --editable '.[dev]'
	@echo "set-up 3 of 4: Java"
	@if ! $(BIN)/python -m headrace.spark.java >/dev/null 2>&1; then \
	  echo "        no Java 17 or newer here: installing one into the virtual environment"; \
	  $(PIP) --editable '.[java]'; fi
	@echo "        using $$($(BIN)/python -m headrace.spark.java)"
	@echo "set-up 4 of 4: compiling kernels, recording Spark's classes (about a minute, once)"
	@$(BIN)/python scripts/archive.py >/dev/null & recorded=$$!; \
	  $(BIN)/python scripts/warm.py >/dev/null; wait $$recorded
	@touch $@

demo: $(STAMP) ## Watch pipelines share one stream (DURATION=30 seconds)
	@$(BIN)/headrace demo --duration $(DURATION)

test: $(STAMP) ## Run the tests, JOBS=2 at once
	@$(BIN)/python -m pytest -rs --numprocesses $(JOBS) --dist worksteal

check: $(STAMP) ## Lint, types, layers, documented names, doctests
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest tests/test_layers.py tests/test_names.py tests/test_calls.py tests/test_docs.py tests/test_errors.py tests/test_examples.py

bench-epoch: $(STAMP) ## Time per small epoch for 1, 8, 32 and 300 pipelines, beside plain Spark
	@$(BIN)/python -m bench.epoch $(if $(QUICK),--quick)

.PHONY: bench-peers bench-scale
bench-peers: $(STAMP) ## headrace beside N Spark queries, Flink and DuckDB, checked outputs (25 minutes; QUICK=1 for 7; ONLY=a,b)
	@$(BIN)/python -m bench.peers $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

.PHONY: bench-driver
bench-driver: $(STAMP) ## The driver's CPU per epoch by rows, pipelines (to 1,000) and tasks (to 200), without Spark
	@$(BIN)/python -m bench.scale --only driver $(if $(QUICK),--quick)

bench-scale: $(STAMP) ## The cost model, predicted against measured, the driver's work, and what larger clusters would need
	@$(BIN)/python -m bench.scale $(if $(QUICK),--quick)

bench-hosts: $(STAMP) ## Pipelines on the epoch and dedicated hosts beside plain Spark queries, and small epochs (12 minutes; QUICK=1; ONLY=a,b)
	@$(BIN)/python -m bench.hosts $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

.PHONY: bench-start
bench-start: $(STAMP) ## Seconds and phases from `headrace run` to its first row, beside a plain PySpark script (3 minutes)
	@$(BIN)/python -m bench.start $(if $(QUICK),--quick)

bench-cpu: $(STAMP) ## CPU time of our own code per tiny epoch, without Spark, for 1, 32 and 300 pipelines
	@$(BIN)/python -m bench.cpu

bench-shared: $(STAMP) ## 1, 8 and 32 pipelines on one stream, beside as many plain Spark queries (12 minutes)
	@$(BIN)/python -m bench.shared

bench-windows: $(STAMP) ## Tumbling, hopping and session windows, beside one plain Spark query each
	@$(BIN)/python -m bench.windows

bench-bridge: $(STAMP) ## What crossing from Ring 0 to Ring 1 costs, per event, lane and check
	@$(BIN)/python -m bench.bridge

bench-state: $(STAMP) ## An epoch that touches 1,000 groups, with 10,000 and with 1,000,000 open ones
	@$(BIN)/python -m bench.state

bench-state-operator: $(STAMP) ## Spark's stateful operators and settings side by side
	@$(BIN)/python -m bench.state_operator

bench-batch-policy: $(STAMP) ## What waiting for rows (max_latency) saves
	@$(BIN)/python -m bench.batch_policy

bench-planner: $(STAMP) ## Planning time as a multiple of sqlglot's parse time
	@$(BIN)/python -m bench.planner

.PHONY: bench-check
bench-check: $(STAMP) ## How soon `headrace check` answers from the shell (20 seconds, on a quiet machine)
	@$(BIN)/python -m bench.check

bench-functions: $(STAMP) ## Rows/s of every function and cast, beside Spark's select of the same expression (10 minutes)
	@$(BIN)/python -m bench.functions

bench-formats: $(STAMP) ## MB/s per core of the formats, beside pyarrow, polars, duckdb and Spark
	@$(BIN)/python -m bench.formats

bench-ingress: $(STAMP) ## The shredder, the gateway into its journal beside a plain sink, and through to a window
	@$(BIN)/python -m bench.ingress

bench-listing: $(STAMP) ## The share of a core that an idle stream takes, with 20,000 files and with 1,000,000 by day (4 minutes)
	@$(BIN)/python -m bench.listing $(if $(QUICK),--quick)

.PHONY: bench-kafka
bench-kafka: $(STAMP) ## 8 pipelines on a Kafka topic, beside Spark's Kafka source, and one beside a plain consumer (needs Maven)
	@$(BIN)/python -m bench.kafka $(if $(QUICK),--quick)

.PHONY: bench-sinks
bench-sinks: $(STAMP) ## Rows per second of every sink beside its library used directly (QUICK=1 for fewer rows; ONLY=a,b)
	@$(BIN)/python -m bench.sinks $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

.PHONY: test-connectors
test-connectors: $(STAMP) ## The tests with real servers; a server that cannot be started is a failure
	@HEADRACE_CONNECTORS=required $(BIN)/python -m pytest tests/connectors

.PHONY: soak-connectors
soak-connectors: $(STAMP) ## Kill brokers, hubs and workers between real servers, KILLS=60 times, and compare rows (40 minutes)
	@$(BIN)/python -m tests.soak.connectors --kills $(or $(KILLS),60) $(if $(SEED),--seed $(SEED))

bench-serve: $(STAMP) ## 50 clients of a served hub: what they cost its stream, and how soon a pipeline joins (4 minutes)
	@$(BIN)/python -m bench.serve

.PHONY: docs
docs: $(STAMP) ## Build the documentation site into site/
	@$(BIN)/python -c 'import mkdocs, material' 2>/dev/null || $(PIP) --editable '.[docs]'
	@$(BIN)/python scripts/api_page.py
	@$(BIN)/python scripts/plots.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html"

screenshots: $(STAMP) ## Take the pictures in docs/images: the live page in headless Chromium, the terminal views in tmux
	@$(BIN)/python scripts/screenshots.py
	@$(BIN)/python -m scripts.terminal_pictures

fuzz-formats: $(STAMP) ## Damaged input and random options against the formats for FUZZ_SECONDS=60
	@$(BIN)/python -m tests.formats.fuzz --seconds $(FUZZ_SECONDS)

fuzz-expressions: $(STAMP) ## Random expressions over all functions against Spark: FUZZ_COUNT=20000, FUZZ_SEED=1; FUZZ_ANSWERS=file keeps Spark's answers
	@$(BIN)/python -m tests.sql.functions.fuzz --count $(FUZZ_COUNT) --seed $(FUZZ_SEED) $(if $(FUZZ_ANSWERS),--answers $(FUZZ_ANSWERS))

fuzz-http: $(STAMP) ## Hostile and mutated HTTP requests against a gateway for FUZZ_SECONDS=60
	@$(BIN)/python -m tests.ingress.fuzz --seconds $(FUZZ_SECONDS)

soak-kill: $(STAMP) ## Kill hubs, workers, planners, executors and gateways, ROUNDS=500 times, and check the sinks (50 minutes)
	@$(BIN)/python -m tests.soak.kill --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

soak-faults: $(STAMP) ## Damage every kind of state file, fill the disk, make directories read-only, move the clock (40 minutes)
	@$(BIN)/python -m tests.soak.faults $(if $(SEED),--seed $(SEED))

soak-churn: $(STAMP) ## Sixteen threads create and drop pipelines at once for CHURN_SECONDS=60
	@HEADRACE_CHURN_SECONDS=$(CHURN_SECONDS) $(BIN)/python -m pytest tests/e2e/test_shared.py -k sixteen

soak-schedules: $(STAMP) ## Random schedules of joins, leaves, crashes and dying workers, 40 times as many as in the tests
	@HEADRACE_EXAMPLES=40 $(BIN)/python -m pytest tests/shared

test-cluster: $(STAMP) ## Run on a standalone Spark cluster with two workers, started here: with headrace installed, and shipped
	@$(BIN)/python -m tests.soak.standalone
	@$(BIN)/python -m tests.soak.standalone --ship

soak-ingress: $(STAMP) ## Overload each backpressure strategy for SOAK_SECONDS=30 and count every row
	@$(BIN)/python -m tests.soak.ingress --seconds $(SOAK_SECONDS)

soak-growth: $(STAMP) ## Create and drop pipelines for EPOCHS=2000 epochs: files, bytes and memory stay flat
	@$(BIN)/python -m tests.soak.growth --epochs $(EPOCHS)

.PHONY: soak-hosts
soak-hosts: $(STAMP) ## Kill runs with chains and with the dedicated host at each of their steps, and check the sinks (10 minutes)
	@HEADRACE_LONG=1 $(BIN)/python -m pytest -n 0 tests/e2e/test_kill.py tests/e2e/test_chains_on_spark.py \
	  tests/e2e/test_dedicated_chains.py -k killed

.PHONY: test-dedicated
test-dedicated: $(STAMP) ## All tests of the epoch and dedicated hosts: every query beside Spark batch, their whole life (25 minutes)
	@HEADRACE_LONG=1 $(BIN)/python -m pytest -n 0 tests/e2e/test_dedicated_host.py tests/e2e/test_dedicated_life.py \
	  tests/e2e/test_dedicated_chains.py tests/e2e/test_dedicated_bad_input.py tests/e2e/test_three_hosts.py tests/e2e/test_epoch_host.py \
	  tests/e2e/test_everyday_queries.py

.PHONY: dist first-hour test-matrix
dist: $(STAMP) ## Build the wheel and the sdist, install the wheel into an empty environment and run the demo there
	@$(BIN)/python -m scripts.dist

first-hour: $(STAMP) ## The first hour of a new user, from a clean clone and its wheel; the text is compared with golden.txt
	@$(BIN)/python -m tests.first_hour.whole

test-matrix: $(STAMP) ## The core tests with every Python and Spark that can be had here (10 minutes, downloads Spark 4.2)
	@$(BIN)/python -m scripts.matrix

clean: ## Remove the virtual environment, caches and build products
	rm -rf $(VENV) .matrix .peers site .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
