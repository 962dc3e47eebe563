"""The columns of a table as row filters and masks see them: names, ids and types of all fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

NESTED: Final = frozenset({"struct", "list", "map"})
"""The types of fields with fields inside."""


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A top-level column, or a field inside of one.

    Attributes:
        field_id: its id.
        path: the names from the top-level column to it.
        type: as Iceberg writes it, ``decimal(9,2)``; ``struct``, ``list`` or ``map``.
        required: whether it is never NULL where what it is in is not.
        above: ids of what it is in, from the top.
        names: every dotted name of it.
        repeated: whether it is inside of a list or map.
        in_key: whether it is the key of a map, or inside of one.
    """

    field_id: int
    path: tuple[str, ...]
    type: str
    required: bool = False
    above: tuple[int, ...] = ()
    names: frozenset[str] = frozenset()
    repeated: bool = False
    in_key: bool = False

    @property
    def name(self) -> str:
        """Its full name, with dots."""
        return ".".join(self.path)


class TableColumns:
    """The fields of one schema.

    Args:
        fields: all of them, a column before what is inside of it.

    Attributes:
        by_id: the fields by their ids.
    """

    def __init__(self, fields: Iterable[SchemaField]) -> None:
        self.by_id: Mapping[int, SchemaField] = {each.field_id: each for each in fields}

    @cached_property
    def _by_path(self) -> Mapping[tuple[str, ...], tuple[SchemaField, ...]]:
        found: dict[tuple[str, ...], tuple[SchemaField, ...]] = {}
        for each in self.by_id.values():
            key = tuple(map(str.lower, each.path))
            found[key] = (*found.get(key, ()), each)
        return found

    def find(self, path: Iterable[str]) -> tuple[SchemaField, ...]:
        """The fields of a name, in any letter case."""
        return self._by_path.get(tuple(map(str.lower, path)), ())
