"""The pipeline `discover`: looks at a sample of each table, and decides what its plaintext columns hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from catalog.base.identifiers import TableName
from policy.errors import LakewardenError, RequestInvalid
from spark_ext.pipelines.discover import national_ids
from spark_ext.pipelines.discover.columns import Leaf, leaves_of, readable
from spark_ext.pipelines.discover.detectors import detectors, require_regions
from spark_ext.pipelines.discover.evidence import THRESHOLD, Looked, verdicts
from spark_ext.pipelines.discover.kinds import KINDS
from spark_ext.pipelines.discover.sampling import Looking, looked, sample
from spark_ext.pipelines.failures import concerns_all, reason
from spark_ext.pipelines.items import Finding, Item, Outcome, Rule, Severity
from spark_ext.pipelines.lake import Lake, totals
from spark_ext.pipelines.pipeline import Steps
from spark_ext.pipelines.refusals import REFUSALS, outcome_of
from spark_ext.pipelines.threads import in_threads

NOT_EXAMINED: Final = Rule(
    "columns-not-examined",
    Severity.NOTE,
    "The values of some plaintext columns were not looked at.",
    "Run it as a user that has SELECT on all columns, without row filters and masks.",
)
#: Rows of a table that are looked at.
ROWS: Final = 10_000
#: Regions whose telephone numbers are known as they are written there.
REGIONS: Final = ("US",)
#: Rows that each task looks at, at least.
_FEWEST_ROWS: Final = 20
#: The size of the parts of files that tasks read, about.
_SPLIT: Final = 128 * 1024**2
#: Columns that a message names.
_MOST_NAMED: Final = 20


@dataclass
class Discover:
    """Finds personal and secret data in plaintext columns.

    Args:
        tables: patterns of the tables to look at.
        rows: about how many rows of each table are looked at.
        threshold: the confidence from which a column is reported, above 0 and up to 1.
        ids: the national identification numbers to look for, such as ``us.ssn``.
        regions: regions whose telephone numbers are known as they are written there, such as ``US``.
        threads: how many tables are looked at at the same time.

    Raises:
        RequestInvalid: an argument is not valid.
    """

    tables: str | Sequence[str] = "*"
    rows: int = ROWS
    threshold: float = THRESHOLD
    ids: tuple[str, ...] = national_ids.ALL
    regions: tuple[str, ...] = REGIONS
    threads: int = 4
    at_a_time: int = 32
    name: str = "discover"
    rules: Sequence[Rule] = field(default_factory=lambda: (*(kind.rule for kind in KINDS), NOT_EXAMINED))
    changes: bool = False

    def __post_init__(self) -> None:
        national_ids.require_known(self.ids)
        require_regions(self.regions)
        if self.rows < 1 or not 0 < self.threshold <= 1:
            raise RequestInvalid(
                f"A sample of {self.rows} rows, or a threshold of {self.threshold}, is not possible.",
                rule="discover-options",
                hint="Use at least one row, and a threshold above 0 and up to 1.",
            )

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Return what makes two runs the same."""
        return {
            "tables": self.tables if isinstance(self.tables, str) else list(self.tables),
            "rows": self.rows,
            "threshold": self.threshold,
            "ids": list(self.ids),
            "regions": list(self.regions),
        }

    def plan(self, lake: Lake) -> Iterator[Item]:
        """Plan one item for each table.

        A table that was renamed, or dropped and created again, is another item.

        Raises:
            LakewardenError, PySparkException: the tables cannot be listed.
        """
        for table in lake.tables(self.tables):
            yield _item(lake, table)

    def run(self, lake: Lake, group: Sequence[Item], steps: Steps) -> Iterator[Outcome]:
        """Look at tables, some of them side by side."""
        yield from in_threads(lake.spark, group, partial(self._table, lake), self.threads)

    def _table(self, lake: Lake, item: Item) -> Outcome:
        try:
            return self._looked_at(lake, item)
        except REFUSALS as error:
            return outcome_of(item, error)

    def _looked_at(self, lake: Lake, item: Item) -> Outcome:
        table = named(item)
        metadata = lake.metadata(table)
        leaves = leaves_of(lake, table, metadata.schema())
        plaintext = [leaf for leaf in leaves if not leaf.encrypted]
        chosen = readable(leaves)
        counted = self._counts(lake, table, chosen, *totals(metadata.current_snapshot()))
        findings = [*self._findings(item, plaintext, counted), *_not_examined(item, plaintext, chosen)]
        return Outcome.of(
            item,
            findings=tuple(findings),
            counts={
                "columns": len(leaves),
                "encrypted-columns": len(leaves) - len(plaintext),
                "examined-columns": len(chosen),
            },
        )

    def _counts(
        self, lake: Lake, table: TableName, chosen: Sequence[Leaf], files: int, size: int
    ) -> Mapping[str, Looked]:
        if not chosen:
            return {}
        roots = {".".join(leaf.root): leaf.root for leaf in chosen}
        names = tuple(leaf.described.name for leaf in chosen)
        tasks = max(files, size // _SPLIT, 1)
        each = max(self.rows // tasks, min(self.rows, _FEWEST_ROWS))
        looking = Looking(tuple(roots), names, each, self.ids, self.regions)
        return looked(sample(lake.spark.table(lake.name(table)), roots, looking), names)

    def _findings(
        self, item: Item, plaintext: Sequence[Leaf], counted: Mapping[str, Looked]
    ) -> Iterator[Finding]:
        known = detectors(self.ids, self.regions)
        for leaf in plaintext:
            column = leaf.described
            for each in verdicts(column, counted.get(column.name, Looked()), known):
                if each.confidence >= self.threshold:
                    message = (
                        f"Column {column.name} seems to hold {each.kind.what} "
                        f"(confidence {each.confidence:.2f}): {each.why}."
                    )
                    yield each.kind.rule.found(item.table, message, column=column.name)


def _item(lake: Lake, table: TableName) -> Item:
    payload = {"namespace": list(table.namespace), "name": table.name}
    try:
        metadata = lake.metadata(table)
    except LakewardenError as error:
        if concerns_all(error):
            raise
        return Item(f"load {table}", str(table), payload=payload, why=reason(error))
    files, size = totals(metadata.current_snapshot())
    return Item(f"{table} {metadata.table_uuid}", str(table), files, size, payload)


def named(item: Item) -> TableName:
    """Return the table of an item."""
    return TableName(tuple(item.payload["namespace"]), item.payload["name"])


def _not_examined(item: Item, plaintext: Sequence[Leaf], chosen: Sequence[Leaf]) -> Iterator[Finding]:
    """Yield a note if there are columns whose values should have been looked at."""
    left = [leaf.described.name for leaf in plaintext if leaf.examined and leaf not in chosen]
    if left:
        names = ", ".join(left[:_MOST_NAMED]) + (", …" if len(left) > _MOST_NAMED else "")
        yield NOT_EXAMINED.found(
            item.table,
            f"{len(left)} of {len(plaintext)} plaintext columns were not looked at, because the user "
            f"does not see them, or what they are in, unmasked and in every row: {names}.",
        )
