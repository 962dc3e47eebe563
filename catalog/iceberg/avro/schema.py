"""Parses the writer's schema of an Avro file into types that are safe to decode.

Rules:

- Bytes, depth and number of types are bounded. A type cannot refer to itself.
- A union is a nullable type: ``[null, T]`` or ``[T, null]``, as Iceberg writes it (Iceberg specification,
  "Appendix A: Format-specific Requirements, Avro").
- An item of an array or a map takes at least one byte, so that a count can be checked against the bytes left.
  An array of nothing could announce 2^60 items in nine bytes.
- A field of a record has an Iceberg field id, and field ids are unique in a record. Names have no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from catalog.iceberg.avro.limits import DecodeLimits
from catalog.iceberg.avro.malformed import Malformed
from policy import strict_json
from policy.errors import MetadataInvalid

_MIN_BYTES: Final = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}
_MAX_FIXED_BYTES: Final = 1 << 20
#: Schemas that are kept parsed: most manifests of a table, and of unpartitioned tables, have the same one.
_KEPT: Final = 32


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parts.

    Attributes:
        kind: ``null``, ``boolean``, ``int``, ``long``, ``float``, ``double``, ``bytes``, ``string`` or
            ``fixed``.
        size: length in bytes of a ``fixed``.
        logical: Avro's logical type, if one is given.
        precision: of a decimal.
        scale: of a decimal.
        utc: Iceberg's ``adjust-to-utc`` of a timestamp.
    """

    kind: str
    size: int = 0
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    utc: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """A nullable value; `present` is the index of the value in the union."""

    inner: Node
    present: int


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record."""

    name: str
    field_id: int
    node: Node


@dataclass(frozen=True, slots=True)
class Record:
    """A record, its fields in written order."""

    fields: tuple[Field, ...]

    def find(self, field_id: int) -> int | None:
        """Return the index of the field with an id, if there is one."""
        return next((i for i, field in enumerate(self.fields) if field.field_id == field_id), None)


@dataclass(frozen=True, slots=True)
class Array:
    """An array, or a map written as an array of key and value."""

    items: Node


Node = Scalar | Option | Record | Array


def min_bytes(node: Node) -> int:
    """Return the minimum number of bytes of a value."""
    match node:
        case Scalar(kind="fixed", size=size):
            return size
        case Scalar(kind=kind):
            return _MIN_BYTES[kind]
        case Record(fields):
            return sum(min_bytes(field.node) for field in fields)
        case _:
            return 1


@lru_cache(maxsize=_KEPT)
def parse_schema(text: bytes | None, limits: DecodeLimits) -> Record:
    """Parse the schema of a file whose entries are records.

    Raises:
        Malformed: there is none, or it breaks a rule of this module.
    """
    if text is None:
        raise Malformed("schema", "its header has no Avro schema")
    if len(text) > limits.max_schema_bytes:
        raise Malformed("schema", f"its Avro schema has more than {limits.max_schema_bytes} bytes")
    node = _Parser(limits).parse(parse_json(text, "Its Avro schema"), 0)
    if not isinstance(node, Record) or not min_bytes(node):
        raise Malformed("schema", "its Avro schema is not a record")
    return node


def parse_json(text: bytes, what: str) -> object:
    """Parse JSON strictly.

    Raises:
        Malformed: it is not JSON, or is ambiguous.
    """
    try:
        return strict_json.parse(text, what=what, error=MetadataInvalid)
    except MetadataInvalid as problem:
        raise Malformed("json", problem.message.rstrip(".")) from problem


class _Parser:
    def __init__(self, limits: DecodeLimits) -> None:
        self._limits = limits
        self._left = limits.max_schema_nodes
        self._named: dict[str, tuple[Node, int]] = {}

    def parse(self, schema: object, depth: int) -> Node:
        self._spend(1)
        if depth > self._limits.max_nesting:
            raise Malformed("schema", f"its Avro schema nests deeper than {self._limits.max_nesting} levels")
        if isinstance(schema, str):
            return self._by_name(schema)
        if isinstance(schema, list):
            return self._union(schema, depth)
        if isinstance(schema, dict):
            return self._complex(schema, depth)
        raise Malformed("schema", "a type in its Avro schema must be a name, a list, or an object")

    def _spend(self, nodes: int) -> None:
        self._left -= nodes
        if self._left < 0:
            raise Malformed("schema", f"its Avro schema has more than {self._limits.max_schema_nodes} types")

    def _by_name(self, name: str) -> Node:
        if name in _MIN_BYTES:
            return Scalar(name)
        if name not in self._named:
            raise Malformed(
                "schema", f"its Avro schema uses the type {name[:80]!r}, which is unknown or recursive"
            )
        node, nodes = self._named[name]
        self._spend(nodes)
        return node

    def _union(self, branches: list[object], depth: int) -> Node:
        if len(branches) != 2 or branches.count("null") != 1:
            raise Malformed("schema", "a union in its Avro schema must consist of null and one other type")
        present = 1 - branches.index("null")
        inner = self.parse(branches[present], depth + 1)
        if isinstance(inner, Option) or inner == Scalar("null"):
            raise Malformed("schema", "a union in its Avro schema contains another union, or null twice")
        return Option(inner, present)

    def _complex(self, schema: Mapping[str, object], depth: int) -> Node:
        kind = schema.get("type")
        if kind == "record":
            return self._define(schema, self._record(schema, depth))
        if kind == "fixed":
            return self._define(schema, _logical(Scalar("fixed", _size(schema)), schema))
        if kind == "array":
            return self._array(schema, depth)
        if isinstance(kind, str) and kind in _MIN_BYTES:
            return _logical(Scalar(kind), schema)
        if isinstance(kind, (dict, list)):
            return self.parse(kind, depth + 1)
        raise Malformed(
            "schema", f"its Avro schema has the type {str(kind)[:80]!r}, which Iceberg does not use"
        )

    def _record(self, schema: Mapping[str, object], depth: int) -> tuple[Record, int]:
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise Malformed("schema", "a record in its Avro schema has no list of fields")
        before = self._left
        parsed = tuple(self._field(field, depth) for field in fields)
        if len({field.field_id for field in parsed}) != len(parsed):
            raise Malformed("field-id", "two fields of a record in its Avro schema have the same field id")
        return Record(parsed), before - self._left

    def _field(self, field: object, depth: int) -> Field:
        if not isinstance(field, dict) or not isinstance(name := field.get("name"), str):
            raise Malformed("schema", "a field in its Avro schema has no name")
        field_id = field.get("field-id")
        if not isinstance(field_id, int) or isinstance(field_id, bool):
            raise Malformed("field-id", f"the field {name[:80]!r} in its Avro schema has no field id")
        return Field(name, field_id, self.parse(field.get("type"), depth + 1))

    def _array(self, schema: Mapping[str, object], depth: int) -> Array:
        items = self.parse(schema.get("items"), depth + 1)
        if min_bytes(items) == 0:
            raise Malformed("schema", "an array in its Avro schema has items that take no bytes")
        return Array(items)

    def _define(self, schema: Mapping[str, object], made: Scalar | tuple[Record, int]) -> Node:
        """Record a named type. A repeated definition must be equal to the first one."""
        node, nodes = (made, 0) if isinstance(made, Scalar) else made
        name = schema.get("name")
        if not isinstance(name, str):
            raise Malformed("schema", "a record or fixed type in its Avro schema has no name")
        if self._named.setdefault(name, (node, nodes))[0] != node:
            raise Malformed("schema", f"its Avro schema defines {name[:80]!r} twice, differently")
        return node


def _size(schema: Mapping[str, object]) -> int:
    size = schema.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= _MAX_FIXED_BYTES:
        raise Malformed("schema", "a fixed type in its Avro schema has no size, or a size out of range")
    return size


def _logical(scalar: Scalar, schema: Mapping[str, object]) -> Scalar:
    logical = schema.get("logicalType")
    if not isinstance(logical, str):
        return scalar
    utc = schema.get("adjust-to-utc") is True
    if logical != "decimal":
        return Scalar(scalar.kind, scalar.size, logical, utc=utc)
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision <= 38:
        raise Malformed("schema", "a decimal in its Avro schema has a precision or scale out of range")
    return Scalar(scalar.kind, scalar.size, logical, precision, scale)
