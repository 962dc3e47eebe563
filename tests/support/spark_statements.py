"""Reads and runs statements for Iceberg's Spark runtime, and sums up in docs/compatibility.md what they do.

`python -m tests.support.spark_statements` writes the table of that page from the file of statements.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from tests.support.iceberg_spark import IcebergSpark, Refused

STATEMENTS: Final = Path(__file__).parents[1] / "interop" / "spark_statements.sql"
PAGE: Final = Path(__file__).parents[2] / "docs" / "compatibility.md"

#: Why the service refuses a statement, and what its error says then.
REASONS: Final = {
    "location policy": r"rule=allowed-paths|rule=location",
    "format version": r"[Ff]ormat version|Unsupported field type: 'variant'",
    "streams": r"FileIO is not available: planFiles\(\) must be called first",
    "one name a table": r"rule=table-uuid",
    "ambiguous names": r"rule=ambiguous-column",
}
_BEGIN, _END = "<!-- spark: written by tests.support.spark_statements -->", "<!-- /spark -->"
_RUN: Final = """
from pyspark.sql import DataFrame, functions as F
made = eval(text, {"spark": spark, "F": F}) if text.startswith("spark.") else spark.sql(text)
answer = [list(row) for row in made.collect()] if isinstance(made, DataFrame) else []
"""
_SNAPSHOTS: Final = """
SELECT snapshot_id, string(committed_at + INTERVAL 1 MILLISECOND) FROM {t}.snapshots ORDER BY committed_at
"""
_FILES: Final = """
found = table(name)
answer = found.location(), found.operations().current().metadataFileLocation()
"""
_SNAPSHOT_ID: Final = re.compile(r"\b\d{17,19}\b")
_NOW: Final = re.compile(r"\b1[7-9]\d{11}\b|\b20(?:2[6-9]|[3-9]\d)-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of the file.

    Attributes:
        refused: a key of `REASONS`; empty if it runs.
        planned: a key of `REASONS`; why it is refused if the catalog plans its scans.
        compared: whether it shows the rows that it shows on a catalog of Iceberg.
    """

    group: str
    text: str
    refused: str
    planned: str
    compared: bool


def statements() -> list[Statement]:
    """The statements of the file."""
    return list(_read(STATEMENTS.read_text()))


def _read(text: str) -> Iterator[Statement]:
    group, said = "", {}
    for line in filter(None, text.splitlines()):
        if not line.startswith("--"):
            assert line.endswith(";"), line
            refused, compared = said.get("refused", ""), "runs" not in said
            planned = said.get("refused where the catalog plans", refused)
            assert {refused, planned} <= {"", *REASONS}, line
            yield Statement(group, line.removesuffix(";"), refused, planned, compared)
            said = {}
        elif line.startswith("-- # "):
            group = line.removeprefix("-- # ")
        else:
            kind, _, why = line.removeprefix("-- ").partition(": ")
            said[kind] = why


@dataclass
class Place:
    """A namespace of a catalog in which the statements of a group run.

    Attributes:
        catalog: Spark's name for the catalog.
        namespace: the name of the namespace.
        outside: a directory that belongs to no table.
        planned: whether the catalog plans the scans.
    """

    spark: IcebergSpark
    catalog: str
    namespace: str
    outside: Path
    planned: bool = False
    _seen: dict[str, str] = field(default_factory=dict)
    _files: list[str] = field(default_factory=list)

    def run(self, statement: str) -> list[Any]:
        """Run a statement; its rows, in which whatever differs from run to run has a name.

        Raises:
            Refused: Spark answered with an error.
        """
        found: list[Any] = self.spark.run(_RUN, text=self._filled(statement))
        named = [self._named(json.dumps(row, sort_keys=True, ensure_ascii=False)) for row in found]
        return named if "ORDER BY" in statement else sorted(named)

    def _filled(self, statement: str) -> str:
        whole = f"{self.catalog}.{self.namespace}"
        names = {
            "{t}": f"{whole}.t",
            "{s}": f"{whole}.s",
            "{ns}": whole,
            "{n}": self.namespace,
            "{cat}": self.catalog,
            "{tmp}": str(self.outside),
        }
        for placeholder, value in names.items():
            statement = statement.replace(placeholder, value)
        if "{snapshot " in statement or "{time " in statement:
            for number, (snapshot, moment) in enumerate(self.spark.sql(_SNAPSHOTS.format(t=f"{whole}.t")), 1):
                statement = statement.replace(f"{{snapshot {number}}}", str(snapshot))
                statement = statement.replace(f"{{time {number}}}", moment)
        if "{location}" in statement or "{metadata}" in statement:
            # Of a table that was dropped, the last ones that were asked for.
            with suppress(Refused):
                self._files = self.spark.run(_FILES, name=f"{whole}.t")
            statement = statement.replace("{location}", self._files[0]).replace("{metadata}", self._files[1])
        return statement

    def _named(self, row: str) -> str:
        row = row.replace(self.namespace, "NAMESPACE").replace(str(self.outside), "OUTSIDE")
        row = _NOW.sub("NOW", row)
        return _SNAPSHOT_ID.sub(lambda found: self._seen.setdefault(found[0], f"S{len(self._seen)}"), row)


def differences(group: list[Statement], theirs: Place, ours: Place) -> list[str]:
    """Run a group on a catalog of Iceberg and on the service; what differs from what the file says."""
    return [told for each in group if (told := _difference(each, theirs, ours))]


def _difference(statement: Statement, theirs: Place, ours: Place) -> str:
    reason = statement.planned if ours.planned else statement.refused
    expected = [] if reason else theirs.run(statement.text)
    try:
        found = ours.run(statement.text)
    except Refused as error:
        if reason and re.search(REASONS[reason], str(error)):
            return ""
        return f"{statement.text}\n  {str(error)[:1000]}"
    if reason:
        return f"{statement.text}\n  is not refused: {found}"
    if statement.compared and found != expected:
        return f"{statement.text}\n  shows    {found}\n  expected {expected}"
    return ""


def table() -> str:
    """How many statements of each group work, with either side's plans, and why others do not."""
    lines = [
        "| statements | number | work | work where the catalog plans | reason |",
        "|---|--:|--:|--:|---|",
    ]
    every = statements()
    for name, members in groupby(every, key=lambda each: each.group):
        lines.append(_summed(name, list(members)))
    return "\n".join([*lines, _summed("**all**", every)])


def _summed(name: str, group: list[Statement]) -> str:
    work = [
        sum(not refused for refused in side)
        for side in zip(*((each.refused, each.planned) for each in group), strict=True)
    ]
    reasons = ", ".join(sorted({each.planned for each in group} - {""}))
    return f"| {name} | {len(group)} | {work[0]} | {work[1]} | {reasons} |"


def page() -> str:
    """The page with the table in it."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    return f"{before}{_BEGIN}\n{table()}\n{_END}{rest.partition(_END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page())
