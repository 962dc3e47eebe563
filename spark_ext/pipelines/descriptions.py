"""Names Spark jobs after what they are for, in the Spark UI and in the console's progress bar."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, cast

from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

_DESCRIPTION: Final = "spark.job.description"


@contextmanager
def described(spark: SparkSession, what: str) -> Iterator[None]:
    """Describe the jobs of this thread, after what its caller says of them.

    A client of Spark Connect has no Spark context, and its jobs keep their descriptions.

    Args:
        spark: the session.
        what: a name that all viewers of the Spark UI can see, such as that of a pipeline.
    """
    context = None
    with suppress(PySparkAttributeError):
        context = spark.sparkContext
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, f"{before}: {what}" if before else what)
    try:
        yield
    finally:
        # None removes it, which the type does not say.
        context.setLocalProperty(_DESCRIPTION, cast(str, before))
