"""File ids: read from base names alone, fresh in each new name."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.envelope.file_ids import FileIdentity, file_id_of, file_ids_of, new_file_name, parquet_aad_prefix
from policy.errors import DecryptionRefused
from tests.support.vectors import each_row

VECTORS = json.loads(
    (Path(__file__).resolve().parent.parent / "vectors" / "key-metadata.json").read_text(encoding="utf-8")
)


@each_row("case", VECTORS["file_ids"]["valid"], ids=lambda case: case["location"])
def test_file_id_is_read_from_the_base_name(case):
    assert file_id_of(case["location"]).hex() == case["file_id"]


@each_row("location", VECTORS["file_ids"]["refused"], count=12)
def test_name_without_file_id_is_refused(location):
    with pytest.raises(DecryptionRefused) as caught:
        file_id_of(location)
    assert caught.value.rule == "file-id"


def test_the_ids_of_many_files_are_each_ones_own():
    cases = VECTORS["file_ids"]["valid"]
    found = file_ids_of(pa.array([case["location"] for case in cases]))
    assert [each.tobytes().hex() for each in found] == [case["file_id"] for case in cases]
    assert len(file_ids_of(pa.array([], pa.string()))) == 0


@given(
    st.from_regex(r"(?s)(.{0,3}[-/.\n])?[0-9a-fA-F]{31,33}([./\-\n][A-Za-z0-9]{0,2}){0,3}.?", fullmatch=True)
)
def test_among_many_a_name_has_the_id_that_it_has_alone(location):
    try:
        alone = file_id_of(location)
    except DecryptionRefused:
        alone = None
    good = new_file_name("part", "parquet")
    try:
        found = file_ids_of(pa.array([good, location]))[1].tobytes()
    except DecryptionRefused as refused:
        found = None
        assert refused.path == location
    assert found == alone


def test_new_names_are_fresh_and_carry_their_id():
    names = {new_file_name("part-00001", "zstd.parquet") for _ in range(50)}
    assert len({file_id_of(name) for name in names}) == 50
    bare = new_file_name("", "orc")
    assert bare == f"{file_id_of(bare).hex()}.orc"


@each_row(
    ("prefix", "extension"),
    [("a/b", "parquet"), ("a b", "parquet"), ("a", ""), ("a", "."), ("a", "a/b"), ("é", "a")],
)
def test_names_that_would_break_are_refused(prefix, extension):
    with pytest.raises(ValueError, match="prefix or extension"):
        new_file_name(prefix, extension)


@each_row("case", VECTORS["valid"], count=22, ids=lambda case: case["name"])
def test_parquet_prefix_is_as_in_the_vectors(case):
    identity = FileIdentity.of(UUID(case["table_uuid"]), case["path"])
    assert parquet_aad_prefix(identity).hex() == case["parquet_aad_prefix"]
