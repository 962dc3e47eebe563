"""Values of the governed table properties: strict parsing and normal forms.

Rules:
- A value is one of the words listed, or it is refused; nothing is guessed, trimmed or lower-cased.
- Lists (``key:column,column;key:column``) may carry spaces around their separators, and nothing else that is
  not part of a name. Empty groups, empty names and a column that stands twice are refused.
- Two values are equal when their normal forms are: groups of one key are merged, keys and columns are sorted.

Source: docs/table-properties.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from policy.errors import PropertyInvalid

MAX_VALUE_CHARACTERS = 65_536
#: How policies call the keys of the KMS endpoint, before their names.
ENDPOINT_PREFIX = "door/"
MAX_KEY_ID_BYTES = 255

_KEY_ID = re.compile(r"(?:arn:[A-Za-z0-9_./+=:-]+|[A-Za-z0-9_][A-Za-z0-9_./+=-]*)\Z")
_UNWANTED = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")

Groups = tuple[tuple[str, tuple[str, ...]], ...]


def refused(name: str, message: str, hint: str) -> PropertyInvalid:
    """The one error for a property value that cannot be used."""
    return PropertyInvalid(f"{name}: {message}", rule="property-value", hint=hint)


def checked_text(name: str, value: object) -> str:
    """The value as text of bounded length without control or invisible characters.

    Raises:
        PropertyInvalid: the value is not such a text.
    """
    if not isinstance(value, str):
        raise refused(name, "the value is not a string.", "Set the value as a string.")
    if len(value) > MAX_VALUE_CHARACTERS:
        raise refused(
            name,
            f"the value has {len(value)} characters, which is too long.",
            f"Use at most {MAX_VALUE_CHARACTERS}.",
        )
    if _UNWANTED.search(value):
        raise refused(name, "the value contains a control or invisible character.", "Remove the character.")
    return value


def one_of(name: str, value: object, allowed: Mapping[str, str]) -> str:
    """The meaning of a value out of a closed list, such as ``true`` or ``AES_GCM_V1``.

    Raises:
        PropertyInvalid: the value is not in the list, letter by letter.
    """
    text = checked_text(name, value)
    if text not in allowed:
        raise refused(name, f"{text[:80]!r} is not an allowed value.", f"Use {' or '.join(allowed)}.")
    return allowed[text]


def words(*values: str) -> Mapping[str, str]:
    """A closed list of values that stand for themselves."""
    return MappingProxyType({value: value for value in values})


def is_master_key_id(text: str) -> bool:
    """Whether a text may name a master key: ASCII letters, digits and ``_ . / + = -``; ARNs with colons.

    At most 255 bytes, because key metadata keeps the length in one byte; no empty or dot segments between
    slashes, because a KMS client may put the id into a URL.
    """
    if len(text) > MAX_KEY_ID_BYTES or _KEY_ID.match(text) is None:
        return False
    return all(segment not in ("", ".", "..") for segment in text.split("/"))


def is_endpoint_key_name(text: str) -> bool:
    """Whether policies take a name for a key of the KMS endpoint; no new use can name a master key so."""
    return text.startswith(ENDPOINT_PREFIX)


def master_key_id(name: str, value: object) -> str:
    """A master key id.

    Raises:
        PropertyInvalid: the text cannot name a master key, or names a key of the KMS endpoint.
    """
    text = checked_text(name, value)
    if not is_master_key_id(text):
        raise refused(
            name,
            f"{text[:80]!r} is not a valid master key id.",
            "Use at most 255 ASCII letters, digits and _ . / + = -, or an ARN.",
        )
    if is_endpoint_key_name(text):
        raise refused(
            name,
            f"{text[:80]!r} names a key of the KMS endpoint, not a master key.",
            "Use a master key of the catalog's KMS.",
        )
    return text


def column_groups(name: str, value: object) -> Groups:
    """``key:column,column;key:column`` in normal form: keys sorted, columns of a key merged and sorted.

    A key is what stands before the last colon of its group, so that ARNs can be keys; a column name with a
    colon, comma or semicolon cannot be written here. Nested columns are dotted.

    Raises:
        PropertyInvalid: an empty group or name, a key that cannot be one, or a column that stands twice.
    """
    merged: dict[str, list[str]] = {}
    seen: set[str] = set()
    for group in checked_text(name, value).split(";"):
        key, columns = _column_group(name, group)
        for column in columns:
            if column in seen:
                raise refused(name, f"column {column!r} is listed twice.", "List each column once.")
            seen.add(column)
        merged.setdefault(key, []).extend(columns)
    _refuse_nested_twice(name, seen)
    return tuple((key, tuple(sorted(merged[key]))) for key in sorted(merged))


def column_names(name: str, value: object) -> tuple[str, ...]:
    """``column,column`` in normal form: sorted. An empty text names no column.

    Raises:
        PropertyInvalid: an empty name, or a column that stands twice.
    """
    text = checked_text(name, value)
    columns = [_column(name, each) for each in text.split(",")] if text.strip(" ") else []
    once = set(columns)
    if len(once) < len(columns):
        twice = next(each for each, count in Counter(columns).items() if count > 1)
        raise refused(name, f"column {twice!r} is listed twice.", "List each column once.")
    _refuse_nested_twice(name, once)
    return tuple(sorted(once))


def _column_group(name: str, group: str) -> tuple[str, tuple[str, ...]]:
    key, colon, columns = group.rpartition(":")
    if not colon:
        raise refused(
            name,
            f"{group.strip(' ')[:80]!r} is not a group of columns.",
            "Write key:column,column;key:column.",
        )
    return master_key_id(name, key.strip(" ")), tuple(_column(name, text) for text in columns.split(","))


def _column(name: str, text: str) -> str:
    column = text.strip(" ")
    if not all(part.strip(" ") for part in column.split(".")):
        raise refused(
            name,
            "a column name, or a part of a nested column name, is empty.",
            "Write every column name in full.",
        )
    return column


def _refuse_nested_twice(name: str, columns: set[str]) -> None:
    """A column beneath one that is listed too would have two keys."""
    for column in sorted(columns):
        parts = column.split(".")
        for depth in range(1, len(parts)):
            outer = ".".join(parts[:depth])
            if outer in columns:
                raise refused(
                    name,
                    f"column {column!r} is nested in column {outer!r}, which is listed too.",
                    "List only one of them.",
                )


def mask_groups(name: str, value: object) -> Groups:
    """``nullify:column;sha256:column;redact:column`` in normal form.

    Raises:
        PropertyInvalid: as `column_groups`, or a mask that is none of the three.
    """
    groups = column_groups(name, value)
    for mask, _ in groups:
        one_of(name, mask, words("nullify", "sha256", "redact"))
    return groups


def groups_text(groups: Groups) -> str:
    """The text of groups in normal form."""
    return ";".join(f"{key}:{','.join(columns)}" for key, columns in groups)
