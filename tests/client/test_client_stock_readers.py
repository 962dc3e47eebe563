"""Appends to tables that let standard readers in: standard PyArrow reads them with keys of the KMS endpoint.

The client is that of docs/stock-readers.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType

import lakewarden
from catalog.client import thrift
from catalog.client.columns import arrow_schema
from tests.support.lake import ALICE, policy, standard_policies
from tests.support.service import Service, open_service
from tests.support.stock_readers import with_pyarrow

pytestmark = pytest.mark.nightly

Make = Callable[..., str]
DAVE = "dave"

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(
        3, "person", StructType(NestedField(4, "name", StringType()), NestedField(5, "at", LongType()))
    ),
    NestedField(6, "tags", ListType(7, StringType(), element_required=False)),
    NestedField(8, "props", MapType(9, StringType(), 10, StringType(), value_required=False)),
)
NAMES = [each.name for each in SCHEMA.fields]
ROWS = pa.Table.from_pylist(
    [
        {
            "id": number,
            "ssn": f"needle-{number}",
            "person": None if number == 3 else {"name": f"n{number}", "at": number},
            "tags": [None, "x"] * (number % 3),
            "props": [("k", f"v{number}")],
        }
        for number in range(200)
    ],
    schema=arrow_schema(SCHEMA.fields),
)
STOCK = {"encryption.stock-readers": "true", "write.parquet.row-group-size-bytes": "4000"}
SOME = {"encryption.columns": "pii:ssn,person.name;hr:props.value"}
MODES = {
    "whole, CTR": {"encryption.algorithm": "AES_GCM_CTR_V1", "encryption.data-key-length": "16"},
    "whole, signed": {"encryption.footer": "plaintext", "encryption.data-key-length": "24"},
    "whole, verified": {"encryption.verify-digest": "always"},
    "keyed": SOME,
    "keyed, CTR, signed": SOME | {"encryption.algorithm": "AES_GCM_CTR_V1", "encryption.footer": "plaintext"},
    "a group under the footer's master key": {"encryption.columns": "lakewarden:ssn"},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """With the KMS endpoint open. Dave may have all but the ssn."""
    columns = {"database": ["db"], "table": ["*"], "column": ["id", "person", "person.*", "tags", "props"]}
    rules = [
        policy("dave", columns, {DAVE: ["select"]}),
        policy("keys", {"key": ["lakewarden", "hr", "pii"]}, {DAVE: ["release"]}),
    ]
    root = tmp_path_factory.mktemp("lake").resolve()
    with open_service(root, policies=[*standard_policies(), *rules], KMS_ENDPOINT__ENABLED="true") as running:
        for key in ("pii", "hr"):
            running.lake.kms.create_master_key(key)
        running.lake.catalog().create_namespace("db")
        yield running


def appended(alice: lakewarden.Connection, make: Make, properties: dict[str, str]) -> tuple[Any, list[str]]:
    """A table with the rows in two appends, and where its files lie."""
    table = alice.table(make(SCHEMA, properties=STOCK | properties))
    table.append(ROWS.slice(0, 50))
    table.append(ROWS.slice(50))
    return table, [each.path.removeprefix("file://") for each in table.scan()._plan().files]


@pytest.mark.parametrize("mode", [each for each in MODES if each != "keyed"])
def test_what_was_appended_is_read_by_stock_pyarrow_and_by_us(
    served: Service, make: Make, alice: lakewarden.Connection, mode: str
) -> None:
    table, paths = appended(alice, make, MODES[mode])
    assert table.scan().to_arrow().sort_by("id").equals(ROWS)
    _, rows = with_pyarrow(served.url, served.token(ALICE), paths, NAMES)
    assert rows.sort_by("id").to_pylist() == ROWS.to_pylist()


def test_a_stock_reader_gets_the_columns_that_its_user_may_have(
    served: Service, make: Make, alice: lakewarden.Connection
) -> None:
    _, paths = appended(alice, make, MODES["keyed"])
    _, rows = with_pyarrow(served.url, served.token(DAVE), paths, ["id", "props"])
    assert rows.num_rows == ROWS.num_rows
    with pytest.raises(OSError, match="ssn"):
        with_pyarrow(served.url, served.token(DAVE), paths, ["ssn"])


def test_files_share_no_data_key_and_a_write_has_one_key_for_the_kms_endpoint(
    make: Make, alice: lakewarden.Connection
) -> None:
    table = alice.table(make(SCHEMA, properties=STOCK | {"write.target-file-size-bytes": "1"}))
    table.append(ROWS.slice(0, 2))
    said = [material(Path(each.path.removeprefix("file://"))) for each in table.scan()._plan().files]
    assert len(said) == 2
    assert len({each["wrappedDEK"] for each in said}) == 2
    assert len({each["wrappedKEK"] for each in said}) == 1
    assert {each["kmsInstanceURL"] for each in said} == {"lakewarden"}


@pytest.mark.parametrize("mode", ["whole, signed", "keyed, CTR, signed"])
def test_neither_a_key_nor_anything_of_an_encrypted_column_stands_in_the_file(
    make: Make, alice: lakewarden.Connection, mode: str
) -> None:
    """In what the footer says in plaintext, either."""
    table, paths = appended(alice, make, MODES[mode])
    plan = table.scan()._plan()
    for file, path in zip(plan.files, paths, strict=True):
        data, keys = Path(path).read_bytes(), plan.keys(file, plan.location(file))
        assert keys is not None
        for key in (keys.footer, *(keys.columns or {}).values()):
            assert key.reveal() not in data and key.reveal().hex().encode() not in data
        assert b"needle" not in data


def material(path: Path) -> dict[str, Any]:
    """What a file with an encrypted footer says of the footer's key."""
    data = path.read_bytes()
    crypto, _ = thrift.read(data, len(data) - 8 - int.from_bytes(data[-8:-4], "little"))
    told: dict[str, Any] = json.loads(crypto.get(2, thrift.BINARY))
    return told
