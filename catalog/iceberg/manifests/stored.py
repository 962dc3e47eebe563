"""The stored form of a decoded manifest, whose columns are read one by one.

Blocks of its file (`block_files`), each an Arrow IPC stream:

- ``entries/N``: the entries of range N (`ranges`);
- ``column/ID``: the statistics of one column, one row per entry;
- ``maps``: the statistics as the manifest has them, compressed: commits compare them, plans do not read them;
- ``ranges``: the statistics of ranges.

Sealed statistics are in the key metadata of entries, and stay sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from catalog.base.cached import CachedProperty
from catalog.iceberg.manifests.block_files import BlockFile, Damaged
from catalog.iceberg.manifests.column_types import NO_TYPES
from catalog.iceberg.manifests.manifest import DecodedManifest, ManifestHeader
from catalog.iceberg.manifests.manifest_list import ManifestContent
from catalog.iceberg.manifests.ranges import PARTS, RANGE_ROWS, RangeStatistics, range_count
from catalog.iceberg.manifests.statistics import FieldStatistics, described_fields, field_statistics
from catalog.iceberg.manifests.statuses import alive
from policy.errors import StorageUnavailable
from policy.location.allow_list import shared_directories

#: More columns are read from the maps.
_MAX_COLUMNS: Final = 512
#: More directories are not listed: paths are decided one by one then.
_MAX_DIRECTORIES: Final = 256
_SCHEMA: Final = pa.schema(list(PARTS))
_LZ4: Final = pa.ipc.IpcWriteOptions(compression="lz4")


def blocks_of(decoded: DecodedManifest) -> tuple[Iterator[tuple[str, pa.Buffer]], dict[str, Any]]:
    """Return the blocks of a decoded manifest, and what is said about them."""
    described = sorted(described_fields(decoded.statistics))[:_MAX_COLUMNS]
    columns = decoded.stats(frozenset(described))
    ranges = RangeStatistics.of(len(decoded), columns, decoded.types, RANGE_ROWS)
    directories = shared_directories(alive(decoded.entries)["file_path"], _MAX_DIRECTORIES)
    about = {
        "spec": decoded.header.partition_spec_id,
        "content": int(decoded.header.content),
        "rows": len(decoded),
        "range-rows": RANGE_ROWS,
        "orders": {str(field_id): order for field_id, order in ranges.orders.items()},
        "every-column": len(described) < _MAX_COLUMNS,
        "directories": None if directories is None else list(directories),
    }
    return _blocks(decoded, columns, ranges), about


def _blocks(
    decoded: DecodedManifest, columns: Mapping[int, FieldStatistics], ranges: RangeStatistics
) -> Iterator[tuple[str, pa.Buffer]]:
    for number, start in enumerate(range(0, len(decoded), RANGE_ROWS)):
        yield f"entries/{number}", _stream(decoded.entries.slice(start, RANGE_ROWS))
    for field_id, each in columns.items():
        yield f"column/{field_id}", _stream(pa.table(_arrays(each), _SCHEMA))
    summed = {f"{i}.{name}": array for i, each in ranges.columns.items() for name, array in _named(each)}
    yield "ranges", _stream(pa.table(summed))
    yield "entries", _stream(decoded.entries.schema.empty_table())
    yield "maps", _stream(decoded.statistics, _LZ4)


class StoredForm:
    """A stored manifest; arrays that were read are kept, without a copy of their bytes.

    Args:
        file: its file.
        discard: deletes the file, if it is damaged.

    Raises:
        Damaged: the statistics of its ranges are not those that were written, or it has ranges of another
            length.
    """

    def __init__(self, file: BlockFile, discard: Callable[[], None]) -> None:
        about = file.about
        if about["range-rows"] != RANGE_ROWS:
            raise Damaged
        self.file = file
        self.header = ManifestHeader(about["spec"], ManifestContent(about["content"]))
        self.rows = int(about["rows"])
        #: The directories of its live files, if they decide where all of these lie.
        self.directories: Sequence[str] | None = about["directories"]
        self.ranges = _range_statistics(self.rows, about["orders"], _read(file.block("ranges")))
        #: Whether a part of it was found damaged.
        self.damaged = False
        self._discard = discard
        self._entries: dict[int, pa.Table] = {}
        self._columns: dict[int, FieldStatistics] = {}

    def has_entries(self, ranges: Iterable[int]) -> bool:
        """Return whether the entries of some ranges are those that were written."""
        try:
            for number in ranges:
                self.entries(number)
        except StorageUnavailable:
            return False
        return True

    def entries(self, number: int) -> pa.Table:
        """Return the entries of one range.

        Raises:
            StorageUnavailable: they are not those that were written.
        """
        if number not in self._entries:
            self._entries[number] = self._block(f"entries/{number}")
        return self._entries[number]

    def no_entries(self) -> pa.Table:
        """Return a table with the columns of the entries."""
        return self._block("entries")

    def column(self, field_id: int) -> FieldStatistics | None:
        """Return the statistics of a column; None if only the maps have them.

        Raises:
            StorageUnavailable: they are not those that were written.
        """
        if field_id not in self._columns:
            block = f"column/{field_id}"
            if block in self.file:
                table = self._block(block)
            elif self.file.about["every-column"]:
                table = pa.table([pa.nulls(self.rows, kind) for _, kind in PARTS], _SCHEMA)
            else:
                return None
            self._columns[field_id] = FieldStatistics(*(_array(table, name) for name, _ in PARTS))
        return self._columns[field_id]

    def maps(self) -> pa.Table:
        """Return the statistics as maps.

        Raises:
            StorageUnavailable: they are not those that were written.
        """
        return self._block("maps")

    def _block(self, name: str) -> pa.Table:
        try:
            return _read(self.file.block(name))
        except Damaged as problem:
            self.damaged = True
            self._discard()
            raise StorageUnavailable(
                "The cached form of a manifest is damaged, and was discarded.",
                rule="manifest-cache",
                hint="Repeat the request: the manifest is decoded again. If it happens again, check the disk "
                "of `cache.directory`, and which users can write the directory.",
            ) from problem


class StoredManifest(DecodedManifest):
    """The entries of a stored manifest, or those of some of its ranges.

    Args:
        form: the stored manifest.
        ranges: numbers of the ranges, ascending; None for all.
    """

    def __init__(self, form: StoredForm, ranges: Sequence[int] | None = None) -> None:
        every = range(range_count(form.rows))
        self.header = form.header
        self.types = NO_TYPES
        self.form = form
        self._ranges = list(every if ranges is None else ranges)
        self._whole = len(self._ranges) == len(every)

    @CachedProperty
    def entries(self) -> pa.Table:
        """Return the entries."""
        tables = [self.form.entries(number) for number in self._ranges] or [self.form.no_entries()]
        return pa.concat_tables(tables)

    @CachedProperty
    def statistics(self) -> pa.Table:
        """Return their statistics as maps."""
        maps = self.form.maps()
        if self._whole:
            return maps
        parts = [maps.slice(start, count) for start, count in self._spans()]
        return pa.concat_tables([maps.slice(0, 0), *parts]).combine_chunks()

    @property
    def nbytes(self) -> int:
        """Return the size of what is in memory of this process alone."""
        return 0 if self.form.file.mapped else self.form.file.size

    def __len__(self) -> int:
        return sum(count for _, count in self._spans())

    def stats(self, field_ids: frozenset[int]) -> Mapping[int, FieldStatistics]:
        columns = {field_id: self.form.column(field_id) for field_id in field_ids}
        known = {field_id: self._chosen(each) for field_id, each in columns.items() if each is not None}
        missing = field_ids - known.keys()
        return {**known, **field_statistics(self.statistics, missing)} if missing else known

    def _chosen(self, column: FieldStatistics) -> FieldStatistics:
        return column if self._whole else FieldStatistics(*(self._cut(array) for array in _arrays(column)))

    def _cut(self, array: pa.Array) -> pa.Array:
        parts = [array.slice(start, count) for start, count in self._spans()]
        return pa.concat_arrays(parts) if parts else array.slice(0, 0)

    def _spans(self) -> list[tuple[int, int]]:
        starts = [number * RANGE_ROWS for number in self._ranges]
        return [(start, min(RANGE_ROWS, self.form.rows - start)) for start in starts]


def _range_statistics(rows: int, orders: Mapping[str, str], table: pa.Table) -> RangeStatistics:
    columns = {
        int(field_id): FieldStatistics(*(_array(table, f"{field_id}.{name}") for name, _ in PARTS))
        for field_id in orders
    }
    return RangeStatistics(range_count(rows), {int(i): order for i, order in orders.items()}, columns)


def _named(statistics: FieldStatistics) -> Iterator[tuple[str, pa.Array]]:
    return ((name, getattr(statistics, name)) for name, _ in PARTS)


def _arrays(statistics: FieldStatistics) -> list[pa.Array]:
    return [array for _, array in _named(statistics)]


def _array(table: pa.Table, name: str) -> pa.Array:
    return table[name].combine_chunks()


def _stream(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _read(block: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(block).read_all()
