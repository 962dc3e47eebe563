"""What a table's encryption properties say, as one typed specification.

Rules:
- Every governed encryption property is parsed, also those that a later release gives effect to. What has no
  effect in this one is named by `EncryptionSpec.not_in_effect`, and the catalog refuses it at CREATE and
  ALTER: nobody may believe in protection that is not there.
- `envelope` is the mechanism as soon as another encryption property is given. `plaintext` beside another
  one is a contradiction.
- Without `encryption.columns` every column is encrypted, under the footer key. With it, those columns are.
- With `encryption.plaintext-columns` every column but those is encrypted: under its column key, or else under
  the table's master key. A column that both properties name is a contradiction. So is the table's master key
  in `encryption.columns`: the other columns are under it already.
- Which columns that is, by field id, is in `policy.encryption.encrypted_columns`.

Source: docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import Final

from policy.encryption import governed
from policy.encryption.file_formats import WRITE_FORMAT, FileFormat
from policy.encryption.governed_values import (
    column_groups,
    column_names,
    groups_text,
    is_master_key_id,
    mask_groups,
)
from policy.errors import PropertyInvalid

#: The mask that shows nothing but NULL.
NULLIFY: Final = "nullify"
_ORC_KEY_LENGTHS: Final = frozenset({16, 32})


class Mechanism(StrEnum):
    """How files are protected: not at all, or with a data key of their own that is wrapped by a table key."""

    PLAINTEXT = "plaintext"
    ENVELOPE = "envelope"


class Algorithm(StrEnum):
    """How a file's bytes are encrypted: Parquet's algorithms, and what ORC has instead of a choice."""

    AES_GCM_V1 = "AES_GCM_V1"
    AES_GCM_CTR_V1 = "AES_GCM_CTR_V1"
    ORC_AES_CTR = "ORC_AES_CTR"

    @property
    def file_format(self) -> FileFormat:
        """The one format that has the algorithm."""
        return FileFormat.ORC if self is Algorithm.ORC_AES_CTR else FileFormat.PARQUET


class VerifyDigest(StrEnum):
    """When a file is checked against the digest that its key metadata keeps."""

    NEVER = "never"
    FIRST_READ = "first-read"
    ALWAYS = "always"


class StandardClients(StrEnum):
    """Whether Iceberg clients without Lakewarden can load the metadata of an encrypted table."""

    LOAD = "load"
    REFUSE = "refuse"


class Footer(StrEnum):
    """Whether a file's footer is encrypted, or in plaintext and signed."""

    ENCRYPTED = "encrypted"
    PLAINTEXT = "plaintext"


@dataclass(frozen=True, slots=True)
class ColumnKey:
    """The columns that one master key protects.

    Attributes:
        key_id: master key id in the KMS.
        columns: dotted column names, sorted.
    """

    key_id: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnMask:
    """The columns that are shown through a mask to those who may not see them.

    Attributes:
        mask: ``nullify``, ``sha256`` or ``redact``.
        columns: dotted column names, sorted.
    """

    mask: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EncryptionSpec:
    """A table's encryption, parsed and free of contradictions.

    Attributes:
        mechanism: plaintext or envelope.
        master_key_id: the master key of the footer, or of the whole file; None for plaintext tables alone.
        algorithm: the Parquet algorithm that files must use.
        data_key_length: length of data keys in bytes.
        columns: column keys, sorted by key id.
        footer: encrypted, or plaintext and signed.
        masks: masks for columns that are denied, sorted by mask.
        stock_readers: whether files also carry what standard readers need.
        foreign_key_providers: the foreign key provider properties that were given, with their values.
        verify_digest: when files are checked against their digests.
        standard_clients: whether standard clients can load the table; None if its namespace decides. It says
            nothing of files, so that changing it begins no encryption epoch.
        plaintext_columns: the dotted names, sorted, of the columns that are not encrypted, where all others
            are; None where only `columns` are encrypted, or without these all columns, under the footer key.
        shows_partitions: whether encrypted columns can be partition sources, whose values manifests and paths
            then show in plaintext. It says nothing of the files themselves, either.
    """

    mechanism: Mechanism
    master_key_id: str | None = None
    algorithm: Algorithm = Algorithm.AES_GCM_V1
    data_key_length: int = 32
    columns: tuple[ColumnKey, ...] = ()
    footer: Footer = Footer.ENCRYPTED
    masks: tuple[ColumnMask, ...] = ()
    stock_readers: bool = False
    foreign_key_providers: tuple[tuple[str, str], ...] = ()
    verify_digest: VerifyDigest = VerifyDigest.NEVER
    standard_clients: StandardClients | None = None
    plaintext_columns: tuple[str, ...] | None = None
    shows_partitions: bool = False

    @classmethod
    def parse(
        cls,
        properties: Mapping[str, str],
        *,
        catalog_master_key_id: str | None,
        file_format: FileFormat | None = None,
    ) -> EncryptionSpec:
        """The specification that a table's properties make; ordinary properties are passed over.

        Args:
            properties: table properties in any accepted spelling.
            catalog_master_key_id: the catalog's master key, for tables that name none.
            file_format: the format of new files; None if it follows from the algorithm.

        Raises:
            PropertyInvalid: see `governed.split`; or properties that contradict `plaintext`; or no master
                key, neither the table's nor the catalog's; or what files of the format cannot have.
        """
        given, _ = governed.split(properties)
        given.pop(governed.ALLOWED_PATHS, None)
        if not given or given.get(governed.MECHANISM) == Mechanism.PLAINTEXT:
            _refuse_beside_plaintext(given)
            return cls(Mechanism.PLAINTEXT)
        algorithm = _algorithm(given, file_format)
        spec = cls(
            mechanism=Mechanism.ENVELOPE,
            master_key_id=_master_key_id(given, catalog_master_key_id),
            algorithm=algorithm,
            data_key_length=int(given.get(governed.DATA_KEY_LENGTH, "32")),
            columns=_column_keys(given),
            plaintext_columns=_plaintext_columns(given),
            footer=Footer(given.get(governed.FOOTER, Footer.ENCRYPTED)),
            masks=_column_masks(given),
            stock_readers=given.get(governed.STOCK_READERS) == "true",
            foreign_key_providers=tuple(
                (name, given[name]) for name in governed.FOREIGN_KEY_PROVIDERS if name in given
            ),
            verify_digest=VerifyDigest(
                given.get(governed.VERIFY_DIGEST, default_verification(algorithm.file_format))
            ),
            standard_clients=_standard_clients(given),
            shows_partitions=given.get(governed.PARTITION_VALUES) == "plaintext",
        )
        refuse_unfit(spec, given)
        _refuse_named_twice(spec)
        return spec

    @property
    def encrypts(self) -> bool:
        """Whether files of the table are encrypted."""
        return self.mechanism is not Mechanism.PLAINTEXT

    @property
    def by_column(self) -> bool:
        """Whether files encrypt their columns in groups, and not as a whole under the footer's key."""
        return bool(self.columns) or self.plaintext_columns is not None

    @property
    def encrypts_others(self) -> bool:
        """Whether files encrypt the columns that no property names, those that come later included."""
        return self.encrypts and (not self.columns or self.plaintext_columns is not None)

    @property
    def file_format(self) -> FileFormat | None:
        """The format of the table's encrypted files; None for plaintext, where any is right."""
        return self.algorithm.file_format if self.encrypts else None

    @property
    def keeps_digests(self) -> bool:
        """Whether key metadata keeps the digests of new files: of ORC always, which lacks integrity."""
        return self.encrypts and (
            self.file_format is FileFormat.ORC or self.verify_digest is not VerifyDigest.NEVER
        )

    @property
    def opens_to_others(self) -> bool:
        """Whether clients for which the catalog does not plan get something of the table."""
        return self.stock_readers or self.standard_clients is StandardClients.LOAD

    def encrypts_as(self, other: EncryptionSpec) -> bool:
        """Whether files are the same under another specification."""
        return self == replace(
            other, standard_clients=self.standard_clients, shows_partitions=self.shows_partitions
        )

    def key_of(self, column: str) -> str | None:
        """The master key of a column; None if it is in plaintext.

        Args:
            column: its full dotted name.
        """
        if self.master_key_id is None:
            return None
        key_id = self.column_key(column)
        if key_id is not None or not self.encrypts_others:
            return key_id
        return None if _around(column).intersection(self.plaintext_columns or ()) else self.master_key_id

    def column_key(self, column: str) -> str | None:
        """The master key of the column key of a column, or of a struct that it is in; None without one.

        Args:
            column: its full dotted name.
        """
        around = _around(column)
        return next((each.key_id for each in self.columns if around.intersection(each.columns)), None)

    def key_ids(self) -> tuple[str, ...]:
        """The distinct master key ids, the footer's first; none for plaintext."""
        footer = () if self.master_key_id is None else (self.master_key_id,)
        return tuple(dict.fromkeys((*footer, *(group.key_id for group in self.columns))))

    def to_properties(self) -> dict[str, str]:
        """The canonical governed properties in force, defaults included, `encryption.pek-id` not.

        Parsing them gives an equal specification, whatever the catalog's master key.
        """
        if self.master_key_id is None:
            return {governed.MECHANISM: self.mechanism.value}
        properties = {
            governed.MECHANISM: self.mechanism.value,
            governed.MASTER_KEY_ID: self.master_key_id,
            governed.ALGORITHM: self.algorithm.value,
            governed.DATA_KEY_LENGTH: str(self.data_key_length),
            governed.STOCK_READERS: "true" if self.stock_readers else "false",
            governed.VERIFY_DIGEST: self.verify_digest.value,
        }
        if self.file_format is FileFormat.PARQUET:
            properties[governed.FOOTER] = self.footer.value
        if self.columns:
            properties[governed.COLUMNS] = groups_text(tuple((g.key_id, g.columns) for g in self.columns))
        if self.plaintext_columns is not None:
            properties[governed.PLAINTEXT_COLUMNS] = ",".join(self.plaintext_columns)
        if self.shows_partitions:
            properties[governed.PARTITION_VALUES] = "plaintext"
        if self.masks:
            properties[governed.MASKS] = groups_text(tuple((m.mask, m.columns) for m in self.masks))
        if self.standard_clients is not None:
            properties[governed.STANDARD_CLIENTS] = self.standard_clients.value
        return {**properties, **dict(self.foreign_key_providers)}

    def not_in_effect(self) -> tuple[str, ...]:
        """One sentence for each part that has no effect in this release; empty if all is in effect."""
        return tuple(_not_in_effect(self))


def _refuse_beside_plaintext(given: Mapping[str, str]) -> None:
    other = next((name for name in given if name != governed.MECHANISM), None)
    if other is not None:
        raise governed.contradiction(f"{governed.MECHANISM}={Mechanism.PLAINTEXT}", other)


def _algorithm(given: Mapping[str, str], file_format: FileFormat | None) -> Algorithm:
    """The algorithm that is given, or the format's default."""
    said = given.get(governed.ALGORITHM)
    if said is not None:
        algorithm = Algorithm(said)
        if file_format not in (None, algorithm.file_format):
            raise PropertyInvalid(
                f"{governed.ALGORITHM}={algorithm} cannot encrypt {file_format} files.",
                rule="format-algorithm",
                hint="Omit the algorithm to use the default of the file format.",
            )
        return algorithm
    if file_format not in (None, FileFormat.PARQUET, FileFormat.ORC):
        raise PropertyInvalid(
            f"Encryption of {file_format} files is not supported.",
            rule="format-encryption",
            hint=f"Set {WRITE_FORMAT} to parquet or orc.",
        )
    return Algorithm.ORC_AES_CTR if file_format is FileFormat.ORC else Algorithm.AES_GCM_V1


def default_verification(file_format: FileFormat) -> VerifyDigest:
    """ORC's encryption has no integrity of its own, so each opening is verified; Parquet's by default has."""
    return VerifyDigest.ALWAYS if file_format is FileFormat.ORC else VerifyDigest.NEVER


def refuse_unfit(spec: EncryptionSpec, given: Collection[str]) -> None:
    """Refuse what files of the format cannot have.

    Args:
        spec: the specification.
        given: names of the governed properties that were given.

    Raises:
        PropertyInvalid: there is such a thing.
    """
    if spec.file_format is FileFormat.ORC:
        if spec.data_key_length not in _ORC_KEY_LENGTHS:
            raise _unfit(
                governed.DATA_KEY_LENGTH, "ORC supports data keys of 16 and 32 bytes only", "Set 16 or 32."
            )
        if governed.FOOTER in given:
            raise _unfit(
                governed.FOOTER, "the footer of ORC files is always in plaintext", "Omit the property."
            )
        if spec.stock_readers:
            raise _unfit(
                governed.STOCK_READERS,
                "standard ORC readers get their keys from the KMS endpoint",
                "Set the property to false.",
            )
        return
    other = [mask.mask for mask in spec.masks if mask.mask != NULLIFY]
    if other:
        raise _unfit(governed.MASKS, f"Parquet files do not support the mask {other[0]}", f"Use {NULLIFY}.")


def _unfit(name: str, why: str, hint: str) -> PropertyInvalid:
    return PropertyInvalid(f"{name}: {why}.", rule="format-property", hint=hint)


def _master_key_id(given: Mapping[str, str], catalog_master_key_id: str | None) -> str:
    key_id = given.get(governed.MASTER_KEY_ID, catalog_master_key_id)
    if key_id is None:
        raise PropertyInvalid(
            "The table is encrypted, but neither the table nor the catalog has a master key.",
            rule="master-key-id",
            hint=f"Set {governed.MASTER_KEY_ID}.",
        )
    if not is_master_key_id(key_id):
        raise PropertyInvalid(
            f"The catalog's master key id {key_id[:80]!r} is not valid.",
            rule="master-key-id",
            hint="Correct the master key id in the catalog's configuration.",
        )
    return key_id


def _column_keys(given: Mapping[str, str]) -> tuple[ColumnKey, ...]:
    if governed.COLUMNS not in given:
        return ()
    return tuple(ColumnKey(*group) for group in column_groups(governed.COLUMNS, given[governed.COLUMNS]))


def _plaintext_columns(given: Mapping[str, str]) -> tuple[str, ...] | None:
    if governed.PLAINTEXT_COLUMNS not in given:
        return None
    return column_names(governed.PLAINTEXT_COLUMNS, given[governed.PLAINTEXT_COLUMNS])


def _around(column: str) -> set[str]:
    """A column and what it is nested in."""
    return set(accumulate(column.split("."), "{}.{}".format))


def _refuse_named_twice(spec: EncryptionSpec) -> None:
    """Refuse a column that is said to have a key and to be plaintext, and the table's key for some columns.

    Raises:
        PropertyInvalid: there is one.
    """
    if spec.plaintext_columns is None:
        return
    keyed = {column for group in spec.columns for column in group.columns}
    plaintext = set(spec.plaintext_columns)
    for column in sorted(keyed | plaintext):
        around = _around(column)
        if around & keyed and around & plaintext:
            raise PropertyInvalid(
                f"Properties {governed.COLUMNS} and {governed.PLAINTEXT_COLUMNS} contradict each other: both "
                f"name {column!r}, or a column around it.",
                rule="property-contradiction",
                hint="Name the column in one of them only.",
            )
    if any(group.key_id == spec.master_key_id for group in spec.columns):
        raise PropertyInvalid(
            f"{governed.COLUMNS} names the table's master key {spec.master_key_id!r}. With "
            f"{governed.PLAINTEXT_COLUMNS}, all columns without a column key are under it.",
            rule="property-contradiction",
            hint=f"Remove that key from {governed.COLUMNS}, or set another {governed.MASTER_KEY_ID}.",
        )


def _column_masks(given: Mapping[str, str]) -> tuple[ColumnMask, ...]:
    if governed.MASKS not in given:
        return ()
    return tuple(ColumnMask(*group) for group in mask_groups(governed.MASKS, given[governed.MASKS]))


def _standard_clients(given: Mapping[str, str]) -> StandardClients | None:
    said = given.get(governed.STANDARD_CLIENTS)
    return None if said is None else StandardClients(said)


def _not_in_effect(spec: EncryptionSpec) -> Iterator[str]:
    later = "has no effect in this release"
    for name, value in spec.foreign_key_providers:
        if spec.file_format is not FileFormat.ORC:
            yield f"{name} {later}: keys always come from the catalog's KMS."
        elif name == governed.ORC_KEY_PROVIDER and value != "hadoop":
            yield f"{name}={value[:80]} {later}: only the hadoop provider is supported."
