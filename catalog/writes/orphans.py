"""Finds files that a committed write left behind: files of attempts that were killed or ran twice.

They are below the write's own directory, beside the files that it committed. A file is an orphan only if
nothing refers to it: the write's snapshot did not add it, and no snapshot of the table lists it. If the
write's snapshot has expired, this cannot be determined, and no file counts as an orphan.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.compute as pc
from pyiceberg.table.snapshots import Snapshot

from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.reading.loading import LoadedTable
from catalog.snapshot_checks.entries import ADDED
from catalog.state import table_state
from catalog.state.table_state import TableState
from catalog.writes.sessions import WriteRow
from policy.location.location import Location


class Orphans:
    """Finds files that committed writes left behind.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def of(self, row: WriteRow) -> list[Location]:
        """List the files below a committed write's directory that nothing refers to.

        Raises:
            LakewardenError: the table cannot be read, so its orphans are unknown.
        """
        with read(self._context.engine) as connection:
            record = table_state.table_by_id(connection, row.table_id)
        if record is None or record.state is not TableState.ACTIVE:
            return []  # A dropped table can be registered again; a purged table's files are gone.
        table = self._context.loader.load_sealed(record.name)
        snapshot = None if row.snapshot_id is None else table.metadata.snapshot_by_id(row.snapshot_id)
        if table.record.id != row.table_id or snapshot is None:
            return []
        committed = _canonical(self._added(table, snapshot))
        stored = [each.location for each in self._context.storage.list_prefix(row.prefix)]
        left = [each for each in stored if each.canonical not in committed]
        # Reading the whole table is slow, so it is done only if files are left.
        named = _canonical(self._context.inspector.all_paths(table)) if left else frozenset()
        return [each for each in left if each.canonical not in named]

    def _added(self, table: LoadedTable, snapshot: Snapshot) -> list[str]:
        listed = self._context.reader.manifests(table, snapshot)
        own = [entry for entry in listed if entry.added_snapshot_id == snapshot.snapshot_id]
        added: list[str] = []
        for manifest in self._context.reader.open(table, own):
            mask = pc.equal(manifest.entries["status"], ADDED)
            added += manifest.entries["file_path"].filter(mask).to_pylist()
        return added


def _canonical(paths: Iterable[str]) -> frozenset[str]:
    return frozenset(Location.parse(path).canonical for path in paths)
