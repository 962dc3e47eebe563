"""Plans the metadata table `position_deletes`: the position delete files of a snapshot, with their keys.

The engine reads them as it reads data files: each path, size, digest and key is checked before a row is used.

- Position deletes name data files, so a user must see paths: SELECT, unmasked, on every column that the table
  is or was partitioned by (`sight`).
- The column `row` holds values of deleted rows, in files of some writers. It takes SELECT, unmasked, on every
  column, under every name.
- A user's own process needs `release` on the keys of footers, as for a scan.

Source: Apache Iceberg, `PositionDeletesTable`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType, NestedField, StringType

from catalog.audit.outcomes import note
from catalog.authorization.authorizer import Authorizer, Caller, Records
from catalog.authorization.columns import (
    ScanColumns,
    every_name,
    footer_keys,
    partition_sources,
    refuse_altered,
    view_of,
)
from catalog.authorization.table_access import sees_paths
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.iceberg.manifests import ManifestContent
from catalog.iceberg.partition_values import ShownPartitions
from catalog.metadata_tables.schemas import PATH_ID, POSITION_ID
from catalog.metadata_tables.sight import ACTION, require_column, sight_of
from catalog.planning.opening import opened, require_sight, snapshot_of
from catalog.planning.plan import Plan, PlanHeader
from catalog.planning.releases import release
from catalog.planning.request import ScanRequest
from catalog.planning.rewriting import those_of
from catalog.planning.rows import POSITION_DELETES, empty_rows, planned_rows, require_formats, with_keys
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import refuse_outside
from catalog.snapshot_checks.entries import DELETED
from policy.decision import Decision, Reason
from policy.errors import NotAuthorized, NotSupportedYet, RequestInvalid
from policy.view import ColumnNames

_ROW: Final = "row"
_ROW_ID: Final = 2147483544
_COLUMNS: Final = ("file_path", "pos", _ROW)
_METADATA: Final = frozenset({"_file", "_spec_id", "_partition"})
_NO_COLUMNS: Final = ScanColumns((), frozenset(), ColumnNames(), {})


class PositionDeletes:
    """Plans scans of position deletes.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def plan(self, caller: Caller, name: TableName, request: ScanRequest) -> Plan:
        """Plan one scan.

        Raises:
            NotAuthorized: the user does not see paths of files, or a column of deleted rows.
            RequestInvalid: a column that position deletes do not have, or a snapshot that the table has not.
            NotSupportedYet: the snapshot has deletion vectors.
            LocationNotAllowed, MetadataTampered, MetadataUnsealed, MetadataInvalid: the table breaks a rule.
            EncryptionPolicyViolation, DecryptionRefused, KeyNotUsable, KmsUnavailable: its keys do.
        """
        with Records() as records:
            return self._planned(caller, name, request, records)

    def _planned(self, caller: Caller, name: TableName, request: ScanRequest, records: Records) -> Plan:
        authorizer = self._context.authorizer.settled(records)
        on = self._context.on(caller, name)
        require_sight(authorizer, caller, name, on, ACTION)
        with authorizer.recorded(caller, ACTION, str(name), show_path=sees_paths(authorizer, on)):
            table = opened(self._context, authorizer, caller, name, on, ACTION)
            snapshot = snapshot_of(table, request)
            columns = _columns(table, request)
            _require(authorizer, caller, table, columns)
            planned = self._files(table, snapshot)
            if request.files is not None:
                planned = those_of(planned, request.files, table)
            if self._context.authorizer.policies() is not authorizer.policies():
                # Keys are released by the policies that are in force then.
                authorizer = self._context.authorizer.settled(records)
                _require(authorizer, caller, table, columns)
            judged = self._context.keyring.checked_files(table.record, table.governed, planned)
            require_formats(planned, judged.forms, table.name)
            released = release(authorizer, caller, table, _NO_COLUMNS, planned, judged.forms)
            keys = self._context.keyring.scan_keys(table.record, judged.paths, released)
            note("files", planned.num_rows)
        header = PlanHeader(
            table=table,
            snapshot_id=None if snapshot is None else snapshot.snapshot_id,
            schema=_schema(table),
            columns=columns,
            principal=caller.principal.name,
            policy_version=authorizer.policies().version,
            valid_ms=self._context.settings.plan_valid_ms,
            transport=None if keys is None else keys.transport,
        )
        return Plan(header, with_keys(planned, judged.forms, keys))

    def _files(self, table: LoadedTable, snapshot: Snapshot | None) -> pa.Table:
        if snapshot is None:
            return empty_rows()
        shown = ShownPartitions(table.metadata.specs(), table.metadata.schema(), partition_sources(table))
        listed = [
            each
            for each in self._context.reader.manifests(table, snapshot)
            if each.content is ManifestContent.DELETES
        ]
        parts = [empty_rows()]
        for manifest in self._context.reader.open(table, listed):
            live = manifest.entries.filter(pc.not_equal(manifest.entries["status"], DELETED))
            refuse_outside(table.governed.allowed, live["file_path"], table.name, "files")
            positions = live.filter(pc.equal(live["content"], POSITION_DELETES))
            _refuse_vectors(positions, table.name)
            parts.append(planned_rows(positions, manifest.listed, shown))
        return pa.concat_tables(parts)


def _schema(table: LoadedTable) -> Schema:
    """The columns of position delete files (Iceberg table specification, "Position Delete Files")."""
    return Schema(
        NestedField(PATH_ID, "file_path", StringType(), required=True),
        NestedField(POSITION_ID, "pos", LongType(), required=True),
        NestedField(_ROW_ID, _ROW, table.metadata.schema().as_struct(), required=False),
    )


def _columns(table: LoadedTable, request: ScanRequest) -> tuple[str, ...]:
    """Return the columns that are read, without metadata columns."""
    asked = _COLUMNS if request.columns is None else request.columns
    names = {each.partition(".")[0] for each in asked} - _METADATA
    unknown = names.difference(_COLUMNS)
    if unknown or request.is_incremental:
        raise RequestInvalid(
            "A plan of position deletes has the columns file_path, pos and row, of one snapshot.",
            table=table.name,
            rule="position-deletes",
            hint="Leave out all else.",
        )
    return tuple(each for each in _COLUMNS if each in names)


def _require(authorizer: Authorizer, caller: Caller, table: LoadedTable, columns: tuple[str, ...]) -> None:
    sight = sight_of(authorizer, caller, table, frozenset())
    require_column(authorizer, caller, table, sight)
    if not sight.paths:
        why = "Position deletes show paths of files, and the table is or was partitioned by a column that "
        why += f"{caller.principal.name} cannot select unmasked."
        authorizer.record(caller, ACTION, table.name, Decision.deny(Reason("paths", why)))
        raise NotAuthorized(
            why,
            table=table.name,
            rule="paths",
            hint="Ask for the select permission on the partition columns.",
        )
    if table.governed.ever_encrypted and caller.engine is None:
        authorizer.require(caller, ACTION, table.name, caller.releases(footer_keys(table)))
    if _ROW in columns:
        reading = view_of(authorizer, caller, table).reads(every_name(table))
        authorizer.require(caller, ACTION, table.name, reading.required)
        refuse_altered(authorizer, caller, table, reading.altered, action=ACTION)


def _refuse_vectors(positions: pa.Table, table: str) -> None:
    if "PUFFIN" in {each.upper() for each in positions["file_format"].to_pylist()}:
        raise NotSupportedYet(
            "The table has deletion vectors. They are not supported before format version 3.",
            table=table,
            rule="deletes",
            hint="Compact the table with an engine that applies them.",
        )
