"""Creates, loads, lists, replaces, renames and drops views.

- A view is a text that an engine reads, with its columns. The database stores it, as Iceberg's view metadata.
- A view is a resource like a table of its name. Its owner created it. Its *definer* wrote its text, or
  changed whose permissions it reads with. A change of its other properties leaves the definer as it is.
- The tables of a *definer view* (the property `security`) are read with the permissions of its definer
  (`catalog.tables.definer_views`). Only its definer renames it, since policies go by names.
- To load a view takes SELECT on all of its columns, without masks and row filters, which nothing here could
  apply; or ALTER. What its text reads is not part of it: an engine asks for each table.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.view.metadata import (
    SQLViewRepresentation,
    ViewHistoryEntry,
    ViewMetadata,
    ViewRepresentation,
    ViewVersion,
)

from catalog.authorization.authorizer import Caller
from catalog.authorization.definers import refused, text_tables
from catalog.authorization.table_access import any_of, require_any
from catalog.authorization.view_access import require_selectable
from catalog.base.errors import CommitConflict, NoSuchView
from catalog.base.existence import no_namespace, no_view, view_exists, view_rename_taken
from catalog.base.identifiers import Namespace, TableName, slug
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.state import idempotency, table_state, views
from catalog.state.views import ViewRecord
from catalog.tables.paging import ListPage, PageRequest, visible_page
from policy.decision import Reason
from policy.errors import RequestInvalid
from policy.location.location import Location
from policy.principal import Principal
from policy.privileges.operations import On, required
from policy.privileges.requests import MAX_NAME_LENGTH, AccessRequest
from policy.privileges.tables import check_view_properties, has_definer_rights

MAX_TEXT: Final = 256 * 1024
"""Characters of a view's text."""

_DIALECT: Final = "spark"
_MAX_COLUMNS: Final = 10_000
_MAX_PROPERTIES: Final = 64 * 1024
_OPERATION: Final = "operation"


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

    def text(self) -> tuple[object, ...]:
        """Return what decides which rows the view has."""
        columns = self.schema.as_struct()
        return self.sql, self.default_catalog, self.default_namespace, columns, dict(self.summary)

    @property
    def definer_rights(self) -> bool:
        """Whether its tables are read with the permissions of its definer.

        Raises:
            PropertyInvalid: the property that says so has no valid value.
        """
        return has_definer_rights(self.properties, str(self.name))


class Views:
    """Operations on views.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._warehouse = Location.parse(context.settings.warehouse)

    def create(self, caller: Caller, new: ViewDefinition) -> ViewRecord:
        """Create a view; the caller becomes its owner and definer.

        Raises:
            NotAuthorized: CREATE on the name is needed.
            NoSuchNamespace, ViewExists, RequestInvalid, PropertyInvalid: as it says.
        """
        name = new.name
        action = "view.create"
        self._context.authorizer.require(caller, action, str(name), required(action, caller.on(name)))
        with self._context.authorizer.recorded(caller, action, str(name)):
            check(new)
            self._require_free(name)
            view_id = str(uuid.uuid4())
            metadata = self._first(view_id, new)
            owner, rights = caller.principal, new.definer_rights
            record = ViewRecord(view_id, name, owner.name, owner, 1, metadata, rights)
            with write(self._context.engine) as connection:
                views.add(connection, self._context.catalog, record)
                idempotency.settle(connection, record.owner)
        return record

    def load(self, caller: Caller, name: TableName) -> ViewRecord:
        """Load a view.

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
            raise _missing(name)
        if authorizer.decide(alters).allowed:
            authorizer.require(caller, "view.load", str(name), alters)
        else:
            require_selectable(authorizer, caller, record, "view.load")
        return record

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

        def rows(after: str | None, limit: int | None) -> list[tuple[TableName, str]]:
            with read(self._context.engine) as connection:
                return views.views(connection, self._context.catalog, namespace, after, limit)

        page = visible_page(
            rows,
            lambda row: row[0].name,
            lambda some: [row for row in some if self._sees(caller, *row)],
            wanted,
        )
        return ListPage([name for name, _ in page.entries], page.following)

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
            check(new)
            if expected is not None and expected != record.version:
                raise CommitConflict(
                    f"The view {name} has the version {record.version}, not {expected}.",
                    table=str(name),
                    hint="Load the view again, and repeat the request if it is still needed.",
                )
            replaced = self._replaced(caller, record, new)
            with write(self._context.engine) as connection:
                views.replace(connection, replaced, record.version)
                idempotency.settle(connection, record.owner)
        return replaced

    def _replaced(self, caller: Caller, record: ViewRecord, new: ViewDefinition) -> ViewRecord:
        version, rights = record.version + 1, new.definer_rights
        metadata = record.metadata.model_copy(update={"properties": dict(new.properties)})
        is_changed = not _has_text(record, new)
        if is_changed:
            metadata = _with(record.metadata, new, self._context.now_ms())
        definer = _definer(record, caller.principal, is_changed=is_changed or rights != record.definer_rights)
        return replace(record, version=version, metadata=metadata, definer=definer, definer_rights=rights)

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
        if record.definer_rights and caller.principal.name != record.definer.name:
            detail = f"The view {record.name} reads its tables with the permissions of {record.definer.name}."
            hint = "Only its definer can rename it. Set its property security to invoker first."
            name, reason = str(record.name), Reason("definer-view", detail)
            raise refused(self._context.authorizer, caller, "view.rename", name, reason, hint)

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

    def _existing(
        self, caller: Caller, action: str, name: TableName, more: Sequence[AccessRequest] = ()
    ) -> ViewRecord:
        record = self._require(caller, action, name, more)
        if record is None:
            raise _missing(name)
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

    def _sees(self, caller: Caller, name: TableName, owner: str) -> bool:
        ways = required("view.exists", caller.on(name, owner))
        return any_of(self._context.authorizer, ways) is not None

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

    def _first(self, view_id: str, new: ViewDefinition) -> ViewMetadata:
        levels = [slug(level) for level in new.name.namespace]
        location = self._warehouse.child(*levels, f"{slug(new.name.name)}-{view_id}")
        empty = ViewMetadata(
            view_uuid=view_id,
            format_version=1,
            location=location.canonical,
            schemas=[],
            current_version_id=0,
            versions=[],
            version_log=[],
            properties={},
        )
        return _with(empty, new, self._context.now_ms())


def _with(metadata: ViewMetadata, new: ViewDefinition, now_ms: int) -> ViewMetadata:
    """Return metadata with a definition as its only version.

    Former texts and columns are not kept: users who can read the current ones would see them.
    """
    version_id = metadata.current_version_id + 1
    sql = SQLViewRepresentation(type="sql", sql=new.sql, dialect=_DIALECT)
    version = ViewVersion(
        version_id=version_id,
        schema_id=version_id,
        timestamp_ms=now_ms,
        summary=dict(new.summary) | {_OPERATION: "replace" if metadata.versions else "create"},
        representations=[ViewRepresentation(sql)],
        default_catalog=new.default_catalog,
        default_namespace=new.default_namespace,
    )
    return metadata.model_copy(
        update={
            "current_version_id": version_id,
            "versions": [version],
            "schemas": [Schema(*new.schema.fields, schema_id=version_id)],
            "version_log": [ViewHistoryEntry(timestamp_ms=now_ms, version_id=version_id)],
            "properties": dict(new.properties),
        }
    )


def check(new: ViewDefinition) -> None:
    """Check what a view is to be.

    Raises:
        RequestInvalid: it is too large, has no text or no columns, or a column has no usable name.
        PropertyInvalid: a property cannot be stored.
    """
    name = str(new.name)
    if not new.sql.strip() or len(new.sql) > MAX_TEXT:
        raise RequestInvalid(
            f"The text of the view must have 1 to {MAX_TEXT} characters.", table=name, rule="view"
        )
    if not 1 <= len(new.schema.fields) <= _MAX_COLUMNS:
        raise RequestInvalid(f"The view must have 1 to {_MAX_COLUMNS} columns.", table=name, rule="view")
    if not all(1 <= len(each.name) <= MAX_NAME_LENGTH for each in new.schema.fields):
        raise RequestInvalid(
            f"The names of the view's columns must have 1 to {MAX_NAME_LENGTH} characters.",
            table=name,
            rule="view",
        )
    texts = (*new.properties.items(), *new.summary.items())
    if sum(len(key) + len(value) for key, value in texts) > _MAX_PROPERTIES:
        raise RequestInvalid(
            f"The properties of the view have more than {_MAX_PROPERTIES} characters.",
            table=name,
            rule="view",
        )
    check_view_properties(new.properties, name)
    if new.definer_rights:
        text_tables(new.sql, new.default_catalog, new.default_namespace, new.summary, new.name)


def _has_text(record: ViewRecord, new: ViewDefinition) -> bool:
    """Return whether a view has the text and columns of a definition already."""
    version = record.current
    stands = ViewDefinition(
        new.name,
        record.schema,
        version.representations[0].root.sql,
        version.default_catalog,
        tuple(version.default_namespace),
        {key: value for key, value in version.summary.items() if key != _OPERATION},
        {},
    )
    return stands.text() == new.text()


def _definer(record: ViewRecord, user: Principal, *, is_changed: bool) -> Principal:
    """Return the definer of a view that a user replaces.

    Their own statement renews the groups and roles that are kept of the definer.
    """
    return user if is_changed or user.name == record.definer.name else record.definer


def _missing(name: TableName) -> NoSuchView:
    return no_view(name)
