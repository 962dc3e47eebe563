"""One service and one Spark a worker process; each test takes a namespace of its own in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.spark import SparkLake, open_spark_lake


@pytest.fixture(scope="session")
def spark_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkLake]:
    """The Spark that the tests of a process share."""
    with open_spark_lake(tmp_path_factory.mktemp("spark-lake")) as opened:
        yield opened


@pytest.fixture
def namespace(spark_lake: SparkLake) -> str:
    """An empty namespace of Alice's, with the catalog's name before it."""
    return spark_lake.namespace()
