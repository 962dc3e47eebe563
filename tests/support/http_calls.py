"""What HTTP tests say again and again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import func, select

from catalog.db.engine import read
from catalog.db.schema import lw_seal
from catalog.envelope.file_ids import new_file_name
from tests.support.service import Service

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "name", "type": "string", "required": False},
    ],
}


ENCRYPTED = {"encryption.mechanism": "envelope"}


def refused(answer: httpx.Response, status: int, ours: str, rule: str | None = None) -> dict[str, Any]:
    """The one typed error of an answer, in Iceberg's error model; at the KMS endpoint, in Hadoop's too."""
    assert answer.status_code == status, answer.text
    document = answer.json()
    at_the_door = answer.request.url.path.startswith("/kms/v1/")
    assert set(document) == ({"error", "RemoteException"} if at_the_door else {"error"})
    error: dict[str, Any] = document["error"]
    assert error["code"] == status
    assert error["lakewarden"] == ours, error
    assert error["message"] and error["type"]
    if rule is not None:
        assert error["rule"] == rule, error
    return error


def new_table(
    client: httpx.Client, prefix: str, namespace: str, name: str = "t", **body: Any
) -> httpx.Response:
    """Ask for a table to be created."""
    document = {"name": name, "schema": SCHEMA, **body}
    return client.post(f"{prefix}/namespaces/{namespace}/tables", json=document)


def encrypted_table(
    client: httpx.Client, namespace: str, name: str = "t", **properties: str
) -> httpx.Response:
    """Ask for an encrypted table; standard clients get none, so that it goes through the engine interface."""
    document = {"name": name, "schema": SCHEMA, "properties": properties or ENCRYPTED}
    return client.post(f"/engine/v1/namespaces/{namespace}/tables", json=document)


def tables_of(client: httpx.Client, prefix: str, namespace: str) -> list[str]:
    """The names of a namespace's tables."""
    answer = client.get(f"{prefix}/namespaces/{namespace}/tables")
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["identifiers"]]


def new_key() -> dict[str, str]:
    """The header with a new idempotency key, a UUIDv7 (RFC 9562, section 5.7)."""
    random = int.from_bytes(os.urandom(10))
    bits = (time.time_ns() // 1_000_000) << 80 | random
    bits = bits & ~(0xF << 76) | 7 << 76
    return {"Idempotency-Key": str(UUID(int=bits & ~(0b11 << 62) | 0b10 << 62))}


def commits(service: Service, table: str) -> int:
    """How often a table's metadata was replaced, its creation included."""
    lake = service.lake
    location = lake.catalog().load_table(table).metadata_location
    with read(lake.services.engine) as connection:
        table_id = select(lw_seal.c.table_id).where(lw_seal.c.metadata_location == location)
        count = select(func.count()).select_from(lw_seal)
        return connection.scalar(count.where(lw_seal.c.table_id == table_id.scalar_subquery())) or 0


def written_file(begun: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A file with `ROWS` where a write said; what is in it does not matter to the catalog."""
    path = f"{begun['location']}/{new_file_name('part', 'parquet')}"
    where = Path(path.removeprefix("file://"))
    where.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(ROWS, where)
    return {
        "path": path,
        "file-format": "parquet",
        "record-count": ROWS.num_rows,
        "file-size-in-bytes": where.stat().st_size,
        **more,
    }
