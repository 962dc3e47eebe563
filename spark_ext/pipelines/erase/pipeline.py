"""The pipeline `erase`: which tables and columns it searches, and how a run is recognized."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName, table_name
from policy.errors import LakewardenError, RequestInvalid
from spark_ext.pipelines.erase.identifiers import combined
from spark_ext.pipelines.erase.search import Views
from spark_ext.pipelines.erase.table import (
    FILES_LEFT,
    ROWS_FOUND,
    ROWS_LEFT,
    TAG_HOLDS_ROWS,
    Erasure,
    TableErasure,
)
from spark_ext.pipelines.failures import concerns_all, reason
from spark_ext.pipelines.items import Item, Outcome, Rule
from spark_ext.pipelines.lake import Lake, on_table, totals
from spark_ext.pipelines.pipeline import Steps
from spark_ext.pipelines.threads import in_threads

RULES: Final = (TAG_HOLDS_ROWS, ROWS_LEFT, FILES_LEFT, ROWS_FOUND)


@dataclass(frozen=True)
class Where:
    """The columns that hold identifiers.

    Attributes:
        columns: by dotted name of a table, the columns.
        tags: tags of the encryption policy; all columns that have one of them are searched.
        tables: patterns of the tables whose tagged columns are searched.

    Raises:
        RequestInvalid: neither columns nor tags are given, or both; one text in the place of several; or
            patterns of tables beside columns.
    """

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tags: Sequence[str] = ()
    tables: str | Sequence[str] = "*"

    def __post_init__(self) -> None:
        if bool(self.columns) == bool(self.tags) or not all(self.columns.values()):
            raise _not_where("An erasure needs the columns of each table, or tags.")
        if any(isinstance(each, str) for each in (self.tags, *self.columns.values())):
            raise _not_where("One text is not a list of columns or tags.")
        if self.columns and self.tables != "*":
            raise _not_where("Patterns of tables choose tables by tags, and columns are given.")

    def to_json(self) -> dict[str, Any]:
        """Return what makes two choices the same."""
        columns = {table: sorted(each) for table, each in sorted(self.columns.items())}
        tables = self.tables if isinstance(self.tables, str) else list(self.tables)
        return {"columns": columns} if columns else {"tags": sorted(self.tags), "tables": tables}


def _not_where(problem: str) -> RequestInvalid:
    return RequestInvalid(
        problem,
        rule="erased-columns",
        hint='Give columns={"sales.orders": ["customer_id"]}, or tags=["customer-id"] and tables.',
    )


@dataclass
class Erase:
    """Erases the rows of identifiers from tables.

    Args:
        where: the columns that hold them.
        erasure: whose rows, and how.
    """

    where: Where
    erasure: Erasure
    at_a_time: int = 4
    name: str = "erase"
    rules: Sequence[Rule] = RULES
    changes: bool = True

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Return what makes two runs the same, with the salted digest of all identifiers.

        `drop_tags` is not among it: a run that tags stood in the way of is continued by one that drops them.
        """
        return {
            **self.where.to_json(),
            "erasure": self.erasure.id,
            "salt": self.erasure.scrypt.salt,
            "identifiers": combined(self.erasure.digests),
        }

    def plan(self, lake: Lake) -> Iterator[Item]:
        """Plan one item for each table.

        Raises:
            LakewardenError, PySparkException: the tables cannot be listed, or no column has one of the tags.
        """
        if self.where.columns:
            for name, columns in sorted(self.where.columns.items()):
                *namespace, last = name.split(".")
                yield self._item(lake, table_name(namespace, last), list(columns))
            return
        items = [item for table in lake.tables(self.where.tables) for item in self._tagged(lake, table)]
        if not items:
            # A misspelt tag would erase nothing, and the run would be complete.
            raise _not_where(
                f"No column of these tables has one of the tags {', '.join(self.where.tags):.200}."
            )
        yield from items

    def _tagged(self, lake: Lake, table: TableName) -> Iterator[Item]:
        try:
            found = lake.admin("GET", on_table(table, "columns"))["columns"]
        except NoSuchTable:
            return  # A view, or dropped meanwhile.
        except LakewardenError as error:
            yield _failing(table, error)
            return
        columns = [each["name"] for each in found if set(each["tags"] or ()) & set(self.where.tags)]
        if any(each["tags"] is None for each in found):
            problem = "The tags of the columns are not known to you. You need the alter permission on it."
            yield Item(str(table), str(table), payload=_payload(table) | {"problem": problem})
        elif columns:
            yield self._item(lake, table, columns)

    def _item(self, lake: Lake, table: TableName, columns: list[str]) -> Item:
        payload = _payload(table) | {"columns": columns}
        try:
            metadata = lake.metadata(table)
        except LakewardenError as error:
            return _failing(table, error)
        files, size = totals(metadata.current_snapshot())
        return Item(f"{metadata.table_uuid} {' '.join(sorted(columns))}", str(table), files, size, payload)

    def run(self, lake: Lake, group: Sequence[Item], steps: Steps) -> Iterator[Outcome]:
        """Erase rows from tables."""
        views = Views(lake, self.erasure.identifiers)
        try:
            work = partial(_erase, lake, steps, self.erasure, views)
            yield from in_threads(lake.spark, group, work, self.at_a_time)
        finally:
            views.drop()

    def look(self, lake: Lake, group: Sequence[Item], steps: Steps) -> Iterator[Outcome]:
        """Count the rows that `run` would erase."""
        views = Views(lake, self.erasure.identifiers)
        try:
            work = partial(_look, lake, steps, self.erasure, views)
            yield from in_threads(lake.spark, group, work, self.at_a_time)
        finally:
            views.drop()


def _erase(lake: Lake, steps: Steps, erasure: Erasure, views: Views, item: Item) -> Outcome:
    return TableErasure(lake, item, steps, erasure, views).run()


def _look(lake: Lake, steps: Steps, erasure: Erasure, views: Views, item: Item) -> Outcome:
    return TableErasure(lake, item, steps, erasure, views).look()


def _payload(table: TableName) -> dict[str, Any]:
    return {"namespace": list(table.namespace), "name": table.name}


def _failing(table: TableName, error: LakewardenError) -> Item:
    """Return the item of a table that cannot be loaded: it fails with the reason."""
    if concerns_all(error):
        raise error
    return Item(str(table), str(table), payload=_payload(table) | {"problem": reason(error)})
