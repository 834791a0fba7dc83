.DEFAULT_GOAL := help
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DATA ?= data
SF ?= 1
# Two processes, each with a Spark session that tests share. A third one makes runs no shorter on two cores.
# A test that ends its process would be tried again in a new one, for ever.
SIDE_BY_SIDE := -n 2 --dist loadgroup --max-worker-restart 0
# Queries of tests run too seldom to repay the optimizing compiler, which took a quarter of the processor time of their JVM.
BRIEF_JVM := JAVA_TOOL_OPTIONS="-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url \
  --no-emit-find-links --no-annotate
IN_MEMORY = bash scripts/in-test-folder env
WITH_SPARK = JAVA_HOME="$$(bash scripts/find-java javac)" $(BRIEF_JVM) $(BIN)/python -m pytest $(SIDE_BY_SIDE)
RELEASES ?= 4.0 3.5
PAIRS ?= 50000
BENCH := $(DATA)/sf$(SF)
OF_SF := --sf $(SF) --data $(DATA)
SSB_BENCH = JAVA_HOME="$$(bash scripts/find-java)" $(BIN)/ssb-bench
MEASURED := run pages text systems clustered scale writes doors
OPTIONS_run := --workload count --workload rows --workload aggregate --workload ssb --repeats 3
OPTIONS_pages := --repeats 3
OPTIONS_text := --repeats 2
OPTIONS_systems := --repeats 2
OPTIONS_clustered := --rows 1000000 --trials 1
OPTIONS_scale := --repeats 3
OPTIONS_writes := --repeats 3
SECONDS ?= 3600
TO_COMPILE := 'spark-*' scala-library 'iceberg-spark-runtime-*'

help: ## Show what there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP): requirements/dev.txt pyproject.toml
	@bash scripts/make-environment $(VENV) requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@touch $@

env: $(STAMP) ## Make the Python environment in .venv from the locked versions

java: ## Find a JDK 17+, or install one where that is allowed
	@bash scripts/find-java javac > /dev/null

demo: $(STAMP) ## SSB data, Iceberg table, background index build, the seven queries with and without: a table and a picture
	@JAVA_HOME="$$(bash scripts/find-java)" $(BIN)/ssb-bench demo --sf $(SF) --data $(DATA)

jars: $(STAMP) ## Fetch the Java archives of the tests and the benchmark into .jars, and compile the hook
	@JAVA_HOME="$$(bash scripts/find-java)" $(BIN)/python -m ssb_bench.spark_runs.jars
	@JAVA_HOME="$$(bash scripts/find-java javac)" $(BIN)/python planner/spark/build_jar.py

test: jars ## What a change needs, with a real Spark
	@$(IN_MEMORY) $(WITH_SPARK)

quick: $(STAMP) ## The tests that need no JVM
	@$(IN_MEMORY) $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not spark and not paimon"

nightly: jars ## Everything: all tests, each on many more examples, and 50,000 pairs of a table and a predicate (PAIRS=n)
	@$(BIN)/python -m tests.planner.laws.pairs --pairs $(PAIRS)
	@$(WITH_SPARK) --hypothesis-profile=nightly --timeout 14400 -o faulthandler_timeout=14500

soak: jars ## An index under load with kills, locks, damage and a failing store, for an hour (SECONDS=n) more; SOAK=--spark adds Spark
	@JAVA_HOME="$$(bash scripts/find-java 2> /dev/null)" $(BIN)/python -m tests.soak --seconds $(SECONDS) --state $(DATA)/soak $(SOAK)

matrix: $(STAMP) ## The hook's tests on the other releases of Spark, each in an environment of its own under .matrix
	@JAVA_HOME="$$(bash scripts/find-java javac)" bash scripts/spark-matrix $(BIN)/uv $(RELEASES)

services: $(STAMP) ## The tests on a REST catalog (Nessie: fetches 245 MB and a Java 21)
	@JAVA_HOME="$$(bash scripts/find-java)" bash scripts/make-services $(BIN)
	@JAVA_HOME="$$(bash scripts/find-java)" $(BIN)/python -m pytest -m services

conformance: ## The reader in Go answers the questions of the conformance kit
	@cd conformance/reader && PATH="$$PATH:/usr/local/go/bin" go run . ..

wheel: $(STAMP) ## Build the wheel and the sdist into dist/, with the hook's jars of all Spark releases, by the build backend alone
	@JAVA_HOME="$$(bash scripts/find-java)" $(BIN)/python -m ssb_bench.spark_runs.jars $(TO_COMPILE)
	@JAVA_HOME="$$(bash scripts/find-java javac)" $(BIN)/python planner/spark/build_jar.py all
	@bash scripts/make-environment build/environment requirements/build.txt
	@build/environment/bin/python -m hatchling build --target sdist --target wheel

lint: $(STAMP) ## Formatting, lint, types and import directions, of Python and of the hook's Java
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@JAVA_HOME="$$(bash scripts/find-java javac)" $(BIN)/python scripts/lint-java

# A measurement that fails leaves its result, with the failures in it, so that the next run goes on behind it.
bench: $(STAMP) ## The whole benchmark, resumable: all workloads, systems, keys in bursts, scale; JSON and HTML page under data/
	@$(MAKE) --keep-going $(MEASURED:%=$(BENCH)/all/%.json); measured=$$?; \
	$(BIN)/ssb-bench report $(OF_SF) --run $(BENCH)/all/run.json --page $(BENCH)/all/report.html && exit $$measured

$(BENCH)/warehouse/load.json: | $(STAMP)
	@$(BIN)/ssb-bench generate $(OF_SF)
	@$(SSB_BENCH) load $(OF_SF)

$(BENCH)/warehouse/build.json: $(BENCH)/warehouse/load.json
	@$(SSB_BENCH) build $(OF_SF)

$(BENCH)/all/%.json: $(BENCH)/warehouse/build.json
	@$(SSB_BENCH) $* $(OF_SF) $(OPTIONS_$*)

lock: $(STAMP) ## Renew requirements/dev.txt and requirements/build.txt from pyproject.toml
	@$(BIN)/$(LOCK) --extra dev --output-file requirements/dev.txt pyproject.toml
	@echo "hatchling>=1.27" | $(BIN)/$(LOCK) --constraint requirements/dev.txt --output-file requirements/build.txt -

.PHONY: help env java jars demo test quick nightly soak matrix services conformance wheel lint bench lock
