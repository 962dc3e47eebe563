"""Answers repeated requests: authorizes the caller again, and finds the data to rebuild the answer from.

A repetition needs the privilege that the request itself requires first. It is authorized by the current
policies and the current name of the table, and recorded in the audit log like any other request. The answer
can show a newer state than the first answer (Iceberg REST catalog specification, parameter
`idempotency-key`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from catalog.audit import outcomes
from catalog.authorization.authorizer import Caller
from catalog.authorization.table_access import any_of, require_any
from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import Namespace, TableName
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.iceberg.metadata import parse_metadata
from catalog.key_management.rotation import Rotated
from catalog.reading.loading import LoadedTable
from catalog.state import seals, table_state
from catalog.state.idempotency import Kept
from catalog.state.table_state import TableRecord, TableState
from policy.errors import LakewardenError, RequestInvalid
from policy.location.location import Location
from policy.privileges.namespaces import namespace_requests
from policy.privileges.operations import On, loading, renaming, required


class Repeats:
    """Answers requests that were performed before.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def table(
        self, caller: Caller, action: str, name: TableName, kept: Kept, operation: str | None = None
    ) -> LoadedTable:
        """Load the table that a request made or changed, in its current state.

        Args:
            caller: who repeats the request.
            action: the action of the request.
            name: the table, as the request names it.
            kept: the outcome of the request.
            operation: whose privileges are required; the action itself by default.

        Raises:
            NotAuthorized: the privileges are no longer granted, or standard clients cannot load the table;
                or the table has changed since then, and the caller cannot load it.
            NoSuchTable: the table was dropped since then, or has a name that the caller must not see.
            LakewardenError: the refusal that the request ended with.
        """
        record = self._of_table(caller, action, name, kept, operation or action)
        table = self._context.loader.load_sealed(_still_there(record, name).name)
        self._context.standard_clients.require(caller, action, table)
        if table.metadata_location != kept.detail:
            # The answer shows more than the first one did. So it needs a privilege to load the table,
            # unlike CREATE.
            columns = table.metadata.schema().column_names
            ways = loading(caller.on(table.record.name, table.record.owner), columns)
            require_any(self._context.authorizer, caller, action, str(table.record.name), ways)
        return table

    def rotated(self, caller: Caller, name: TableName, kept: Kept) -> Rotated:
        """Rebuild the result of a rotation of keys; errors as in `table`."""
        record = _still_there(self._of_table(caller, "key.rotate", name, kept, "key.rotate"), name)
        with read(self._context.engine) as connection:
            after = seals.find(connection, kept.detail or "")
            before = seals.find(connection, after.base_location or "") if after else None
            versions = [
                table_state.governed_version(connection, record.id, seal.governed_version)
                for seal in (before, after)
                if seal is not None
            ]
        old, new = (each.epochs.current.peks if each else () for each in versions)
        assert after is not None
        return Rotated(after.governed_version, tuple(zip(old, new, strict=True)))

    def dropped(self, caller: Caller, action: str, name: TableName, kept: Kept) -> None:
        """Authorize a repeated drop or abort of a write; nothing is to rebuild. Errors as in `table`."""
        self._of_table(caller, action, name, kept, action)

    def unregistered(self, caller: Caller, name: TableName, kept: Kept) -> LoadedTable:
        """Read the metadata that a table had when a request unregistered it; errors as in `table`."""
        action = "table.unregister"
        record = self._of_table(caller, action, name, kept, action)
        with read(self._context.engine) as connection:
            seal = seals.find(connection, kept.detail) if record and kept.detail else None
            governed = table_state.current_governed(connection, record.id) if record else None
        if record is None or seal is None or governed is None:
            raise _gone(name)
        limit, path = self._context.settings.limits.metadata_bytes, seal.metadata_location
        data = self._context.storage.read(Location.parse(path), limit=limit)
        seals.check_digest(data, seal.digest, what="table metadata", path=path, table=str(name))
        metadata = parse_metadata(data, path=path, table=str(name), max_bytes=limit)
        table = LoadedTable(record, governed, metadata, path, seal)
        self._context.standard_clients.require(caller, action, table)
        ways = loading(caller.on(record.name, record.owner), metadata.schema().column_names)
        require_any(self._context.authorizer, caller, action, str(record.name), ways)
        return table

    def transaction(self, caller: Caller, names: Sequence[TableName], kept: Kept) -> None:
        """Authorize a repeated commit to several tables; there is nothing to rebuild.

        Raises:
            NotAuthorized: the privileges on a table are no longer granted.
            LakewardenError: the refusal that the request ended with.
        """
        outcomes.concerns("table.commit", map(str, names))
        for name in names:
            self._context.require(caller, "table.commit", name)
        raise_refusal(kept)

    def renamed(self, caller: Caller, source: TableName, target: TableName, kept: Kept) -> None:
        """Authorize a repeated rename; there is nothing to rebuild. Errors as in `table`."""
        self._context.loader.settle(target)
        record = self._record(kept)
        owner = record.owner if record else self._context.loader.owner(source)
        requests = renaming(caller.on(source, owner), target)
        self._context.authorizer.require(caller, "table.rename", f"{source} -> {target}", requests)
        raise_refusal(kept)

    def view(
        self, caller: Caller, action: str, name: TableName, kept: Kept, target: TableName | None = None
    ) -> None:
        """Authorize a repeated change of a view, whose owner is stored; there is nothing to rebuild.

        Raises:
            NotAuthorized: the privileges are no longer granted.
            LakewardenError: the refusal that the request ended with.
        """
        requests = required(action, caller.on(name, None if action == "view.create" else kept.detail))
        if target is not None:
            requests += required("view.create", caller.on(target))
        self._context.authorizer.require(caller, action, str(name), requests)
        raise_refusal(kept)

    def namespace(
        self,
        caller: Caller,
        action: str,
        namespace: Namespace,
        kept: Kept,
        updates: dict[str, str] | None = None,
        removals: Collection[str] = (),
    ) -> None:
        """Authorize a repeated change of a namespace; there is nothing to rebuild.

        Raises:
            NotAuthorized: the privileges are no longer granted.
            LakewardenError: the refusal that the request ended with.
        """
        on = On.namespace(caller.principal, namespace)
        requests = namespace_requests(action, on, updates or {}, removals)
        self._context.authorizer.require(caller, action, ".".join(namespace), requests)
        raise_refusal(kept)

    def updated(
        self,
        caller: Caller,
        namespace: Namespace,
        kept: Kept,
        removals: Sequence[str],
        updates: dict[str, str],
    ) -> tuple[list[str], list[str], list[str]]:
        """Rebuild the answer of `Namespaces.update`; the positions of removed properties are stored."""
        self.namespace(caller, "namespace.update", namespace, kept, updates, removals)
        wanted = list(dict.fromkeys(removals))
        removed = [wanted[int(at)] for at in (kept.detail or "").split()]
        return sorted(updates), removed, [name for name in wanted if name not in removed]

    def _of_table(
        self, caller: Caller, action: str, name: TableName, kept: Kept, operation: str
    ) -> TableRecord | None:
        """Find the table by the stored location.

        Returns None if the request was refused, or if the table now has a name that the caller must not see.
        """
        self._context.loader.settle(name)
        record = self._record(kept)
        now = record.name if record and record.state is TableState.ACTIVE else name
        owner = record.owner if record else self._context.loader.owner(name)
        ways = required(operation, caller.on(now, owner))
        if now != name and any_of(self._context.authorizer, ways) is None:
            record, now, ways = None, name, required(operation, caller.on(name, owner))
        require_any(self._context.authorizer, caller, action, str(now), ways)
        raise_refusal(kept)
        return record

    def _record(self, kept: Kept) -> TableRecord | None:
        if kept.detail is None:
            return None
        with read(self._context.engine) as connection:
            seal = seals.find(connection, kept.detail)
            return table_state.table_by_id(connection, seal.table_id) if seal else None


def _still_there(record: TableRecord | None, name: TableName) -> TableRecord:
    if record is None or record.state is not TableState.ACTIVE:
        raise _gone(name)
    return record


def _gone(name: TableName) -> NoSuchTable:
    return NoSuchTable(
        f"The first request succeeded, but the table {name} no longer exists.",
        table=str(name),
        rule="idempotency-key",
    )


def raise_refusal(kept: Kept) -> None:
    """Raise the refusal that the first request ended with.

    Raises:
        LakewardenError: the class and rule of that refusal.
    """
    if kept.refusal is None:
        return
    known = {each.__name__: each for each in _descendants(LakewardenError)}
    raise known.get(kept.refusal, RequestInvalid)(
        "The first request with this idempotency key was refused.",
        rule=kept.rule,
        hint="To try again, send the request with a new idempotency key.",
    )


def _descendants(parent: type[LakewardenError]) -> Iterator[type[LakewardenError]]:
    for each in parent.__subclasses__():
        yield each
        yield from _descendants(each)
