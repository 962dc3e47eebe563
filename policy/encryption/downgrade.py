"""Decides which changes of a table's encryption are downgrades, which require `unprotect` on the table.

A change downgrades a table if its new files would promise less than they do now:
- a column that is encrypted would be in plaintext; from all columns to some counts, also if all are named,
  since one that is added later would be in plaintext. So does each more that `encryption.plaintext-columns`
  names;
- a column, or the footer, would be under another key: other users can have the permission to use it. So would
  columns with column keys that came under one key for all, from which an engine alone keeps them;
- encrypted columns could be partition sources, so that manifests and paths would show their values;
- changes of a file would be detected less: fewer tags where no digest is always looked at (AES_GCM_V1 tags
  all, AES_GCM_CTR_V1 all but the pages, ORC nothing); or a digest that is looked at less often, which also
  tells what a user changed who had a file's data key;
- the footer would be in plaintext, with names, types and sizes of all columns; or data keys would be shorter;
- what is masked would show hashes or redacted values, or files would carry what standard readers need;
- standard clients could load the table: it would say so, or it would no longer say that they cannot.

More columns under keys, and columns that come under a key beside those that are there, downgrade nothing:
only users who can select every column under a key get it.

Source: docs/encryption.md, "Change encryption properties".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from policy.encryption import governed
from policy.encryption.encrypted_columns import KeyedFields
from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import (
    NULLIFY,
    Algorithm,
    EncryptionSpec,
    Footer,
    Mechanism,
    StandardClients,
    VerifyDigest,
)

#: In ascending order of frequency.
_HOW_OFTEN: Final = (VerifyDigest.NEVER, VerifyDigest.FIRST_READ, VerifyDigest.ALWAYS)
#: In ascending order of openness; a table that says nothing follows its namespace.
_LET_IN: Final = (StandardClients.REFUSE, None, StandardClients.LOAD)
#: From the one with the fewest tags on.
_TAGGED: Final = (Algorithm.ORC_AES_CTR, Algorithm.AES_GCM_CTR_V1, Algorithm.AES_GCM_V1)
#: What a column without a column key is under: an engine alone keeps it from users, who can have its key.
_TABLE_KEY: Final = ""
#: By property, the values that downgrade no table.
_HARMLESS: Final[Mapping[str, Collection[str]]] = {
    governed.MECHANISM: {Mechanism.ENVELOPE},
    governed.ALGORITHM: {Algorithm.AES_GCM_V1},
    governed.FOOTER: {Footer.ENCRYPTED},
    governed.DATA_KEY_LENGTH: {"32"},
    governed.VERIFY_DIGEST: {VerifyDigest.ALWAYS},
    governed.STOCK_READERS: {"false"},
    governed.STANDARD_CLIENTS: {StandardClients.REFUSE},
    governed.COLUMNS: (),
    governed.PLAINTEXT_COLUMNS: {""},
    governed.PARTITION_VALUES: {"refuse"},
    governed.MASTER_KEY_ID: (),
}


def downgrades(before: EncryptionSpec, after: EncryptionSpec) -> bool:
    """Whether new files would promise less, with columns by the names of one and the same schema.

    Where the schema changes as well, names may stand for other columns: see `uncovers_fields`.
    """
    return downgrades_files(before, after) or uncovers(before, after)


def downgrades_files(before: EncryptionSpec, after: EncryptionSpec) -> bool:
    """Whether new files would promise less as a whole, whatever columns they have."""
    opened = (
        (after.stock_readers and not before.stock_readers)
        or _LET_IN.index(after.standard_clients) > _LET_IN.index(before.standard_clients)
        or not _shown(after) <= _shown(before)
        or (after.shows_partitions and not before.shows_partitions)
    )
    if not (before.encrypts and after.encrypts):
        return opened or before.encrypts
    return (
        opened
        or before.master_key_id != after.master_key_id
        or (_tags_less(before, after) and after.verify_digest is not VerifyDigest.ALWAYS)
        or _HOW_OFTEN.index(before.verify_digest) > _HOW_OFTEN.index(after.verify_digest)
        or (_hides_footer(before) and not _hides_footer(after))
        or before.data_key_length > after.data_key_length
    )


def uncovers(before: EncryptionSpec, after: EncryptionSpec) -> bool:
    """Whether columns that new files hide would be in plaintext, or under other keys."""
    if not before.encrypts or not after.encrypts:
        return before.encrypts
    named = {column for spec in (before, after) for column in _named(spec)}
    if before.encrypts_others and not after.encrypts_others:
        return True
    keys = {column: _key_of(before, column) for column in named}
    return any(key is not None and _key_of(after, column) != key for column, key in keys.items())


@dataclass(frozen=True, slots=True)
class HiddenFields:
    """The fields that files encrypt, with their keys.

    Attributes:
        keys: the master key of each field with a column key.
        others: whether every other field is encrypted too, under the table's master key.
        plaintext: the fields that are not, nevertheless.
    """

    keys: Mapping[int, str]
    others: bool = False
    plaintext: Collection[int] = ()

    def key_of(self, field: int) -> str | None:
        """What a field is under; None for plaintext. The table's own key is none of those that are named."""
        if field in self.keys:
            return self.keys[field]
        return _TABLE_KEY if self.others and field not in self.plaintext else None


def hidden_fields(
    spec: EncryptionSpec, keyed: tuple[KeyedFields, ...], fields: Collection[int]
) -> HiddenFields:
    """The fields that files of a specification encrypt.

    Args:
        spec: the table's specification.
        keyed: its columns by field id, from `resolve_columns`.
        fields: the fields of the schema that `keyed` is made of.
    """
    named = keyed[: len(spec.columns)]
    keys = {field_id: group.key_id for group in named for field_id in group.field_ids}
    if spec.plaintext_columns is None:
        return HiddenFields(keys, spec.encrypts_others)
    others = {field_id for group in keyed[len(spec.columns) :] for field_id in group.field_ids}
    return HiddenFields(keys, others=True, plaintext=set(fields) - others - keys.keys())


def uncovers_fields(before: HiddenFields, after: HiddenFields, fields: Collection[int]) -> bool:
    """Whether fields that new files hide would be plaintext, or under other keys, whatever they are called.

    Args:
        before: the fields that are hidden now.
        after: those that would be hidden.
        fields: the fields of the schema that comes; one that is dropped needs no protection.
    """
    if before.others and not after.others:
        return True
    keys = {each: before.key_of(each) for each in fields}
    return any(key is not None and after.key_of(each) != key for each, key in keys.items())


def could_downgrade(given: Mapping[str, str]) -> bool:
    """Whether properties would downgrade a table of which nothing is known, if it is encrypted well.

    Args:
        given: governed properties that are set, by canonical name, in normal form.
    """
    return any(name in _HARMLESS and value not in _HARMLESS[name] for name, value in given.items())


def _named(spec: EncryptionSpec) -> set[str]:
    return {*(spec.plaintext_columns or ()), *(column for group in spec.columns for column in group.columns)}


def _key_of(spec: EncryptionSpec, column: str) -> str | None:
    """What a column is under; None for plaintext. Under the table's key it is not as under a column key."""
    return spec.column_key(column) or (None if spec.key_of(column) is None else _TABLE_KEY)


def _tags_less(before: EncryptionSpec, after: EncryptionSpec) -> bool:
    return _TAGGED.index(before.algorithm) > _TAGGED.index(after.algorithm)


def _hides_footer(spec: EncryptionSpec) -> bool:
    return spec.file_format is FileFormat.PARQUET and spec.footer is Footer.ENCRYPTED


def _shown(spec: EncryptionSpec) -> set[tuple[str, str]]:
    """Masks that show hashes or redacted values to those who may not select a column."""
    groups = (group for group in spec.masks if group.mask != NULLIFY)
    return {(group.mask, column) for group in groups for column in group.columns}
