"""Explains which columns of a table a user can read, masked how, and by which rule not.

Each column is decided as a scan of that column alone is: by the same functions, in the same order, with the
keys of the same files. Nothing is handed out, so that only the question is recorded, and no refusal.

- A column that the table masks can be scanned beside columns that the user can select, and not alone. It is
  asked about beside the first such column.
- Of a row filter, only the policy is told: its constants can be values that the user does not see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import resolve
from catalog.authorization.table_access import sees_paths
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.envelope.key_metadata_columns import Form
from catalog.iceberg.partition_values import ShownPartitions
from catalog.iceberg.selection import all_ids
from catalog.planning.comparing import Comparing
from catalog.planning.masks import refuse_masked
from catalog.planning.opening import opened, require_sight, snapshot_of
from catalog.planning.plan import DELETED, Planner, schema_of
from catalog.planning.releases import release_for
from catalog.planning.request import ScanRequest
from catalog.planning.restricting import pruning, without_nulled
from catalog.planning.scan_sight import ScanSight, sight_of
from catalog.reading.loading import LoadedTable
from catalog.rules.governance import column_ids
from policy.decision import Decision, Reason
from policy.encryption.encrypted_columns import masked_fields
from policy.errors import NotAuthorized
from policy.restrictions.predicate import Predicate

ACTION: Final = "table.explain"


@dataclass(frozen=True, slots=True)
class ShownMask:
    """A mask through which a user sees a field.

    Attributes:
        field: its dotted name.
        mask: what is shown instead of its values.
        policy: the policy that says so; None for a mask of the table.
    """

    field: str
    mask: str
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnAccess:
    """What a user gets of a top-level column.

    Attributes:
        field: the column.
        masks: those on the column, or inside of it.
        refusal: what a scan of the column is refused with; None if it can be read.
    """

    field: NestedField
    masks: tuple[ShownMask, ...] = ()
    refusal: NotAuthorized | None = None


@dataclass(frozen=True, slots=True)
class TableAccess:
    """What a user gets of a table.

    Attributes:
        table: its dotted name.
        snapshot_id: the snapshot that would be read; None for a table without one.
        principal: the user.
        engine: the engine that would read; None for the user's own process.
        policy_version: the policies by which it was decided.
        row_filters: the policies that filter the rows.
        columns: of the schema that the snapshot would be read with.
    """

    table: str
    snapshot_id: int | None
    principal: str
    engine: str | None
    policy_version: str
    row_filters: tuple[str, ...]
    columns: tuple[ColumnAccess, ...]


class Explainer:
    """Explains what users can read.

    Args:
        context: the parts that services share.
        planner: plans their scans.
    """

    def __init__(self, context: ServiceContext, planner: Planner) -> None:
        self._context = context
        self._planner = planner

    def explain(self, caller: Caller, name: TableName, request: ScanRequest) -> TableAccess:
        """Explain what the caller can read of a table.

        Args:
            caller: the user, and the engine that would read.
            name: the table.
            request: which state of it; and what the reader enforces.

        Raises:
            NotAuthorized: SELECT on a column, or UPDATE or ALTER on the table, is needed.
            RequestInvalid: a snapshot, branch or tag that the table does not have.
            LocationNotAllowed, MetadataTampered, MetadataUnsealed, MetadataInvalid, DecryptionRefused: the
                table breaks a rule, so that no scan of it is planned.
        """
        authorizer = self._context.authorizer.settled()
        on = self._context.on(caller, name)
        require_sight(authorizer, caller, name, on, ACTION)
        with authorizer.recorded(caller, ACTION, str(name), show_path=sees_paths(authorizer, on)):
            table = opened(self._context, authorizer, caller, name, on, ACTION)
            snapshot = snapshot_of(table, request)
            schema = schema_of(table, snapshot, request)
            asked = Reason(ACTION, "It was asked which columns can be read.")
            authorizer.record(caller, ACTION, table.name, Decision.allow(asked))
            question = _Question(self._context, self._planner, authorizer, caller, table, snapshot, schema)
            columns, filters = question.answers(request)
        return TableAccess(
            table=table.name,
            snapshot_id=snapshot.snapshot_id if snapshot else None,
            principal=caller.user.name,
            engine=caller.engine.name if caller.engine else None,
            policy_version=authorizer.policies().version,
            row_filters=filters,
            columns=columns,
        )


class _Question:
    """The question about one table; the files of its snapshot are listed once."""

    def __init__(
        self,
        context: ServiceContext,
        planner: Planner,
        authorizer: Authorizer,
        caller: Caller,
        table: LoadedTable,
        snapshot: Snapshot | None,
        schema: Schema,
    ) -> None:
        self._context = context
        self._planner = planner
        self._authorizer = authorizer.unrecorded()
        self._caller = caller
        self._table = table
        self._snapshot = snapshot
        self._schema = schema
        self._listed: dict[Predicate, tuple[pa.Table, frozenset[int], tuple[Form, ...]]] = {}
        self._filters: dict[str, None] = {}
        today = table.metadata.schema()
        self._masks: Mapping[int, str] = masked_fields(table.governed.spec, column_ids(today))

    def answers(self, request: ScanRequest) -> tuple[tuple[ColumnAccess, ...], tuple[str, ...]]:
        """Return the answer for each column, and the policies that filter rows."""
        alone = [self._answer(each, (each.name,), request) for each in self._schema.fields]
        beside = next((each.field.name for each in alone if each.refusal is None), None)
        found = [
            each
            if each.refusal is None or beside is None or each.field.field_id not in self._masks
            else self._answer(each.field, (beside, each.field.name), request)
            for each in alone
        ]
        return tuple(found), tuple(self._filters)

    def _answer(self, field: NestedField, columns: tuple[str, ...], request: ScanRequest) -> ColumnAccess:
        try:
            sight = self._require(replace(request, columns=columns))
        except NotAuthorized as refusal:
            return ColumnAccess(field, refusal=refusal)
        reasons = sight.restriction.reasons
        self._filters |= dict.fromkeys(each.policy or "" for each in reasons if each.rule == "row-filter")
        return ColumnAccess(field, tuple(self._shown(field, sight)))

    def _shown(self, field: NestedField, sight: ScanSight) -> list[ShownMask]:
        """Return the masks on a column and inside of it."""
        if field.field_id in sight.masked:
            return [ShownMask(field.name, self._masks[field.field_id])]
        inside = frozenset(all_ids((field,)))
        return [
            ShownMask(self._schema.find_column_name(each) or "", mask.action.value, mask.policy)
            for each, mask in sorted(sight.restriction.masks.items())
            if each in inside
        ]

    def _require(self, request: ScanRequest) -> ScanSight:
        """Decide a scan as `Planner.plan` does, up to the keys.

        Raises:
            NotAuthorized: the scan is refused.
        """
        authorizer, caller, table, schema = self._authorizer, self._caller, self._table, self._schema
        columns = resolve(table, schema, request.columns, AlwaysTrue(), case_sensitive=True)
        sight = sight_of(authorizer, caller, table, schema, columns, request)
        columns = without_nulled(table, schema, sight.columns, sight.restriction)
        planned, compared, forms = self._files(request, sight)
        comparing = Comparing(table, schema, compared, filtered=sight.reading.altered is not None)
        comparing.authorize(authorizer, caller)
        refuse_masked(table, schema, sight.masked, compared, DELETED)
        added = comparing.added_to(columns, comparing.columns_of(planned))
        release_for(authorizer, caller, table, schema, added, sight.reading, request, planned, forms)
        return sight

    def _files(
        self, request: ScanRequest, sight: ScanSight
    ) -> tuple[pa.Table, frozenset[int], tuple[Form, ...]]:
        """Return the files that are planned under a row filter, what deletes compare, and their keys."""
        row_filter = sight.restriction.row_filter
        if row_filter not in self._listed:
            kept: BooleanExpression = pruning(sight.restriction, self._schema)
            shown = ShownPartitions(self._table.metadata.specs(), self._schema, frozenset())
            planned, compared = self._planner.files(
                self._table, self._snapshot, self._schema, request, kept, shown, None
            )
            judged = self._context.keyring.checked_files(self._table.record, self._table.governed, planned)
            self._listed[row_filter] = planned, compared, tuple(judged.forms)
        return self._listed[row_filter]
