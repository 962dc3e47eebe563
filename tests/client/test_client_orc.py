"""The Python client refuses ORC, encrypted or not, before it opens a file; the error names Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

import lakewarden
from catalog.base.identifiers import table_name
from catalog.client.errors import DataFileDamaged
from policy.errors import NotSupportedYet
from tests.support.service import Service
from tests.support.tables import Engine

Make = Callable[..., str]

ORC = {"write.format.default": "orc"}
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]})


def publish(served: Service, name: str, path_ends: str, **entry: Any) -> None:
    """Commit a file of ORC under a path that ends so."""
    engine = Engine.begin(served.lake, table_name(["db"], name.removeprefix("db.")))
    path = engine.path().removesuffix("parquet") + path_ends
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    orc.write_table(ROWS, local)
    said = {"record_count": ROWS.num_rows, "file_size_in_bytes": local.stat().st_size}
    engine.append(engine.file(path, **said, **entry))
    if path_ends == "orc":
        local.unlink()


@pytest.mark.parametrize("mechanism", ["none", "envelope"])
def test_orc_is_refused_before_it_is_opened(
    served: Service, alice: lakewarden.Connection, make: Make, mechanism: str
) -> None:
    """The file is not there by then: what is opened would be missing."""
    encrypted = mechanism != "none"
    name = make(SCHEMA, properties=ORC | ({"encryption.mechanism": mechanism} if encrypted else {}))
    publish(served, name, "orc", file_format="orc", **({"sha256": bytes(32)} if encrypted else {}))
    with pytest.raises(NotSupportedYet, match=r"format orc.*rule=file-format") as refused:
        alice.table(name).scan().to_arrow()
    assert refused.value.table == name and refused.value.path is not None
    assert "with Spark" in (refused.value.hint or "")


def test_orc_that_a_manifest_calls_parquet_is_damaged(
    served: Service, alice: lakewarden.Connection, make: Make
) -> None:
    name = make(SCHEMA)
    publish(served, name, "parquet")
    with pytest.raises(DataFileDamaged, match="rule=data-file"):
        alice.table(name).scan().to_arrow()


def test_orc_is_not_appended_to_and_says_what_to_do(alice: lakewarden.Connection, make: Make) -> None:
    with pytest.raises(NotSupportedYet, match="format orc cannot be written without Spark") as refused:
        alice.table(make(SCHEMA, properties=ORC)).append(ROWS)
    assert "Spark" in (refused.value.hint or "")
