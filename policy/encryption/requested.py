"""What a request wants to govern a table, before it is authorized.

From properties that a user typed to an allowed list and the encryption of new files.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from policy.encryption import governed as names
from policy.encryption.downgrade import downgrades
from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import EncryptionSpec, Footer, Mechanism, default_verification
from policy.errors import NotSupportedYet
from policy.location.allow_list import AllowList
from policy.location.location import Location


@dataclass(frozen=True, slots=True)
class Requested:
    """What a request wants to govern a table, before it is authorized.

    Attributes:
        allowed: the allowed list.
        spec: the encryption of new files.
        added: locations that the list did not hold before.
        new_keys: master key ids that the specification did not name before.
        unprotects: whether new files would promise less than those of now (`policy.encryption.downgrade`), or
            standard readers can get their keys; or manifests could show values of encrypted columns.
    """

    allowed: AllowList
    spec: EncryptionSpec
    added: tuple[Location, ...]
    new_keys: tuple[str, ...]
    unprotects: bool


def for_new_table(
    properties: Mapping[str, str],
    location: Location | None,
    catalog_master_key_id: str | None,
    table: str,
    *,
    file_format: FileFormat | None = FileFormat.PARQUET,
) -> Requested:
    """What governs a table that is being created.

    Args:
        properties: its governed properties, by canonical name.
        location: the table's location, which its list inherits where none is given; None while the catalog
            has yet to choose it, and the list is then without it.
        catalog_master_key_id: the master key of tables that name none.
        table: dotted name, for errors.
        file_format: the format of its files; None if it says one that nobody knows.

    Raises:
        PropertyInvalid, LocationInvalid: a value is malformed or contradictory.
        NotSupportedYet: a property has no effect in this release.
    """
    given = properties.get(names.ALLOWED_PATHS)
    allowed = AllowList.of([location] if location else []) if given is None else AllowList.parse(given)
    spec = EncryptionSpec.parse(
        properties, catalog_master_key_id=catalog_master_key_id, file_format=file_format or FileFormat.AVRO
    )
    refuse_without_effect(spec, table)
    return Requested(
        allowed,
        spec,
        allowed.entries,
        spec.key_ids(),
        unprotects=spec.opens_to_others or spec.shows_partitions,
    )


def for_change(
    allowed: AllowList,
    spec: EncryptionSpec,
    governed_set: Mapping[str, str],
    governed_unset: Collection[str],
    location: Location,
    catalog_master_key_id: str | None,
    table: str,
    *,
    file_format: FileFormat | None = None,
) -> Requested:
    """What governs a table after a change of its governed properties.

    Args:
        allowed: the list in force.
        spec: the specification in force.
        governed_set: governed properties to set, by canonical name.
        governed_unset: governed properties to remove, by canonical name.
        location: the table's location, to which its list goes back.
        catalog_master_key_id: the master key of tables that name none.
        table: dotted name, for errors.
        file_format: the format of its new files; None if it is not known, and then the one that it has.

    Raises:
        as `for_new_table`.
    """
    given = (
        AllowList.parse(governed_set[names.ALLOWED_PATHS]) if names.ALLOWED_PATHS in governed_set else allowed
    )
    next_allowed = AllowList.of([location]) if names.ALLOWED_PATHS in governed_unset else given
    wanted = next_spec(spec, governed_set, governed_unset, catalog_master_key_id, file_format)
    refuse_without_effect(wanted, table)
    return Requested(
        allowed=next_allowed,
        spec=wanted,
        added=tuple(entry for entry in next_allowed.entries if not allowed.covers(entry)),
        new_keys=tuple(key for key in wanted.key_ids() if key not in spec.key_ids()),
        unprotects=downgrades(spec, wanted),
    )


def next_spec(
    current: EncryptionSpec,
    governed_set: Mapping[str, str],
    governed_unset: Collection[str],
    catalog_master_key_id: str | None,
    file_format: FileFormat | None,
) -> EncryptionSpec:
    """The encryption after a change of properties.

    Args:
        current: the encryption before.
        governed_set: the properties that are set, by canonical name.
        governed_unset: those that are removed.
        catalog_master_key_id: the master key of tables that name none.
        file_format: the format of new files; None if it is not known, and then the one that it has.

    Raises:
        PropertyInvalid: the properties contradict each other.
    """
    wanted = {key: value for key, value in governed_set.items() if key != names.ALLOWED_PATHS}
    unset = set(governed_unset) - {names.ALLOWED_PATHS}
    changes_format = current.encrypts and file_format not in (None, current.file_format)
    if not wanted and not unset and not changes_format:
        return current
    keeps = current.encrypts and wanted.get(names.MECHANISM) != Mechanism.PLAINTEXT
    kept = current.to_properties() if keeps else {}
    if changes_format:
        unset |= _of_old_format(current)
    merged = {key: value for key, value in kept.items() if key not in unset} | wanted
    return EncryptionSpec.parse(
        merged, catalog_master_key_id=catalog_master_key_id, file_format=file_format or current.file_format
    )


def _of_old_format(current: EncryptionSpec) -> set[str]:
    """What another format has its own of: the algorithm, and what is as the old format has it by default."""
    own = {names.ALGORITHM}
    if current.footer is Footer.ENCRYPTED:
        own.add(names.FOOTER)
    if current.verify_digest is default_verification(current.algorithm.file_format):
        own.add(names.VERIFY_DIGEST)
    return own


def refuse_without_effect(spec: EncryptionSpec, table: str) -> None:
    """Refuse what would not protect anything yet.

    Raises:
        NotSupportedYet: a part of the specification has no effect in this release.
    """
    without = spec.not_in_effect()
    if without:
        raise NotSupportedYet(
            " ".join(without),
            table=table,
            rule="not-in-effect",
            hint="Omit the property. It has no effect in this release.",
        )
