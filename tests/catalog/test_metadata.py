"""metadata.json: strict parsing, bounded versions, and where the next one goes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import LongType, NestedField

from catalog.iceberg.metadata import (
    dump_metadata,
    last_sequence_number,
    new_metadata_location,
    parse_metadata,
    require_written_version,
)
from policy.errors import LocationInvalid, MetadataInvalid, UnsupportedFormatVersion
from tests.support.vectors import each_row

LOCATION = "file:///lake/db/t"


def made(version: int = 2, **properties: str) -> TableMetadata:
    return new_table_metadata(
        Schema(NestedField(1, "id", LongType())),
        PartitionSpec(),
        SortOrder(),
        LOCATION,
        {"format-version": str(version)} | properties,
    )


def document(**changes: Any) -> dict[str, Any]:
    return json.loads(dump_metadata(made())) | changes


def parsed(content: Any) -> TableMetadata:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return parse_metadata(data, path=f"{LOCATION}/metadata/m.json", table="db.t")


def test_what_was_written_is_read_back() -> None:
    metadata = made(k="v")
    assert parsed(dump_metadata(metadata)) == metadata


def test_versions_one_to_three_are_read_and_later_ones_refused() -> None:
    assert parsed(dump_metadata(made(1))).format_version == 1
    assert parsed(document()).format_version == 2
    assert parsed(document(**{"format-version": 3, "next-row-id": 0})).format_version == 3
    with pytest.raises(UnsupportedFormatVersion) as refused:
        parsed(document(**{"format-version": 4}))
    assert refused.value.table == "db.t"


@each_row(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b'"text"',
        b"{}",
        b'{"format-version": 2}',
        b'{"format-version": "two"}',
        b'{"format-version": null}',
        b'{"format-version": {}}',
        b'{"format-version": true}',
        b'{"format-version": 0}',
        b'{"format-version": 2, "format-version": 2}',
        b"\x1f\x8b\x08\x00",
        dump_metadata(made())[:-20],
    ],
)
def test_what_is_not_table_metadata_is_one_typed_error(content: bytes) -> None:
    with pytest.raises(MetadataInvalid):
        parsed(content)


@each_row(
    ("field", "value"),
    [
        ("table-uuid", "not-a-uuid"),
        ("schemas", None),
        ("schemas", {}),
        ("schemas", [{"type": "struct", "schema-id": 0, "fields": [{"id": 1}]}]),
        ("schemas", "x"),
        ("current-schema-id", 99),
        ("partition-specs", [7]),
        ("default-spec-id", 99),
        ("default-sort-order-id", 99),
        ("snapshots", [{"snapshot-id": "one"}]),
        ("snapshots", 5),
        ("refs", {"main": {"snapshot-id": 12}}),
        ("properties", ["k"]),
        ("last-column-id", "many"),
        ("location", None),
    ],
)
def test_a_field_of_the_wrong_form_is_one_typed_error(field: str, value: object) -> None:
    with pytest.raises(MetadataInvalid) as refused:
        parsed(document(**{field: value}))
    assert refused.value.table == "db.t"


def test_the_error_does_not_repeat_what_the_file_holds() -> None:
    with pytest.raises(MetadataInvalid) as refused:
        parsed(document(**{"table-uuid": "hunter2-secret"}))
    assert "hunter2" not in str(refused.value)


def test_only_version_two_is_written() -> None:
    require_written_version(made(), "db.t")
    with pytest.raises(UnsupportedFormatVersion):
        require_written_version(made(1), "db.t")


def test_version_one_gives_out_no_sequence_numbers() -> None:
    assert last_sequence_number(made(1)) == 0
    assert last_sequence_number(parsed(document(**{"last-sequence-number": 5}))) == 5


@each_row(
    ("previous", "number"),
    [
        (None, "00000"),
        ("file:///x/00000-a.metadata.json", "00001"),
        ("file:///x/00041-a.metadata.json", "00042"),
        ("file:///x/123456-a.metadata.json", "123457"),
        ("file:///x/v7.metadata.json", "00000"),
        ("file:///x/٣-a.metadata.json", "00000"),
        ("file:///x/99999999999999999999-a.metadata.json", "00000"),
        ("00012-a", "00013"),
    ],
)
def test_metadata_files_count_up_from_the_one_before(previous: str | None, number: str) -> None:
    name = new_metadata_location(made(), previous).name
    assert re.fullmatch(rf"{number}-[0-9a-f-]{{36}}\.metadata\.json", name)


def test_metadata_files_never_share_a_name() -> None:
    assert len({new_metadata_location(made(), None) for _ in range(50)}) == 50


def test_metadata_goes_below_the_location_unless_a_property_says_otherwise() -> None:
    assert new_metadata_location(made(), None).canonical.startswith(f"{LOCATION}/metadata/0")
    elsewhere = made(**{"write.metadata.path": "s3a://bucket/meta/"})
    assert new_metadata_location(elsewhere, None).canonical.startswith("s3://bucket/meta/0")
    with pytest.raises(LocationInvalid):
        new_metadata_location(made(**{"write.metadata.path": "../up"}), None)


def test_half_of_a_surrogate_pair_is_refused_and_a_whole_one_read() -> None:
    assert parsed(document(properties={"k": "\U0001f600"})).properties == {"k": "\U0001f600"}
    with pytest.raises(MetadataInvalid, match="surrogate"):
        parsed(document(properties={"k": "a\ud800b"}))
