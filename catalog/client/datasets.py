"""Presents a scan as a dataset of PyArrow, whose every scan reads through the catalog.

- The columns of a scan of the dataset are pushed down: the catalog is asked for these and for those of the
  filter. Filters of PyArrow are opaque expressions, so they are applied to the rows that were read.
- PyArrow's C++ code cannot call this class. What it would read by itself is a file that cannot exist, so that
  a function that goes past `scanner` fails, and never sees an empty table.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from policy.errors import NotSupportedYet

_PAST: Final = "/dev/null/read-this-dataset-by-its-methods"


class Narrowable(Protocol):
    """A scan of a table, as the dataset needs it."""

    def narrowed(self, columns: tuple[str, ...] | None = None) -> Narrowable:
        """The same scan of some columns of its result."""

    def to_reader(self) -> pa.RecordBatchReader:
        """A reader of the wanted rows."""

    def count(self) -> int:
        """The number of the wanted rows."""


class ScanDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """A scan of a table as a dataset of PyArrow. It can be scanned many times.

    Args:
        scan: the scan.
        schema: the columns of its result.
        filter: an expression of PyArrow that rows also have to match; None for all.
    """

    def __init__(self, scan: Narrowable, schema: pa.Schema, filter: Any = None) -> None:
        files, kind = LocalFileSystem(), ds.IpcFileFormat()
        super().__init__([kind.make_fragment(_PAST, filesystem=files)], schema, kind, filesystem=files)
        self._scan = scan
        self._kept = filter

    def __reduce__(self) -> Any:
        raise _no_method("pickle")

    def scanner(self, columns: Any = None, filter: Any = None, **options: Any) -> ds.Scanner:
        """A scanner of the rows, which asks the catalog for a plan; see `pyarrow.dataset.Dataset.scanner`.

        Raises:
            LakewardenError: as `Scan.to_arrow`.
        """
        kept = _both(self._kept, filter)
        schema = self.schema
        projection = schema.names if columns is None else columns
        _bind(schema, projection, kept)
        needed = [name for name in schema.names if not _binds_without(schema, name, projection, kept)]
        # Rows without columns have no number that PyArrow keeps.
        reader = self._scan.narrowed(tuple(needed or schema.names[:1])).to_reader()
        return ds.Scanner.from_batches(reader, columns=projection, filter=kept, **options)

    def filter(self, expression: Any) -> ScanDataset:
        """The dataset of the rows that also match an expression of PyArrow."""
        return ScanDataset(self._scan, self.schema, _both(self._kept, expression))

    def count_rows(self, filter: Any = None, **options: Any) -> int:
        """The number of rows; without a filter, it is counted as `Scan.count` does."""
        if self._kept is None and filter is None:
            return self._scan.count()
        return int(self.scanner(columns=[], filter=filter, **options).count_rows())

    def get_fragments(self, filter: Any = None) -> Any:
        """Not supported: the catalog decides about the table, not about single files."""
        raise _no_method("get_fragments")

    def replace_schema(self, schema: pa.Schema) -> Any:
        """Not supported."""
        raise _no_method("replace_schema")

    def join(self, *given: Any, **options: Any) -> Any:
        """Not supported."""
        raise _no_method("join")

    def join_asof(self, *given: Any, **options: Any) -> Any:
        """Not supported."""
        raise _no_method("join_asof")

    def sort_by(self, *given: Any, **options: Any) -> Any:
        """Not supported."""
        raise _no_method("sort_by")


def _both(first: Any, second: Any) -> Any:
    return second if first is None else first if second is None else first & second


def _bind(schema: pa.Schema, columns: Any, filter: Any) -> None:
    """Bind a projection and a filter to a schema.

    Raises:
        pyarrow.ArrowInvalid: they name a column that it does not have.
    """
    ds.InMemoryDataset(schema.empty_table()).scanner(columns=columns, filter=filter)


def _binds_without(schema: pa.Schema, name: str, columns: Any, filter: Any) -> bool:
    """Whether neither the projection nor the filter needs a column. PyArrow does not list what they name."""
    try:
        _bind(schema.remove(schema.get_field_index(name)), columns, filter)
    except (pa.ArrowInvalid, KeyError):
        return False
    return True


def _no_method(name: str) -> NotSupportedYet:
    return NotSupportedYet(
        f"A dataset of a Lakewarden scan has no {name}.",
        rule="dataset",
        hint="Use scanner, to_table, to_batches, head, count_rows or filter, or the scan's to_arrow().",
    )
