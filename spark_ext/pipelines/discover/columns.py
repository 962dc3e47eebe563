"""The columns of a table that hold values, and how a query reads them.

A column is read with its root: the path through structs down to the first list or map. A list or map is read
as a whole, so one is looked at only if the user sees all of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from catalog.base.identifiers import TableName
from spark_ext.pipelines.discover.evidence import Described
from spark_ext.pipelines.lake import Lake, on_table

#: The types whose values are looked at. Names alone tell of the others, such as dates.
EXAMINED: Final = ("string", "binary", "int", "long", "decimal")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column that holds values.

    Attributes:
        described: what is known of it.
        root: the parts of the name of what is read for it.
        key_of: the name of the map whose keys have it; None if none.
        required: whether it has no NULL.
        encrypted: whether new files encrypt it.
        shown: whether the user sees it, unmasked, in every row.
    """

    described: Described
    root: tuple[str, ...]
    key_of: str | None
    required: bool
    encrypted: bool
    shown: bool

    @property
    def examined(self) -> bool:
        """Whether its values can tell something."""
        return self.described.type.startswith(EXAMINED)


def leaves_of(lake: Lake, table: TableName, schema: Schema) -> list[Leaf]:
    """Return the columns of a table that hold values.

    Args:
        lake: the lake.
        table: the table.
        schema: its current schema. Columns that were added or dropped since are left out.

    Raises:
        LakewardenError: the catalog refuses, or does not answer.
    """
    places = dict(_places(schema.as_struct(), "", _Place()))
    told = lake.admin("GET", on_table(table, "columns"))["columns"]
    return [_leaf(each, places[each["name"]]) for each in told if each["name"] in places]


def _leaf(told: Mapping[str, Any], place: _Place) -> Leaf:
    described = Described(told["name"], told["type"], place.doc, tuple(told["tags"] or ()))
    return Leaf(described, place.root, place.key_of, told["required"], told["encrypted"], told["shown"])


def readable(leaves: Sequence[Leaf]) -> list[Leaf]:
    """Return the plaintext columns that can be looked at."""
    roots: dict[tuple[str, ...], list[Leaf]] = defaultdict(list)
    for leaf in leaves:
        roots[leaf.root].append(leaf)
    return [
        leaf
        for leaf in leaves
        if leaf.examined and not leaf.encrypted and all(each.shown for each in roots[leaf.root])
    ]


@dataclass(frozen=True, slots=True)
class _Place:
    root: tuple[str, ...] = ()
    doc: str = ""
    key_of: str | None = None


def _places(kind: IcebergType, name: str, place: _Place) -> Iterator[tuple[str, _Place]]:
    """Yield the dotted names of the leaves in a type, with their places.

    Args:
        kind: the type.
        name: the name of what has it; empty for a row.
        place: its place.
    """
    if isinstance(kind, StructType):
        for field in kind.fields:
            below = replace(place, root=(*place.root, field.name), doc=field.doc or place.doc)
            yield from _places(field.field_type, _dotted(name, field.name), below)
    elif isinstance(kind, (ListType, MapType)):
        for part, inner in _inner(kind):
            inside = replace(place, key_of=place.key_of or (name if part == "key" else None))
            for below_name, found in _places(inner, _dotted(name, part), inside):
                yield below_name, replace(found, root=place.root)
    else:
        yield name, place


def _inner(kind: ListType | MapType) -> Iterator[tuple[str, IcebergType]]:
    if isinstance(kind, ListType):
        yield "element", kind.element_type
    else:
        yield from (("key", kind.key_type), ("value", kind.value_type))


def _dotted(above: str, name: str) -> str:
    return f"{above}.{name}" if above else name
