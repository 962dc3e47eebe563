"""One service and one Spark a worker process; each test takes a namespace of its own in them."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest
from pyspark.errors import PySparkAttributeError, PySparkNotImplementedError

from tests.support.spark import SparkLake, open_spark_lake
from tests.support.spark_connect import open_connect_lake


@pytest.fixture(scope="session")
def spark_lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkLake]:
    """The Spark that the tests of a process share."""
    opening = open_connect_lake if request.config.getoption("--connect") else open_spark_lake
    with opening(tmp_path_factory.mktemp("spark-lake")) as opened:
        yield opened


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call() -> Generator[None, object, object]:
    """Skip what reaches into the driver's JVM, RDDs too, which clients of Spark Connect do not have."""
    try:
        return (yield)
    except (PySparkAttributeError, PySparkNotImplementedError) as error:
        if error.getCondition() not in ("JVM_ATTRIBUTE_NOT_SUPPORTED", "NOT_IMPLEMENTED"):
            raise
        pytest.skip(f"Clients of Spark Connect have no JVM: {error.getMessageParameters()}")


@pytest.fixture
def namespace(spark_lake: SparkLake) -> str:
    """An empty namespace of Alice's, with the catalog's name before it."""
    return spark_lake.namespace()
