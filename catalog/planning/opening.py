"""Opens a table for a caller who reads it: any privilege first, then the table, then the snapshot.

Scans and metadata tables begin with it, so that both refuse the same callers and the same tables.
"""

from __future__ import annotations

from typing import Protocol

from pyiceberg.table.snapshots import Snapshot

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.table_access import report
from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.reading.loading import LoadedTable
from policy.errors import MetadataUnsealed, RequestInvalid
from policy.privileges.operations import On, loading, required


class State(Protocol):
    """Which state of a table is read; one of these at the most, by default the current one."""

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot."""

    @property
    def ref(self) -> str | None:
        """The branch or tag."""

    @property
    def as_of_ms(self) -> int | None:
        """The time, in milliseconds since 1970."""


def require_sight(authorizer: Authorizer, caller: Caller, name: TableName, on: On, action: str) -> None:
    """Refuse callers without any privilege before anything about the table is revealed.

    Raises:
        NotAuthorized: the caller has none.
    """
    any_right = required(action, on)
    if not authorizer.decide(any_right).allowed:
        authorizer.require(caller, action, str(name), [on.request("select"), *any_right])


def opened(
    context: ServiceContext, authorizer: Authorizer, caller: Caller, name: TableName, on: On, action: str
) -> LoadedTable:
    """Load a table to read it. A caller who cannot load it gets the same error whether it exists or not.

    Raises:
        NotAuthorized: the caller cannot load it.
        NoSuchTable, LocationNotAllowed, MetadataTampered, MetadataInvalid: see `TableLoader.load`.
        MetadataUnsealed: it has encrypted files, and its metadata is not sealed.
    """
    table = _loaded(context, authorizer, caller, name, on, action)
    report(authorizer, caller, table)
    if table.seal is None and table.governed.ever_encrypted:
        raise MetadataUnsealed(
            "The metadata is unsealed, so no keys are released, and files of this table are encrypted.",
            table=table.name,
            rule="unsealed-encrypted",
            hint="Restore the sealed metadata with `lakewarden table restore`.",
        )
    if table.seal is None:
        # Reading refuses what a load refuses.
        context.inspector.whole(table)
    return table


def _loaded(
    context: ServiceContext, authorizer: Authorizer, caller: Caller, name: TableName, on: On, action: str
) -> LoadedTable:
    ways = loading(on)
    try:
        table = context.loader.load(name)
    except NoSuchTable:
        authorizer.screen(caller, action, str(name), *ways)
        raise
    if not any(map(authorizer.grants, ways)):
        columns = {each for schema in table.metadata.schemas for each in schema.column_names}
        ways = loading(on, sorted(columns))
        authorizer.screen(caller, action, str(name), *ways)
    return table


def snapshot_of(table: LoadedTable, state: State) -> Snapshot | None:
    """Return the snapshot that is read; None for a table without one.

    Raises:
        RequestInvalid: the table has no such snapshot, or more than one is named.
    """
    metadata = table.metadata
    ways = [each for each in (state.snapshot_id, state.ref, state.as_of_ms) if each is not None]
    if len(ways) > 1:
        raise RequestInvalid(
            "The scan gives more than one of snapshot-id, ref and as-of-timestamp-ms.",
            table=table.name,
            rule="snapshot",
            hint="Give one of them.",
        )
    if not ways:
        return metadata.current_snapshot()
    found: Snapshot | None
    if state.snapshot_id is not None:
        found = metadata.snapshot_by_id(state.snapshot_id)
    elif state.ref is not None:
        found = metadata.snapshot_by_name(state.ref)
    else:
        as_of = state.as_of_ms or 0
        log = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= as_of]
        found = metadata.snapshot_by_id(log[-1].snapshot_id) if log else None
    if found is None:
        raise RequestInvalid(
            f"The table has no snapshot for {ways[0]!r}.",
            table=table.name,
            rule="snapshot",
            hint="Give an id, a branch or tag, or a time in milliseconds that the table has a snapshot for.",
        )
    return found
