"""Pipelines use the Spark that tests share."""

from tests.spark.conftest import namespace as namespace
from tests.spark.conftest import pytest_pyfunc_call as pytest_pyfunc_call
from tests.spark.conftest import spark_lake as spark_lake
