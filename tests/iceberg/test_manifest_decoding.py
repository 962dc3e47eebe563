"""Manifests and manifest lists decode to what pyiceberg wrote, whatever their codec and layout."""

from __future__ import annotations

import io
import uuid
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
import zstandard
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    NestedField,
    PrimitiveType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from catalog.iceberg.manifests import (
    ManifestContent,
    data_files,
    decode_manifest,
    decode_manifest_list,
    inherit,
    manifest_entries,
)
from catalog.iceberg.manifests.statistics import bounded_fields
from policy.errors import MetadataInvalid
from tests.support.manifest_samples import (
    SNAPSHOT,
    container,
    counts_type,
    entry_bytes,
    entry_schema,
    field,
    in_large_blocks,
    sample_file,
    write_sample,
    write_sample_list,
    zigzag,
)

PATH = "s3://lake/t/metadata/m.avro"
#: Fields of data files that pyiceberg does not read.
SINCE_3 = [None] * 4


def listed(directory: Path, manifest: Any) -> Any:
    return decode_manifest_list(write_sample_list(directory, [manifest]), path=PATH, format_version=2)[0]


def entries_of(data: bytes, entry: Any) -> list[Any]:
    """All entries of a manifest, as pyiceberg's objects."""
    decoded = decode_manifest(data, path=PATH)
    numbered = inherit(decoded, entry)
    return manifest_entries(decoded, numbered, range(numbered.num_rows), entry.partition_spec_id)


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard"])
def test_entries_are_those_that_pyiceberg_reads(tmp_path: Path, codec: str) -> None:
    data, manifest = write_sample(tmp_path, 150, codec)
    expected = manifest.fetch_manifest_entry(PyArrowFileIO(), discard_deleted=False)
    found = entries_of(data, listed(tmp_path, manifest))
    assert [entry._data[:4] for entry in found] == [[entry.status, SNAPSHOT, 5, 5] for entry in expected]
    assert [file_values(e.data_file) for e in found] == [
        [*values, *SINCE_3, spec] for *values, spec in (file_values(e.data_file) for e in expected)
    ]


def file_values(file: Any) -> list[Any]:
    return [*file._data[:3], list(file.partition._data), *file._data[4:], file.spec_id]


@pytest.mark.nightly
@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("interval", [300, 5000, 1 << 30])
def test_the_layout_in_blocks_does_not_matter(tmp_path: Path, codec: str, interval: int) -> None:
    data, _ = write_sample(tmp_path, 150)
    one_by_one, together = (
        decode_manifest(each, path=PATH) for each in (data, in_large_blocks(data, codec, interval))
    )
    assert together.entries.equals(one_by_one.entries)
    assert together.statistics.equals(one_by_one.statistics)
    assert together.header == one_by_one.header


@pytest.mark.parametrize("count", [1, 63, 64, 65])
def test_few_and_many_entries_take_different_ways_to_the_same_values(tmp_path: Path, count: int) -> None:
    data, manifest = write_sample(tmp_path, count)
    expected = manifest.fetch_manifest_entry(PyArrowFileIO())
    found = entries_of(data, listed(tmp_path, manifest))
    assert [file_values(e.data_file) for e in found] == [
        [*values, *SINCE_3, spec] for *values, spec in (file_values(e.data_file) for e in expected)
    ]


def test_zstandard_frames_that_do_not_announce_their_size_are_read() -> None:
    stream = zstandard.ZstdCompressor(write_content_size=False)
    block = stream.compress(entry_bytes())
    data = container(entry_schema(), [(1, block)], avro__codec="zstandard")
    assert decode_manifest(data, path=PATH).entries["file_path"].to_pylist() == ["s3://lake/a"]


def test_snappy_blocks_are_read_and_their_checksum_checked() -> None:
    raw = entry_bytes()
    packed = pa.Codec("snappy").compress(raw, asbytes=True)
    crc = zlib.crc32(raw).to_bytes(4, "big")
    data = container(entry_schema(), [(1, packed + crc)], avro__codec="snappy")
    assert decode_manifest(data, path=PATH).entries.num_rows == 1
    broken = container(entry_schema(), [(1, packed + b"\0\0\0\0")], avro__codec="snappy")
    with pytest.raises(MetadataInvalid, match="checksum"):
        decode_manifest(broken, path=PATH)


def test_every_type_of_partition_value_is_typed(tmp_path: Path) -> None:
    values: dict[str, tuple[PrimitiveType, Any, Any]] = {
        "b": (BooleanType(), True, True),
        "i": (IntegerType(), -5, -5),
        "f": (FloatType(), 1.5, 1.5),
        "d": (DoubleType(), -0.25, -0.25),
        "dec": (DecimalType(9, 2), Decimal("-12.34"), Decimal("-12.34")),
        "t": (TimeType(), 1_000_000, 1_000_000),
        "tz": (TimestamptzType(), 1_700_000_000_000_000, 1_700_000_000_000_000),
        "u": (UUIDType(), uuid.UUID(int=7), uuid.UUID(int=7)),
        "x": (FixedType(3), b"abc", b"abc"),
        "y": (BinaryType(), b"\xff", b"\xff"),
    }
    fields = [NestedField(i, name, kind) for i, (name, (kind, _, _)) in enumerate(values.items(), 1)]
    spec = PartitionSpec(
        *(PartitionField(f.field_id, 999 + f.field_id, IdentityTransform(), f.name) for f in fields),
        spec_id=3,
    )
    files = [
        sample_file(1, partition=Record(*(given for _, given, _ in values.values()))),
        sample_file(3, partition=Record(*(None for _ in values))),
    ]
    data, manifest = write_sample(tmp_path, 2, schema=Schema(*fields), spec=spec, files=files)
    found = entries_of(data, listed(tmp_path, manifest))
    assert list(found[0].data_file.partition._data) == [expected for _, _, expected in values.values()]
    assert list(found[1].data_file.partition._data) == [None] * len(values)


def test_unpartitioned_manifests_have_an_empty_partition(tmp_path: Path) -> None:
    files = [sample_file(n, partition=Record()) for n in range(3)]
    data, _ = write_sample(tmp_path, 3, spec=PartitionSpec(spec_id=0), files=files)
    entries = decode_manifest(data, path=PATH).entries
    assert entries["partition"].to_pylist() == [{}, {}, {}]


def test_a_manifest_without_entries_decodes_to_none() -> None:
    decoded = decode_manifest(container(entry_schema(), []), path=PATH)
    assert decoded.entries.num_rows == 0
    assert bounded_fields(decoded.statistics) == frozenset()


def test_fields_are_known_by_id_not_by_name() -> None:
    renamed = entry_schema()
    renamed["fields"][1]["type"]["fields"][0]["name"] = "file_format"  # type: ignore[index]
    renamed["fields"][1]["type"]["fields"][1]["name"] = "file_path"  # type: ignore[index]
    decoded = decode_manifest(container(renamed, [(1, entry_bytes())]), path=PATH)
    assert decoded.entries["file_path"].to_pylist() == ["s3://lake/a"]
    assert decoded.entries["file_format"].to_pylist() == ["parquet"]


def test_unknown_fields_are_passed_over() -> None:
    extra = [
        field("new_text", 9001, ["null", "string"]),
        field("new_list", 9002, {"type": "array", "items": ["null", "string"]}),
    ]
    tail = b"\x02\x06abc" + b"\x04" + b"\x00" + b"\x02\x02x" + b"\x00"
    data = container(entry_schema(*extra), [(2, 2 * entry_bytes(tail))])
    assert decode_manifest(data, path=PATH).entries.num_rows == 2


def test_maps_in_several_blocks_and_with_sizes_are_read() -> None:
    counts = field("value_counts", 109, counts_type())
    pairs = [zigzag(1) + zigzag(10), zigzag(2) + zigzag(20), zigzag(3) + zigzag(30)]
    tail = zigzag(2) + pairs[0] + pairs[1] + zigzag(-1) + zigzag(len(pairs[2])) + pairs[2] + b"\x00"
    data = container(entry_schema(counts), [(3, entry_bytes(tail) + entry_bytes(b"\0") + entry_bytes(tail))])
    statistics = decode_manifest(data, path=PATH).statistics["value_counts"].to_pylist()
    assert statistics == [[(1, 10), (2, 20), (3, 30)], [], [(1, 10), (2, 20), (3, 30)]]


def test_statistics_of_single_columns_are_null_where_an_entry_has_none(tmp_path: Path) -> None:
    decoded = decode_manifest(write_sample(tmp_path, 4)[0], path=PATH)
    stats = decoded.stats(frozenset({1, 3, 99}))
    assert stats[1].null_counts.to_pylist() == [0, 0, None, 0]
    assert stats[1].lower.to_pylist()[1] == (1).to_bytes(8, "little")
    assert stats[3].value_counts.to_pylist() == [100, 100, None, 100]
    assert stats[99].upper.null_count == 4
    assert bounded_fields(decoded.statistics) == {1, 2}


def test_extreme_numbers_survive() -> None:
    extremes = [0, -1, 1, 63, -64, 64, (1 << 63) - 1, -(1 << 63)]
    schema = entry_schema()
    schema["fields"].insert(1, field("snapshot_id", 1, "long"))  # type: ignore[attr-defined]
    rows = [zigzag(1) + zigzag(n) + entry_bytes()[1:] for n in extremes]
    data = container(schema, [(len(rows), b"".join(rows))])
    assert decode_manifest(data, path=PATH).entries["snapshot_id"].to_pylist() == extremes


class TestManifestLists:
    def test_entries_are_those_that_were_written(self, tmp_path: Path) -> None:
        _, manifest = write_sample(tmp_path, 5)
        entry = listed(tmp_path, manifest)
        assert (entry.manifest_path, entry.manifest_length) == (
            manifest.manifest_path,
            manifest.manifest_length,
        )
        assert (entry.content, entry.sequence_number, entry.added_snapshot_id) == (
            ManifestContent.DATA,
            5,
            SNAPSHOT,
        )
        assert (entry.added_files_count, entry.partition_spec_id) == (5, 3)
        assert manifest.partitions is not None
        for ours, theirs in zip(entry.partitions, manifest.partitions, strict=True):
            assert [ours.contains_null, ours.contains_nan, ours.lower_bound, ours.upper_bound] == theirs._data

    def test_an_empty_list_is_read(self, tmp_path: Path) -> None:
        assert decode_manifest_list(write_sample_list(tmp_path, []), path=PATH, format_version=2) == ()

    def test_version_1_knows_no_sequence_numbers(self, tmp_path: Path) -> None:
        data, manifest = write_sample(tmp_path, 2, version=1)
        raw = write_sample_list(tmp_path, [manifest], 1)
        entry = decode_manifest_list(raw, path=PATH, format_version=1)[0]
        assert (entry.sequence_number, entry.min_sequence_number, entry.content) == (0, 0, 0)
        assert inherit(decode_manifest(data, path=PATH), entry)["sequence_number"].to_pylist() == [0, 0]
        assert decode_manifest_list(raw, path=PATH, format_version=2) == (entry,), "of an upgraded table"

    @pytest.mark.parametrize("missing", ["content", "sequence_number", "min_sequence_number"])
    def test_version_2_has_content_and_sequence_numbers(self, tmp_path: Path, missing: str) -> None:
        data = write_sample_list(tmp_path, [write_sample(tmp_path, 1)[1]])
        reader = fastavro.reader(io.BytesIO(data))
        schema: Any = reader.writer_schema
        schema["fields"] = [field for field in schema["fields"] if field["name"] != missing]
        out = io.BytesIO()
        fastavro.writer(out, schema, list(reader))
        with pytest.raises(MetadataInvalid, match=f"lacks {missing}"):
            decode_manifest_list(out.getvalue(), path=PATH, format_version=2)

    @pytest.mark.parametrize(
        "change",
        [{"added_files_count": -1}, {"manifest_length": -1}, {"content": 2}, {"sequence_number": -2}],
    )
    def test_numbers_out_of_range_are_refused(self, tmp_path: Path, change: dict[str, int]) -> None:
        data = write_sample_list(tmp_path, [write_sample(tmp_path, 1)[1]])
        reader = fastavro.reader(io.BytesIO(data))
        rows: list[Any] = [row | change for row in reader]
        out = io.BytesIO()
        schema: Any = reader.writer_schema
        fastavro.writer(out, schema, rows)
        with pytest.raises(MetadataInvalid):
            decode_manifest_list(out.getvalue(), path=PATH, format_version=2)


class TestInheritance:
    def test_an_existing_file_without_sequence_number_is_refused(self, tmp_path: Path) -> None:
        entry = listed(tmp_path, write_sample(tmp_path, 1)[1])
        decoded = decode_manifest(container(entry_schema(), [(1, entry_bytes(status=0))]), path=PATH)
        with pytest.raises(MetadataInvalid, match="no sequence number") as caught:
            inherit(decoded, entry)
        assert caught.value.path == entry.manifest_path

    def test_own_numbers_are_kept(self, tmp_path: Path) -> None:
        schema = entry_schema()
        schema["fields"].insert(1, field("sequence_number", 3, "long"))  # type: ignore[attr-defined]
        raw = zigzag(1) + zigzag(2) + entry_bytes()[1:]
        decoded = decode_manifest(container(schema, [(1, raw)]), path=PATH)
        entries = inherit(decoded, listed(tmp_path, write_sample(tmp_path, 1)[1]))
        assert entries["sequence_number"].to_pylist() == [2]
        assert entries["file_sequence_number"].to_pylist() == [5]
        assert entries["snapshot_id"].to_pylist() == [SNAPSHOT]

    def test_manifest_and_list_must_agree(self, tmp_path: Path) -> None:
        entry = listed(tmp_path, write_sample(tmp_path, 1)[1])
        other_spec = container(entry_schema(), [(1, entry_bytes())], partition_spec_id="9")
        with pytest.raises(MetadataInvalid, match="partition spec"):
            inherit(decode_manifest(other_spec, path=PATH), entry)
        deletes = container(
            entry_schema(field("content", 134, "int")), [(1, entry_bytes(b"\x02"))], content="deletes"
        )
        with pytest.raises(MetadataInvalid, match="deletes"):
            inherit(decode_manifest(deletes, path=PATH), entry)


def test_delete_files_become_pyiceberg_objects(tmp_path: Path) -> None:
    extra = [field("content", 134, "int"), field("equality_ids", 135, {"type": "array", "items": "int"})]
    raw = entry_bytes(zigzag(2) + zigzag(1) + zigzag(7) + b"\0")
    data = container(entry_schema(*extra), [(1, raw)], content="deletes")
    decoded = decode_manifest(data, path=PATH)
    assert decoded.header.content is ManifestContent.DELETES
    file = data_files(decoded, [0], 4)[0]
    assert (file.content, file.equality_ids, file.spec_id) == (DataFileContent.EQUALITY_DELETES, [7], 4)
    assert file.file_format is FileFormat.PARQUET
