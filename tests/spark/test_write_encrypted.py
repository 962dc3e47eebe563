"""Files of encrypted tables: ciphertext, each under a key of its own, bound to its table and its name."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet.encryption import create_decryption_properties

from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_ids import FileIdentity, parquet_aad_prefix
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, open_transported
from catalog.http.plan_stream import HEADER, TRANSPORT_KEY
from tests.support.plan_streams import planned_files
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files, local_path
from tests.support.tables import ENCRYPTED

pytestmark = pytest.mark.core

MARKER = "needle-in-the-haystack"


def _secret(spark_lake: SparkLake, table: str, **more: str) -> list[dict[str, Any]]:
    """An encrypted table with the marker in two files."""
    create_table(spark_lake, table, "id BIGINT, s STRING", {**ENCRYPTED, **more})
    spark_lake.rows(f"INSERT INTO {table} SELECT id, '{MARKER}' FROM range(0, 10, 1, 2)")
    return data_files(spark_lake, table)


def _keys(spark_lake: SparkLake, table: str) -> dict[Path, tuple[SecretBytes, FileIdentity]]:
    """Each file's data key as a plan gives it to an engine, and what the file is bound to."""
    _, namespace, name = table.split(".")
    with spark_lake.service.client(engine="spark") as client:
        answer = client.post(f"/engine/v1/tables/{namespace}/{name}/plan", json={})
    files = planned_files(answer.content)
    header = json.loads(files.schema.metadata[HEADER.encode()])
    given = json.loads(files.schema.metadata[TRANSPORT_KEY.encode()])
    transport = TransportKey(
        base64.b64decode(given["id"]), Purpose.SCAN, SecretBytes(base64.b64decode(given["key"]))
    )
    found = {}
    for file in files.to_pylist():
        (key,) = file["keys"]
        identity = FileIdentity.of(UUID(header["table-uuid"]), file["file_path"])
        dek = open_transported(transport, key["wrapped"], identity, KeyLabel(key["key_name"]))
        found[local_path(file)] = (dek, identity)
    return found


def _read(path: Path, dek: SecretBytes, prefix: bytes | None) -> pa.Table:
    properties = create_decryption_properties(dek.reveal(), aad_prefix=prefix)
    return pq.ParquetFile(path, decryption_properties=properties).read()


def test_files_are_ciphertext_with_their_id_in_the_name(spark_lake: SparkLake, namespace: str) -> None:
    for file in _secret(spark_lake, f"{namespace}.t"):
        path = local_path(file)
        data = path.read_bytes()
        assert (data[:4], data[-4:]) == (b"PARE", b"PARE")
        assert b"PAR1" not in data and b"spark_schema" not in data
        digits = path.stem.rpartition("-")[2]
        assert len(digits) == 32 and bytes.fromhex(digits) not in file["key_metadata"]


def test_no_statistics_of_columns_stand_anywhere_in_plaintext(spark_lake: SparkLake, namespace: str) -> None:
    files = _secret(spark_lake, f"{namespace}.t")
    for file in files:
        for name in ("column_sizes", "value_counts", "null_value_counts", "lower_bounds", "upper_bounds"):
            assert file[name] == [], name
    assert sum(file["record_count"] for file in files) == 10
    everything = (spark_lake.lake.warehouse / namespace.removeprefix("lake.")).rglob("*")
    kept = [path for path in everything if path.is_file()]
    assert len(kept) > len(files)
    assert [path for path in kept if MARKER.encode() in path.read_bytes()] == []


@pytest.mark.nightly
@pytest.mark.parametrize("length", [16, 24, 32])
def test_a_second_implementation_opens_each_file_with_its_key_and_prefix_alone(
    spark_lake: SparkLake, namespace: str, length: int
) -> None:
    """PyArrow, by docs/key-metadata.md; keys are as long as the table says, the prefix is the reader's."""
    table = f"{namespace}.t"
    _secret(spark_lake, table, **{"encryption.data-key-length": str(length)})
    (one, (key, identity)), (other, (other_key, other_identity)) = _keys(spark_lake, table).items()
    assert len(key) == len(other_key) == length and key.reveal() != other_key.reveal()
    rows = [
        _read(one, key, parquet_aad_prefix(identity)),
        _read(other, other_key, parquet_aad_prefix(other_identity)),
    ]
    assert sorted(pa.concat_tables(rows)["id"].to_pylist()) == [*range(10)]
    for dek, prefix in (
        (key, None),
        (key, parquet_aad_prefix(other_identity)),
        (other_key, parquet_aad_prefix(identity)),
    ):
        with pytest.raises(OSError):
            _read(one, dek, prefix)


@pytest.mark.nightly
def test_data_pages_are_authenticated(spark_lake: SparkLake, namespace: str) -> None:
    """AES_GCM_V1: a bit that is flipped in a page is noticed, not only one in the footer."""
    table = f"{namespace}.t"
    _secret(spark_lake, table)
    path, (key, identity) = next(iter(_keys(spark_lake, table).items()))
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(OSError):
        _read(path, key, parquet_aad_prefix(identity))


@pytest.mark.nightly
def test_full_files_are_followed_by_others_each_with_a_key_of_its_own(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT", {**ENCRYPTED, "write.target-file-size-bytes": "1"})
    spark_lake.rows(f"INSERT INTO {table} SELECT id FROM range(0, 4500, 1, 1)")
    files = data_files(spark_lake, table)
    assert sorted(file["record_count"] for file in files) == [500, 1000, 1000, 1000, 1000]
    assert all(file["file_size_in_bytes"] == local_path(file).stat().st_size for file in files)
    assert len({key.reveal() for key, _ in _keys(spark_lake, table).values()}) == 5
