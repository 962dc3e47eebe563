"""Files that a write left although it was committed: those of attempts that were killed or ran twice.

They lie below the write's own directory, beside the files that it committed. Only a file that nothing refers
to is one: neither did the write's own snapshot add it, nor does any snapshot of the table name it. Where that
cannot be told any more, because the write's snapshot has expired, nothing is taken for an orphan.
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
    """Finds what committed writes left.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def of(self, row: WriteRow) -> list[Location]:
        """The files below a committed write's directory that nothing refers to.

        Raises:
            LakewardenError: the table cannot be read, so that nothing is known.
        """
        with read(self._context.engine) as connection:
            record = table_state.table_by_id(connection, row.table_id)
        if record is None or record.state is not TableState.ACTIVE:
            return []  # a dropped table may come back, a purged one's files are gone
        table = self._context.loader.load_sealed(record.name)
        snapshot = None if row.snapshot_id is None else table.metadata.snapshot_by_id(row.snapshot_id)
        if table.record.id != row.table_id or snapshot is None:
            return []
        committed = _canonical(self._added(table, snapshot))
        stored = [each.location for each in self._context.storage.list_prefix(row.prefix)]
        left = [each for each in stored if each.canonical not in committed]
        # Reading the whole table is worth it only where something was left.
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
