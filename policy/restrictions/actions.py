"""What a mask does to a value, and the types of columns that it takes.

- `MaskAction` has the actions of the Iceberg REST specification under its names, and Ranger's masks under the
  names of the Hive functions that they stand for. Where both are one function, there is one action.
- A NULL stays NULL, whatever the action. The result has the column's type.
- Hive's functions return NULL for types that they do not take, and so does the mask there. An action that a
  policy names by the specification's name is refused there.

Sources: Iceberg REST specification, ``ReadRestrictions``; Ranger's service definition of Hive, transformers
of the mask types; Hive's GenericUDFMask and its variants for first and last characters and hashes.
"""

from __future__ import annotations

import enum
from typing import Final


class MaskAction(enum.StrEnum):
    """What is shown in the place of a value."""

    MASK_ALPHANUM = "mask-alphanum"
    MASK_TO_FIXED_VALUE = "mask-to-fixed-value"
    REPLACE_WITH_NULL = "replace-with-null"
    SHOW_FIRST_4 = "show-first-4"
    SHOW_LAST_4 = "show-last-4"
    TRUNCATE_TO_YEAR = "truncate-to-year"
    TRUNCATE_TO_MONTH = "truncate-to-month"
    SHA_256_GLOBAL = "sha-256-global"
    SHA_256_QUERY_LOCAL = "sha-256-query-local"
    HIVE_MASK = "hive-mask"
    HIVE_SHOW_FIRST_4 = "hive-show-first-4"
    HIVE_SHOW_LAST_4 = "hive-show-last-4"
    HIVE_DATE_SHOW_YEAR = "hive-date-show-year"

    @property
    def of_iceberg(self) -> bool:
        """Whether the Iceberg REST specification defines it."""
        return not self.value.startswith("hive-")


ICEBERG_ACTIONS: Final = tuple(each for each in MaskAction if each.of_iceberg)
"""The actions that policies can name directly."""

_STRING: Final = frozenset({"string"})
_TIMES: Final = frozenset({"date", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
_HASHED: Final = frozenset({"string", "int", "long", "binary"})
_HIVE: Final = frozenset({"string", "int", "long", "date"})

_TYPES: Final = {
    MaskAction.MASK_ALPHANUM: _STRING,
    MaskAction.SHOW_FIRST_4: _STRING,
    MaskAction.SHOW_LAST_4: _STRING,
    MaskAction.TRUNCATE_TO_YEAR: _TIMES,
    MaskAction.TRUNCATE_TO_MONTH: _TIMES,
    MaskAction.SHA_256_GLOBAL: _HASHED,
    MaskAction.SHA_256_QUERY_LOCAL: _HASHED,
    MaskAction.HIVE_MASK: _HIVE,
    MaskAction.HIVE_SHOW_FIRST_4: _HIVE,
    MaskAction.HIVE_SHOW_LAST_4: _HIVE,
    MaskAction.HIVE_DATE_SHOW_YEAR: _HIVE - {"date"},
}

#: Ranger's mask types by the type of the column. Where Hive's function takes the type no more, it is NULL.
_OF_RANGER: Final = {
    "MASK": dict.fromkeys(_HIVE, MaskAction.HIVE_MASK),
    "MASK_SHOW_FIRST_4": dict.fromkeys(_HIVE, MaskAction.HIVE_SHOW_FIRST_4),
    "MASK_SHOW_LAST_4": dict.fromkeys(_HIVE, MaskAction.HIVE_SHOW_LAST_4),
    "MASK_HASH": dict.fromkeys(_STRING, MaskAction.SHA_256_GLOBAL),
    "MASK_NULL": {},
    "MASK_DATE_SHOW_YEAR": {
        **dict.fromkeys(_HIVE, MaskAction.HIVE_DATE_SHOW_YEAR),
        "date": MaskAction.TRUNCATE_TO_YEAR,
    },
}


def action_of(mask_type: str, column_type: str) -> MaskAction:
    """What a policy's mask type does to a column.

    Args:
        mask_type: one of Ranger's other than ``MASK_NONE`` and ``CUSTOM``, or the name of an action of the
            specification.
        column_type: as Iceberg writes it; ``struct``, ``list`` or ``map`` for nested ones.
    """
    actions = _OF_RANGER.get(mask_type)
    if actions is None:
        return MaskAction(mask_type)
    return actions.get(column_type, MaskAction.REPLACE_WITH_NULL)


def takes(action: MaskAction, column_type: str) -> bool:
    """Whether an action takes columns of a type; whether the column can be NULL is another question."""
    if action is MaskAction.MASK_TO_FIXED_VALUE:
        # A struct has no fixed value of its own: each of its fields can be masked.
        return column_type != "struct"
    types = _TYPES.get(action)
    return types is None or column_type in types
