"""Turns the files that an engine wrote into a new snapshot.

An overwrite is valid only for the snapshot that it is based on. A replace changes no row, so it is committed
on top of later commits (`replacing`).
"""

from __future__ import annotations

from typing import Final

from pyiceberg.table.snapshots import Operation, Snapshot

from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.commits.snapshot_producer import MadeSnapshot, SnapshotProducer
from catalog.context import ServiceContext
from catalog.reading.loading import LoadedTable
from catalog.writes.new_files import FileCommit, data_file_of
from catalog.writes.replacing import check_replaced
from catalog.writes.sessions import WriteLog, WriteRow
from catalog.writes.transport import rewrapper_of
from policy.errors import RequestInvalid

#: Snapshot summary entry with the id of the write that made the snapshot.
WRITE_ID: Final = "lakewarden.write-id"
PEK_ID: Final = "encryption.pek-id"


def make_snapshot(
    context: ServiceContext, log: WriteLog, table: LoadedTable, row: WriteRow, files: FileCommit
) -> MadeSnapshot:
    """Make the snapshot of a write.

    Args:
        context: the parts that services share.
        log: records the snapshot's id.
        table: the table, sealed.
        row: the write.
        files: the commit.

    Raises:
        RequestInvalid, NotSupportedYet, LocationNotAllowed, EncryptionPolicyViolation, DecryptionRefused:
            a file breaks a rule.
        KeyNotUsable, KmsUnavailable: see `rewrapper_of`.
        CommitConflict: the base is no longer current, or a file to remove does not exist.
    """
    keys = rewrapper_of(context.keyring, table, row)
    head = table.metadata.snapshot_by_name(files.branch)
    _check_operation(files, head, table)
    producer = SnapshotProducer(context, table, files.branch, head)
    added = [data_file_of(table, file, row.prefix, keys) for file in files.added]
    removed = producer.remove(files.deleted_paths)
    if files.operation == "replace":
        check_replaced(context.reader, table, head, files, removed)
    refs = table.governed.epochs.current.peks
    own = {WRITE_ID: row.id} | ({PEK_ID: ",".join(str(ref.pek_id) for ref in refs)} if refs else {})
    made = producer.make(Operation(files.operation), added, {**files.summary, **own})
    crash_points.point("write:built")
    log.announce(row, made.snapshot.snapshot_id)
    crash_points.point("write:announced")
    return made


def _check_operation(files: FileCommit, head: Snapshot | None, table: LoadedTable) -> None:
    if files.operation == "append" and files.deleted_paths:
        raise RequestInvalid(
            f"The append removes {len(files.deleted_paths)} files.",
            table=table.name,
            rule="operation",
            hint="Commit it as an overwrite.",
        )
    current = head.snapshot_id if head else None
    if files.operation == "overwrite" and files.base_snapshot_id != current:
        raise CommitConflict(
            f"The branch has the snapshot {current}, but the files to remove were read from "
            f"{files.base_snapshot_id}.",
            table=table.name,
            hint="Read the table again, and write.",
        )
