"""Adapts a client's updates to the metadata that they apply to, as Iceberg's reference catalog does.

- A removal of something that is gone already is ignored: Iceberg Java removes a snapshot's statistics after
  the snapshot itself.
- Adding a schema, partition spec or sort order that the table has already, under the same id, is ignored. If
  the id is used by another one, the commit is refused. A client whose requirements show an older state gets a
  conflict, and can retry with a new id.
- A sort order whose id is used by another one gets another id, if the client's requirements show no state, as
  those of REPLACE.
- "Last added" means the last one in this commit, whatever its id.
- Totals of a snapshot that are too large for the next commit to add to are left out. Engines treat a missing
  total as unknown.
- A snapshot with a sequence number that was assigned meanwhile is a conflict, so that the client retries. A
  snapshot without a parent, which replaces the table, is not.

Source: Apache Iceberg's `TableMetadata.Builder` and `CatalogHandlers.commit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER_ID, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertLastAssignedPartitionId,
    RemovePartitionSpecsUpdate,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)

from catalog.base.errors import CommitConflict
from catalog.iceberg.metadata import last_sequence_number
from policy.errors import RequestInvalid
from policy.write_properties import FORMAT_VERSION, check_format_version

_LAST_ADDED: Final = -1
#: Half of the largest number in engines' counters. No single commit adds the other half.
_LARGEST_TOTAL: Final = 2**62
_LARGEST_LONG: Final = 2**63 - 1
_TOTAL: Final = "total-"
#: No 64-bit number has this many digits.
_DIGITS: Final = 20


def fitting(
    base: TableMetadata, updates: Sequence[TableUpdate], requirements: Sequence[TableRequirement], table: str
) -> tuple[TableUpdate, ...]:
    """Return the updates in the form in which they are applied to `base`.

    Args:
        base: the current metadata.
        updates: as the client sent them.
        requirements: of the same commit; they are met.
        table: dotted name, for errors.

    Raises:
        RequestInvalid: an id is used twice.
        UnsupportedFormatVersion: an upgrade to a version that clients cannot commit to.
        CommitConflict: an id, or a sequence number, was assigned meanwhile.
    """
    return tuple(_Fitter(base, requirements, table).fit(updates))


@dataclass
class _Ids:
    """Tracks the ids of one kind, such as schemas, while updates are applied.

    Attributes:
        what: the kind.
        known: the table's objects of this kind, by id.
        built_on: ids that the client's requirements name as used; None if they name no state.
        added: ids that this commit adds.
        last: the last id that this commit adds.
        renumbered: ids that the catalog gave instead of the client's.
    """

    what: str
    known: dict[int, Any]
    built_on: frozenset[int] | None
    table: str
    added: set[int] = field(default_factory=set)
    last: int | None = None
    renumbered: dict[int, int] = field(default_factory=dict)

    def adds(self, number: int, value: Any) -> bool:
        """Add an object; return False if the table has it already."""
        self.last = number
        if number not in self.known:
            self.known[number] = value
            self.added.add(number)
            return True
        if self.known[number] == value:
            return False
        raise self._used(number)

    def chosen(self, number: int) -> int:
        if number == _LAST_ADDED and self.last is not None:
            return self.last
        return self.renumbered.get(number, number)

    def kept(self, numbers: Iterable[int]) -> list[int]:
        """Remove those of the ids that are in use, and return them."""
        present = [number for number in dict.fromkeys(numbers) if number in self.known]
        for number in present:
            del self.known[number]
        return present

    def _used(self, number: int) -> Exception:
        message = f"The {self.what} id {number} is already used by another {self.what}."
        rule = f"{self.what.replace(' ', '-')}-id"
        hint = f"Load the table, and add the {self.what} with an unused id."
        meanwhile = self.built_on is not None and number not in self.built_on and number not in self.added
        kind = CommitConflict if meanwhile else RequestInvalid
        return kind(message, table=self.table, rule=rule, hint=hint)


class _Fitter:
    """Tracks the content of the table while updates are applied in order."""

    def __init__(self, base: TableMetadata, requirements: Sequence[TableRequirement], table: str) -> None:
        built_on = _built_on(requirements)
        schemas = {each.schema_id: each for each in base.schemas}
        specs = {each.spec_id: each for each in base.partition_specs}
        orders = {each.order_id: each for each in base.sort_orders}
        self._table = table
        self._properties = set(base.properties)
        self._schemas = _Ids("schema", schemas, built_on.get("schema"), table)
        self._specs = _Ids("partition spec", specs, built_on.get("spec"), table)
        self._orders = _Ids("sort order", orders, built_on.get("order"), table)
        self._snapshots = {each.snapshot_id for each in base.snapshots}
        self._statistics = {each.snapshot_id for each in base.statistics}
        self._partition_statistics = {each.snapshot_id for each in base.partition_statistics}
        self._format_version: int = base.format_version
        self._last_sequence = last_sequence_number(base)

    def fit(self, updates: Iterable[TableUpdate]) -> Iterator[TableUpdate]:
        for update in updates:
            yield from self._fit(update)

    def _fit(self, update: TableUpdate) -> Iterator[TableUpdate]:
        match update:
            case SetPropertiesUpdate():
                self._properties |= set(update.updates)
                yield update
            case RemovePropertiesUpdate():
                yield self._removed_properties(update)
            case AddSchemaUpdate():
                if self._schemas.adds(update.schema_.schema_id, update.schema_):
                    yield update
            case SetCurrentSchemaUpdate():
                yield SetCurrentSchemaUpdate(schema_id=self._schemas.chosen(update.schema_id))
            case RemoveSchemasUpdate():
                kept = self._schemas.kept(update.schema_ids)
                if kept:
                    yield RemoveSchemasUpdate(schema_ids=kept)
            case AddPartitionSpecUpdate():
                if self._specs.adds(update.spec.spec_id, update.spec):
                    yield update
            case SetDefaultSpecUpdate():
                yield SetDefaultSpecUpdate(spec_id=self._specs.chosen(update.spec_id))
            case RemovePartitionSpecsUpdate():
                kept = self._specs.kept(update.spec_ids)
                if kept:
                    yield RemovePartitionSpecsUpdate(spec_ids=kept)
            case AddSortOrderUpdate():
                order = self._numbered(update.sort_order)
                if self._orders.adds(order.order_id, order):
                    yield AddSortOrderUpdate(sort_order=order)
            case SetDefaultSortOrderUpdate():
                yield SetDefaultSortOrderUpdate(sort_order_id=self._orders.chosen(update.sort_order_id))
            case UpgradeFormatVersionUpdate():
                version = {FORMAT_VERSION: str(update.format_version)}
                self._format_version = check_format_version(version, self._table)
                yield update
            case AddSnapshotUpdate():
                self._check_sequence(update)
                yield AddSnapshotUpdate(snapshot=_with_room(update.snapshot))
            case RemoveSnapshotsUpdate():
                yield from self._removed_snapshots(update)
            case _:
                yield from self._with_statistics(update)

    def _numbered(self, order: SortOrder) -> SortOrder:
        """Give a sort order another id if its id was taken, as `TableMetadata.Builder.addSortOrder` does."""
        number, orders = order.order_id, self._orders
        taken = orders.known.get(number, order)
        is_unsorted = number == UNSORTED_SORT_ORDER_ID
        if taken == order or is_unsorted or orders.built_on is not None or number in orders.added:
            return order
        equal = (each for each, known in orders.known.items() if known.fields == order.fields)
        orders.renumbered[number] = next(equal, max(orders.known) + 1)
        return SortOrder(*order.fields, order_id=orders.renumbered[number])

    def _removed_properties(self, update: RemovePropertiesUpdate) -> TableUpdate:
        removals = [name for name in dict.fromkeys(update.removals) if name in self._properties]
        self._properties -= set(removals)
        return RemovePropertiesUpdate(removals=removals)

    def _removed_snapshots(self, update: RemoveSnapshotsUpdate) -> Iterator[TableUpdate]:
        """Remove the statistics with a snapshot; pyiceberg removes only partition statistics."""
        gone = [number for number in dict.fromkeys(update.snapshot_ids) if number in self._snapshots]
        self._snapshots -= set(gone)
        self._statistics -= set(gone)
        for number in gone:
            if number in self._partition_statistics:
                self._partition_statistics.discard(number)
                yield RemovePartitionStatisticsUpdate(snapshot_id=number)
        if gone:
            yield RemoveSnapshotsUpdate(snapshot_ids=gone)

    def _with_statistics(self, update: TableUpdate) -> Iterator[TableUpdate]:
        if isinstance(update, SetStatisticsUpdate):
            self._statistics.add(update.statistics.snapshot_id)
        elif isinstance(update, SetPartitionStatisticsUpdate):
            self._partition_statistics.add(update.partition_statistics.snapshot_id)
        elif isinstance(update, RemoveStatisticsUpdate):
            if update.snapshot_id not in self._statistics:
                return
            self._statistics.discard(update.snapshot_id)
        elif isinstance(update, RemovePartitionStatisticsUpdate):
            if update.snapshot_id not in self._partition_statistics:
                return
            self._partition_statistics.discard(update.snapshot_id)
        yield update

    def _check_sequence(self, update: AddSnapshotUpdate) -> None:
        snapshot = update.snapshot
        number = snapshot.sequence_number or 0
        if snapshot.snapshot_id in self._snapshots:
            return  # The update is refused when it is applied.
        numbered = self._format_version > 1 and snapshot.parent_snapshot_id is not None
        if numbered and number <= self._last_sequence:
            raise CommitConflict(
                f"The snapshot has the sequence number {number}, but {self._last_sequence} is "
                "already assigned.",
                table=self._table,
                snapshot=snapshot.snapshot_id,
                rule="sequence-number",
                hint="Load the table and commit again.",
            )
        self._last_sequence = max(self._last_sequence, number)
        self._snapshots.add(snapshot.snapshot_id)


def _with_room(snapshot: Snapshot) -> Snapshot:
    """Remove totals from the snapshot that are too large for the next commit to add to."""
    summary = snapshot.summary
    if summary is None or not any(_is_full(*each) for each in summary.additional_properties.items()):
        return snapshot
    kept = {name: value for name, value in summary.additional_properties.items() if not _is_full(name, value)}
    return snapshot.model_copy(update={"summary": Summary(summary.operation, **kept)})


def _is_full(name: str, value: str) -> bool:
    is_number = value.isascii() and value.isdecimal() and len(value) < _DIGITS
    return name.startswith(_TOTAL) and is_number and _LARGEST_TOTAL < int(value) <= _LARGEST_LONG


def _built_on(requirements: Sequence[TableRequirement]) -> dict[str, frozenset[int]]:
    """Return, by kind, the ids in use that a client with these requirements knows.

    Any assertion about ids shows that the client has loaded the table. An assertion about a current id also
    names that id.
    """
    said: dict[str, set[int]] = {"schema": set(), "spec": set(), "order": set()}
    states = False
    for requirement in requirements:
        match requirement:
            case AssertCurrentSchemaId():
                said["schema"].add(requirement.current_schema_id)
            case AssertDefaultSpecId():
                said["spec"].add(requirement.default_spec_id)
            case AssertDefaultSortOrderId():
                said["order"].add(requirement.default_sort_order_id)
            case AssertLastAssignedFieldId() | AssertLastAssignedPartitionId():
                pass
            case _:
                continue
        states = True
    return {kind: frozenset(ids) for kind, ids in said.items()} if states else {}
