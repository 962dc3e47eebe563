"""Metadata files that other catalogs packed with gzip are registered, within limits."""

from __future__ import annotations

import gzip
from uuid import uuid4

import pytest

from catalog.metadata import dump_metadata, parse_metadata
from policy.errors import MetadataInvalid
from tests.support.attacker import local
from tests.support.lake import Lake
from tests.support.tables import fresh, make


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
