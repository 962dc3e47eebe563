"""Turns the files that an engine wrote into a new snapshot, on top of the head of a branch.

One mechanism serves all writes: a commit adds data files and delete files, and removes files that it names,
or that the catalog finds by a filter or by partitions. It is validated against what came since its base
(`validation`). Every attempt does all of this again on the head of that moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.table.snapshots import Operation, Snapshot

from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.commits.snapshot_producer import MadeSnapshot, SnapshotProducer
from catalog.context import ServiceContext
from catalog.reading.loading import LoadedTable
from catalog.writes.commit_form import REPLACES, WAP_ID, check_form
from catalog.writes.data_files import data_file_of
from catalog.writes.delete_files import check_partitions, check_removed, live_data_files, referenced
from catalog.writes.filters import authorize_filters, parent_of, require_every_row, shows_paths
from catalog.writes.new_files import FileCommit, Isolation
from catalog.writes.replacing import check_replaced
from catalog.writes.scopes import RowsOfFilter, RowsOfPartitions, Scope
from catalog.writes.sessions import WriteRow
from catalog.writes.since import Since, ancestor, since
from catalog.writes.transport import rewrapper_of
from catalog.writes.validation import Validation, isolation_of
from catalog.writes.whole_files import whole_files
from policy.errors import LakewardenError

#: Snapshot summary entry with the id of the write that made the snapshot.
WRITE_ID: Final = "lakewarden.write-id"
PEK_ID: Final = "encryption.pek-id"


def make_snapshot(
    context: ServiceContext,
    table: LoadedTable,
    row: WriteRow,
    files: FileCommit,
    caller: Caller,
) -> MadeSnapshot:
    """Make the snapshot of a write.

    Args:
        context: the parts that services share.
        table: the table, sealed.
        row: the write.
        files: the commit.
        caller: who commits.

    Raises:
        NotAuthorized: the caller cannot select a column of a filter unmasked, or the commit removes rows and
            a row filter of a policy applies, or a mask if it overwrites them.
        RequestInvalid, NotSupportedYet, LocationNotAllowed, EncryptionPolicyViolation, DecryptionRefused:
            a file breaks a rule.
        KeyNotUsable, KmsUnavailable: see `rewrapper_of`.
        ConcurrentModification: a commit since the base conflicts.
    """
    check_form(files, table)
    if files.removes_rows:
        overwrites = files.operation in ("overwrite", "replace")
        require_every_row(context, table, caller, "table.commit", overwrites=overwrites)
    given = [each for each in (files.delete_filter, files.conflict_filter) if each is not None]
    authorize_filters(
        context,
        table,
        given,
        caller,
        "table.commit",
        case_sensitive=files.case_sensitive,
        partitions=_compares_partitions(files),
    )
    keys = rewrapper_of(context.keyring, table, row)
    parent = parent_of(table, files.branch)
    producer = SnapshotProducer(context, table, files.branch, parent)
    added = [data_file_of(table, file, row.prefix, keys) for file in files.added]
    try:
        removed = _Change(context, table, files, added, parent).removed(producer)
    except LakewardenError as refusal:
        if refusal.path not in files.named_paths and not shows_paths(context, table, caller):
            refusal.path = None
        raise
    refs = table.governed.epochs.current.peks
    own = {WRITE_ID: row.id} | ({PEK_ID: ",".join(str(ref.pek_id) for ref in refs)} if refs else {})
    own |= {REPLACES: "true"} if files.replace_partitions else {}
    own |= {} if files.wap_id is None else {WAP_ID: files.wap_id}
    made = producer.make(_operation(files, added, removed), added, {**files.summary, **own})
    crash_points.point("write:built")
    return made if files.wap_id is None else made.staged()


def _compares_partitions(files: FileCommit) -> bool:
    """Return whether the commit depends on the partitions of live files: those of the data files of a delete
    file, or those that a dynamic overwrite replaces, which deletes by their values.
    """
    return files.replace_partitions or any(each.content != DataFileContent.DATA for each in files.added)


class _Change:
    """What a commit does to its branch."""

    def __init__(
        self,
        context: ServiceContext,
        table: LoadedTable,
        files: FileCommit,
        added: Sequence[DataFile],
        parent: Snapshot | None,
    ) -> None:
        self._context = context
        self._reader = context.reader
        self._table = table
        self._files = files
        self._added = added
        self._parent = parent
        self._level = isolation_of(table, files)
        self._referenced = referenced(files.added)

    def removed(self, producer: SnapshotProducer) -> list[ManifestEntry]:
        """Validate the commit, and remove its files; return their entries.

        Raises:
            ConcurrentModification: a commit since the base conflicts.
            RequestInvalid: a rule of the commit's files is broken.
        """
        files, table = self._files, self._table
        removal = self._removal()
        validation = Validation(table, files, self._conflict_scope(removal), self._since(), self._level)
        validation.check_schema()
        live = live_data_files(self._reader, table, self._parent, self._referenced)
        validation.check_read(live, self._referenced)
        check_partitions(files.added, self._added, live, table.name)
        validation.check_scope()
        paths = validation.to_remove()
        if removal is not None:
            paths = whole_files(self._reader, table, self._parent, removal, validation.since)
        removed = producer.remove(paths)
        validation.check_deletes(removed, live)
        if files.operation == "replace":
            check_replaced(self._reader, table, self._parent, files, self._added, removed, live)
        if removal is None:
            check_removed(self._reader, table, self._parent, files, self._added, removed)
        return removed

    def _removal(self) -> Scope | None:
        """Return the rows that the catalog finds the files of; None if the commit names its files."""
        if self._files.delete_filter is not None:
            return self._rows(self._files.delete_filter)
        if self._files.replace_partitions:
            data = [each for each in self._added if each.content is DataFileContent.DATA]
            return RowsOfPartitions(self._table, data)
        return None

    def _conflict_scope(self, removal: Scope | None) -> Scope:
        if self._files.conflict_filter is not None:
            return self._rows(self._files.conflict_filter)
        return self._rows(AlwaysTrue()) if removal is None else removal

    def _rows(self, row_filter: BooleanExpression) -> RowsOfFilter:
        sensitive = self._files.case_sensitive
        return RowsOfFilter(self._context.keyring, self._table, row_filter, case_sensitive=sensitive)

    def _since(self) -> Since:
        files = self._files
        named = bool(files.deleted_paths) or bool(self._referenced)
        based = files.delete_filter is not None and files.base_snapshot_id is not None
        if named or based or (files.operation != "append" and self._level is not Isolation.NONE):
            return since(self._reader, self._table, files.base_snapshot_id, self._parent)
        if files.base_snapshot_id is not None:
            ancestor(self._table, files.base_snapshot_id, self._parent)
        return Since()


def _operation(files: FileCommit, added: Sequence[DataFile], removed: Sequence[ManifestEntry]) -> Operation:
    """Return the operation of the summary, as Iceberg writes it."""
    if files.operation == "replace":
        return Operation.REPLACE
    adds_rows = any(each.content is DataFileContent.DATA for each in added)
    adds_deletes = any(each.content is not DataFileContent.DATA for each in added)
    if not (removed or adds_deletes or files.removes_rows_by_condition or files.operation == "delete"):
        return Operation.APPEND
    return Operation.OVERWRITE if adds_rows else Operation.DELETE
