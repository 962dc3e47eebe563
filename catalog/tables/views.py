"""Creates, loads, lists, replaces, renames and drops views.

- A view is a text that an engine reads, with its columns. The database stores it, as Iceberg's view metadata.
  A copy goes to a file (`catalog.tables.view_files`), which is read to register a view, and never else.
- A view is a resource like a table of its name. Its owner created it. Its *definer* wrote its text, or
  changed whose permissions it reads with; this is also who makes a former version the current one. A change
  of its other properties leaves the definer as it is.
- The tables of a *definer view* (the property `security`) are read with the permissions of its definer
  (`catalog.tables.definer_views`). Only its definer renames it, since policies go by names.
- To load a view takes SELECT on all of its columns, without masks and row filters, which nothing here could
  apply; or ALTER. What its text reads is not part of it: an engine asks for each table. Former versions are
  shown to users with ALTER alone.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate
from pyiceberg.view.metadata import ViewMetadata, ViewVersion
from sqlalchemy import Connection

from catalog.authorization.authorizer import Caller
from catalog.authorization.definers import refused
from catalog.authorization.principals import require_known
from catalog.authorization.table_access import require_any
from catalog.authorization.view_access import require_selectable
from catalog.base.errors import CommitConflict
from catalog.base.existence import no_namespace, no_view, view_exists, view_rename_taken
from catalog.base.identifiers import Namespace, TableName
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.iceberg import view_metadata
from catalog.iceberg.view_metadata import AssertViewUUID, ViewUpdate
from catalog.state import idempotency, name_lists, table_state, views
from catalog.state.views import SPARK, ViewRecord
from catalog.tables.paging import ListPage, PageRequest
from catalog.tables.view_files import ViewFiles
from catalog.tables.view_rules import check, is_read_alike
from catalog.tables.visible_names import visible_names
from policy.decision import Reason
from policy.errors import CommitStateUnknown, LakewardenError, RequestInvalid
from policy.location.location import Location
from policy.privileges.operations import On, required
from policy.privileges.requests import AccessRequest
from policy.privileges.tables import has_definer_rights
from policy.privileges.token_scopes import scope_refusal

#: How often a commit is applied to the view that another one has changed meanwhile.
_ATTEMPTS: Final = 4


@dataclass(frozen=True, slots=True)
class ViewDefinition:
    """What a request makes of a view.

    Attributes:
        name: its name.
        schema: its columns.
        sql: its text, in Spark's SQL.
        default_catalog: the catalog of names without one; None for this one.
        default_namespace: the namespace of names without one.
        summary: what the engine that wrote it has to know to read it.
        properties: its properties.
    """

    name: TableName
    schema: Schema
    sql: str
    default_catalog: str | None
    default_namespace: Namespace
    summary: Mapping[str, str]
    properties: Mapping[str, str]

    def updates(self, before: ViewRecord | None = None) -> list[ViewUpdate]:
        """Return the updates that make a view of this, or that make a view this."""
        version = ViewVersion.model_validate(
            {
                "schema-id": 0,
                "timestamp-ms": 0,
                "summary": dict(self.summary),
                "representations": [{"type": "sql", "sql": self.sql, "dialect": SPARK}],
                "default-catalog": self.default_catalog,
                "default-namespace": self.default_namespace,
            }
        )
        updates = view_metadata.first_version(self.schema, version, self.properties)
        if before is None:
            return updates
        removed = [each for each in before.metadata.properties if each not in self.properties]
        properties: list[ViewUpdate] = [
            RemovePropertiesUpdate(removals=removed),
            SetPropertiesUpdate(updates=dict(self.properties)),
        ]
        same = self._is_text_of(before)
        return [*properties, *([] if same else view_metadata.next_version(self.schema, version))]

    def _is_text_of(self, record: ViewRecord) -> bool:
        """Return whether the view has this text already, beside which it can have those of other dialects."""
        version = record.current
        wanted = ({SPARK: self.sql}, self.default_catalog, self.default_namespace, dict(self.summary))
        stands = ({SPARK: record.spark_text}, *view_metadata.read_as(version)[1:])
        return stands == wanted and record.schema.as_struct() == self.schema.as_struct()


class Views:
    """Operations on views.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._files = ViewFiles(context)

    def create(self, caller: Caller, new: ViewDefinition) -> ViewRecord:
        """Create a view; the caller becomes its owner and definer.

        Raises:
            NotAuthorized: CREATE on the name is needed.
            NoSuchNamespace, ViewExists, RequestInvalid, PropertyInvalid: as it says.
        """
        return self.make(caller, new.name, new.updates())

    def make(
        self, caller: Caller, name: TableName, updates: Sequence[ViewUpdate], location: str | None = None
    ) -> ViewRecord:
        """Create a view from updates; the caller becomes its owner and definer.

        Args:
            caller: who asks.
            name: its name.
            updates: make its metadata.
            location: its location; None for the default.

        Raises:
            NotAuthorized: CREATE on the name is needed, and RWStorage on a location that is given.
            NoSuchNamespace, ViewExists, RequestInvalid, PropertyInvalid: as it says.
        """
        with self._creating(caller, "view.create", name):
            return self._made(caller, "view.create", name, updates, location)

    def register(self, caller: Caller, name: TableName, metadata_location: str) -> ViewRecord:
        """Create a view from a metadata file; the caller becomes its owner and definer.

        The file is not trusted. So it makes no definer view, and the view gets a UUID of its own.

        Raises:
            NotAuthorized: CREATE on the name is needed, and RWStorage on the file and on the location that
                it names.
            NoSuchNamespace, ViewExists, RequestInvalid, PropertyInvalid, MetadataInvalid: as it says.
        """
        action, file = "view.register", Location.parse(metadata_location)
        with self._creating(caller, action, name):
            self._files.require_storage(caller, action, name, caller.principal.name, [file])
            self._require_free(name)
            found = self._files.read(file, str(name))
            if has_definer_rights(found.properties, str(name)):
                raise RequestInvalid(
                    "The metadata file is that of a definer view.",
                    table=str(name),
                    rule="register-definer",
                    hint="Create the view again, with the property security.",
                )
            return self._add(caller, action, name, str(uuid.uuid4()), found)

    @contextmanager
    def _creating(self, caller: Caller, action: str, name: TableName) -> Iterator[None]:
        authorizer = self._context.authorizer
        authorizer.require(caller, action, str(name), required(action, caller.on(name)))
        with authorizer.recorded(caller, action, str(name)):
            yield

    def _made(
        self,
        caller: Caller,
        action: str,
        name: TableName,
        updates: Sequence[ViewUpdate],
        location: str | None,
    ) -> ViewRecord:
        view_id = str(uuid.uuid4())
        default = self._files.default_location(name, view_id)
        empty = view_metadata.empty_view(view_id, default if location is None else Location.parse(location))
        metadata = view_metadata.changed(empty, updates, self._context.now_ms(), str(name))
        return self._add(caller, action, name, view_id, metadata)

    def _add(
        self, caller: Caller, action: str, name: TableName, view_id: str, metadata: ViewMetadata
    ) -> ViewRecord:
        metadata = metadata.model_copy(update={"view_uuid": view_id})
        rights, owner = check(metadata, name), caller.principal
        if rights:
            self._require_no_scope(caller, action, name)
        record = ViewRecord(view_id, name, owner.name, owner.name, 1, metadata, rights)
        self._files.authorize(caller, action, record)
        self._require_free(name)

        def add(connection: Connection, made: ViewRecord) -> None:
            views.add(connection, self._context.catalog, made)

        return self._stored(record, add)

    def load(self, caller: Caller, name: TableName) -> ViewRecord:
        """Load a view, for users without ALTER in its current version alone.

        Raises:
            NotAuthorized: SELECT on each of its columns, without mask or row filter, or ALTER is needed.
            NoSuchView: there is none.
        """
        record = self._find(name)
        on = caller.on(name, record.owner if record else None)
        authorizer, alters = self._context.authorizer, required("view.replace", on)
        # Users with a permission on the name are told whether there is a view.
        if record is None or not authorizer.decide(required("view.exists", on)).allowed:
            require_any(authorizer, caller, "view.load", str(name), required("view.load", on))
            raise no_view(name)
        if authorizer.decide(alters).allowed:
            authorizer.require(caller, "view.load", str(name), alters)
            return record
        require_selectable(authorizer, caller, record, "view.load")
        return replace(record, metadata=view_metadata.present(record.metadata))

    def owner(self, name: TableName) -> str | None:
        """Return the owner of a view; None if there is none."""
        record = self._find(name)
        return None if record is None else record.owner

    def exists(self, caller: Caller, name: TableName) -> bool:
        """Return whether a view exists.

        Raises:
            NotAuthorized: the caller has no permission on it.
        """
        return self._require(caller, "view.exists", name) is not None

    def list(self, caller: Caller, namespace: Namespace) -> list[TableName]:
        """List all that `list_page` lists."""
        return self.list_page(caller, namespace, None).entries

    def list_page(
        self, caller: Caller, namespace: Namespace, wanted: PageRequest | None
    ) -> ListPage[TableName]:
        """List the views of a namespace on which the caller has a permission.

        Args:
            caller: who asks.
            namespace: the namespace.
            wanted: the page; None for the whole list.

        Raises:
            NotAuthorized: the caller has no permission in the namespace.
            NoSuchNamespace: there is none.
        """
        authorizer, dotted = self._context.authorizer, ".".join(namespace)
        on = On.namespace(caller.principal, namespace)
        require_any(authorizer, caller, "view.list", dotted, required("view.list", on))
        if self._context.pointers.namespace_properties(namespace) is None:
            raise no_namespace(namespace)
        return visible_names(self._context, caller, "view.exists", namespace, name_lists.views, wanted)

    def replace(self, caller: Caller, new: ViewDefinition, expected: int | None = None) -> ViewRecord:
        """Replace a view; with another text or `security`, the caller becomes its definer.

        Args:
            caller: who asks.
            new: the view.
            expected: the version that it was changed from; None for whichever is there.

        Raises:
            NotAuthorized: ALTER on it is needed.
            NoSuchView: there is none.
            CommitConflict: it is not in the expected version any more.
            RequestInvalid, PropertyInvalid: as it says.
        """
        name = new.name
        record = self._existing(caller, "view.replace", name)
        with self._context.authorizer.recorded(caller, "view.replace", str(name)):
            if expected is not None and expected != record.version:
                raise CommitConflict(
                    f"The view {name} has the version {record.version}, not {expected}.",
                    table=str(name),
                    hint="Load the view again, and repeat the request if it is still needed.",
                )
            return self._replace(caller, record, new.updates(record))

    def commit(
        self,
        caller: Caller,
        name: TableName,
        requirements: Sequence[AssertViewUUID],
        updates: Sequence[ViewUpdate],
    ) -> ViewRecord:
        """Commit updates to a view; with another text or `security`, the caller becomes its definer.

        If another commit comes first, the updates are applied to the view that it leaves.

        Raises:
            as `replace`, and CommitConflict if a requirement does not hold. A new location needs RWStorage.
        """
        left = _ATTEMPTS
        while True:
            record, left = self._existing(caller, "view.replace", name), left - 1
            with self._context.authorizer.recorded(caller, "view.replace", str(name)):
                view_metadata.require(record.metadata, requirements, str(name))
                try:
                    return self._replace(caller, record, updates)
                except CommitConflict:
                    if not left:
                        raise

    def _replace(self, caller: Caller, record: ViewRecord, updates: Sequence[ViewUpdate]) -> ViewRecord:
        metadata = view_metadata.changed(record.metadata, updates, self._context.now_ms(), str(record.name))
        rights = check(metadata, record.name)
        if rights:
            self._require_no_scope(caller, "view.replace", record.name)
        changes = rights != record.definer_rights or not is_read_alike(record.metadata, metadata)
        definer = _definer(record, caller.principal.name, is_changed=changes)
        new = replace(
            record, version=record.version + 1, metadata=metadata, definer=definer, definer_rights=rights
        )
        self._files.authorize(caller, "view.replace", new, record.metadata)

        def change(connection: Connection, made: ViewRecord) -> None:
            views.replace(connection, made, record.version)

        stored = self._stored(new, change)
        self._files.superseded(replace(stored, metadata_location=record.metadata_location))
        return stored

    def _stored(self, record: ViewRecord, store: Callable[[Connection, ViewRecord], None]) -> ViewRecord:
        """Write the file of a state of a view, and store the state."""
        made = replace(record, metadata_location=self._files.write(record))
        try:
            with write(self._context.engine) as connection:
                if made.definer_rights:
                    # A user who was deleted meanwhile would define it for a later one of the name.
                    require_known(connection, made.definer)
                store(connection, made)
                idempotency.settle(connection, record.owner)
        except CommitStateUnknown:
            raise
        except LakewardenError:
            self._files.discard(made.metadata_location)
            raise
        return made

    def rename(self, caller: Caller, source: TableName, target: TableName) -> None:
        """Rename a view. Its owner and definer stay.

        Raises:
            NotAuthorized: ALTER on the view and CREATE on the new name are needed, and SELECT on each of its
                columns, since policies go by names. A definer view is renamed by its definer alone.
            NoSuchView, ViewExists, NoSuchNamespace: as it says.
            CommitConflict: another request changed it.
        """
        record = self._existing(caller, "view.rename", source, required("view.create", caller.on(target)))
        require_selectable(self._context.authorizer, caller, record, "view.rename")
        with self._context.authorizer.recorded(caller, "view.rename", f"{source} -> {target}"):
            self._require_definer(caller, record)
            self._require_free(target, source)
            with write(self._context.engine) as connection:
                views.rename(connection, self._context.catalog, record, target)
                idempotency.settle(connection, record.owner)

    def _require_definer(self, caller: Caller, record: ViewRecord) -> None:
        """Under another name, other users could read with the permissions of the definer."""
        if not record.definer_rights:
            return
        self._require_no_scope(caller, "view.rename", record.name)
        if caller.principal.name != record.definer:
            detail = f"The view {record.name} reads its tables with the permissions of {record.definer}."
            hint = "Only its definer can rename it. Set its property security to invoker first."
            name, reason = str(record.name), Reason("definer-view", detail)
            raise refused(self._context.authorizer, caller, "view.rename", name, reason, hint)

    def _require_no_scope(self, caller: Caller, action: str, name: TableName) -> None:
        """The view of a definer would read for them what their token cannot."""
        if caller.principal.scope is not None:
            (reason,) = scope_refusal(caller.principal.scope, "changes of definer views").reasons
            hint = "Use a token without a scope, or a view with the permissions of its readers."
            raise refused(self._context.authorizer, caller, action, str(name), reason, hint)

    def drop(self, caller: Caller, name: TableName) -> None:
        """Drop a view.

        Raises:
            NotAuthorized: DROP on it is needed.
            NoSuchView: there is none.
            CommitConflict: another request changed it.
        """
        record = self._existing(caller, "view.drop", name)
        with write(self._context.engine) as connection:
            views.remove(connection, self._context.catalog, record)
            idempotency.settle(connection, record.owner)
        self._files.superseded(record)

    def _existing(
        self, caller: Caller, action: str, name: TableName, more: Sequence[AccessRequest] = ()
    ) -> ViewRecord:
        record = self._require(caller, action, name, more)
        if record is None:
            raise no_view(name)
        return record

    def _require(
        self, caller: Caller, action: str, name: TableName, more: Sequence[AccessRequest] = ()
    ) -> ViewRecord | None:
        record = self._find(name)
        requests = required(action, caller.on(name, record.owner if record else None))
        self._context.authorizer.require(caller, action, str(name), [*requests, *more])
        return record

    def _find(self, name: TableName) -> ViewRecord | None:
        with read(self._context.engine) as connection:
            return views.view(connection, self._context.catalog, name)

    def _require_free(self, name: TableName, renamed: TableName | None = None) -> None:
        if self._context.pointers.namespace_properties(name.namespace) is None:
            raise no_namespace(name.namespace)
        self._context.loader.settle(name)
        with read(self._context.engine) as connection:
            bound = table_state.bound(connection, self._context.catalog, name)
        if bound is not None or self._find(name) is not None:
            is_table = bound is not None
            raise (
                view_exists(name, is_table=is_table)
                if renamed is None
                else view_rename_taken(renamed, name, is_table=is_table)
            )


def _definer(record: ViewRecord, user: str, *, is_changed: bool) -> str:
    """Return the definer of a view that a user replaces: who changes what it reads."""
    return user if is_changed else record.definer
