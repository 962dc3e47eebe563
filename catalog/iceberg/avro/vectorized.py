"""Decodes many Avro records at once, with NumPy.

Each record has a cursor: a position in the chunk, and the stop where it must end. A step decodes the same
field at every cursor. A chunk has one cursor for each record, so a step costs a few array operations for any
number of records. Where they start is guessed (`record_starts`), or else found one by one (`value_ends`).

Rules:

- No cursor reads beyond its stop, and each must end exactly there.
- A count or length is compared with the remaining bytes of its cursor before memory is allocated. So memory
  is at most proportional to the chunk.
- Encodings that another reader can interpret differently are refused: numbers of more than 64 bits, and
  unions and booleans other than one byte of 0 or 1 (zigzag 0 or 2 for a union).
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from catalog.iceberg.avro.columns import Column, Index, Items, Longs, Maybe, Parts, Raw, Spans, join, spread
from catalog.iceberg.avro.container import MAX_VARINT_BYTES
from catalog.iceberg.avro.malformed import Malformed
from catalog.iceberg.avro.record_starts import guessed_starts
from catalog.iceberg.avro.schema import Array, Node, Option, Record, Scalar, min_bytes
from catalog.iceberg.avro.value_ends import Walk, varints_per_value, walker

#: The maximum number of blocks of an array. Writers use one block; more blocks only cost time.
_MAX_ARRAY_BLOCKS: Final = 64
#: From this number of arrays on, their items are decoded in parallel; fewer arrays are decoded one by one.
_ABREAST: Final = 64
#: So are arrays with fewer items a step. The longest array has as many steps as items, and can be hostile.
_A_STEP: Final = 32
#: The bits of a number in one of its bytes; a larger byte is followed by another one.
_SEPTET: Final = 0x7F
#: The shift of the last byte of a 64-bit number.
_LAST_SHIFT: Final = 7 * (MAX_VARINT_BYTES - 1)


class Chunk:
    """Decompressed bytes, and where numbers end in them.

    Attributes:
        payload: the bytes.
        data: the same bytes, for NumPy.
        ends: positions of the bytes below 0x80, which would end a number; then the length of the data.
    """

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.data = np.frombuffer(payload, np.uint8)
        found = np.flatnonzero(self.data < 0x80)
        self.ends = np.empty(len(found) + 1, np.int32)
        self.ends[:-1], self.ends[-1] = found, len(payload)

    @cached_property
    def rank(self) -> NDArray[np.int32]:
        """For each position, how many of `ends` are before it; only walks need it for all positions."""
        rank = np.zeros(len(self.payload) + 1, np.int32)
        np.cumsum(self.data < 0x80, dtype=np.int32, out=rank[1:])
        return rank

    def ranks(self, positions: Index) -> Index:
        """Return for some positions how many of `ends` are before each."""
        return np.searchsorted(self.ends[:-1], positions.astype(np.int32))


class Cursors:
    """Positions that advance in parallel through a chunk, one per record.

    Args:
        chunk: what they read.
        position: where each starts; advanced in place by the methods.
        stop: where each must stop.
    """

    def __init__(self, chunk: Chunk, position: Index, stop: Index) -> None:
        self.chunk = chunk
        self.position = position
        self.stop = stop

    def decode(self, node: Node) -> Column:
        """Decode one value of the type in every cursor.

        Raises:
            Malformed: a cursor has no valid value.
        """
        match node:
            case Scalar():
                return self._scalar(node)
            case Option(inner, present):
                return self._option(inner, present)
            case Record(fields):
                return Parts(tuple(self.decode(field.node) for field in fields))
            case Array(items):
                return self._array(items)

    def finish(self) -> None:
        """Raise unless every cursor is at its stop."""
        if not np.array_equal(self.position, self.stop):
            raise Malformed("entry", "an entry is longer or shorter than its block states")

    def _scalar(self, node: Scalar) -> Column:
        if node.kind in ("int", "long"):
            return Longs(self._numbers())
        if node.kind in ("bytes", "string"):
            return self._spans()
        if node.kind == "boolean":
            return Longs(self._byte((0, 1)))
        if node.kind == "null":
            return Longs(np.zeros(len(self.position), np.int64))
        starts = self.position.copy()
        self._advance(np.int64(min_bytes(node)))
        return Raw(starts, min_bytes(node))

    def _advance(self, by: Index | np.int64) -> None:
        """Advance the cursors; `by` is not negative and not larger than the chunk, so nothing overflows."""
        self.position += by
        if (self.position > self.stop).any():
            raise Malformed("truncated", "an entry is truncated")

    def _byte(self, allowed: tuple[int, int]) -> Index:
        at = self.position.copy()
        self._advance(np.int64(1))
        values = self.chunk.data[at].astype(np.int64)
        if ((values != allowed[0]) & (values != allowed[1])).any():
            raise Malformed("union", "a union or boolean has a value out of range")
        return values

    def _numbers(self) -> Index:
        """Decode one number in each cursor, byte by byte: most have one or two bytes."""
        byte = self._next_bytes(self.position, self.stop)
        self.position += 1
        raw = (byte & _SEPTET).astype(np.uint64)
        more = np.flatnonzero(byte > _SEPTET)
        shift = 7
        while len(more):
            at = self.position[more]
            byte = self._next_bytes(at, self.stop[more])
            if shift == _LAST_SHIFT and (byte > 1).any():
                raise _too_long()
            raw[more] |= (byte & _SEPTET).astype(np.uint64) << np.uint64(shift)
            self.position[more] = at + 1
            more = more[byte > _SEPTET]
            shift += 7
        return _unzigzagged(raw)

    def _next_bytes(self, position: Index, stop: Index) -> NDArray[np.uint8]:
        if (position >= stop).any():
            raise Malformed("truncated", "an entry is truncated")
        return self.chunk.data[position]

    def _spans(self) -> Spans:
        lengths = self._numbers()
        if ((lengths < 0) | (lengths > self.stop - self.position)).any():
            raise Malformed("length", "a length is negative or larger than its entry")
        starts = self.position.copy()
        self._advance(lengths)
        return Spans(starts, self.position.copy())

    def _option(self, inner: Node, present: int) -> Maybe:
        valid = self._byte((0, 2)) == 2 * present
        if valid.all():
            return Maybe(valid, self.decode(inner))
        return Maybe(valid, self._some(np.flatnonzero(valid), inner))

    def _some(self, cursors: Index, node: Node) -> Column:
        """Decode a value in some of the cursors."""
        part = Cursors(self.chunk, self.position[cursors], self.stop[cursors])
        column = part.decode(node)
        self.position[cursors] = part.position
        return column

    def _array(self, items: Node) -> Items:
        total = np.zeros(len(self.position), np.int64)
        active = np.arange(len(self.position), dtype=np.int64)
        owners: list[Index] = []
        columns: list[Column] = []
        for _ in range(_MAX_ARRAY_BLOCKS):
            counts = self._counts(active)
            active, counts = active[counts > 0], counts[counts > 0]
            if not len(active) and columns:
                return Items(total, _in_order(owners, columns))
            columns.append(self._items(active, counts, items))
            owners.append(np.repeat(active, counts))
            total[active] += counts
            if not len(active):
                return Items(total, columns[0])
        raise Malformed("array", f"an array has more than {_MAX_ARRAY_BLOCKS} blocks")

    def _counts(self, cursors: Index) -> Index:
        """Decode the item count of each array's next block; the block's size follows a negative count."""
        part = Cursors(self.chunk, self.position[cursors], self.stop[cursors])
        counts = part._numbers()
        sized = np.flatnonzero(counts < 0)
        if len(sized):
            part._some(sized, Scalar("long"))
            counts[sized] = -counts[sized]
        if ((counts < 0) | (counts > part.stop - part.position)).any():
            raise Malformed("count", "an array states more items than its entry has bytes")
        self.position[cursors] = part.position
        return counts

    def _items(self, cursors: Index, counts: Index, node: Node) -> Column:
        """Decode `counts` items in each of the cursors; the items of a cursor are adjacent."""
        part = Cursors(self.chunk, self.position[cursors], self.stop[cursors])
        numbers = varints_per_value(node)
        if numbers is not None:
            column = part._number_items(counts, node, numbers)
        elif len(cursors) >= _ABREAST and int(counts.sum()) >= _A_STEP * int(counts.max()):
            column = part._items_abreast(counts, node)
        else:
            column = part._items_walked(counts, node)
        self.position[cursors] = part.position
        return column

    def _number_items(self, counts: Index, node: Node, numbers: int) -> Column:
        """Decode items that consist only of numbers: their ends are known without scanning."""
        first = self.chunk.ranks(self.position)
        wanted = counts * numbers
        if (wanted > self.chunk.ranks(self.stop) - first).any():
            raise Malformed("count", "an array states more items than its entry has")
        flat = spread(first, wanted)
        ends = self.chunk.ends[flat].astype(np.int64)
        starts = self.chunk.ends[flat - 1].astype(np.int64) + 1
        starts[(np.cumsum(wanted) - wanted)[wanted > 0]] = self.position[wanted > 0]
        self.position[:] = self.chunk.ends[first + wanted - 1] + 1
        values = varints(self.chunk, starts, ends).reshape(-1, numbers)
        return _number_parts(node, values)

    def _items_abreast(self, counts: Index, node: Node) -> Column:
        """Decode the first item of every cursor, then the second, and so on."""
        firsts = np.cumsum(counts) - counts
        places: list[Index] = []
        columns: list[Column] = []
        active = np.arange(len(counts), dtype=np.int64)
        for step in range(int(counts.max())):
            if counts[active].min() <= step:
                active = active[counts[active] > step]
            columns.append(self._some(active, node))
            places.append(firsts[active] + step)
        order = np.empty(int(counts.sum()), np.int64)
        order[np.concatenate(places)] = np.arange(len(order), dtype=np.int64)
        return join(columns).take(order)

    def _items_walked(self, counts: Index, node: Node) -> Column:
        """Find the items one by one; then decode each item as a cursor."""
        chunk, walk = self.chunk, walker(node)
        ends, rank = chunk.ends.data, chunk.rank.data
        starts: list[int] = []
        stops: list[int] = []
        for cursor, count in enumerate(counts.tolist()):
            position = int(self.position[cursor])
            for _ in range(count):
                starts.append(position)
                position = _next(walk, chunk, ends, rank, position, int(self.stop[cursor]))
                stops.append(position)
            self.position[cursor] = position
        items = Cursors(chunk, np.array(starts, np.int64), np.array(stops, np.int64))
        column = items.decode(node)
        items.finish()
        return column


def varints(chunk: Chunk, starts: Index, ends: Index) -> Index:
    """Decode the zigzag numbers between these positions (inclusive).

    Raises:
        Malformed: one has more than 64 bits.
    """
    lengths = ends - starts
    longest = int(lengths.max(initial=0))
    if longest > MAX_VARINT_BYTES - 1 or (chunk.data[ends[lengths == MAX_VARINT_BYTES - 1]] > 1).any():
        raise _too_long()
    raw = (chunk.data[starts] & _SEPTET).astype(np.uint64)
    more = np.flatnonzero(lengths)
    for index in range(1, longest + 1):
        septet = (chunk.data[starts[more] + index] & _SEPTET).astype(np.uint64)
        raw[more] |= septet << np.uint64(7 * index)
        more = more[lengths[more] > index]
    return _unzigzagged(raw)


def _unzigzagged(raw: NDArray[np.uint64]) -> Index:
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64)


def _too_long() -> Malformed:
    return Malformed("number", "a number has more than 64 bits")


def _number_parts(node: Node, values: Index) -> Column:
    """Split rows of numbers into the columns of their (possibly nested) type."""
    if not isinstance(node, Record):
        return Longs(values[:, 0])
    columns: list[Column] = []
    at = 0
    for field in node.fields:
        width = varints_per_value(field.node) or 0
        columns.append(_number_parts(field.node, values[:, at : at + width]))
        at += width
    return Parts(tuple(columns))


def _in_order(owners: list[Index], columns: list[Column]) -> Column:
    """Return the items of all blocks, those of an array together."""
    column = join(columns)
    if len(columns) == 1:
        return column
    return column.take(np.argsort(np.concatenate(owners), kind="stable").astype(np.int64))


def decode_records(chunk: Chunk, blocks: list[tuple[int, int, int]], node: Record) -> tuple[Column, int]:
    """Decode the records of a chunk's blocks.

    Args:
        chunk: the chunk.
        blocks: of each block where it starts and stops in the chunk, and how many records it has.
        node: the type of the records.

    Returns:
        their column, and how many they are.

    Raises:
        Malformed: a block does not contain exactly its records.
    """
    guessed = [guessed_starts(chunk.payload, *block) for block in blocks]
    if any(guessed):
        try:
            starts = [
                each or _starts(chunk, node, *block) for each, block in zip(guessed, blocks, strict=True)
            ]
            return _decoded(chunk, blocks, starts, node)
        except Malformed:
            # Either the guess is wrong or the bytes are. Reading one after the other tells which.
            pass
    return _decoded(chunk, blocks, [_starts(chunk, node, *block) for block in blocks], node)


def _decoded(
    chunk: Chunk, blocks: list[tuple[int, int, int]], starts: list[list[int]], node: Record
) -> tuple[Column, int]:
    """Decode records. Each must end where the next one starts, or its block ends."""
    stops = [end for each, (_, stop, _) in zip(starts, blocks, strict=True) for end in (*each[1:], stop)]
    first = np.array([start for each in starts for start in each], np.int64)
    cursors = Cursors(chunk, first, np.array(stops, np.int64))
    column = cursors.decode(node)
    cursors.finish()
    return column, len(stops)


def _starts(chunk: Chunk, node: Record, position: int, stop: int, count: int) -> list[int]:
    """Return where the records of a block start, read one after the other."""
    walk, ends, rank = walker(node), chunk.ends.data, chunk.rank.data
    starts = [position]
    for _ in range(count - 1):
        position = _next(walk, chunk, ends, rank, position, stop)
        starts.append(position)
    return starts


def _next(walk: Walk, chunk: Chunk, ends: memoryview, rank: memoryview, position: int, stop: int) -> int:
    try:
        position = walk(chunk.payload, ends, rank, position)
    except IndexError as problem:
        raise Malformed("truncated", "an entry is truncated") from problem
    if position > stop:
        raise Malformed("truncated", "an entry is truncated")
    return position
