"""Metadata files that are gzip are registered, and written where the table asks for them, within limits."""

from __future__ import annotations

import gzip
import json
from uuid import uuid4

import pytest
from pyiceberg.table import StaticTable, Table

from catalog.iceberg.metadata import dump_metadata, new_metadata_location, parse_metadata, stored_metadata
from policy.errors import MetadataInvalid, RequestInvalid
from tests.support.attacker import local
from tests.support.lake import Lake
from tests.support.tables import fresh, make

CODEC = "write.metadata.compression-codec"


def packed(lake: Lake, suffix: str) -> tuple[str, bytes]:
    table = make(lake)
    location = f"file://{lake.root}/foreign/{uuid4()}"
    metadata = table.metadata.model_copy(
        update={"location": location, "table_uuid": uuid4(), "metadata_log": []}
    )
    return f"{location}/metadata/00000-x{suffix}", gzip.compress(dump_metadata(metadata))


@pytest.mark.parametrize("suffix", [".gz.metadata.json", ".metadata.json.gz"])
def test_packed_metadata_is_registered_and_built_on(lake: Lake, suffix: str) -> None:
    path, data = packed(lake, suffix)
    local(path).parent.mkdir(parents=True)
    local(path).write_bytes(data)
    name = str(fresh())
    table = lake.catalog().register_table(name, path)
    assert table.metadata.location == path.rpartition("/metadata/")[0]
    with table.transaction() as transaction:
        transaction.set_properties({"a": "b"})
    assert lake.catalog().load_table(name).properties["a"] == "b"


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (lambda data: data[:-9], "metadata-compression"),
        (lambda data: data + b"x", "metadata-compression"),
        (lambda data: b"{}", "metadata-compression"),
        (lambda data: gzip.compress(bytes(1 << 20)), "metadata-size"),
    ],
)
def test_what_is_no_whole_gzip_file_or_a_bomb_is_refused(lake: Lake, spoil: object, rule: str) -> None:
    path, data = packed(lake, ".gz.metadata.json")
    with pytest.raises(MetadataInvalid) as refusal:
        parse_metadata(spoil(data), path=path, table="db.t")  # type: ignore[operator]
    assert refusal.value.rule == rule


def codec(table: Table, value: str) -> str:
    """Where the metadata is after the codec was set."""
    with table.transaction() as transaction:
        transaction.set_properties({CODEC: value})
    return table.metadata_location


def test_metadata_is_written_as_the_codec_says(lake: Lake) -> None:
    table = make(lake, properties={CODEC: "gzip"})
    created = table.metadata_location
    for location in (created, codec(table, "GZIP")):
        assert location.endswith(".gz.metadata.json")
        json.loads(gzip.decompress(local(location).read_bytes()))
        # A standard reader finds out by the name.
        assert StaticTable.from_metadata(location).metadata.table_uuid == table.metadata.table_uuid
    assert lake.catalog().load_table(table.name()).metadata == table.metadata
    plain = codec(table, "none")
    assert not plain.endswith(".gz.metadata.json")
    assert json.loads(local(plain).read_bytes())["properties"][CODEC] == "none"


def test_unpacked_bytes_are_bounded(lake: Lake) -> None:
    metadata = make(lake, properties={CODEC: "gzip"}).metadata
    path, size = new_metadata_location(metadata, None).original, len(dump_metadata(metadata))
    data = stored_metadata(metadata, path, table="db.t", max_bytes=size)
    assert len(data) < size
    assert parse_metadata(data, path=path, table="db.t", max_bytes=size) == metadata
    with pytest.raises(RequestInvalid) as unwritten:
        stored_metadata(metadata, path, table="db.t", max_bytes=size - 1)
    with pytest.raises(MetadataInvalid) as unread:
        parse_metadata(data, path=path, table="db.t", max_bytes=size - 1)
    assert unwritten.value.rule == unread.value.rule == "metadata-size"


def test_metadata_that_would_not_be_read_back_is_not_written(lake: Lake) -> None:
    table = make(lake, properties={CODEC: "gzip"})
    before = table.metadata_location
    with pytest.raises(RequestInvalid) as refusal, table.transaction() as transaction:
        transaction.set_properties({"long": "x" * (1 << 20)})
    assert refusal.value.rule == "metadata-size"
    assert lake.catalog().load_table(table.name()).metadata_location == before
