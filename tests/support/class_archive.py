"""The classes of Spark in a file that every JVM maps (class data sharing), which halves the CPU of a start.

`make` builds the file once for an environment. A JVM of another version, or with other jars, does without it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pyspark.sql import SparkSession

ARCHIVE: Final = Path(sys.prefix) / "spark.jsa"

# The first compiler alone has room for 48 MB of code by default: some 60 tests fill it, and it starts over.
_OPTIONS: Final = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:MetaspaceSize=256m"
)
#: The JVM writes on standard output that it does without the archive, or leaves a class out of it.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"

#: What most tests do, so that its classes are loaded.
_STATEMENTS: Final = (
    "CREATE TABLE {0}_table USING {0} AS SELECT * FROM numbers",
    "INSERT INTO {0}_table SELECT * FROM numbers",
    "SELECT third, count(*), sum(price), max(text), count(DISTINCT text) FROM {0}_table"
    " WHERE id > 2 AND text LIKE '1%' OR day IS NULL GROUP BY third ORDER BY third",
    "SELECT row_number() OVER (PARTITION BY a.third ORDER BY a.id) FROM {0}_table a JOIN numbers b"
    " ON a.id = b.id WHERE a.id IN (SELECT third FROM numbers)",
    "EXPLAIN EXTENDED SELECT * FROM {0}_table",
    "DESCRIBE TABLE EXTENDED {0}_table",
)


def java_options() -> str:
    """The options of a small JVM for Spark that starts quickly."""
    return f'{_OPTIONS} "-XX:SharedArchiveFile={ARCHIVE}" {_QUIET}' if ARCHIVE.exists() else _OPTIONS


def build() -> None:
    """Run Spark, and keep the classes that it loaded."""
    made = ARCHIVE.with_suffix(".part")
    made.unlink(missing_ok=True)
    with TemporaryDirectory() as directory:
        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": f'{_OPTIONS} "-XX:ArchiveClassesAtExit={made}" {_QUIET}',
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": directory,
        }
        spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
        _load_classes(spark)
        jvm = spark.sparkContext._gateway.proc
        spark.stop()
        jvm.stdin.close()  # ends the JVM, which writes the archive then
        jvm.wait()
    made.rename(ARCHIVE)


def _load_classes(spark: SparkSession) -> None:
    columns = ("id", "id % 3 AS third", "string(id) AS text", "current_date() AS day", "decimal(id) AS price")
    spark.range(10).selectExpr(*columns).createOrReplaceTempView("numbers")
    for kind in ("parquet", "orc"):
        for statement in _STATEMENTS:
            spark.sql(statement.format(kind)).collect()


if __name__ == "__main__":
    build()
