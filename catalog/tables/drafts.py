"""Drafts new tables: turns a request into identity, metadata and governed properties, and authorizes it.

- The catalog gives each table its UUID and, unless the user names one, its location
  `<warehouse>/<namespace>/<table>-<uuid>`: a name used again never inherits a directory.
- The default allow-list is the location. A location that the user names is authorized like any other path of
  the list, and needs ALTER on every table whose location overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder

from catalog.authorization.authorizer import Caller
from catalog.authorization.table_access import overlap_requests
from catalog.base.existence import no_namespace, staged_table_exists, table_exists
from catalog.base.identifiers import TableName, slug
from catalog.context import ServiceContext
from catalog.iceberg import layout
from catalog.reading import loading
from catalog.rules import governance
from catalog.rules.governance import Requested
from catalog.rules.openable import check_new_table
from catalog.state import table_state
from catalog.state.table_state import TableRecord, TableState
from policy.encryption import governed as governed_names
from policy.encryption.file_formats import written_format
from policy.encryption.specification import EncryptionSpec
from policy.errors import RequestInvalid
from policy.location.location import Location
from policy.privileges import tables as table_rules
from policy.privileges.operations import changing, required
from policy.privileges.requests import AccessRequest
from policy.write_properties import check_format_version


@dataclass(frozen=True, slots=True)
class NewTable:
    """A request for a new table.

    Attributes:
        name: its name.
        schema: its columns.
        location: the requested location, or None for the default.
        partition_spec: its partition spec.
        sort_order: its sort order.
        properties: table properties, governed ones among them.
    """

    name: TableName
    schema: Schema
    location: str | None = None
    partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    sort_order: SortOrder = UNSORTED_SORT_ORDER
    properties: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A table that does not exist yet.

    Attributes:
        record: its identity.
        metadata: its first metadata, without governed properties.
        wanted: its allow-list and encryption specification.
        write_paths: locations for writers in its properties.
        given: its governed properties as requested.
    """

    record: TableRecord
    metadata: TableMetadata
    wanted: Requested
    write_paths: tuple[Location, ...]
    given: dict[str, str]


class Drafter:
    """Drafts new tables, and checks that they are permitted.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._warehouse = Location.parse(context.settings.warehouse)

    def may_create(self, caller: Caller, action: str, name: TableName) -> None:
        """Refuse callers who cannot create the table before their request is parsed."""
        self._context.authorizer.screen(caller, action, str(name), *required(action, caller.on(name)))

    def draft(self, caller: Caller, new: NewTable) -> Draft:
        """Draft the table. No privilege is checked yet.

        Raises:
            InvalidInput: the request does not describe a valid table.
        """
        table_uuid = uuid4()
        governed, ordinary = governed_names.split(new.properties or {})
        version = check_format_version(ordinary, str(new.name))
        table_rules.check_properties(ordinary, str(new.name))
        location = self._default_location(new.name, table_uuid)
        record = new_record(caller, new.name, table_uuid, location, default=True)
        if new.location is not None:
            record = replace(record, location=Location.parse(new.location), default_location=False)
        table_rules.check_table_location(record.location, str(new.name))
        metadata = _new_metadata(new, record, ordinary, version)
        check_new_table(metadata, self._context.now_ms(), str(new.name))
        wanted = governance.for_new_table(
            governed,
            record.location,
            self._context.master_key_id,
            str(new.name),
            file_format=written_format(ordinary),
        )
        return Draft(record, metadata, wanted, tuple(table_rules.write_paths(ordinary)), governed)

    def authorize(
        self, caller: Caller, action: str, draft: Draft, also: Iterable[AccessRequest] = ()
    ) -> frozenset[str]:
        """Check the privileges on the table, each path, key and overlap, and `also`, as one decision.

        Returns:
            ids of the tables that the location is permitted to overlap.

        Raises:
            NotAuthorized: a part is not granted.
        """
        record = draft.record
        own = record.location if record.default_location else None
        claimed = (record.location, *draft.write_paths)
        others = self._context.overlapping(record, claimed)
        requests = [
            *required(action, caller.on(record.name)),
            *changing(caller.on(record.name, record.owner), draft.wanted, claimed, own),
            *also,
        ]
        hidden = overlap_requests(caller, others)
        self._context.authorizer.require(caller, action, str(record.name), requests, hidden=hidden)
        return frozenset(other.id for other in others)

    def check_rules(self, name: TableName, metadata: TableMetadata, spec: EncryptionSpec) -> None:
        """Check the table by the encryption rules, after the caller's privileges.

        Raises:
            EncryptionPolicyViolation: it breaks one.
        """
        self._context.encryption.of_new(name, metadata, spec).enforce(str(name))

    def require_free(self, name: TableName, *, is_staged: bool = False) -> None:
        """Check that the namespace exists and the name is free, after the caller's privileges.

        Args:
            name: the name.
            is_staged: whether the creation of a staged table is completed.

        Raises:
            NoSuchNamespace, TableExists: as it says.
        """
        if self._context.pointers.namespace_properties(name.namespace) is None:
            raise no_namespace(name.namespace)
        bound = loading.settle(self._context.engine, self._context.catalog, self._context.pointers, name)
        if bound is not None:
            raise staged_table_exists(name) if is_staged else table_exists(name)
        self._context.pointers.require_free(name)

    def _default_location(self, name: TableName, table_uuid: UUID) -> Location:
        levels = [slug(level) for level in name.namespace]
        return self._warehouse.child(*levels, f"{slug(name.name)}-{table_uuid}")


def new_record(
    caller: Caller, name: TableName, table_uuid: UUID, location: Location, *, default: bool
) -> TableRecord:
    """Return the identity of a new table. The caller is its owner."""
    return TableRecord(
        id=table_state.new_table_id(),
        table_uuid=table_uuid,
        name=name,
        owner=caller.principal.name,
        location=location,
        default_location=default,
        state=TableState.PREPARED,
    )


def _new_metadata(
    new: NewTable, record: TableRecord, ordinary: dict[str, str], version: int
) -> TableMetadata:
    layout.check_columns(new.schema, version, str(new.name))
    try:
        return new_table_metadata(
            schema=new.schema,
            partition_spec=new.partition_spec,
            sort_order=new.sort_order,
            location=record.location.canonical,
            properties=ordinary,
            table_uuid=record.table_uuid,
        )
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise RequestInvalid(
            f"The schema, partition spec and sort order do not fit together ({type(error).__name__}).",
            table=str(new.name),
            rule="schema",
        ) from error
