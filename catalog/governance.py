"""What governs a table next: from what a request wants, and the table's columns, to encryption regimes.

Pure decisions, except that new PEKs are made by the keyring once everything else is in order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from catalog.changes import Changes
from catalog.metadata import last_sequence_number
from catalog.state import Governed
from policy import wanted as wanted_rules
from policy.encryption import EncryptionSpec, judge_sources, resolve_columns
from policy.errors import EncryptionPolicyViolation
from policy.location import Location
from policy.regimes import PekRef, Regime, Regimes
from policy.wanted import Wanted, for_new_table

__all__ = [
    "Wanted",
    "check_schema",
    "column_ids",
    "first_version",
    "for_change",
    "for_new_table",
    "next_version",
]


def for_change(
    current: Governed, changes: Changes, location: Location, catalog_master_key_id: str | None, table: str
) -> Wanted:
    """What governs a table after a change of its governed properties.

    Raises:
        as `for_new_table`.
    """
    return wanted_rules.for_change(
        current.allowed,
        current.spec,
        changes.governed_set,
        changes.governed_unset,
        location,
        catalog_master_key_id,
        table,
    )


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


def _regime(number: int, spec: EncryptionSpec, metadata: TableMetadata, peks: Iterable[PekRef]) -> Regime:
    keyed = resolve_columns(spec, column_ids(metadata.schema())) if spec.encrypts else ()
    return Regime(number, spec, keyed, tuple(peks))
