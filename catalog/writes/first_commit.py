"""Checks the commit of a write that creates or replaces its table, and makes its first snapshot."""

from __future__ import annotations

from dataclasses import replace

from pyiceberg.table.refs import MAIN_BRANCH

from catalog.authorization.authorizer import Caller
from catalog.commits.snapshot_producer import MadeSnapshot
from catalog.context import ServiceContext
from catalog.reading.loading import LoadedTable
from catalog.writes.new_files import FileCommit
from catalog.writes.sessions import WriteRow
from catalog.writes.written_files import make_snapshot
from policy.errors import RequestInvalid


def first_snapshot(
    context: ServiceContext,
    table: LoadedTable,
    row: WriteRow,
    files: FileCommit,
    caller: Caller,
) -> MadeSnapshot | None:
    """Make the first snapshot of a table as a write defines it; None if the commit has no rows.

    Args:
        context: the parts that services share.
        table: the table, without rows on its main branch.
        row: the write.
        files: the commit.
        caller: who commits.

    Raises:
        RequestInvalid: it is neither an append to the main branch nor a commit without rows.
        as `make_snapshot` otherwise.
    """
    if files == FileCommit("none", ()):
        return None
    if files != FileCommit("append", files.added, branch=MAIN_BRANCH, summary=files.summary):
        raise RequestInvalid(
            "The write defines its table, so it must be an append to main without any other field, or none; "
            f"it is {files.operation!r} on {files.branch!r}.",
            table=table.name,
            rule="operation",
            hint="Commit the files as an append.",
        )
    rows = replace(files, schema_id=table.metadata.current_schema_id)
    return make_snapshot(context, table, row, rows, caller)
