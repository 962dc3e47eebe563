"""Parses what a list of table updates requests, before anything is applied.

Updates of metadata.json are separated from updates of governed properties, and classified by the privilege
that they need. A commit that changes governed properties and adds a snapshot is refused: readers must know
which rules a snapshot was checked by. Only the creation of a table can do both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssignUUIDUpdate,
    RemovePartitionStatisticsUpdate,
    RemovePropertiesUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    SetLocationUpdate,
    SetPartitionStatisticsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    SetStatisticsUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)

from catalog.iceberg.updating import updated
from catalog.rules.fitting import fitting
from catalog.rules.openable import never_back
from policy.encryption import governed as governed_names
from policy.errors import LakewardenError, RequestInvalid
from policy.privileges.tables import WRITE_PATHS, check_properties
from policy.write_properties import FORMAT_VERSION, check_format_version

#: Updates by writers of data; every other update changes the table itself.
_DATA_UPDATES: Final = (
    AddSnapshotUpdate,
    SetSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveSnapshotRefUpdate,
    SetStatisticsUpdate,
    RemoveStatisticsUpdate,
    SetPartitionStatisticsUpdate,
    RemovePartitionStatisticsUpdate,
)


#: Snapshot summary entries that only the catalog can write.
_RESERVED_SUMMARY_PREFIXES: Final = ("encryption.", "lakewarden.")


@dataclass(frozen=True, slots=True)
class Changes:
    """A client's updates, by kind.

    Attributes:
        updates: those of metadata.json, in order.
        governed_set: governed properties to set, by canonical name.
        governed_unset: governed properties to remove, by canonical name.
        operations: the operations of the updates (`policy.privileges`): ``table.write``, ``table.alter`` or
            both.
        locations: the new locations of the table and its files.
        governed_said: governed properties that are set, including those set to the value in force.
    """

    updates: tuple[TableUpdate, ...]
    governed_set: dict[str, str]
    governed_unset: frozenset[str]
    operations: frozenset[str]
    locations: tuple[str, ...] = field(default=())
    governed_said: frozenset[str] = field(default=frozenset())

    @property
    def governs(self) -> bool:
        """Return whether a governed property changes."""
        return bool(self.governed_set or self.governed_unset)

    @property
    def adds_snapshot(self) -> bool:
        """Return whether a snapshot is added."""
        return any(isinstance(update, AddSnapshotUpdate) for update in self.updates)


def part(updates: Sequence[TableUpdate], in_force: dict[str, str], table: str) -> Changes:
    """Separate a client's updates by kind.

    Args:
        updates: as the client sent them.
        in_force: the governed properties in force; values sent back unchanged are no change.
        table: dotted name, for errors.

    Raises:
        PropertyInvalid: a governed property that is unknown, malformed or contradictory.
        RequestInvalid: a governed property that is both set and removed, or set to two values.
    """
    check_numbers(updates, table)
    ordinary: list[TableUpdate] = []
    said: dict[str, str] = {}
    given: dict[str, str] = {}
    governed_unset: set[str] = set()
    locations: list[str] = []
    for update in updates:
        if isinstance(update, SetPropertiesUpdate):
            governed, rest = _split(update.updates, in_force)
            _refuse_two_values(given, governed, table)
            given |= governed
            said |= update.updates
            check_properties(rest, table)
            ordinary += _upgrades(rest, table)
            locations += [rest[name] for name in WRITE_PATHS if name in rest]
            if rest:
                ordinary.append(SetPropertiesUpdate(updates=rest))
        elif isinstance(update, RemovePropertiesUpdate):
            governed_names.check_count(len(update.removals))
            unset = {name for name in update.removals if governed_names.is_governed(name)}
            governed_unset |= {governed_names.canonical_name(name) for name in unset}
            ordinary.append(RemovePropertiesUpdate(removals=[n for n in update.removals if n not in unset]))
        else:
            if isinstance(update, SetLocationUpdate):
                locations.append(update.location)
            ordinary.append(update)
    _split(said, in_force)  # Finds contradictions between updates; the calls above check each update alone.
    _refuse_both(given, governed_unset, table)
    # Clients send back what `loadTable` showed them; an unchanged value is no change.
    governed_set = {name: value for name, value in given.items() if in_force.get(name) != value}
    governs = bool(governed_set or governed_unset)
    return Changes(
        tuple(ordinary),
        governed_set,
        frozenset(governed_unset),
        _operations(ordinary, governs),
        tuple(locations),
        frozenset(given),
    )


def _upgrades(properties: dict[str, str], table: str) -> list[TableUpdate]:
    """Take the format version out of properties: in Iceberg, it is not stored, and upgrades the table.

    Raises:
        UnsupportedFormatVersion: it is not the one that is written.
    """
    check_format_version(properties, table)
    version = properties.pop(FORMAT_VERSION, None)
    return [] if version is None else [UpgradeFormatVersionUpdate(format_version=int(version))]


def _refuse_two_values(given: dict[str, str], more: dict[str, str], table: str) -> None:
    """Refuse two values of one property: the order of updates must not decide what protects a table."""
    twice = sorted(name for name, value in more.items() if given.get(name, value) != value)
    if twice:
        raise RequestInvalid(
            f"The commit sets {twice[0]} to two different values.",
            table=table,
            rule="set-twice",
            hint="Set the property once.",
        )


def _refuse_both(given: Iterable[str], governed_unset: set[str], table: str) -> None:
    both = governed_unset.intersection(given)
    if both:
        raise RequestInvalid(
            f"The commit both sets and removes {min(both)}.",
            table=table,
            rule="set-and-removed",
            hint="Either set or remove the property.",
        )


def _split(properties: dict[str, str], in_force: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return changed governed properties, unchanged ones among them, and the rest."""
    read_only = governed_names.PEK_ID
    given = {
        name: value for name, value in properties.items() if name != read_only or in_force.get(name) != value
    }
    return governed_names.split(given)


def refuse_reserved_summaries(updates: Iterable[TableUpdate], table: str) -> None:
    """Refuse new snapshots of a client with summary entries that only the catalog can write.

    Raises:
        RequestInvalid: such an entry.
    """
    for update in updates:
        if isinstance(update, AddSnapshotUpdate) and update.snapshot.summary is not None:
            refuse_reserved_names(update.snapshot.summary.additional_properties, table)


def refuse_reserved_names(names: Iterable[str], table: str) -> None:
    """Refuse summary entries that are reserved for the catalog.

    Raises:
        RequestInvalid: such an entry.
    """
    for name in names:
        if name.lower().startswith(_RESERVED_SUMMARY_PREFIXES):
            raise RequestInvalid(
                f"The snapshot summary entry {name[:80]!r} is reserved for the catalog.",
                table=table,
                rule="summary",
                hint="Remove the entry.",
            )


def check_numbers(updates: Iterable[TableUpdate], table: str) -> None:
    """Refuse numbers that other readers cannot represent.

    Raises:
        RequestInvalid: a number of more than 64 bits.
    """
    for update in updates:
        if _has_large_number(update.model_dump()):
            raise RequestInvalid(
                f"The update {update.action} contains a number of more than 64 bits.",
                table=table,
                rule="updates",
            )


def refuse_forgetting_columns(updates: Iterable[TableUpdate], table: str) -> None:
    """Refuse to remove schemas of an encrypted table: old files contain columns that only they name.

    Raises:
        RequestInvalid: a schema would be removed.
    """
    if any(isinstance(update, RemoveSchemasUpdate) for update in updates):
        raise RequestInvalid(
            "Schemas of an encrypted table cannot be removed: they name the columns that its keys open.",
            table=table,
            rule="remove-schemas",
            hint="Commit without removing schemas.",
        )


def renumbered_orders(updates: Iterable[TableUpdate], metadata: TableMetadata) -> frozenset[int]:
    """Return the ids of sort orders that the updates add, and that are those of other orders in the table."""
    known = {each.order_id: each for each in metadata.sort_orders}
    added = (update.sort_order for update in updates if isinstance(update, AddSortOrderUpdate))
    return frozenset(each.order_id for each in added if known.get(each.order_id, each) != each)


def refuse_mixture(changes: Changes, table: str, *, governs: bool) -> None:
    """Refuse a commit that both changes governed properties and adds a snapshot.

    Args:
        changes: of the commit.
        table: dotted name, for errors.
        governs: whether they change governed properties, or names and fields of encrypted columns.

    Raises:
        RequestInvalid: the commit does both.
    """
    if governs and changes.adds_snapshot:
        raise RequestInvalid(
            "A commit cannot both change governed properties or encrypted columns, and add a snapshot.",
            table=table,
            rule="mixed-commit",
            hint="Commit the change of properties or columns first, then the snapshot.",
        )


def apply(
    base: TableMetadata,
    updates: Sequence[TableUpdate],
    location: str | None,
    table: str,
    requirements: Sequence[TableRequirement] = (),
) -> TableMetadata:
    """Apply updates to metadata; a pure function.

    Args:
        base: metadata from verified bytes.
        updates: updates of metadata.json.
        location: path of `base`, for the metadata log; None for a table that does not exist yet.
        table: dotted name, for errors.
        requirements: of the same commit; they are met.

    Raises:
        RequestInvalid: an update does not fit the metadata.
        CommitConflict: the client assigned an id or a sequence number that was assigned meanwhile.
    """
    try:
        made = updated(base, fitting(base, updates, requirements, table), location)
    except LakewardenError:
        raise
    except (IcebergValidationError, ValueError, KeyError, TypeError, StopIteration) as error:
        # pydantic's ValidationError is a ValueError; its text can repeat input, so only its type is shown.
        plain = type(error) in (ValueError, IcebergValidationError)
        text = str(error) if plain else type(error).__name__
        raise RequestInvalid(
            f"The updates cannot be applied to the table: {text[:300]}.", table=table, rule="updates"
        ) from error
    return never_back(base, _with_deprecated_fields(made))


def _with_deprecated_fields(metadata: TableMetadata) -> TableMetadata:
    """Set the schema and partition spec that version 1 has beside its lists of both to the current ones."""
    if not isinstance(metadata, TableMetadataV1):
        return metadata
    fields = [each.model_dump() for each in metadata.spec().fields]
    return metadata.model_copy(update={"schema_": metadata.schema(), "partition_spec": fields})


def _has_large_number(value: object) -> bool:
    if isinstance(value, dict):
        return any(_has_large_number(each) for each in value.values())
    if isinstance(value, list | tuple):
        return any(_has_large_number(each) for each in value)
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _operations(updates: Sequence[TableUpdate], governs: bool) -> frozenset[str]:
    found = {"table.alter"} if governs else set()
    for update in updates:
        if isinstance(update, _DATA_UPDATES):
            found.add("table.write")
        elif not isinstance(update, AssignUUIDUpdate) and not _is_empty(update):
            found.add("table.alter")
    return frozenset(found or {"table.write"})


def _is_empty(update: TableUpdate) -> bool:
    return (isinstance(update, RemovePropertiesUpdate) and not update.removals) or (
        isinstance(update, SetPropertiesUpdate) and not update.updates
    )
