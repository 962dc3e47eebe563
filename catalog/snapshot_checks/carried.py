"""Compares the manifests that a snapshot drops with what its new manifests carry over and delete.

Rules (Iceberg specification, "Manifest Entry Fields" and "Sequence Number Inheritance"):

- As multisets, the live entries of the dropped manifests equal the EXISTING and DELETED entries of the new
  manifests. A file does not disappear without a DELETED entry, and a removed file is not restored.
- Such an entry keeps the fields that determine how the file is read: partition spec and values, content,
  path, format, record count, size, keys, sequence numbers, equality ids, the file that it refers to and its
  offset in it. An EXISTING entry keeps the id of the snapshot that added it. A DELETED entry has the id of
  this snapshot.
- Statistics, split offsets and the sort order only save time: each is unchanged or left out.
- A rewrap by the catalog changes key metadata, and compares it key by key
  (`catalog.key_management.manifests`). No client's commit has this exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from catalog.iceberg.avro.arrow import FIELD_ID
from catalog.reading.snapshots import OpenManifest
from catalog.snapshot_checks.entries import ADDED, DELETED, EXISTING, alive
from policy.errors import MetadataTampered

_KEY_METADATA: Final = "key_metadata"
_SNAPSHOT_ID: Final = "snapshot_id"
_STATUS: Final = "status"
#: Fields that must stay equal; also partition values.
_KEPT: Final = (
    "content",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "sequence_number",
    "file_sequence_number",
    _KEY_METADATA,
    "equality_ids",
    "first_row_id",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
)
#: Fields that must stay equal or be left out; also statistics.
_LOOSE: Final = ("split_offsets", "sort_order_id")
_PATH: Final = "file_path"
#: Fields that a commit assigns to the files that it adds.
_GIVEN: Final = (_STATUS, _SNAPSHOT_ID, "sequence_number", "file_sequence_number")
#: Sorting by these puts equal entries at the same position on both sides.
_ORDER: Final = (
    _PATH,
    "content",
    "referenced_data_file",
    "content_offset",
    "sequence_number",
    "file_sequence_number",
    "record_count",
    "file_size_in_bytes",
)
_PARTITION: Final = "partition."


def check_carried(
    dropped: Sequence[OpenManifest],
    fresh: Sequence[OpenManifest],
    snapshot_id: int,
    table: str,
    *,
    rekeyed: bool = False,
) -> None:
    """Compare dropped manifests with new ones.

    Args:
        dropped: the parent's manifests that the snapshot does not list.
        fresh: the snapshot's manifests that the parent does not list.
        snapshot_id: of the snapshot.
        table: dotted name, for errors.
        rekeyed: the catalog has rewrapped the data keys, and compared them.

    Raises:
        MetadataTampered: an entry that is carried over or deleted has no equal dropped entry, or a dropped
            file has no such entry; the error names the path.
    """
    for spec_id in sorted({each.listed.partition_spec_id for each in (*dropped, *fresh)}):
        before = _joined(_of_spec(dropped, spec_id), carried=False)
        after = _joined(_of_spec(fresh, spec_id), carried=True)
        if before is None and after is None:
            continue
        _Pairs(before, after, snapshot_id, table, rekeyed=rekeyed).check()


def other_file(known: Sequence[pa.Table], picked: Sequence[pa.Table]) -> str | None:
    """Return the path of an entry without an equal one, except for the numbers that a commit assigns.

    Args:
        known: entries of manifests of one partition spec, without duplicates.
        picked: entries of manifests of the same spec.
    """
    sides = [_concatenated([_comparable(each) for each in part]) for part in (known, picked)]
    before, after = _aligned(*sides) if any(each is not None for each in sides) else (None, None)
    if before is None or after is None or not after.num_rows:
        return None
    before = before.filter(pc.is_in(before[_PATH], value_set=after[_PATH]))
    unknown = pc.invert(pc.is_in(after[_PATH], value_set=before[_PATH]))
    if before.num_rows != after.num_rows or pc.any(unknown).as_py():
        path: str = (after.filter(unknown) if pc.any(unknown).as_py() else after)[_PATH][0].as_py()
        return path
    same = np.ones(after.num_rows, np.bool_)
    for name in after.column_names:
        if name not in _GIVEN and name not in _LOOSE:
            same &= _same(before[name], after[name])
    return None if same.all() else str(after[_PATH][int(np.flatnonzero(~same)[0])])


def _of_spec(manifests: Sequence[OpenManifest], spec_id: int) -> list[OpenManifest]:
    return [each for each in manifests if each.listed.partition_spec_id == spec_id]


def _joined(manifests: Sequence[OpenManifest], *, carried: bool) -> pa.Table | None:
    """Return the live entries of manifests, or those carried over or deleted, in comparable columns."""
    parts = []
    for manifest in manifests:
        entries = manifest.entries
        mask = pc.not_equal(entries[_STATUS], ADDED) if carried else None
        part = _comparable(entries.filter(mask)) if carried else _comparable(alive(entries))
        kept = mask if carried else pc.not_equal(entries[_STATUS], DELETED)
        statistics = manifest.decoded.statistics.filter(kept)
        for name in statistics.column_names:
            part = part.append_column(name, statistics[name])
        parts.append(part)
    return _concatenated(parts)


def _concatenated(parts: Sequence[pa.Table]) -> pa.Table | None:
    some = [part for part in parts if part.num_rows]
    return pa.concat_tables(some, promote_options="default").combine_chunks() if some else None


def _comparable(entries: pa.Table) -> pa.Table:
    """Return the compared columns, each of a type that can be sorted and compared.

    Partition values are compared as bytes by field id: writers can store them in other types and another
    order.
    """
    columns = {name: entries[name] for name in (_STATUS, _SNAPSHOT_ID, _PATH, *_KEPT, *_LOOSE)}
    columns["file_format"] = pc.utf8_upper(columns["file_format"])
    for name in ("equality_ids", "split_offsets"):
        columns[name] = _list_bytes(_flat(columns[name]))
    partition = _flat(entries["partition"])
    for place, kind in enumerate(partition.type):
        name = _PARTITION + kind.metadata[FIELD_ID.encode()].decode()
        columns[name] = _value_bytes(partition.field(place))
    return pa.table(columns)


class _Pairs:
    """Entries of both sides, each next to the one that it must equal."""

    def __init__(
        self, before: pa.Table | None, after: pa.Table | None, snapshot_id: int, table: str, *, rekeyed: bool
    ) -> None:
        self._before, self._after = _aligned(before, after)
        self._snapshot_id = snapshot_id
        self._table = table
        self._rekeyed = rekeyed

    def check(self) -> None:
        """Compare the two sides.

        Raises:
            MetadataTampered: the sides differ.
        """
        before, after = self._before, self._after
        if before.num_rows != after.num_rows or not before[_PATH].equals(after[_PATH]):
            raise self._unpaired()
        kept = [name for name in _KEPT if not (self._rekeyed and name == _KEY_METADATA)]
        for name in (*kept, *self._partition_columns()):
            self._require(name, _same(before[name], after[name]))
        existing = pc.equal(after[_STATUS], EXISTING)
        expected = pc.if_else(existing, before[_SNAPSHOT_ID], pa.scalar(self._snapshot_id, pa.int64()))
        self._require(_SNAPSHOT_ID, _same(_flat(expected), after[_SNAPSHOT_ID]))
        for name in _LOOSE:
            same = _same(before[name], after[name])
            self._require(name, same | _flags(after[name].is_null()))
        for name in after.column_names:
            if pa.types.is_map(after[name].type):
                self._require(name, _same_or_left_out(_flat(before[name]), _flat(after[name])))

    def _partition_columns(self) -> list[str]:
        return [name for name in self._after.column_names if name.startswith(_PARTITION)]

    def _require(self, name: str, same: npt.NDArray[np.bool_]) -> None:
        if not same.all():
            path = self._after[_PATH][int(np.flatnonzero(~same)[0])].as_py()
            raise self._refusal(
                "carried-file",
                f"A new manifest carries over or deletes a file, but its {name} differs from the "
                "parent snapshot.",
                path,
            )

    def _unpaired(self) -> MetadataTampered:
        """Return the error for the first file that is on one side only, or more often on one side."""
        before, after = self._before[_PATH].to_pylist(), self._after[_PATH].to_pylist()
        for mine, other in zip([*before, None], [*after, None], strict=False):
            if mine == other:
                continue
            if other is not None and (mine is None or other < mine):
                return self._refusal(
                    "carried-file",
                    "A new manifest carries over or deletes a file that no dropped manifest of "
                    "the parent snapshot lists, or that it lists only once.",
                    other,
                )
            return self._refusal(
                "dropped-file",
                "The snapshot drops a manifest of its parent without carrying over or deleting "
                "one of its files.",
                mine,
            )
        raise AssertionError("the sides are equal")

    def _refusal(self, rule: str, message: str, path: str | None) -> MetadataTampered:
        return MetadataTampered(
            message,
            table=self._table,
            snapshot=self._snapshot_id,
            path=path,
            rule=rule,
            hint="Load the table and commit again.",
        )


def _aligned(before: pa.Table | None, after: pa.Table | None) -> tuple[pa.Table, pa.Table]:
    """Return both sides with the same columns, in the same order of rows."""
    if before is None or after is None:
        some = before if after is None else after
        assert some is not None
        empty = some.slice(0, 0)
        return (empty if before is None else before), (empty if after is None else after)
    names = dict.fromkeys([*before.column_names, *after.column_names])
    return _ordered(before, names), _ordered(after, names)


def _ordered(side: pa.Table, names: dict[str, None]) -> pa.Table:
    for name in names:
        if name not in side.column_names:
            side = side.append_column(name, pa.nulls(side.num_rows, pa.binary()))
    keys: Sequence[str] = _ORDER
    if pc.count_distinct(side[_PATH]).as_py() == side.num_rows:
        keys = (_PATH,)
    order = pc.sort_indices(side, sort_keys=[(name, "ascending") for name in keys])
    return side.take(order).combine_chunks()


def _same(before: pa.ChunkedArray | pa.Array, after: pa.ChunkedArray | pa.Array) -> npt.NDArray[np.bool_]:
    """Return for each row whether both values are equal, or both null."""
    one, other = _flat(before), _flat(after)
    if one.equals(other):
        return np.ones(len(one), np.bool_)
    equal = pc.fill_null(pc.equal(one, other), False)
    return _flags(equal) | (_flags(one.is_null()) & _flags(other.is_null()))


def _same_or_left_out(before: pa.MapArray, after: pa.MapArray) -> npt.NDArray[np.bool_]:
    """Return for each row whether two maps by column id are equal in any order, or the second is left out."""
    same = np.ones(len(after), np.bool_)
    if after.null_count == len(after) or before.equals(after):
        return same
    said = np.flatnonzero(_flags(after.is_valid()))
    was = before.take(pa.array(said))
    counts, rows, values = _items(was)
    counts_after, _, values_after = _items(after.take(pa.array(said)))
    same[said[(counts != counts_after) | _flags(was.is_null())]] = False
    if not same.all():
        return same
    same[said[rows[~_same(values[0], values_after[0]) | ~_same(values[1], values_after[1])]]] = False
    return same


def _items(
    maps: pa.MapArray,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], tuple[pa.Array, pa.Array]]:
    """Return the item count of each map; the row of each item; keys and values, by row and key."""
    offsets = np.asarray(maps.offsets, np.int64)
    counts = np.diff(offsets)
    rows = np.repeat(np.arange(len(maps)), counts)
    inside = slice(int(offsets[0]), int(offsets[-1]))
    keys, items = maps.keys[inside], maps.items[inside]
    order = pa.array(np.lexsort((np.asarray(keys), rows)))
    return counts, rows, (keys.take(order), items.take(order))


def _list_bytes(lists: pa.ListArray) -> pa.Array:
    """Encode lists of numbers as bytes; an empty list counts as null."""
    counts = pc.list_value_length(lists)
    if lists.null_count == len(lists):
        return pa.nulls(len(lists), pa.binary())
    numbers = lists.flatten().cast(pa.int64())
    lengths = np.asarray(pc.fill_null(counts, 0), np.int64)
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(lengths * 8, out=offsets[1:])
    data = pa.py_buffer(np.asarray(numbers, np.int64).tobytes())
    made = pa.Array.from_buffers(pa.binary(), len(lists), [None, pa.py_buffer(offsets), data])
    return pc.if_else(pa.array(lengths > 0), made, pa.scalar(None, pa.binary()))


def _value_bytes(values: pa.Array) -> pa.Array:
    """Encode partition values as bytes that are equal for equal values, however a writer stores them."""
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.binary())
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return values.cast(pa.binary())
    if pa.types.is_decimal(kind):
        return values.cast(pa.string()).cast(pa.binary())
    if pa.types.is_floating(kind):
        wide = values.cast(pa.float64())
        wide = pc.if_else(pc.is_nan(wide), pa.scalar(float("nan")), wide)
        return wide.view(pa.int64()).cast(pa.string()).cast(pa.binary())
    if pa.types.is_temporal(kind):
        values = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return values.cast(pa.int64()).cast(pa.string()).cast(pa.binary())


def _flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _flags(values: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(values, np.bool_)
