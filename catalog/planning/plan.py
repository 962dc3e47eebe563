"""Plans a scan for an authorized caller: the files to read, and their keys.

The order is fixed. First the caller's privileges on the columns are checked. Then the files of the snapshot
are read, checked against seals and allow-list, and pruned by partitions and bounds (encrypted ones included).
Then the keys of the remaining files are released.

- Row filters and masks of policies are in the header, for readers that enforce them (`restricting`).
- A column that the caller cannot select is neither projected nor filtered by (`columns`), or it is masked
  (`masks`). So its bounds are not used, and partition values made from it are not shown.
- The keys that the scan needs are released to a caller who can select every column that they open. A user's
  own process, without a trusted engine, also needs `release` on them (`releases`).
- Unsealed metadata gets no keys.
- A scan can be restricted to files whose rows are rewritten (`rewriting`), or to appends (`increments`).
- A scan can read what snapshots added and removed (`changes`).
- A scan for the definer of a view shows no masked column, and no rows that a policy filters (`definers`).
- A scan of a snapshot with equality deletes also needs the columns that they compare, unmasked (`comparing`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform

from catalog.audit.outcomes import note
from catalog.authorization.authorizer import Caller, Records
from catalog.authorization.columns import (
    ACTION,
    ScanColumns,
    resolve,
)
from catalog.authorization.table_access import sees_paths
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.envelope.transport import TransportKey
from catalog.iceberg.partition_values import ShownPartitions
from catalog.planning.changes import ChangedFiles
from catalog.planning.column_statistics import ColumnStatistics
from catalog.planning.comparing import Comparing
from catalog.planning.increments import appends, changed_by, end_of
from catalog.planning.masks import (
    refuse_masked,
    weakened,
    with_nested,
)
from catalog.planning.opening import opened, require_sight, snapshot_of
from catalog.planning.prune import Pruner
from catalog.planning.releases import release_for
from catalog.planning.request import ScanRequest
from catalog.planning.restricting import (
    closed_columns,
    pruning,
    without_nulled,
)
from catalog.planning.rows import empty_rows, require_formats, with_keys
from catalog.planning.scan_files import ScanFiles
from catalog.planning.scan_sight import sight_of
from catalog.planning.sealed import SealedPruner
from catalog.reading.loading import LoadedTable
from catalog.state import distinct_counts
from policy.restrictions.model import UNRESTRICTED, Restriction
from policy.restrictions.predicate import TRUE
from policy.restrictions.wire import restrictions_json

_SHOWN_SOURCES: Final = (
    "The metadata columns _file and _partition show values that the table is partitioned by."
)
DELETED: Final = "Rows of the table are deleted by its values."


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """The fields that a plan has once.

    Attributes:
        table: the table as it was loaded.
        snapshot_id: the snapshot that is read, or None for an empty table.
        schema: the schema to read with.
        columns: the top-level columns that were authorized.
        principal: name of the user for whom.
        policy_version: the policies by which they were.
        valid_ms: milliseconds for which a scan may be begun by this plan without asking again.
        transport: the key made for this scan, or None if no file is encrypted. It is a secret.
        masked: ids of the top-level columns that are shown through masks.
        compared: the columns that the plan's equality deletes compare, or None if it has no equality deletes.
        statistics: of the columns, in JSON; None if nobody asked for them.
        restriction: what the reader has to apply before a user sees rows.
    """

    table: LoadedTable
    snapshot_id: int | None
    schema: Schema
    columns: tuple[str, ...]
    principal: str
    policy_version: str
    valid_ms: int
    transport: TransportKey | None
    masked: tuple[int, ...] = ()
    compared: Schema | None = None
    statistics: Mapping[str, Any] | None = None
    restriction: Restriction = UNRESTRICTED

    def to_json(self) -> dict[str, Any]:
        """Return the header as JSON, without the transport key."""
        metadata = self.table.metadata
        return {
            "table": self.table.name,
            "table-uuid": str(self.table.record.table_uuid),
            "snapshot-id": self.snapshot_id,
            "sealed": self.table.seal is not None,
            "schema": _schema_json(self.schema),
            "columns": list(self.columns),
            "partition-specs": [
                spec.model_dump(mode="json", by_alias=True) for spec in metadata.partition_specs
            ],
            "absent-with-values": _absent_with_values(self.schema, metadata.partition_specs),
            "allowed-paths": [entry.canonical for entry in self.table.governed.allowed.entries],
            "principal": self.principal,
            "policy-version": self.policy_version,
            "governed-version": self.table.governed.version,
            "valid-ms": self.valid_ms,
            "masked": list(self.masked),
            "read-restrictions": restrictions_json(self.restriction),
            "equality-columns": _schema_json(self.compared),
            "column-statistics": self.statistics,
            "verify-digest": self.table.governed.spec.verify_digest,
            "transport-key-id": self.transport.id.hex() if self.transport else None,
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan.

    Attributes:
        header: what is said once.
        files: one row a file; see `catalog.planning.rows`.
    """

    header: PlanHeader
    files: pa.Table


class Planner:
    """Plans scans.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def plan(self, caller: Caller, name: TableName, request: ScanRequest) -> Plan:
        """Plan one scan.

        Raises:
            NotAuthorized: a column, or a key, is not granted.
            RequestInvalid: a column, snapshot, branch or tag that the table does not have.
            LocationNotAllowed, MetadataTampered, MetadataUnsealed, MetadataInvalid: the table breaks a rule.
            EncryptionPolicyViolation, DecryptionRefused, KeyNotUsable, KmsUnavailable: its keys do.
        """
        with Records() as records:
            return self._planned(caller, name, request, records)

    def _planned(self, caller: Caller, name: TableName, request: ScanRequest, records: Records) -> Plan:
        # Columns and masks are decided in several steps, all by the same policies.
        authorizer = self._context.authorizer.settled(records)
        on = self._context.on(caller, name)
        require_sight(authorizer, caller, name, on, ACTION)
        see_paths = caller.reader is None and sees_paths(authorizer, on)
        with authorizer.recorded(caller, ACTION, str(name), show_path=see_paths):
            table = opened(self._context, authorizer, caller, name, on, ACTION)
            snapshot = end_of(table, request) if request.is_incremental else snapshot_of(table, request)
            schema = schema_of(table, snapshot, request)
            columns = resolve(
                table,
                schema,
                request.columns,
                request.filter,
                case_sensitive=request.case_sensitive,
                # A reader of a view is not told of columns of the tables in it.
                suggests=caller.reader is None,
            )
            sight = sight_of(authorizer, caller, table, schema, columns, request)
            restriction, altered = sight.restriction, sight.masked | sight.restriction.masks.keys()
            request = _unmasked(request, schema, altered)
            columns = without_nulled(table, schema, sight.columns, restriction)
            plain = columns.field_ids - with_nested(table, schema, restriction.masks)
            shown = ShownPartitions(table.metadata.specs(), schema, plain)
            refuse_masked(table, schema, altered, columns.sources, _SHOWN_SOURCES)
            statistics = self._statistics(table, schema, columns, plain, restriction, request)
            kept = AlwaysTrue() if request.every_file else pruning(restriction, schema)
            planned, compared = self.files(table, snapshot, schema, request, kept, shown, statistics)
            reading = sight.reading
            comparing = Comparing(table, schema, compared, filtered=reading.altered is not None)
            comparing.authorize(authorizer, caller)
            refuse_masked(table, schema, sight.masked, compared, DELETED)
            if self._context.authorizer.policies() is not authorizer.policies():
                # Reading manifests can take long, and keys are released by the policies that are in force
                # then.
                authorizer = self._context.authorizer.settled(records)
                reading = sight.again(authorizer, caller, table, schema, columns, request)
                comparing.authorize(authorizer, caller)
            equality = comparing.columns_of(planned)
            judged = self._context.keyring.checked_files(table.record, table.governed, planned)
            require_formats(planned, judged.forms, table.name)
            added = comparing.added_to(columns, equality)
            released = release_for(
                authorizer, caller, table, schema, added, reading, request, planned, judged.forms
            )
            keys = self._context.keyring.scan_keys(table.record, judged.paths, released)
        header = PlanHeader(
            table=table,
            snapshot_id=snapshot.snapshot_id if snapshot else None,
            schema=schema,
            columns=tuple(schema.find_column_name(field_id) or "" for field_id in columns.top_level),
            principal=caller.user.name,
            policy_version=authorizer.policies().version,
            valid_ms=self._context.settings.plan_valid_ms,
            transport=keys.transport if keys else None,
            masked=tuple(sorted(sight.masked | closed_columns(schema, restriction))),
            compared=equality,
            statistics=None if statistics is None else statistics.to_json(),
            restriction=restriction,
        )
        _note(header, request, planned)
        return Plan(header, with_keys(planned, judged.forms, keys))

    def _statistics(
        self,
        table: LoadedTable,
        schema: Schema,
        columns: ScanColumns,
        plain: frozenset[int],
        restriction: Restriction,
        request: ScanRequest,
    ) -> ColumnStatistics | None:
        """What the plan tells of its columns: nothing of masked ones, nor of any under a row filter."""
        if not request.column_statistics:
            return None
        of = frozenset(columns.top_level) & plain if restriction.row_filter == TRUE else frozenset()
        distinct = distinct_counts.known(self._context.engine, table.record.id, of)
        return ColumnStatistics(self._context.keyring, table, schema, of, distinct)

    def files(
        self,
        table: LoadedTable,
        snapshot: Snapshot | None,
        schema: Schema,
        request: ScanRequest,
        seen: BooleanExpression,
        shown: ShownPartitions,
        statistics: ColumnStatistics | None,
    ) -> tuple[pa.Table, frozenset[int]]:
        """Return the planned rows, and the columns that equality deletes of the snapshot compare.

        Args:
            seen: the row filter that the reader enforces; the request has the user's.
        """
        pruner = Pruner(
            schema,
            table.metadata.specs(),
            And(request.filter, seen),
            case_sensitive=request.case_sensitive,
        )
        sealed = SealedPruner(self._context.keyring, table, pruner)
        if request.changes:
            changed = ChangedFiles(self._context.reader, table, schema, shown, pruner, sealed)
            return changed.plan(changed_by(table, request, snapshot))
        if request.is_incremental:
            sources = appends(table, request, snapshot)
        elif snapshot is None:
            return empty_rows(), frozenset()
        else:
            sources = [snapshot]
        reader = self._context.reader
        files = ScanFiles(reader, table, schema, request, shown, pruner, sealed, statistics)
        listed = files.listed(sources)
        return files.rows(sources, listed, files.data(listed))


def _note(header: PlanHeader, request: ScanRequest, planned: pa.Table) -> None:
    """Say in the record of the request what was planned."""
    note("columns", ", ".join(header.columns))
    note("snapshot", header.snapshot_id)
    if request.is_incremental:
        note("start", request.start_snapshot_id)
    if request.changes:
        note("changes", True)
    note("files", planned.num_rows)
    note("rows", pc.sum(planned["record_count"]).as_py() or 0)


def _schema_json(schema: Schema | None) -> dict[str, Any] | None:
    return None if schema is None else schema.model_dump(mode="json", by_alias=True)


def _absent_with_values(schema: Schema, specs: Sequence[PartitionSpec]) -> dict[str, list[int]]:
    """By partition spec the ids of columns that a file can lack although they have values.

    These are sources of identity partitions, and columns with a default for older files.
    """
    fields = map(schema.find_field, schema.field_ids)
    defaults = {each.field_id for each in fields if each.initial_default is not None}
    sources = {
        spec.spec_id: {each.source_id for each in spec.fields if each.transform == IdentityTransform()}
        for spec in specs
    }
    return {str(spec_id): sorted(ids | defaults) for spec_id, ids in sources.items()}


def _unmasked(request: ScanRequest, schema: Schema, masked: frozenset[int]) -> ScanRequest:
    """Remove the conditions on masked columns from the request's filter."""
    row_filter = weakened(request.filter, schema, masked, case_sensitive=request.case_sensitive)
    return replace(request, filter=row_filter)


def schema_of(table: LoadedTable, snapshot: Snapshot | None, request: ScanRequest) -> Schema:
    """Return the schema to read with: the current one for a branch or appends, else that of the snapshot."""
    metadata = table.metadata
    branch = request.ref is not None and metadata.refs[request.ref].snapshot_ref_type == "branch"
    past = request.snapshot_id is not None or request.as_of_ms is not None or (request.ref and not branch)
    if past and request.use_snapshot_schema and snapshot is not None and snapshot.schema_id is not None:
        return metadata.schema_by_id(snapshot.schema_id) or metadata.schema()
    return metadata.schema()
