"""Restricts a scan to files whose rows are rewritten.

Such a scan reads every column, unmasked, and every row. A column or row that is hidden from the reader would
be lost with the file.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema

from catalog.authorization.columns import ScanColumns
from catalog.base.errors import CommitConflict
from catalog.planning.request import ScanRequest
from catalog.reading.loading import LoadedTable
from policy.errors import RequestInvalid


def require_whole(table: LoadedTable, schema: Schema, columns: ScanColumns, request: ScanRequest) -> None:
    """Refuse to restrict a scan to files unless it reads all their columns and rows.

    Raises:
        RequestInvalid: it does not, or rows are not read as of a branch's head.
    """
    if request.files is None:
        return
    whole = columns.field_ids >= frozenset(schema.field_ids) and isinstance(request.filter, AlwaysTrue)
    if not whole or schema != table.metadata.schema():
        raise RequestInvalid(
            "The scan names files to rewrite, but does not read all of their columns and rows by "
            "the current schema.",
            table=table.name,
            rule="whole-files",
            hint="Leave out columns and filter, and give a branch instead of a snapshot.",
        )


def those_of(files: pa.Table, wanted: frozenset[str], table: LoadedTable) -> pa.Table:
    """Return the planned rows of the requested files.

    Raises:
        CommitConflict: one is not in the table any more.
    """
    found = files.filter(pc.is_in(files["file_path"], value_set=pa.array(sorted(wanted), pa.string())))
    if found.num_rows != len(wanted):
        raise CommitConflict(
            f"{len(wanted) - found.num_rows} of {len(wanted)} files are no longer in the table.",
            table=table.name,
            rule="rewritten-files",
            hint="List the files to rewrite again.",
        )
    return found
