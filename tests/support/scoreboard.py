"""Runs the statements of docs/spark-scoreboard.md, each on new tables.

`python -m tests.support.scoreboard` writes the results into the page. Read the difference before a commit.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tests.support.lake import MASTER_KEY
from tests.support.spark import SparkLake, open_spark_lake

PAGE = Path(__file__).parents[2] / "docs" / "spark-scoreboard.md"
_ROW = re.compile(r"^\| (?P<origin>\w+) \| `(?P<statements>.+)` \|(?P<result>[^|]*)\|$")
_WORKS = "works"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the page.

    Attributes:
        statements: SQL or Python, with placeholders.
        result: ``works``, or ``refused:`` and the condition.
    """

    line: int
    statements: str
    result: str


def rows() -> Iterator[Row]:
    """The rows of the page."""
    for number, line in enumerate(PAGE.read_text().splitlines()):
        found = _ROW.match(line)
        if found:
            yield Row(number, found["statements"], found["result"].strip())


def run(spark_lake: SparkLake, row: Row) -> str:
    """The result of a row, as the page shows it. A refusal has changed neither table."""
    namespace = spark_lake.namespace()
    t, s = f"{namespace}.t", f"{namespace}.s"
    for name, values in (
        (t, ("(1, 'a', 'x'), (2, 'b', 'x')", "(3, 'c', 'y')")),
        (s, ("(2, 'bb', 'x'), (4, 'd', 'y')",)),
    ):
        properties = f"'encryption.mechanism' = 'envelope', 'encryption.columns' = '{MASTER_KEY}:id,data'"
        spark_lake.rows(
            f"CREATE TABLE {name} (id BIGINT, data STRING, p STRING) USING iceberg PARTITIONED BY (p) "
            f"TBLPROPERTIES ({properties})"
        )
        for each in values:
            spark_lake.rows(f"INSERT INTO {name} VALUES {each}")
    plain = namespace.removeprefix("lake.")
    with tempfile.TemporaryDirectory() as tmp:
        names = {"{t}": t, "{s}": s, "{ns}": namespace, "{n}": plain, "{tmp}": tmp}
        text = row.statements
        for placeholder, value in names.items():
            text = text.replace(placeholder, value)
        try:
            if text.startswith("spark."):
                eval(text, {"spark": spark_lake.spark, "F": F})
            else:
                for statement in text.split("; "):
                    spark_lake.rows(statement)
        except PySparkException as refused:
            assert spark_lake.rows(f"SELECT * FROM {t} ORDER BY id") == [
                (1, "a", "x"),
                (2, "b", "x"),
                (3, "c", "y"),
            ]
            rule = (refused.getMessageParameters() or {}).get("rule")
            return f"refused: `{refused.getCondition()}`" + (f" ({rule})" if rule else "")
    return _WORKS


def main() -> None:
    lines = PAGE.read_text().splitlines()
    with tempfile.TemporaryDirectory() as directory, open_spark_lake(Path(directory)) as spark_lake:
        for row in rows():
            head = lines[row.line].rsplit("|", 2)[0]
            lines[row.line] = f"{head}| {run(spark_lake, row)} |"
            PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
