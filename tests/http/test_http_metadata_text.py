"""The remembered text of sealed metadata: it is the model's own JSON, and no user gets another's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import LongType, NestedField

from catalog.base.identifiers import TableName
from catalog.http import metadata_text as texts
from catalog.reading.loading import LoadedTable
from tests.support.lake import Lake, open_lake

TEXTS = st.dictionaries(st.text(), st.text(), max_size=4)


def test_the_text_is_that_of_the_model_for_any_properties(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = _table(lake)

    @given(TEXTS)
    def check(properties: dict[str, str]) -> None:
        shown = table.metadata.model_copy(update={"properties": properties})
        for text in (metadata_text(shown, table), metadata_text(shown)):
            assert json.loads(text) == json.loads(shown.model_dump_json())

    check()


def test_a_part_of_a_table_is_not_remembered_for_who_sees_the_whole(tmp_path: Path) -> None:
    """Attack: get what another user's answer left behind."""
    with open_lake(tmp_path) as lake:
        table = _table(lake)
        part = table.metadata.model_copy(update={"snapshot_log": [], "last_updated_ms": 1})
        whole = json.loads(metadata_text(table.metadata, table))
        assert json.loads(metadata_text(part, table)) == json.loads(part.model_dump_json())
        assert json.loads(metadata_text(table.metadata, table)) == whole


def test_what_has_no_seal_is_not_remembered(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        table = _table(lake)
        metadata_text(table.metadata, table)
        other: TableMetadata = table.metadata.model_copy(update={"last_column_id": 77})
        unsealed = replace(table, metadata=other, seal=None)
        assert json.loads(metadata_text(other, unsealed))["last-column-id"] == 77


def metadata_text(shown: TableMetadata, table: LoadedTable | None = None) -> bytes:
    return b"".join(texts.metadata_text(shown, table))


def _table(lake: Lake) -> LoadedTable:
    lake.catalog().create_namespace("db")
    lake.catalog().create_table("db.t", Schema(NestedField(1, "id", LongType())))
    return lake.services.loader.load(TableName(("db",), "t"))
