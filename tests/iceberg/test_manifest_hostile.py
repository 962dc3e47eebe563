"""Hostile manifests are refused with one typed error, in bounded time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.iceberg.avro.columns import Column, Index
from catalog.iceberg.avro.schema import Node
from catalog.iceberg.avro.vectorized import Cursors
from catalog.iceberg.manifests import (
    DecodedManifest,
    DecodeLimits,
    decode_manifest,
    decode_manifest_list,
    decode_manifests,
)
from catalog.iceberg.manifests.statistics import bounded_fields
from policy.errors import MetadataInvalid
from tests.support.manifest_samples import (
    SYNC,
    container,
    counts_type,
    entry_bytes,
    entry_schema,
    field,
    in_large_blocks,
    raw_deflate,
    write_sample,
    write_sample_list,
    zigzag,
)
from tests.support.vectors import each_row

PATH = "s3://lake/t/metadata/m.avro"
HUGE = [1 << 60, -(1 << 60), (1 << 63) - 1, -(1 << 63), 1 << 31, -1]
ROOT = Path(__file__).parents[2]


def refused(data: bytes, match: str | None = None, **limits: int) -> MetadataInvalid:
    with pytest.raises(MetadataInvalid, match=match) as caught:
        decode_manifest(data, path=PATH, limits=DecodeLimits(**limits))
    assert caught.value.path == PATH
    assert caught.value.rule
    assert caught.value.hint
    return caught.value


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    data, _ = write_sample(tmp_path_factory.mktemp("hostile"), 4)
    return [data, in_large_blocks(data, "null", 1 << 20)]


@pytest.mark.parametrize("layout", [0, 1])
def test_truncated_anywhere_is_refused_or_a_shorter_file(samples: list[bytes], layout: int) -> None:
    data = samples[layout]
    whole = decode_manifest(data, path=PATH).entries
    kept = []
    for length in range(len(data)):
        try:
            entries = decode_manifest(data[:length], path=PATH).entries
        except MetadataInvalid:
            continue
        assert entries.num_rows == 0 or entries.equals(whole.slice(0, entries.num_rows))
        kept.append(entries.num_rows)
    assert kept == ([0, 1, 2, 3] if layout == 0 else [0])


def test_a_truncated_manifest_list_is_refused(tmp_path: Path) -> None:
    data = write_sample_list(tmp_path, [write_sample(tmp_path, 1)[1]])
    whole = 0
    for length in range(len(data)):
        try:
            whole += len(decode_manifest_list(data[:length], path=PATH, format_version=2))
        except MetadataInvalid as refusal:
            assert refusal.path == PATH
    assert whole == 0


def damaged(data: bytes, edits: list[tuple[int, bytes, int]]) -> bytes:
    changed = bytearray(data)
    for place, new, removed in edits:
        at = place % (len(changed) + 1)
        changed[at : at + removed] = new
    return bytes(changed)


edits = st.lists(
    st.tuples(
        st.integers(0, 1 << 20),
        st.binary(max_size=4) | st.sampled_from([zigzag(n) for n in HUGE]),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=4,
)


BODY = entry_bytes(b"\x04\x02\x14\x04\x28\x00" + b"\x02\x02\x06abc\x00") * 70
BODY_SCHEMA = entry_schema(
    field("value_counts", 109, counts_type()), field("lower_bounds", 125, counts_type(126, 127, "bytes"))
)


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(changes=edits)
def test_damaged_files_cause_no_other_error(
    changes: list[tuple[int, bytes, int]], samples: list[bytes]
) -> None:
    for data in samples:
        decoded_or_refused(damaged(data, changes))


@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(changes=edits, count=st.sampled_from([1, 2, 69, 70, 71]))
def test_damaged_blocks_in_sound_framing_cause_no_other_error(
    changes: list[tuple[int, bytes, int]], count: int
) -> None:
    decoded_or_refused(container(BODY_SCHEMA, [(count, damaged(BODY, changes))]))


@pytest.mark.nightly
@settings(max_examples=2 * settings.default.max_examples, deadline=None)
@given(changes=st.lists(st.just([]) | edits, min_size=1, max_size=5))
def test_manifests_that_are_decoded_together_are_what_each_is_alone(
    changes: list[list[tuple[int, bytes, int]]], samples: list[bytes]
) -> None:
    damages = [(damaged(samples[number % 2], each), each) for number, each in enumerate(changes)]
    bodies = [(container(BODY_SCHEMA, [(70, damaged(BODY, each))]), each) for each in changes]
    files = [(f"{PATH}{number}", data) for number, (data, _) in enumerate(damages + bodies)]
    together = dict(decode_manifests(files))
    assert sorted(together) == list(range(len(files)))
    for number, (path, data) in enumerate(files):
        alone = decoded_or_refused(data, path)
        found = together[number]
        if isinstance(alone, MetadataInvalid) or isinstance(found, MetadataInvalid):
            assert str(found) == str(alone)
        else:
            assert (found.header, found.entries, found.statistics) == (
                alone.header,
                alone.entries,
                alone.statistics,
            )


def decoded_or_refused(data: bytes, path: str = PATH) -> DecodedManifest | MetadataInvalid:
    try:
        return decode_manifest(data, path=path)
    except MetadataInvalid as refusal:
        assert refusal.path == path
        return refusal


def test_manifests_that_are_decoded_together_are_bounded_together(samples: list[bytes]) -> None:
    """What does not fit together is decoded one by one."""
    size = decode_manifest(samples[0], path=PATH).nbytes
    for fits, limit in ((True, size + 100), (False, size - 1)):
        found = dict(decode_manifests([(PATH, samples[0])] * 3, DecodeLimits(max_decoded_bytes=limit)))
        assert [isinstance(found[number], DecodedManifest) for number in range(3)] == [fits] * 3


def test_the_block_that_is_damaged_above_is_sound() -> None:
    assert decode_manifest(container(BODY_SCHEMA, [(70, BODY)]), path=PATH).entries.num_rows == 70


class TestFraming:
    def test_no_container(self) -> None:
        refused(b"", "not an Avro container")
        refused(b"PAR1" + bytes(100), "not an Avro container")

    def test_wrong_sync_marker(self) -> None:
        error = refused(container(entry_schema(), [(1, entry_bytes())], sync=b"X" * 16))
        assert error.rule == "sync-marker"

    @pytest.mark.parametrize("count", HUGE)
    def test_huge_counts_of_entries(self, count: int) -> None:
        refused(container(entry_schema(), [(count, entry_bytes())]))

    @pytest.mark.parametrize("count", [0, 2])
    def test_another_count_than_the_block_holds(self, count: int) -> None:
        refused(container(entry_schema(), [(count, entry_bytes())]))

    @pytest.mark.parametrize("length", HUGE)
    def test_huge_lengths_of_blocks(self, length: int) -> None:
        data = container(entry_schema(), []) + zigzag(1) + zigzag(length) + entry_bytes() + SYNC
        refused(data)

    @pytest.mark.parametrize("count", HUGE)
    def test_huge_headers(self, count: int) -> None:
        refused(b"Obj\x01" + zigzag(count) + b"\x02a\x02b" * 5)

    def test_a_name_twice_in_the_header(self) -> None:
        refused(b"Obj\x01" + zigzag(2) + b"\x02a\x02b" * 2 + b"\0" + SYNC, "twice")

    def test_numbers_of_more_than_64_bits(self) -> None:
        refused(container(entry_schema(), []) + b"\xff" * 9 + b"\x7f", "64 bits")
        refused(container(entry_schema(), []) + b"\xff" * 40, "64 bits")

    def test_unknown_codec(self) -> None:
        assert refused(container(entry_schema(), [], avro__codec="bzip2")).rule == "codec"

    @pytest.mark.parametrize("codec", ["deflate", "zstandard", "snappy"])
    def test_garbage_in_a_compressed_block(self, codec: str) -> None:
        assert refused(container(entry_schema(), [(1, b"garbage!!" * 9)], avro__codec=codec)).rule in (
            "codec",
            "decompressed-size",
        )

    def test_bytes_behind_a_compressed_block(self) -> None:
        packed = raw_deflate(entry_bytes())
        refused(container(entry_schema(), [(1, packed + b"12345")], avro__codec="deflate"), "after its end")
        frame = zstandard.compress(entry_bytes())
        refused(container(entry_schema(), [(1, frame + b"12345")], avro__codec="zstandard"))


class TestLimits:
    def test_each_limit_is_kept(self) -> None:
        data = container(entry_schema(), [(1, entry_bytes())] * 3)
        for name, value in {
            "max_file_bytes": len(data) - 1,
            "max_entries": 2,
            "max_block_bytes": len(entry_bytes()) - 1,
            "max_decompressed_bytes": 2 * len(entry_bytes()),
            "max_decoded_bytes": 10,
            "max_header_bytes": 100,
            "max_schema_bytes": 100,
            "max_schema_nodes": 5,
            "max_nesting": 1,
        }.items():
            refused(data, **{name: value})
        assert decode_manifest(data, path=PATH, limits=DecodeLimits(max_entries=3)).entries.num_rows == 3

    def test_a_limit_must_be_positive(self) -> None:
        with pytest.raises(ValueError, match="max_entries"):
            DecodeLimits(max_entries=0)


def test_one_long_array_among_many_costs_no_step_for_each_of_its_items(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """100 KB of zeros, which compress to nothing, would take four seconds."""
    steps: list[int] = []
    some = Cursors._some

    def counted(self: Cursors, cursors: Index, node: Node) -> Column:
        steps.append(len(cursors))
        return some(self, cursors, node)

    monkeypatch.setattr(Cursors, "_some", counted)
    schema = entry_schema(field("lower_bounds", 125, counts_type(126, 127, "bytes")))
    short, long = (entry_bytes(zigzag(count) + b"\0\0" * count + b"\0") for count in (1, 50_000))
    together, apart = (
        dict(decode_manifests([(PATH, container(schema, [(64, body + short * 63)]))]))[0]
        for body in (long, short)
    )
    assert isinstance(apart, DecodedManifest)
    assert isinstance(together, MetadataInvalid) or together.entries.num_rows == 64
    assert len(steps) < 1_000


class TestSchemas:
    @each_row(
        "extra",
        [
            {"type": "array", "items": "null"},
            {"type": "array", "items": {"type": "record", "name": "e", "fields": []}},
            {"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}},
            {"type": "map", "values": "null"},
            {"type": "record", "name": "r", "fields": [field("again", 1, "r")]},
            {"type": "array", "items": "r2"},
            ["null", "null"],
            ["int", "string"],
            ["null", ["null", "int"]],
            {"type": "fixed", "name": "f", "size": 1 << 40},
            {"type": "enum", "name": "e", "symbols": []},
            {"type": "record", "name": "r", "fields": "x"},
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]},
            {"type": "record", "name": "r", "fields": [field("a", 1, "int"), field("b", 1, "int")]},
            {"type": "bytes", "logicalType": "decimal", "precision": 99},
            7,
            None,
            "unknown",
        ],
    )
    def test_unsafe_types_are_refused(self, extra: Any) -> None:
        refused(container(entry_schema(field("x", 9000, extra)), [(1, entry_bytes(bytes(9)))]))

    def test_an_array_of_nothing_does_not_hang(self) -> None:
        schema = entry_schema(field("x", 9000, {"type": "array", "items": "null"}))
        refused(container(schema, [(1, entry_bytes(zigzag(1 << 60) + b"\0"))]), "no bytes")

    def test_deep_nesting(self) -> None:
        text = json.dumps(entry_schema()).replace('"int"', "[" * 50_000 + "]" * 50_000, 1)
        refused(container(entry_schema(field("x", 9000, nested(30))), []), "nests deeper")
        refused(container_with_schema(text))

    def test_a_schema_that_doubles_at_each_name(self) -> None:
        kinds: Any = {"type": "record", "name": "n0", "fields": [field("a", 1, "int")]}
        fields = [field("f0", 5000, kinds)]
        for level in range(1, 40):
            inner = [field("a", 1, f"n{level - 1}"), field("b", 2, f"n{level - 1}")]
            record = {"type": "record", "name": f"n{level}", "fields": inner}
            fields.append(field(f"f{level}", 5000 + level, record))
        refused(container(entry_schema(*fields), []), "types")

    @pytest.mark.parametrize("name", ["file_path", "record_count", "partition", "status"])
    def test_known_fields_of_another_type(self, name: str) -> None:
        refused(container(entry_schema(**{name: "double"}), []), "an unexpected type")

    def test_missing_required_fields(self) -> None:
        schema = entry_schema()
        del schema["fields"][1]["type"]["fields"][0]  # type: ignore[index]
        refused(container(schema, []), "file_path")

    @pytest.mark.parametrize("text", ["", "{", '{"a":1,"a":2}', '"int"', "[]", "NaN", "\ud800"])
    def test_schemas_that_are_none(self, text: str) -> None:
        refused(container_with_schema(text))


def nested(depth: int) -> Any:
    kind: Any = "int"
    for _ in range(depth):
        kind = {"type": "array", "items": kind}
    return kind


def container_with_schema(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return b"Obj\x01\x02" + zigzag(11) + b"avro.schema" + zigzag(len(raw)) + raw + b"\0" + SYNC


class TestEntries:
    @each_row(
        "entry",
        [
            entry_bytes(status=3),
            entry_bytes(status=-1),
            entry_bytes(status=1 << 40),
            entry_bytes(path=""),
            entry_bytes(path=b"s3://\xff\xfe"),
            entry_bytes(kind="exe"),
            entry_bytes(records=-1),
            entry_bytes(size=-1),
        ],
    )
    @each_row("copies", [1, 100])
    def test_values_that_the_specification_does_not_know(self, entry: bytes, copies: int) -> None:
        refused(container(entry_schema(), [(copies, entry * copies)]))

    @each_row("count", HUGE)
    @each_row("of", ["long", "bytes"])
    @each_row("copies", [1, 100])
    def test_huge_counts_of_items(self, count: int, of: str, copies: int) -> None:
        ids = {"long": (109, 119, 120), "bytes": (125, 126, 127)}[of]
        schema = entry_schema(field("m", ids[0], counts_type(*ids[1:], of)))
        entry = entry_bytes(zigzag(count) + b"\x02\x02\x00")
        refused(container(schema, [(1, entry)] * copies))
        refused(container(schema, [(copies, entry * copies)]))

    @pytest.mark.parametrize("length", HUGE)
    def test_huge_lengths(self, length: int) -> None:
        refused(container(entry_schema(), [(1, zigzag(1) + zigzag(length) + b"abc")]))

    @pytest.mark.parametrize("rest", [b"\x00", entry_bytes()])
    @pytest.mark.parametrize("count", [1, 2])
    def test_bytes_behind_the_entries_of_a_block(self, rest: bytes, count: int) -> None:
        error = refused(container(entry_schema(), [(count, count * entry_bytes() + rest)]))
        assert error.rule == "entry"

    def test_an_entry_that_reaches_into_the_next_block(self) -> None:
        long_one = entry_bytes(path="s3://lake/" + "a" * 60)
        refused(container(entry_schema(), [(1, long_one[:20]), (1, long_one[20:])]))

    @pytest.mark.parametrize("copies", [1, 100])
    def test_a_column_twice_in_statistics(self, copies: int) -> None:
        schema = entry_schema(field("value_counts", 109, counts_type()))
        entry = entry_bytes(zigzag(3) + b"\x04\x02" + b"\x02\x02" + b"\x04\x02" + b"\0")
        error = refused(container(schema, [(copies, entry * copies)]))
        assert error.rule == "duplicate-field-id"

    def test_negative_counts_in_statistics(self) -> None:
        schema = entry_schema(field("value_counts", 109, counts_type()))
        refused(container(schema, [(1, entry_bytes(b"\x02\x02\x01\0"))]), "value_counts")

    def test_an_array_of_very_many_blocks(self) -> None:
        schema = entry_schema(field("value_counts", 109, counts_type()))
        tail = b"".join(b"\x02" + zigzag(n) + b"\x02" for n in range(1000)) + b"\0"
        refused(container(schema, [(1, entry_bytes(tail))]), "blocks")

    def test_branches_of_a_union_that_do_not_exist(self) -> None:
        schema = entry_schema(field("key_metadata", 131, ["null", "bytes"]))
        for branch in (b"\x04", b"\x01", b"\x80\x00", b"\xff\xff\xff\x0f"):
            refused(container(schema, [(1, entry_bytes(branch + b"\x02a"))]))
            refused(container(schema, [(2, 2 * entry_bytes(branch + b"\x02a"))]))

    def test_contents_that_contradict_the_header(self) -> None:
        schema = entry_schema(field("content", 134, "int"))
        refused(container(schema, [(1, entry_bytes(zigzag(1)))], content="data"), "content")
        refused(container(schema, [(1, entry_bytes(zigzag(0)))], content="deletes"), "content")
        refused(container(schema, [(1, entry_bytes(zigzag(3)))], content="deletes"), "content")
        refused(container(schema, [], content="other"), "must be data or deletes")

    def test_equality_deletes_without_columns(self) -> None:
        schema = entry_schema(field("content", 134, "int"))
        refused(container(schema, [(1, entry_bytes(zigzag(2)))], content="deletes"), "equality_ids")

    @pytest.mark.parametrize("name", ["format_version", "partition_spec_id", "schema", "partition_spec"])
    def test_headers_that_are_none(self, name: str) -> None:
        refused(container(entry_schema(), [], **{name: "x" * 20}))


BOMBS = """
import resource, sys, tracemalloc
sys.path.insert(0, {root!r})
import zlib, zstandard
from catalog.iceberg.manifests import decode_manifest
from policy.errors import MetadataInvalid
from tests.support.manifest_samples import container, entry_schema, raw_deflate
zeros = bytes(256 << 20)
stored = {{
    "deflate": raw_deflate(zeros),
    "zstandard": zstandard.compress(zeros),
    "zstandard ": zstandard.ZstdCompressor(write_content_size=False).compress(zeros),
    "snappy": bytes([0xff, 0xff, 0xff, 0xff, 0x07]) + bytes(40),
}}
del zeros
files = [container(entry_schema(), [(1, raw)], avro__codec=codec.strip()) for codec, raw in stored.items()]
tracemalloc.start()
for data in files:
    try:
        decode_manifest(data, path="p")
    except MetadataInvalid as refusal:
        assert refusal.rule == "decompressed-size", refusal
    else:
        raise SystemExit("not refused")
peak = tracemalloc.get_traced_memory()[1]
assert peak < 160 << 20, peak
"""


@pytest.mark.nightly
def test_decompression_bombs_are_refused_in_bounded_memory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOMBS.format(root=str(ROOT))],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_many_small_items_stay_within_bounds() -> None:
    schema = entry_schema(field("lower_bounds", 125, counts_type(126, 127, "bytes")))
    items = b"".join(zigzag(n) + b"\0" for n in range(50_000))
    data = container(schema, [(1, entry_bytes(zigzag(50_000) + items + b"\0"))] * 3)
    decoded = decode_manifest(data, path=PATH)
    assert isinstance(decoded.statistics, pa.Table)
    assert len(bounded_fields(decoded.statistics)) == 50_000
