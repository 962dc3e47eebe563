"""pyiceberg's `Catalog` interface over the services, for one caller.

Its tables read through a `FileIO` that checks each path by the table's allowed list and each metadata file by
its seal, so that pyiceberg's own scans and writes are checked too. Commits use the catalog's own commit path:
pyiceberg's would read metadata.json again, and accept changes that were made to it in between.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import pyarrow as pa
from pyiceberg.catalog import Catalog, PropertiesUpdateSummary
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AssertCreate, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.view import View

from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import Namespace, TableName, namespace_of, table_name
from catalog.closing import closed
from catalog.iceberg.manifests import decode_manifest, decode_manifest_list
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import refuse_outside
from catalog.service.services import Services
from catalog.state import seals
from catalog.storage.guarded_io import GuardedFileIO
from catalog.tables.drafts import NewTable
from policy.errors import MetadataInvalid, MetadataTampered, NotSupportedYet
from policy.location.allow_list import AllowList
from policy.location.location import Location

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Operation = Callable[Concatenate["GuardedCatalog", _Arguments], _Result]


def _closed(*, changes: bool) -> Callable[[_Operation[_Arguments, _Result]], _Operation[_Arguments, _Result]]:
    """Wrap an operation, so that its outcome is recorded."""

    def marked(operation: _Operation[_Arguments, _Result]) -> _Operation[_Arguments, _Result]:
        route = f"catalog.{operation.__name__}"

        @functools.wraps(operation)
        def run(self: GuardedCatalog, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            with closed(self._services.authorizer, self._caller, route, changes=changes):
                return operation(self, *args, **kwargs)

        return run

    return marked


class GuardedCatalog(Catalog):
    """A catalog as one caller sees it.

    Args:
        services: the open catalog.
        caller: the user of every operation.
    """

    def __init__(self, services: Services, caller: Caller) -> None:
        super().__init__(services.settings.catalog.name)
        self._services = services
        self._caller = caller

    @_closed(changes=True)
    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        """Create a table; see `Creator.create`."""
        new = self._new(identifier, schema, location, partition_spec, sort_order, properties)
        return self._table(self._services.creator.create(self._caller, new))

    @_closed(changes=True)
    def create_table_transaction(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> CreateTableTransaction:
        """Stage a table's creation; see `Creator.stage`."""
        new = self._new(identifier, schema, location, partition_spec, sort_order, properties)
        draft = self._services.creator.stage(self._caller, new)
        metadata = draft.metadata
        shown = metadata.model_copy(update={"properties": metadata.properties | draft.given})
        where = AllowList.of([metadata.location])
        io = GuardedFileIO(self._services.storage, table=str(new.name), allowed=where, writable=where)
        return CreateTableTransaction(StagedTable((*new.name.namespace, new.name.name), shown, "", io, self))

    @_closed(changes=False)
    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table; see `TableAccess.load`."""
        return self._table(self._services.access.load(self._caller, self._name(identifier)))

    @_closed(changes=False)
    def table_exists(self, identifier: str | Identifier) -> bool:
        """Return whether a table exists."""
        return self._services.access.exists(self._caller, self._name(identifier))

    @_closed(changes=True)
    def register_table(
        self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False
    ) -> Table:
        """Register a table; see `Registration.register`."""
        if overwrite:
            _unsupported("Registering over an existing table")
        name = self._name(identifier)
        return self._table(self._services.registration.register(self._caller, name, metadata_location))

    @_closed(changes=True)
    def drop_table(self, identifier: str | Identifier) -> None:
        """Drop a table; see `Lifecycle.drop`."""
        self._services.lifecycle.drop(self._caller, self._name(identifier))

    @_closed(changes=True)
    def purge_table(self, identifier: str | Identifier) -> None:
        """Drop a table and delete its files; see `Lifecycle.purge`."""
        self._services.lifecycle.purge(self._caller, self._name(identifier))

    @_closed(changes=True)
    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        """Rename a table; see `Lifecycle.rename`."""
        target = self._name(to_identifier)
        self._services.lifecycle.rename(self._caller, self._name(from_identifier), target)
        return self._table(self._services.access.load(self._caller, target))

    @_closed(changes=True)
    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        """Commit; see `Committer.commit` and `Creator.commit_staged`."""
        name = self._name(table.name())
        if any(isinstance(requirement, AssertCreate) for requirement in requirements):
            published = self._services.creator.commit_staged(self._caller, name, requirements, updates)
        else:
            published = self._services.committer.commit(self._caller, name, requirements, updates)
        return CommitTableResponse(
            metadata=published.shown_metadata, metadata_location=published.metadata_location
        )

    @_closed(changes=True)
    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        """Create a namespace; see `Namespaces.create`."""
        self._services.namespaces.create(self._caller, _namespace(namespace), dict(properties))

    @_closed(changes=False)
    def namespace_exists(self, namespace: str | Identifier) -> bool:
        """Return whether a namespace exists."""
        return self._services.namespaces.exists(self._caller, _namespace(namespace))

    @_closed(changes=True)
    def drop_namespace(self, namespace: str | Identifier) -> None:
        """Drop an empty namespace; see `Namespaces.drop`."""
        self._services.namespaces.drop(self._caller, _namespace(namespace))

    @_closed(changes=False)
    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """List the tables that the caller has a permission on."""
        names = self._services.namespaces.tables(self._caller, _namespace(namespace))
        return [(*name.namespace, name.name) for name in names]

    @_closed(changes=False)
    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """List the namespaces that the caller has a permission in."""
        parent = Catalog.identifier_to_tuple(namespace)
        return list(self._services.namespaces.children(self._caller, namespace_of(parent) if parent else ()))

    @_closed(changes=False)
    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        """Return the properties of a namespace."""
        return self._services.namespaces.load(self._caller, _namespace(namespace))

    @_closed(changes=True)
    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        """Change properties; see `Namespaces.update`."""
        updated, removed, missing = self._services.namespaces.update(
            self._caller, _namespace(namespace), removals or set(), dict(updates)
        )
        return PropertiesUpdateSummary(removed=removed, updated=updated, missing=missing)

    def supports_server_side_planning(self) -> bool:
        """Return False: plans are available in the engine API."""
        return False

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        """Return no views: they are not supported."""
        return []

    def view_exists(self, identifier: str | Identifier) -> bool:
        """Return False: views are not supported."""
        return False

    def load_view(self, identifier: str | Identifier) -> View:
        """Refuse: views are not supported."""
        _unsupported("Views")

    def drop_view(self, identifier: str | Identifier) -> None:
        """Refuse: views are not supported."""
        _unsupported("Views")

    def register_view(self, identifier: str | Identifier, metadata_location: str) -> View:
        """Refuse: views are not supported."""
        _unsupported("Views")

    def create_view(self, *args: Any, **kwargs: Any) -> View:
        """Refuse: views are not supported."""
        _unsupported("Views")

    def _new(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None,
        partition_spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Properties,
    ) -> NewTable:
        return NewTable(
            self._name(identifier),
            self._convert_schema_if_needed(schema),
            location,
            partition_spec,
            sort_order,
            {name: str(value) for name, value in properties.items()},
        )

    def _name(self, identifier: str | Identifier) -> TableName:
        parts = Catalog.identifier_to_tuple(identifier)
        if len(parts) < 2:
            raise NoSuchTableError(f"{identifier!r} is not a table. Give its namespace and name.")
        return table_name(parts[:-1], parts[-1])

    def _table(self, table: LoadedTable) -> Table:
        name = table.record.name
        return Table(
            (*name.namespace, name.name),
            table.shown_metadata,
            table.metadata_location,
            self._guarded_io(table),
            self,
        )

    def _guarded_io(self, table: LoadedTable) -> GuardedFileIO:
        """Return a `FileIO` that reads in the allowed list and writes below the table's own directories."""
        metadata = table.metadata
        own = [metadata.location, *(metadata.properties.get(name) for name in _WRITTEN)]
        return GuardedFileIO(
            self._services.storage,
            table=table.name,
            allowed=table.governed.allowed,
            writable=AllowList.of(path for path in own if path is not None),
            verify=lambda path, data: self._verify(table, path, data),
            limit=self._services.settings.limits.manifest_bytes,
        )

    def _verify(self, table: LoadedTable, path: str, data: bytes) -> None:
        """Check a metadata file that pyiceberg reads by its seal. A file that it just wrote has none."""
        sealed = self._services.reader.sealed(table.record.id, _spellings(path))
        if not sealed and not path.endswith(".json"):
            _check_decodable(table, path, data)
        for known in sealed.values():
            seals.check_digest(data, known.digest, what=known.kind.value, path=path, table=table.name)
        if not sealed and table.seal is not None and path in _named(table.metadata):
            raise MetadataTampered(
                "The table refers to a file that is not sealed.", table=table.name, path=path, rule="seal"
            )


def _check_decodable(table: LoadedTable, path: str, data: bytes) -> None:
    """Decode an unsealed file within limits first: pyiceberg's compiled decoder trusts every length.

    pyiceberg caches what a list says of a manifest by the manifest's path, for every table of the process. So
    a list that names another table's manifests is refused before pyiceberg reads it.

    Raises:
        MetadataInvalid: neither a manifest list nor a manifest.
        LocationNotAllowed: a manifest list that names a manifest outside of the allowed locations.
    """
    try:
        listed = decode_manifest_list(data, path=path, format_version=table.metadata.format_version)
    except MetadataInvalid:
        decode_manifest(data, path=path)
        return
    paths = pa.array([entry.manifest_path for entry in listed], pa.string())
    refuse_outside(table.governed.allowed, paths, table.name, "manifests")


_WRITTEN = ("write.data.path", "write.metadata.path")


def _namespace(namespace: str | Identifier) -> Namespace:
    return namespace_of(Catalog.identifier_to_tuple(namespace))


def _named(metadata: TableMetadata) -> set[str]:
    """Return the manifest lists of a table, in canonical form."""
    return {Location.parse(each.manifest_list).canonical for each in metadata.snapshots if each.manifest_list}


def _spellings(path: str) -> list[str]:
    """Return the ways in which metadata can spell a canonical path."""
    scheme, _, rest = path.partition("://")
    return [path, *(f"{other}://{rest}" for other in ("s3a", "s3n") if scheme == "s3"), f"file:{rest}"]


def _unsupported(what: str) -> NoReturn:
    raise NotSupportedYet(f"{what} is not supported.", rule="not-supported")
