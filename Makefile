# Everything a developer runs. Each target sets up what it needs; a second run finds it there.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check
# Four on two cores: a worker that waits for a process or a clock leaves a core to another one.
# Two of them run the tests of Spark, see tests/support/scheduling.py.
PYTEST := $(BIN)/pytest -n 4 --dist loadfile --no-loadscope-reorder
INSTALLED := $(VENV)/.installed
SPARK_CLASSES := $(VENV)/spark.jsa
REWRITTEN := $(VENV)/.rewritten
OLDEST := 4.1.4
OLDER_SPARKS := $(OLDEST) 4.2.1
ON_OLDER_SPARKS := $(OLDER_SPARKS:%=test-spark-%)
DECISION_TESTS := tests/policy tests/planning tests/catalog tests/authorization tests/attacks tests/http
CHECK_TESTS := tests/test_language.py tests/test_support.py tests/policy tests/crypto tests/envelope \
	tests/catalog/test_creation.py tests/catalog/test_alter.py \
	tests/authorization/test_authorization_in_process.py \
	tests/spark/test_write_encrypted.py::test_files_are_ciphertext_with_their_id_in_the_name

# Compiled once, here and at installation, not in each process: the tests start some hundred.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: check test tests nightly interop test-connect test-older-sparks $(ON_OLDER_SPARKS) demo lint format coverage mutation guards bench soak fuzz docs java clean

# What to run before each commit: lint, types, the decision tests, some of the catalog, and Spark once.
check: java lint $(SPARK_CLASSES)
	$(PYTEST) -q -m 'not nightly and not slow' $(CHECK_TESTS)

# What to run before each push: everything but the tests that are marked `nightly`, with lint beside them.
test: java $(SPARK_CLASSES)
	@$(MAKE) --no-print-directory -j 2 lint tests

tests: $(REWRITTEN)
	$(PYTEST) -m 'not nightly'

# Pytest rewrites the assertions of each file of tests once: here, not in each worker at the same time. A file
# with an error is shown by the run itself.
$(REWRITTEN): | $(INSTALLED)
	$(BIN)/pytest --collect-only -qq > /dev/null || true
	@touch $@

# Everything: also processes that are killed, long differential tests with more examples, pages that are followed
# step by step, all tests of Spark, every row of long tables of examples, and the core of the tests again through
# Spark Connect and on the older Sparks.
# The console is tested in Chromium where `chromium` and `chromedriver` are on the PATH.
nightly: java lint $(SPARK_CLASSES) $(VENV)/.browser
	$(PYTEST) --hypothesis-profile=nightly
	$(MAKE) test-connect
	$(MAKE) test-older-sparks

# The same rules against the programs of others: bao or vault, where they are on the PATH; Hadoop's KMS server,
# its S3 client, Iceberg's Spark runtime and its compatibility kit, where Maven is installed; MinIO and helm, where Go is; Daft, DuckDB, Polars' plugin.
interop: java $(INSTALLED) $(VENV)/.interop $(VENV)/hadoop-kms $(VENV)/hadoop-aws $(VENV)/iceberg-runtime \
		$(VENV)/iceberg-kit $(VENV)/minio $(VENV)/helm $(VENV)/spark-$(OLDEST)/.installed
	$(PYTEST) --interop -m interop

$(VENV)/hadoop-kms: | $(INSTALLED)
	tools/hadoop-kms-jars $@

$(VENV)/hadoop-aws: | $(INSTALLED)
	tools/hadoop-aws-jars $@

$(VENV)/iceberg-runtime: | $(INSTALLED)
	tools/iceberg-runtime-jars $@

$(VENV)/iceberg-kit: | $(INSTALLED)
	tools/iceberg-kit-jars $@

$(VENV)/minio: | $(INSTALLED)
	tools/minio $@

$(VENV)/helm: | $(INSTALLED)
	tools/helm $@

# The core of the tests again on each older Spark that is supported, laid over the newest one.
test-older-sparks: $(ON_OLDER_SPARKS)

$(ON_OLDER_SPARKS): test-spark-%: java $(INSTALLED) $(VENV)/spark-%/.installed
	PYTHONPATH=$(VENV)/spark-$* $(PYTEST) -m core tests/spark

# The core of the tests again with remote sessions, and what users of one Spark Connect server share.
test-connect: java $(INSTALLED)
	$(PYTEST) --connect -m 'connect or core' tests/spark

demo: java $(VENV)/.demo
	$(BIN)/lakewarden demo

java:
	@tools/find-java

# Spark's classes as each JVM of the tests maps them: a Spark starts with half of the CPU.
$(SPARK_CLASSES): constraints.txt tests/support/class_archive.py | java $(INSTALLED)
	$(BIN)/python -m tests.support.class_archive

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Every branch of the decision modules is run by some test, by day or at night.
coverage: $(INSTALLED)
	$(PYTEST) -q -m 'not slow' --cov --cov-config=pyproject.toml --cov-report=term $(DECISION_TESTS)

# mutmut changes the policy package and runs its tests. Prints each change that no test detects (`survived`, `no
# tests`) or that was not tried (`not checked`), and does not fail for them: read the list. Results stay in mutants/,
# so that a second run tries only what changed. make mutation MODULE='policy.ranger.evaluate*' tries one module.
mutation: $(VENV)/.mutation
	$(BIN)/mutmut run $(if $(MODULE),'$(MODULE)')
	$(BIN)/mutmut results

# Each test that the threat model names fails when its guard is taken away: make guards TESTS=tests/attacks
guards: java $(INSTALLED)
	$(BIN)/python tools/guards.py $(TESTS)

# BEFORE=DIR compares with an earlier checkout, which has a .venv of its own.
bench: java $(INSTALLED)
	$(BIN)/python -m bench.run $(if $(SCALE),--scale $(SCALE))
	$(BIN)/python -m bench.formats $(if $(SCALE),--scale $(SCALE))
	$(BIN)/python -m bench.restrictions $(if $(SCALE),--scale $(SCALE))
	$(BIN)/python -m bench.many
	$(BIN)/python -m bench.pipelines
	$(if $(BEFORE),$(BIN)/python -m bench.before $(BEFORE))

# A service under load and faults, and a check of everything that its clients were told. SEED repeats the choices of
# clients and faults. Both databases, one after the other, or DATABASE=sqlite.
soak: $(INSTALLED)
	for database in $(or $(DATABASE),sqlite postgres); do \
		$(BIN)/python -m tests.soak --database $$database --minutes $(or $(MINUTES),10) \
			$(if $(SEED),--seed $(SEED)) || exit 1; \
	done

# What allowed lists let through, to every reader: 100,000 invented paths of each kind; some forty minutes. And
# 1,000 histories of random commits of each kind of table.
fuzz: java $(INSTALLED)
	$(BIN)/pytest --timeout=0 --hypothesis-profile=fuzz tests/locations/test_locations_readers.py \
		tests/catalog/test_commit_differences.py

# The documentation as a site, in build/site: it asks no other host for anything, search included.
docs: $(INSTALLED) $(VENV)/.docs
	$(BIN)/python -m tools.site.diagrams
	$(BIN)/sphinx-build -q -W --keep-going -j auto docs build/site
	@echo 'Open build/site/index.html'

clean:
	rm -rf $(VENV) build dist mutants *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One that was moved or lost its Python is made again.
define venv
	@echo 'Installing what this needs into $(VENV). The first time takes some minutes.'
	@$(BIN)/python -c '' 2>/dev/null || { python=$$(tools/find-python) && "$$python" -m venv --clear $(VENV); }
endef

$(INSTALLED): pyproject.toml constraints.txt
	$(venv)
	$(PIP) -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q policy catalog spark_ext lakewarden
	@touch $@

$(VENV)/.demo: pyproject.toml constraints.txt
	$(venv)
	$(PIP) -c constraints.txt -e '.[demo]'
	@touch $@

$(VENV)/.interop: pyproject.toml constraints.txt | $(INSTALLED)
	$(PIP) -c constraints.txt -e '.[interop]'
	@touch $@

$(VENV)/.browser: pyproject.toml constraints.txt | $(INSTALLED)
	$(PIP) -c constraints.txt -e '.[browser]'
	@touch $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(INSTALLED)
	$(PIP) -c constraints.txt -e '.[docs]'
	@touch $@

$(VENV)/.mutation: pyproject.toml constraints.txt | $(INSTALLED)
	$(PIP) -c constraints.txt -e '.[mutation]'
	@touch $@

$(OLDER_SPARKS:%=$(VENV)/spark-%/.installed): $(VENV)/spark-%/.installed: | $(INSTALLED)
	$(PIP) --no-deps --upgrade --target $(VENV)/spark-$* pyspark==$*
	@touch $@
