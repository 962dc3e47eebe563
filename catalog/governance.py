"""What governs a table next: from properties that a user typed to an allowed list and encryption regimes.

Pure decisions, except that new PEKs are made by the keyring once everything else is in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from catalog.changes import Changes
from catalog.metadata import last_sequence_number
from catalog.state import Governed
from policy import governed as names
from policy.allowlist import AllowList
from policy.encryption import EncryptionSpec, Mechanism, judge_sources, resolve_columns
from policy.errors import EncryptionPolicyViolation, NotSupportedYet
from policy.location import Location
from policy.regimes import PekRef, Regime, Regimes


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request wants to govern a table, before it is authorized.

    Attributes:
        allowed: the allowed list.
        spec: the encryption of new files.
        added: locations that the list did not hold before.
        new_keys: master key ids that the specification did not name before.
        unprotects: whether protection is dropped.
    """

    allowed: AllowList
    spec: EncryptionSpec
    added: tuple[Location, ...]
    new_keys: tuple[str, ...]
    unprotects: bool


def for_new_table(
    properties: dict[str, str], location: Location, catalog_master_key_id: str | None, table: str
) -> Wanted:
    """What governs a table that is being created.

    Args:
        properties: its governed properties, by canonical name.
        location: the table's location, which its list inherits where none is given.
        catalog_master_key_id: the master key of tables that name none.
        table: dotted name, for errors.

    Raises:
        PropertyInvalid, LocationInvalid: a value is malformed or contradictory.
        NotSupportedYet: a property has no effect in this release.
    """
    given = properties.get(names.ALLOWED_PATHS)
    allowed = AllowList.of([location]) if given is None else AllowList.parse(given)
    spec = EncryptionSpec.parse(properties, catalog_master_key_id=catalog_master_key_id)
    _refuse_without_effect(spec, table)
    return Wanted(allowed, spec, allowed.entries, spec.key_ids(), unprotects=False)


def for_change(
    current: Governed, changes: Changes, location: Location, catalog_master_key_id: str | None, table: str
) -> Wanted:
    """What governs a table after a change of its governed properties.

    Raises:
        as `for_new_table`.
    """
    allowed = _next_allowed(current, changes, location)
    spec = _next_spec(current.spec, changes, catalog_master_key_id)
    _refuse_without_effect(spec, table)
    added = tuple(entry for entry in allowed.entries if not current.allowed.covers(entry))
    new_keys = tuple(key for key in spec.key_ids() if key not in current.spec.key_ids())
    return Wanted(allowed, spec, added, new_keys, current.spec.encrypts and not spec.encrypts)


def check_schema(spec: EncryptionSpec, metadata: TableMetadata, table: str) -> None:
    """Hold a specification against a table's columns: none that is encrypted may be seen in paths or order.

    Raises:
        PropertyInvalid: a column does not exist.
        EncryptionPolicyViolation: an encrypted column is a partition or sort source.
    """
    if not spec.encrypts:
        return
    keyed = resolve_columns(spec, column_ids(metadata.schema()))
    partitioned = [field.source_id for field in metadata.spec().fields if str(field.transform) != "void"]
    sorted_by = [field.source_id for field in metadata.sort_order().fields if str(field.transform) != "void"]
    decision = judge_sources(spec, keyed, partitioned + sorted_by)
    if not decision.allowed:
        raise EncryptionPolicyViolation(
            decision.explanation,
            table=table,
            rule=decision.reasons[0].rule,
            hint="Partition and sort by columns that are not encrypted.",
        )


def first_version(
    wanted: Wanted, metadata: TableMetadata, peks: Iterable[PekRef], version: int = 1
) -> Governed:
    """The first governed version of a table that takes force; earlier numbers are of creations cut short."""
    regime = _regime(0, wanted.spec, metadata, peks)
    return Governed(version, wanted.allowed, wanted.spec, Regimes.of([regime]))


def next_version(
    current: Governed, wanted: Wanted, metadata: TableMetadata, peks: Iterable[PekRef], version: int
) -> Governed:
    """The next governed version; another specification begins a regime at the next sequence number."""
    changed = replace(current, version=version, allowed=wanted.allowed)
    if wanted.spec == current.spec:
        return changed
    regime = _regime(last_sequence_number(metadata) + 1, wanted.spec, metadata, peks)
    return replace(changed, spec=wanted.spec, regimes=current.regimes.followed_by(regime))


def column_ids(schema: Schema) -> dict[str, int]:
    """Every column by its full dotted name."""
    return {schema.find_column_name(field_id) or "": field_id for field_id in schema.field_ids}


def _next_allowed(current: Governed, changes: Changes, location: Location) -> AllowList:
    if names.ALLOWED_PATHS in changes.governed_unset:
        return AllowList.of([location])
    given = changes.governed_set.get(names.ALLOWED_PATHS)
    return current.allowed if given is None else AllowList.parse(given)


def _next_spec(
    current: EncryptionSpec, changes: Changes, catalog_master_key_id: str | None
) -> EncryptionSpec:
    wanted = {key: value for key, value in changes.governed_set.items() if key != names.ALLOWED_PATHS}
    unset = changes.governed_unset - {names.ALLOWED_PATHS}
    if not wanted and not unset:
        return current
    keeps = current.encrypts and wanted.get(names.MECHANISM) != Mechanism.PLAINTEXT
    kept = current.to_properties() if keeps else {}
    merged = {key: value for key, value in kept.items() if key not in unset} | wanted
    return EncryptionSpec.parse(merged, catalog_master_key_id=catalog_master_key_id)


def _regime(number: int, spec: EncryptionSpec, metadata: TableMetadata, peks: Iterable[PekRef]) -> Regime:
    keyed = resolve_columns(spec, column_ids(metadata.schema())) if spec.encrypts else ()
    return Regime(number, spec, keyed, tuple(peks))


def _refuse_without_effect(spec: EncryptionSpec, table: str) -> None:
    without = spec.not_in_effect()
    if without:
        raise NotSupportedYet(
            " ".join(without),
            table=table,
            rule="not-in-effect",
            hint="Leave the property out; it would not protect anything yet.",
        )
