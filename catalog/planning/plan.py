"""Plans a scan: which files to read, with which keys, for somebody who may.

The order is fixed: who may read which columns, then what the snapshot consists of (checked against the seals
and the allowed list, pruned by partitions and bounds), then the keys of exactly the files that are left.

- A column that the caller may not select is neither projected nor filtered by; so its bounds decide nothing.
- A masked column, and a table with a row filter for the caller, is refused: nothing here could apply them.
- A user's own process, with no trusted engine in between, gets keys only with `release` on them, and, since
  one key opens the whole file, only if it may select every column.
- Unsealed metadata gets no keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from catalog import gates
from catalog.access import report
from catalog.authorize import Authorizer, Caller
from catalog.identifiers import TableName
from catalog.keyring import Keyring, ScanKeys
from catalog.keys.transport import TransportKey
from catalog.loading import LoadedTable, TableLoader
from catalog.manifests import ManifestContent, ManifestListEntry
from catalog.planning.deletes import Deletes
from catalog.planning.prune import Pruner
from catalog.planning.rows import empty_rows, planned_rows, with_keys
from catalog.snapshots import OpenManifest, SnapshotReader, refuse_outside
from policy.decision import Decision, Reason
from policy.errors import MetadataUnsealed, NotAuthorized, RequestInvalid
from policy.requests import AccessRequest, Resource

_DELETED: Final = 2


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What somebody wants to read.

    Attributes:
        snapshot_id: the snapshot, or
        ref: the branch or tag, or
        as_of_ms: the time, in milliseconds since 1970, as of which to read; by default the current snapshot.
        columns: columns to read, nested ones dotted; None for all.
        filter: rows that are wanted; files without any may be left out.
        case_sensitive: whether names in `columns` and `filter` are.
    """

    snapshot_id: int | None = None
    ref: str | None = None
    as_of_ms: int | None = None
    columns: tuple[str, ...] | None = None
    filter: BooleanExpression = field(default_factory=AlwaysTrue)
    case_sensitive: bool = True


@dataclass(frozen=True, slots=True)
class PlanHeader:
    """What a plan says once.

    Attributes:
        table: the table as it was loaded.
        snapshot_id: the snapshot that is read, or None for an empty table.
        schema: the schema to read with.
        columns: the top-level columns that were authorized.
        policy_version: the policies by which they were.
        transport: the key made for this scan, or None if no file is encrypted. It is a secret.
    """

    table: LoadedTable
    snapshot_id: int | None
    schema: Schema
    columns: tuple[str, ...]
    policy_version: str
    transport: TransportKey | None

    def to_json(self) -> dict[str, Any]:
        """The header without the transport key."""
        metadata = self.table.metadata
        return {
            "table": self.table.name,
            "table-uuid": str(self.table.record.table_uuid),
            "snapshot-id": self.snapshot_id,
            "sealed": self.table.seal is not None,
            "schema": self.schema.model_dump(mode="json", by_alias=True),
            "columns": list(self.columns),
            "partition-specs": [
                spec.model_dump(mode="json", by_alias=True) for spec in metadata.partition_specs
            ],
            "policy-version": self.policy_version,
            "governed-version": self.table.governed.version,
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
        loader: loads tables.
        reader: reads manifests.
        keyring: opens and wraps keys.
        authorizer: decides and records.
    """

    def __init__(
        self, loader: TableLoader, reader: SnapshotReader, keyring: Keyring, authorizer: Authorizer
    ) -> None:
        self._loader = loader
        self._reader = reader
        self._keyring = keyring
        self._authorizer = authorizer

    def plan(self, caller: Caller, name: TableName, request: ScanRequest) -> Plan:
        """Plan one scan.

        Raises:
            NotAuthorized: a column, or a key, is not granted.
            RequestInvalid: a column, snapshot, branch or tag that the table does not have.
            LocationNotAllowed, MetadataTampered, MetadataUnsealed, MetadataInvalid: the table breaks a rule.
            EncryptionPolicyViolation, DecryptionRefused, KeyNotUsable, KmsUnavailable: its keys do.
        """
        self._may_see(caller, name)
        see_paths = self._sees_paths(caller, name)
        with self._authorizer.recorded(caller, "table.plan", str(name), show_path=see_paths):
            table = self._loader.load(name)
            report(self._authorizer, caller, table)
            if table.seal is None and table.governed.ever_encrypted:
                raise MetadataUnsealed(
                    "Unsealed metadata gets no keys, and files of this table are encrypted.",
                    table=table.name,
                    rule="unsealed-encrypted",
                    hint="Go back to the sealed metadata with `lakewarden table restore`.",
                )
            snapshot = _snapshot(table, request)
            schema = _schema(table, snapshot, request)
            columns = _resolve(table, schema, request)
            self._authorize(caller, table, columns)
            planned = self._files(table, snapshot, schema, request)
            keys = self._keyring.scan_keys(table.record, table.governed, planned)
        return self._answer(table, snapshot, schema, columns, planned, keys)

    def _answer(
        self,
        table: LoadedTable,
        snapshot: Snapshot | None,
        schema: Schema,
        columns: dict[int, set[str]],
        planned: pa.Table,
        keys: ScanKeys | None,
    ) -> Plan:
        header = PlanHeader(
            table=table,
            snapshot_id=snapshot.snapshot_id if snapshot else None,
            schema=schema,
            columns=tuple(schema.find_column_name(field_id) or "" for field_id in columns),
            policy_version=self._authorizer.policies().version,
            transport=keys.transport if keys else None,
        )
        return Plan(header, with_keys(planned, keys))

    def _may_see(self, caller: Caller, name: TableName) -> None:
        """Refuse those without any right before anything is told of the table."""
        owner = self._loader.owner(name)
        any_right = gates.table_request(caller.principal, name.database, name.name, "_any", owner)
        if not self._authorizer.decide([any_right]).allowed:
            select = gates.table_request(caller.principal, name.database, name.name, "select", owner)
            self._authorizer.require(caller, "table.plan", str(name), [select, any_right])

    def _sees_paths(self, caller: Caller, name: TableName) -> bool:
        """Whether a refusal may name foreign paths: to those who look after the table."""
        owner = self._loader.owner(name)
        alter = gates.table_request(caller.principal, name.database, name.name, "alter", owner)
        return self._authorizer.decide([alter]).allowed

    def _authorize(self, caller: Caller, table: LoadedTable, columns: dict[int, set[str]]) -> None:
        names = set().union(*columns.values())
        requests = [_select(caller, table, name) for name in sorted(names)]
        if caller.engine is None and table.governed.ever_encrypted:
            requests += _releases(caller, table)
        if not requests:
            # Counting rows tells something of every column.
            requests = [_select(caller, table, each.name) for each in table.metadata.schema().fields]
        self._authorizer.require(caller, "table.plan", table.name, requests)
        self._refuse_masks(caller, table, names)

    def _refuse_masks(self, caller: Caller, table: LoadedTable, names: Iterable[str]) -> None:
        policies, now = self._authorizer.policies(), self._authorizer.now()
        where = (table.record.name.database, table.record.name.name)
        owner = table.record.owner
        masked = [
            name
            for name in sorted(names)
            if policies.mask_for(caller.principal, *where, name, now, owner=owner) is not None
        ]
        if masked or policies.has_row_filter(caller.principal, *where, now, owner=owner):
            what = f"the column {masked[0]!r} is masked" if masked else "a row filter applies"
            refusal = NotAuthorized(
                f"A policy says that {what} for {caller.principal.name}, and nothing here applies that yet.",
                table=table.name,
                rule="mask" if masked else "row-filter",
                hint="Leave the column out, or ask for a policy without the mask.",
            )
            denied = Decision.deny(Reason(refusal.rule or "mask", refusal.message))
            self._authorizer.record(caller, "table.plan", table.name, denied)
            raise refusal

    def _files(
        self, table: LoadedTable, snapshot: Snapshot | None, schema: Schema, request: ScanRequest
    ) -> pa.Table:
        if snapshot is None:
            return empty_rows()
        listed = self._reader.manifests(table, snapshot)
        pruner = Pruner(schema, table.metadata.specs(), request.filter, case_sensitive=request.case_sensitive)
        data = [
            each for each in listed if each.content is ManifestContent.DATA and pruner.keeps_manifest(each)
        ]
        deletes = [each for each in listed if each.content is ManifestContent.DELETES]
        applied = Deletes(self._opened(table, deletes), table.metadata, table.name) if deletes else None
        parts = [self._kept(table, pruner, each, applied) for each in self._opened(table, data)]
        files = pa.concat_tables([empty_rows(), *parts])
        return applied.append_to(files) if applied else files

    def _opened(self, table: LoadedTable, listed: Sequence[ManifestListEntry]) -> Iterator[OpenManifest]:
        """Manifests, opened; every live path in them is checked, whether it will be read or not."""
        for opened in self._reader.open(table, listed):
            live = pc.not_equal(opened.entries["status"], _DELETED)
            refuse_outside(
                table.governed.allowed, opened.entries["file_path"].filter(live), table.name, "files"
            )
            yield opened

    def _kept(
        self, table: LoadedTable, pruner: Pruner, opened: OpenManifest, deletes: Deletes | None
    ) -> pa.Table:
        """The files of a manifest that may hold wanted rows."""
        live = pc.not_equal(opened.entries["status"], _DELETED)
        mask = pc.and_(
            live,
            pruner.keeps(opened.decoded, opened.listed.partition_spec_id, path=opened.listed.manifest_path),
        )
        rows = planned_rows(opened.entries.filter(mask), opened.listed.partition_spec_id, table.metadata)
        if deletes is None:
            return rows
        return deletes.attach(rows, opened, pc.indices_nonzero(mask).to_pylist())


def _select(caller: Caller, table: LoadedTable, column: str) -> AccessRequest:
    name = table.record.name
    resource = Resource.column(name.database, name.name, column)
    return AccessRequest(caller.principal, resource, "select", owner=table.record.owner)


def _releases(caller: Caller, table: LoadedTable) -> list[AccessRequest]:
    """What a user's own process needs before keys are handed to it."""
    key_ids = {key_id for regime in table.governed.regimes.entries for key_id in regime.spec.key_ids()}
    keys = [AccessRequest(caller.principal, Resource.key(key_id), "release") for key_id in sorted(key_ids)]
    every = [_select(caller, table, each.name) for each in table.metadata.schema().fields]
    return keys + every


def _snapshot(table: LoadedTable, request: ScanRequest) -> Snapshot | None:
    metadata = table.metadata
    ways = [each for each in (request.snapshot_id, request.ref, request.as_of_ms) if each is not None]
    if len(ways) > 1:
        raise RequestInvalid(
            "A scan names a snapshot, a branch or tag, or a time; not several.", table=table.name
        )
    if not ways:
        return metadata.current_snapshot()
    found: Snapshot | None
    if request.snapshot_id is not None:
        found = metadata.snapshot_by_id(request.snapshot_id)
    elif request.ref is not None:
        found = metadata.snapshot_by_name(request.ref)
    else:
        as_of = request.as_of_ms or 0
        log = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= as_of]
        found = metadata.snapshot_by_id(log[-1].snapshot_id) if log else None
    if found is None:
        raise RequestInvalid(
            f"The table has no such snapshot, branch, tag or time: {ways[0]}.",
            table=table.name,
            rule="snapshot",
        )
    return found


def _schema(table: LoadedTable, snapshot: Snapshot | None, request: ScanRequest) -> Schema:
    """A branch is read with today's schema; a snapshot, tag or time with the schema of then."""
    metadata = table.metadata
    branch = request.ref is not None and metadata.refs[request.ref].snapshot_ref_type == "branch"
    past = request.snapshot_id is not None or request.as_of_ms is not None or (request.ref and not branch)
    if past and snapshot is not None and snapshot.schema_id is not None:
        return metadata.schema_by_id(snapshot.schema_id) or metadata.schema()
    return metadata.schema()


def _resolve(table: LoadedTable, schema: Schema, request: ScanRequest) -> dict[int, set[str]]:
    """The top-level columns that are read or filtered by, with every name they go by.

    A column that was renamed is read under a right on both names: an older snapshot's name for it must not be
    a way around a denial of today's.
    """
    try:
        bound = bind(schema, request.filter, request.case_sensitive)
        wanted = [
            schema.find_field(name, request.case_sensitive).field_id
            for name in (schema.column_names if request.columns is None else request.columns)
        ]
    except (ValueError, TypeError) as error:
        raise RequestInvalid(
            "The scan names a column that is not there, or compares one with a value of another type.",
            table=table.name,
            rule="column",
        ) from error
    ids = {*wanted, *extract_field_ids(bound)}
    today = table.metadata.schema()
    found: dict[int, set[str]] = {}
    for field_id in sorted(ids):
        top = _top_level(schema, field_id)
        name = today.find_column_name(top)
        found[top] = {schema.find_column_name(top) or "", *([name] if name else [])}
    return found


def _top_level(schema: Schema, field_id: int) -> int:
    """The id of the column that a field is nested in; its own, if it is not nested."""
    for each in schema.fields:
        if field_id == each.field_id or field_id in Schema(each).field_ids:
            return each.field_id
    return field_id
