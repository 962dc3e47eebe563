"""A lake of many tables, made by copying one: each has an identity, metadata, manifests and files of its own.

Creating and committing 10,000 tables through the catalog takes twenty minutes. Names and ids of the copies
are as long as those of the first table, so its metadata becomes theirs by replacing bytes. Their seals are of
these bytes, as a commit would have recorded them. Files have a size and no content.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro

from bench.samples import make_table
from tests.support.lake import Lake

#: Tables of a namespace.
_IN_NAMESPACE = 500
_FIRST = ("n000", "t00000")
#: Bytes of a block of an Avro file, as Java writes them.
_BLOCK = 64_000


@dataclass(frozen=True)
class _Original:
    """The table that is copied.

    Attributes:
        uuid, location: its own.
        files: its files: the path below its location, and the bytes, or the size of a data file.
    """

    uuid: str
    location: str
    files: dict[str, bytes | int]


def simulate(lake: Lake, tables: int, files: int) -> None:
    """Fill an empty catalog.

    Args:
        lake: the catalog, on SQLite.
        tables: how many tables.
        files: data files of each.
    """
    catalog = lake.catalog()
    for number in range((tables - 1) // _IN_NAMESPACE + 1):
        catalog.create_namespace(f"n{number:03d}")
    made = make_table(catalog, ".".join(_FIRST), files, files)
    original = _original(made.location(), str(made.metadata.table_uuid))
    lake.services.close()
    database = Path(lake.settings.database.url.get_secret_value().partition("///")[2])
    with sqlite3.connect(database) as connection:
        rows = {name: _rows(connection, name) for name in _TABLES}
        for number in range(1, tables):
            _copy(connection, original, rows, number)
    lake.reopen()


#: What the database knows of a table.
_TABLES = ("lw_table", "lw_binding", "iceberg_tables", "lw_governed", "lw_seal", "lw_sealed_file")


def _rows(connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    cursor = connection.execute(f"SELECT * FROM {table}")  # noqa: S608
    names = [each[0] for each in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def _original(location: str, uuid: str) -> _Original:
    root = Path(location.removeprefix("file://"))
    found: dict[str, bytes | int] = {}
    for each in sorted(path for path in root.rglob("*") if path.is_file()):
        name = str(each.relative_to(root))
        found[name] = each.stat().st_size if name.startswith("data/") else each.read_bytes()
    return _Original(uuid, location, found)


def _copy(
    connection: sqlite3.Connection, original: _Original, rows: dict[str, list[dict[str, Any]]], number: int
) -> None:
    """Copy the table under another name, with the rows of the database that belong to it."""
    namespace, name = f"n{number // _IN_NAMESPACE:03d}", f"t{number:05d}"
    uuid = str(uuid4())
    location = original.location.replace("/".join(_FIRST), f"{namespace}/{name}").replace(original.uuid, uuid)
    texts = {original.location: location, original.uuid: uuid}
    digests = _write(original, location, texts)
    names = {_FIRST[0]: namespace, _FIRST[1]: name, rows["lw_table"][0]["id"]: str(uuid4())}
    for table in _TABLES:
        for row in rows[table]:
            changed = {key: _changed(value, texts, names) for key, value in row.items()}
            if table == "lw_seal":
                changed["id"] += number * len(rows["lw_seal"])
            if table == "lw_sealed_file":
                changed["seal_id"] += number * len(rows["lw_seal"])
            path = changed.get("metadata_location") or changed.get("path")
            if "sha256" in changed:
                changed["sha256"], changed["length"] = digests[path]
            marks = ", ".join("?" * len(changed))
            statement = f"INSERT INTO {table} ({', '.join(changed)}) VALUES ({marks})"  # noqa: S608
            connection.execute(statement, list(changed.values()))


def _changed(value: Any, texts: dict[str, str], names: dict[str, str]) -> Any:
    if not isinstance(value, str):
        return value
    for old, new in texts.items():
        value = value.replace(old, new)
    return names.get(value, value)


def _write(original: _Original, location: str, texts: dict[str, str]) -> dict[str, tuple[str, int]]:
    """Write the files of a copy; return the digests of its metadata files."""
    root, digests = Path(location.removeprefix("file://")), dict[str, tuple[str, int]]()
    (root / "data").mkdir(parents=True)
    (root / "metadata").mkdir()
    lengths: dict[str, int] = {}
    # A manifest list states the lengths of its manifests, so it comes after them.
    for name, content in sorted(original.files.items(), key=lambda file: "/snap-" in file[0]):
        path = f"{location}/{name}"
        if isinstance(content, int):
            with (root / name).open("wb") as file:
                file.truncate(content)
            continue
        data = _replaced(content, texts, lengths)
        (root / name).write_bytes(data)
        lengths[path] = len(data)
        digests[path] = hashlib.sha256(data).hexdigest(), len(data)
    return digests


def _replaced(data: bytes, texts: dict[str, str], lengths: dict[str, int]) -> bytes:
    """Replace texts by others of the same length, in the records of an Avro file too."""
    if not data.startswith(b"Obj\x01"):
        return _bytes_replaced(data, texts)
    reader = fastavro.reader(io.BytesIO(data))
    records = [_record(each, texts, lengths) for each in reader]
    metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    written = io.BytesIO()
    schema, codec = json.loads(reader.metadata["avro.schema"]), reader.metadata.get("avro.codec", "null")
    fastavro.writer(written, schema, records, codec=codec, metadata=metadata, sync_interval=_BLOCK)
    return written.getvalue()


def _record(record: Any, texts: dict[str, str], lengths: dict[str, int]) -> Any:
    """Replace the paths of a manifest list's record, or of a manifest's entry."""
    if "manifest_path" in record:
        path = _changed(record["manifest_path"], texts, {})
        return {**record, "manifest_path": path, "manifest_length": lengths[path]}
    file = record["data_file"]
    return {**record, "data_file": {**file, "file_path": _changed(file["file_path"], texts, {})}}


def _bytes_replaced(data: bytes, texts: dict[str, str]) -> bytes:
    for old, new in texts.items():
        data = data.replace(old.encode(), new.encode())
    return data
