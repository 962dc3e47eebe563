"""Makes the next governed version of a table, with the keys of a new encryption epoch."""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.envelope.peks import PekRecord
from catalog.reading.loading import LoadedTable
from catalog.rules import governance
from catalog.rules.governance import Requested
from catalog.state import table_state
from catalog.state.table_state import Governed
from policy.encryption.epochs import PekRef
from policy.errors import LocationNotAllowed


class Governing:
    """Makes governed versions.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def next(
        self, table: LoadedTable, wanted: Requested, metadata: TableMetadata, *, begins: bool
    ) -> tuple[Governed, tuple[PekRecord, ...]]:
        """Return the next governed version, and the keys to create for a new epoch.

        Args:
            table: the table before the change.
            wanted: the governed properties after it.
            metadata: the metadata after it.
            begins: whether an epoch begins.

        Raises:
            KeyNotUsable, KeysChanged, KmsUnavailable: see `Keyring.keys_for`.
        """
        with read(self._context.engine) as connection:
            version = table_state.next_governed_version(connection, table.record.id)
        if not begins:
            return governance.next_version(table.governed, wanted, metadata, None, version), ()
        refs, made = self._context.keyring.keys_for(table.record, wanted.spec, table.governed)
        return governance.next_version(table.governed, wanted, metadata, refs, version), made

    def relies(self, table: LoadedTable, governed: Governed) -> frozenset[PekRef]:
        """Return the keys that must stay active until the commit is published.

        Keys that are disabled already are not among them. They only prevent commits that add files, and the
        checks of those files refuse these.
        """
        current = governed.epochs.current
        if current != table.governed.epochs.current:
            return frozenset(current.peks)
        return self._context.keyring.active(table.record, governed)

    def refuse_breaking(self, table: LoadedTable, after: LoadedTable) -> None:
        """Refuse to narrow the allowed locations while live snapshots need them.

        Args:
            table: the table before the change.
            after: the same with the next governed version.

        Raises:
            LocationNotAllowed: a live snapshot needs a location that is removed.
        """
        if all(after.governed.allowed.covers(entry) for entry in table.governed.allowed.entries):
            return
        broken = self._context.inspector.broken_snapshots(after)
        if broken:
            raise LocationNotAllowed(
                f"The change removes allowed locations that {len(broken)} live snapshots need: "
                f"{', '.join(str(snapshot) for snapshot in sorted(broken)[:10])}.",
                table=table.name,
                snapshot=min(broken),
                rule="narrowing",
                hint="Expire these snapshots first, or run `lakewarden table set --force`.",
            )
