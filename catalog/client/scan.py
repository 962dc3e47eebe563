"""A scan of a table: columns, filter, snapshot, and the methods that read it.

Each run asks the catalog for a plan of its own, as the user: what was taken away meanwhile refuses it.
Columns and filters are sent as they are; the catalog decides before PyArrow sees anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression

from catalog.base.identifiers import TableName
from catalog.client import datasets, filters, frames, polars_source
from catalog.client import plan as plans
from catalog.client.columns import arrow_schema
from catalog.client.http import CatalogClient, table_path
from catalog.client.plan import Plan
from catalog.client.reading import Run, Wanted
from catalog.storage.base import Storage
from policy.errors import RequestInvalid


@dataclass(frozen=True, slots=True)
class Scan:
    """What is to be read; nothing is asked or read before one of the methods is called.

    Attributes:
        table: the table.
        columns: names of columns, nested ones dotted; None for all.
        filter: rows that are wanted.
        snapshot_id: the snapshot, or
        ref: the branch or tag, or
        as_of_ms: the time, in milliseconds since 1970, as of which to read; by default the current snapshot.
        case_sensitive: whether names are.
        limit: how many rows at the most; None for all.
        own_schema: whether a snapshot is read by its own schema; else by the current one.
        progress: whether a long run shows a bar.
    """

    client: CatalogClient = field(repr=False)
    storage: Storage = field(repr=False)
    table: TableName
    columns: tuple[str, ...] | None
    filter: BooleanExpression
    snapshot_id: int | None = None
    ref: str | None = None
    as_of_ms: int | None = None
    case_sensitive: bool = True
    limit: int | None = None
    own_schema: bool = True
    progress: bool = field(default=True, repr=False)

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise RequestInvalid(
                f"The limit is {self.limit}, but a scan cannot return fewer than 0 rows.",
                table=str(self.table),
                rule="limit",
                hint="Use a limit of 0 or more, or leave it out.",
            )

    def to_arrow(self) -> pa.Table:
        """All wanted rows.

        Raises:
            NotAuthorized: a column, or a key, is not granted.
            RequestInvalid: a column, snapshot, branch or tag that the table does not have.
            LocationNotAllowed, DecryptionRefused, DataFileDamaged, DataFileMissing: a file that is not read.
            CatalogUnavailable, KmsUnavailable, StorageUnavailable: a part does not answer.
        """
        run = self._run()
        return pa.Table.from_batches(run.at_once(), arrow_schema(run.columns))

    def head(self, rows: int = 10) -> pa.Table:
        """The first rows that the scan finds, in no certain order; errors as in `to_arrow`.

        Files are read in the order of the plan until there are enough rows.

        Args:
            rows: how many at the most.
        """
        return self.limited(rows).to_arrow()

    def count(self) -> int:
        """The number of the wanted rows; errors as in `to_arrow`.

        Without a filter, a file without deleted rows is not opened: its manifest says how many rows it has.
        """
        return self._by(self._plan(), ()).count()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The wanted rows in batches, file after file; errors as in `to_arrow`, also in between."""
        with self.to_reader() as reader:
            yield from reader

    def to_reader(self) -> pa.RecordBatchReader:
        """A reader of the wanted rows in batches; errors as in `to_arrow`, also while it is read."""
        run = self._run()
        return pa.RecordBatchReader.from_batches(arrow_schema(run.columns), run.batches())

    def to_pandas(self) -> Any:
        """All wanted rows as a DataFrame of pandas; errors as in `to_arrow`.

        Raises:
            NotSupportedYet: pandas is not installed.
        """
        return frames.to_pandas(self.to_arrow(), str(self.table))

    def to_polars(self, *, lazy: bool = False) -> Any:
        """All wanted rows as a DataFrame of Polars; errors as in `to_arrow`.

        Args:
            lazy: return a LazyFrame instead. The catalog is asked now for the columns, and at each `collect`
                for a plan with the columns that the query needs. Conditions of the query skip files and row
                groups, where Iceberg can compare them.

        Raises:
            NotSupportedYet: Polars is not installed.
        """
        if not lazy:
            return frames.to_polars(self.to_arrow(), str(self.table))
        return polars_source.lazy(self, self.schema())

    def to_dataset(self) -> datasets.ScanDataset:
        """A dataset of PyArrow; each scan of it asks for a plan with the columns that it needs.

        Its filters are applied to rows that were read. To skip files, filter the scan. Errors as in
        `to_arrow`.
        """
        return datasets.ScanDataset(self, self.schema())

    def to_duckdb(self, connection: Any = None) -> Any:
        """A relation of DuckDB, which reads as `to_dataset` does whenever it is executed.

        Args:
            connection: DuckDB's connection; by default its default one.

        Raises:
            NotSupportedYet: DuckDB is not installed.
        """
        dataset = self.to_dataset()
        return (connection or frames.installed("duckdb")).from_arrow(dataset)

    def schema(self) -> pa.Schema:
        """The columns of the result, as Arrow has them; errors as in `to_arrow`."""
        return arrow_schema(self._run().columns)

    def limited(self, rows: int) -> Self:
        """The same scan with at most this number of rows."""
        return replace(self, limit=rows if self.limit is None else min(self.limit, rows))

    def narrowed(
        self, columns: tuple[str, ...] | None = None, condition: BooleanExpression | None = None
    ) -> Self:
        """The same scan of some of its top-level columns, and of the rows that can match a condition.

        Args:
            columns: names of columns of the result; None for all of them.
            condition: another filter, which may leave out more rows than the caller does by itself; None for
                none. It is left out where names are not case-sensitive, since it could be about another
                column, and where the number of rows is limited, since the limit comes first.
        """
        kept = self.columns if columns is None else self._within(columns)
        if condition is None or not self.case_sensitive or self.limit is not None:
            return replace(self, columns=kept)
        return replace(self, columns=kept, filter=And(self.filter, condition))

    def _within(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """What is read of some columns of the result: of a struct, perhaps a part."""
        if self.columns is None:
            return names

        def folded(name: str) -> str:
            return name if self.case_sensitive else name.lower()

        return tuple(
            asked
            for name in names
            for asked in self.columns
            if folded(asked) == folded(name) or folded(asked).startswith(f"{folded(name)}.")
        )

    def _run(self) -> Run:
        return self._by(self._plan(), self.columns)

    def _by(self, plan: Plan, columns: tuple[str, ...] | None) -> Run:
        wanted = Wanted(columns, self.filter, self.case_sensitive, self.limit)
        return Run(self.storage, plan, self._plan, wanted, progress=self.progress)

    def _plan(self) -> Plan:
        body: dict[str, Any] = {
            "snapshot-id": self.snapshot_id,
            "ref": self.ref,
            "as-of-ms": self.as_of_ms,
            "case-sensitive": self.case_sensitive,
            "use-snapshot-schema": self.own_schema,
        }
        body = {name: value for name, value in body.items() if value is not None}
        if self.columns is not None:
            body["columns"] = list(dict.fromkeys([*self.columns, *filters.terms(self.filter)]))
        if self.client.is_engine:
            body["enforces"] = ["read-restrictions"]
        pushed = filters.to_json(self.filter)
        if pushed is not None:
            body["filter"] = pushed
        with self.client.stream(table_path(self.table, "plan"), body) as stream:
            return plans.parse(stream)
