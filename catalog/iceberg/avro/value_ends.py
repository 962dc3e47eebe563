"""Finds where values end, one at a time: records in a block, items in a long array.

Avro does not store the length of a record, so the records of a block can only be found one after the other. A
function that skips one value is built once from the schema. Runs of numbers, which are most of a manifest's
statistics, are skipped in one step by the positions where numbers end.

The result is not trusted: `vectorized` decodes from these starts, and refuses if a value does not end where
the next one starts.
"""

from __future__ import annotations

from collections.abc import Callable

from catalog.iceberg.avro.container import read_long
from catalog.iceberg.avro.malformed import Malformed
from catalog.iceberg.avro.schema import Array, Field, Node, Option, Record, Scalar, min_bytes

#: Skips one value: chunk bytes, end and rank of numbers (see `vectorized.Chunk`), position → position.
Walk = Callable[[bytes, memoryview, memoryview, int], int]

#: A count in one byte; `read_long` reads larger ones.
_ONE_BYTE = 0x80


def varints_per_value(node: Node) -> int | None:
    """Return the number of varints in a value, if it consists of nothing else."""
    if isinstance(node, Scalar):
        return 1 if node.kind in ("int", "long") else None
    if not isinstance(node, Record):
        return None
    each = [varints_per_value(field.node) for field in node.fields]
    return sum(n for n in each if n is not None) if None not in each and each else None


def walker(node: Node) -> Walk:
    """Return the function that skips one value of the type."""
    numbers = varints_per_value(node)
    if numbers is not None:
        return _numbers(numbers)
    match node:
        case Scalar(kind="bytes" | "string"):
            return _length_prefixed
        case Scalar():
            return _fixed(min_bytes(node))
        case Option(inner, present):
            return _option(walker(inner), 2 * present)
        case Record(fields):
            return _record(fields)
        case Array(items):
            return _array(items)


def _numbers(count: int) -> Walk:
    def walk(data: bytes, ends: memoryview, rank: memoryview, position: int) -> int:
        found: int = ends[rank[position] + count - 1]
        return found + 1

    return walk


def _length_prefixed(data: bytes, ends: memoryview, rank: memoryview, position: int) -> int:
    first = data[position]
    if first < _ONE_BYTE and not first & 1:
        return position + 1 + (first >> 1)
    length, position = read_long(data, position)
    if length < 0:
        raise Malformed("length", "a length is negative")
    return position + length


def _fixed(size: int) -> Walk:
    def walk(data: bytes, ends: memoryview, rank: memoryview, position: int) -> int:
        return position + size

    return walk


def _option(inner: Walk, present: int) -> Walk:
    def walk(data: bytes, ends: memoryview, rank: memoryview, position: int) -> int:
        branch = data[position]
        if branch == present:
            return inner(data, ends, rank, position + 1)
        if branch | 2 != 2:
            raise Malformed("union", "a union has a branch index out of range")
        return position + 1

    return walk


def _record(fields: tuple[Field, ...]) -> Walk:
    steps = tuple(walker(field.node) for field in fields)

    def walk(data: bytes, ends: memoryview, rank: memoryview, position: int) -> int:
        for step in steps:
            position = step(data, ends, rank, position)
        return position

    return walk


def _array(items: Node) -> Walk:
    numbers = varints_per_value(items)
    keys = _numbers_before_bytes(items)
    if keys is not None:
        return _keyed_bytes(keys)
    if numbers is not None:
        return _number_array(numbers)
    item = walker(items)

    def walk(data: bytes, ends: memoryview, rank: memoryview, position: int) -> int:
        while True:
            count, position = read_count(data, position)
            if count == 0:
                return position
            for _ in range(count):
                position = item(data, ends, rank, position)

    return walk


def _number_array(numbers: int) -> Walk:
    """Skip arrays of numbers, such as counts; nearly all have one block with fewer than 64 items."""

    def walk(data: bytes, ends: memoryview, rank: memoryview, position: int) -> int:
        while True:
            first = data[position]
            if first < _ONE_BYTE and not first & 1:
                count, position = first >> 1, position + 1
            else:
                count, position = read_count(data, position)
            if count == 0:
                return position
            position = ends[rank[position] + count * numbers - 1] + 1

    return walk


def _numbers_before_bytes(items: Node) -> int | None:
    """Return the number of varints before the bytes that end an item, if it consists of nothing else."""
    if not isinstance(items, Record) or len(items.fields) < 2:
        return None
    last = items.fields[-1].node
    if not isinstance(last, Scalar) or last.kind not in ("bytes", "string"):
        return None
    return varints_per_value(Record(items.fields[:-1]))


def _keyed_bytes(keys: int) -> Walk:
    """Skip arrays of numbers with bytes, such as bounds; like `_array`, but without a call per item."""
    skip = keys - 1

    def walk(data: bytes, ends: memoryview, rank: memoryview, position: int) -> int:
        while True:
            count, position = read_count(data, position)
            if count == 0:
                return position
            for _ in range(count):
                position = ends[rank[position] + skip] + 1
                first = data[position]
                if first < _ONE_BYTE and not first & 1:
                    position += 1 + (first >> 1)
                else:
                    position = _length_prefixed(data, ends, rank, position)

    return walk


def read_count(data: bytes, position: int) -> tuple[int, int]:
    """Read the count of a block of items, and skip the size after a negative count.

    Raises:
        Malformed: there are not as many bytes left.
    """
    first = data[position]
    if first < _ONE_BYTE and not first & 1:
        count, position = first >> 1, position + 1
    else:
        count, position = read_long(data, position)
        if count < 0:
            count = -count
            _, position = read_long(data, position)
    if count > len(data) - position:
        raise Malformed("count", "an array states more items than there are bytes")
    return count, position
