"""Identifiers and their digests; which snapshots and tags hold rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from policy.errors import RequestInvalid
from spark_ext.pipelines.erase.history import State
from spark_ext.pipelines.erase.identifiers import Identifiers, Scrypt, combined, was_erased
from spark_ext.pipelines.erase.pipeline import Where
from spark_ext.pipelines.erase.search import path_of


def metadata(refs: dict[str, tuple[str, int]], snapshots: range) -> TableMetadataV2:
    return TableMetadataV2.model_validate(
        {
            "format-version": 2,
            "table-uuid": "6b0e6a5c-6f0e-4b0e-9a53-0d3c1f0a8a11",
            "location": "file:///t",
            "last-sequence-number": 9,
            "last-updated-ms": 9,
            "last-column-id": 1,
            "current-schema-id": 0,
            "schemas": [{"type": "struct", "schema-id": 0, "fields": []}],
            "default-spec-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "last-partition-id": 999,
            "default-sort-order-id": 0,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "current-snapshot-id": refs["main"][1],
            "snapshots": [
                {"snapshot-id": each, "timestamp-ms": each, "manifest-list": f"file:///t/{each}"}
                for each in snapshots
            ],
            "refs": {name: {"type": kind, "snapshot-id": at} for name, (kind, at) in refs.items()},
        }
    )


_SNAPSHOTS = st.frozensets(st.integers(1, 8))


@given(_SNAPSHOTS, _SNAPSHOTS, _SNAPSHOTS, st.integers(1, 8), st.integers(1, 8))
def test_every_snapshot_that_holds_rows_expires_or_is_named(
    matching: frozenset[int], deletes: frozenset[int], removed: frozenset[int], branch: int, tag: int
) -> None:
    refs = {"main": ("branch", 8), "audit": ("branch", branch), "v1": ("tag", tag)}
    counts = {each: int(each in matching) for each in range(1, 9)}
    state = State(metadata(refs, range(1, 9)), counts, deletes, removed)
    named = {8, branch, tag}
    assert state.expiring == (matching | deletes | removed) - named
    assert set(state.holding_tags) == ({"v1"} if tag in matching | deletes | removed else set())
    assert state.branches == {"audit": branch, "main": 8}
    assert state.concerned == bool(matching or deletes)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (StringType(), ["-7", "007", "1.50", "12345678901", "7", "x"]),
        (BinaryType(), [b"-7", b"007", b"1.50", b"12345678901", b"7", b"x"]),
        (IntegerType(), [-7, 7]),
        (LongType(), [-7, 12345678901, 7]),
        (DecimalType(4, 1), [Decimal("-7"), Decimal("1.5"), Decimal("7")]),
    ],
)
def test_identifiers_become_values_of_columns_exactly(kind: Any, values: list[object]) -> None:
    found = Identifiers.of(["7", 7, "007", "-7", "1.50", "12345678901", "x"]).values(kind)
    assert found is not None
    assert found.to_pylist() == values


def test_columns_of_other_types_are_refused_and_none_is_told() -> None:
    identifiers = Identifiers.of(["x"])
    assert identifiers.values(LongType()) is None
    with pytest.raises(RequestInvalid, match="type date"):
        identifiers.values(DateType())
    assert "xyz" not in repr(Identifiers.of(["xyz"]))


def test_messages_have_stars_in_the_place_of_identifiers() -> None:
    identifiers = Identifiers.of(["ann@example.com", "ann", "7"])
    path = "file:///t/mail=ann%40example.com/7.parquet of ann@example.com"
    assert identifiers.redacted(path) == "file:///t/mail=***/7.parquet of ***"


def test_messages_have_stars_however_a_partition_is_named() -> None:
    identifiers = Identifiers.of(["Ann ~*O'Shea"])
    for spelling in ("Ann%20%7E%2AO%27Shea", "Ann+%7E*O%27Shea", "Ann%20~%2AO%27Shea", "Ann___O_Shea"):
        assert identifiers.redacted(f"name={spelling}/1.parquet") == "name=***/1.parquet"


@pytest.mark.parametrize(
    "given_identifiers", ["4711", b"4711", [None], [4711.0], [True], [""], ["\ud800"], [["ann"]]]
)
def test_what_is_not_a_list_of_identifiers_is_refused(given_identifiers: Any) -> None:
    with pytest.raises(RequestInvalid) as refused:
        Identifiers.of(given_identifiers)
    assert "4711" not in refused.value.message


def test_a_holder_of_an_identifier_finds_it_in_a_certificate_and_others_do_not() -> None:
    scrypt = Scrypt("ab" * 16)
    digests = Identifiers.of(["ann", 4711]).digests(scrypt)
    reasons = [
        {"rule": "identifiers", "detail": f"2, scrypt N=32768 r=8 p=1 salt={scrypt.salt}"},
        *({"rule": "identifier-digests", "detail": each} for each in digests),
    ]
    assert was_erased("ann", reasons)
    assert was_erased(4711, reasons)
    assert not was_erased("sue", reasons)
    assert Scrypt("cd" * 16).digest("ann") not in digests
    assert combined(digests) != combined(digests[:1])
    with pytest.raises(RequestInvalid):
        was_erased("ann", reasons[1:])


def _reasons(identifier: str, parameters: str, salt: str) -> list[dict[str, str]]:
    return [
        {"rule": "identifiers", "detail": f"1, scrypt {parameters} salt={salt}"},
        {"rule": "identifier-digests", "detail": Scrypt(salt).digest(identifier)},
    ]


def test_two_certificates_of_a_table_are_each_searched() -> None:
    both = [*_reasons("ann", "N=32768 r=8 p=1", "ab" * 16), *_reasons("sue", "N=32768 r=8 p=1", "cd" * 16)]
    assert was_erased("ann", both)
    assert was_erased("sue", both)
    assert not was_erased("eve", both)


def test_a_record_of_a_table_that_was_not_erased_is_no_certificate() -> None:
    left = [{"rule": "not-erased", "detail": "A tag."}, *_reasons("ann", "N=32768 r=8 p=1", "ab" * 16)]
    with pytest.raises(RequestInvalid):
        was_erased("ann", left)


@pytest.mark.parametrize("parameters", ["N=16777216 r=64 p=1", "N=3 r=8 p=1", "N=x"])
def test_a_certificate_with_other_parameters_of_scrypt_is_refused(parameters: str) -> None:
    with pytest.raises(RequestInvalid):
        was_erased("ann", _reasons("ann", parameters, "ab" * 16))


def test_a_file_of_identifiers_has_one_on_each_line(tmp_path: Path) -> None:
    file = tmp_path / "identifiers"
    file.write_text("ann\n\nsue\nann\n")
    assert Identifiers.of(file).texts == ("ann", "sue")
    file.write_bytes("\ufeffann\r\nsue\u2028eve\x0b\r\n".encode())
    assert Identifiers.of(file).texts == ("ann", "sue\u2028eve\x0b")
    file.write_bytes(b"secret-\xff")
    for each in (file, tmp_path / "absent"):
        with pytest.raises(RequestInvalid) as refused:
            Identifiers.of(each)
        assert "secret" not in str(refused.value)


def test_columns_are_found_by_field_id_in_structs_alone() -> None:
    name = NestedField(3, "na.me", StringType())
    inside = NestedField(2, "person", StructType(name))
    listed = NestedField(4, "names", ListType(5, StringType(), element_required=False))
    schema = Schema(NestedField(1, "id", LongType()), inside, listed)
    assert path_of(schema, 3) == (("person", "na.me"), StringType())
    assert path_of(schema, 5) is None


@pytest.mark.parametrize(
    "given_columns",
    [
        {},
        {"columns": {"a.b": []}},
        {"columns": {"a.b": ["c"]}, "tags": ["t"]},
        {"columns": {"a.b": "c"}},
        {"tags": "t"},
        {"columns": {"a.b": ["c"]}, "tables": "a.*"},
    ],
)
def test_an_erasure_has_columns_or_tags(given_columns: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid):
        Where(**given_columns)
