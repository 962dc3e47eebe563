# Everything a developer runs. Each target sets up what it needs; a second run finds it there.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
INSTALLED := $(VENV)/.installed
OLDEST := 4.1.4
OLDEST_SPARK := $(VENV)/spark-$(OLDEST)
DECISION_TESTS := tests/policy tests/catalog tests/authorization tests/attacks tests/http

.PHONY: test interop test-oldest-spark demo lint format coverage mutation guards bench fuzz java clean

test: java lint
	$(BIN)/pytest -n 2 --dist loadfile

# The same rules against the programs of others: bao or vault, where they are on the PATH; Hadoop's KMS server,
# its S3 client and Iceberg's Spark runtime, where Maven is installed.
interop: java $(INSTALLED) $(VENV)/hadoop-kms $(VENV)/hadoop-aws $(VENV)/iceberg-runtime $(OLDEST_SPARK)/.installed
	$(BIN)/pytest -n 2 --dist loadfile --interop -m interop

$(VENV)/hadoop-kms: | $(INSTALLED)
	tools/hadoop-kms-jars $@

$(VENV)/hadoop-aws: | $(INSTALLED)
	tools/hadoop-aws-jars $@

$(VENV)/iceberg-runtime: | $(INSTALLED)
	tools/iceberg-runtime-jars $@

# The core of the tests again on the oldest Spark that is supported, laid over the newest one.
test-oldest-spark: java $(INSTALLED) $(OLDEST_SPARK)/.installed
	PYTHONPATH=$(OLDEST_SPARK) $(BIN)/pytest -n 2 --dist loadfile -m core tests/spark

demo: java $(VENV)/.demo
	$(BIN)/lakewarden demo

java:
	@tools/find-java

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Every branch of the decision modules is run by some test.
coverage: $(INSTALLED)
	$(BIN)/pytest -q -n 2 --dist loadfile -m 'not slow' --cov --cov-config=pyproject.toml --cov-report=term $(DECISION_TESTS)

# Faults put into the decision modules are noticed by the tests: make mutation MODULE=policy/ranger/evaluate.py
# SAMPLE=60 tries so many of each module.
mutation: $(VENV)/.mutation
	$(BIN)/python tools/mutation.py $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(MODULE),'$(MODULE)')

# Each test that the threat model names fails when its guard is taken away: make guards TESTS=tests/attacks
guards: java $(INSTALLED)
	$(BIN)/python tools/guards.py $(TESTS)

# BEFORE=DIR compares with an earlier checkout, which has a .venv of its own.
bench: java $(INSTALLED)
	$(BIN)/python -m bench.run $(if $(SCALE),--scale $(SCALE))
	$(BIN)/python -m bench.formats $(if $(SCALE),--scale $(SCALE))
	$(if $(BEFORE),$(BIN)/python -m bench.before $(BEFORE))

# What allowed lists let through, to every reader: 100,000 invented paths of each kind; some forty minutes. And
# 1,000 histories of random commits of each kind of table.
fuzz: java $(INSTALLED)
	$(BIN)/pytest --timeout=0 --hypothesis-profile=fuzz tests/locations/test_locations_readers.py \
		tests/catalog/test_commit_differences.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One that was moved or lost its Python is made again.
define venv
	@$(BIN)/python -c '' 2>/dev/null || { python=$$(tools/find-python) && "$$python" -m venv --clear $(VENV); }
endef

$(INSTALLED): pyproject.toml constraints.txt
	$(venv)
	$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt
	$(venv)
	$(PIP) -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.mutation: pyproject.toml constraints.txt | $(INSTALLED)
	$(PIP) -c constraints.txt -e '.[mutation]'
	@touch $@

$(OLDEST_SPARK)/.installed: | $(INSTALLED)
	$(PIP) --no-deps --upgrade --target $(OLDEST_SPARK) pyspark==$(OLDEST)
	@touch $@
