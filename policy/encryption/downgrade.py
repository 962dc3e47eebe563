"""Decides which changes of a table's encryption are downgrades, which require `unprotect` on the table.

A change downgrades a table if its new files would promise less than they do now:
- a column that is encrypted would be in plaintext; from all columns to some counts, also if all are named,
  since one that is added later would be in plaintext;
- a column, or the footer, would be under another key: other users can have the permission to use it. So would
  columns with column keys that came under one key for all, from which an engine alone keeps them;
- changes of a file would be detected less: fewer tags where no digest is always looked at (AES_GCM_V1 tags
  all, AES_GCM_CTR_V1 all but the pages, ORC nothing); or a digest that is looked at less often, which also
  tells what a user changed who had a file's data key;
- the footer would be in plaintext, with names, types and sizes of all columns; or data keys would be shorter;
- what is masked would show hashes or redacted values, or files would carry what stock readers need;
- standard clients could load the table: it would say so, or it would no longer say that they cannot.

More columns under keys, and columns that come under a key beside those that are there, downgrade nothing:
only users who can select every column under a key get it.

Source: docs/encryption.md, "Change encryption properties".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import accumulate
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
    if not before.columns or not after.columns:
        return before.columns != after.columns
    keys = {column: group.key_id for group in after.columns for column in group.columns}
    return any(_key_of(column, keys) != group.key_id for group in before.columns for column in group.columns)


def keys_of_fields(spec: EncryptionSpec, keyed: tuple[KeyedFields, ...]) -> dict[int, str] | None:
    """The key of each field that files of the specification encrypt; None if all are under one key.

    Args:
        spec: the table's specification.
        keyed: its columns by field id, from `resolve_columns`.
    """
    if spec.encrypts and not spec.columns:
        return None
    return {field_id: group.key_id for group in keyed for field_id in group.field_ids}


def uncovers_fields(
    before: Mapping[int, str] | None, after: Mapping[int, str] | None, fields: Collection[int]
) -> bool:
    """Whether fields that new files hide would be plaintext, or under other keys, whatever they are called.

    Args:
        before: the keys of the fields that are hidden now, from `keys_of_fields`; None for one key for all.
        after: those of the fields that would be hidden.
        fields: the fields of the schema that comes; one that is dropped needs no protection.
    """
    if before is None:
        return after is not None
    left = before.keys() & set(fields)
    if after is None:
        return bool(left)
    return any(after.get(each) != before[each] for each in left)


def could_downgrade(given: Mapping[str, str]) -> bool:
    """Whether properties would downgrade a table of which nothing is known, if it is encrypted well.

    Args:
        given: governed properties that are set, by canonical name, in normal form.
    """
    return any(name in _HARMLESS and value not in _HARMLESS[name] for name, value in given.items())


def _key_of(column: str, keys: Mapping[str, str]) -> str | None:
    """The key that a column is under, or a struct around it."""
    outer = accumulate(column.split("."), "{}.{}".format)
    return next((keys[each] for each in outer if each in keys), None)


def _tags_less(before: EncryptionSpec, after: EncryptionSpec) -> bool:
    return _TAGGED.index(before.algorithm) > _TAGGED.index(after.algorithm)


def _hides_footer(spec: EncryptionSpec) -> bool:
    return spec.file_format is FileFormat.PARQUET and spec.footer is Footer.ENCRYPTED


def _shown(spec: EncryptionSpec) -> set[tuple[str, str]]:
    """Masks that show hashes or redacted values to those who may not select a column."""
    groups = (group for group in spec.masks if group.mask != NULLIFY)
    return {(group.mask, column) for group in groups for column in group.columns}
