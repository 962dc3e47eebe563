"""A lake of many tables, made by copying one: each has an identity, metadata, manifests and files of its own.

Creating and committing 10,000 tables through the catalog takes twenty minutes. Names and ids of the copies
are as long as those of the first table, so its metadata becomes theirs by replacing bytes. Their seals are of
these bytes, as a commit would have recorded them. Files have a size and no content.
"""

from __future__ import annotations

import hashlib
import io
import sqlite3
import zlib
from collections.abc import Iterator
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
    for name, content in original.files.items():
        if isinstance(content, int):
            with (root / name).open("wb") as file:
                file.truncate(content)
            continue
        data = _replaced(content, texts)
        (root / name).write_bytes(data)
        digests[f"{location}/{name}"] = hashlib.sha256(data).hexdigest(), len(data)
    return digests


def _replaced(data: bytes, texts: dict[str, str]) -> bytes:
    """Replace texts by others of the same length, in the blocks of an Avro file too."""
    if not data.startswith(b"Obj\x01"):
        return _bytes_replaced(data, texts)
    reader = fastavro.block_reader(io.BytesIO(data))
    codec = reader.metadata.get("avro.codec", "null")
    sync = data[-16:]
    head = data[: data.index(sync) + 16]
    blocks = (
        _block(count, _compressed(_bytes_replaced(content, texts), codec), sync)
        for count, content in _blocks(data[len(head) :], codec)
    )
    return head + b"".join(blocks)


def _bytes_replaced(data: bytes, texts: dict[str, str]) -> bytes:
    for old, new in texts.items():
        data = data.replace(old.encode(), new.encode())
    return data


def _blocks(data: bytes, codec: str) -> Iterator[tuple[int, bytes]]:
    """The blocks of an Avro file: how many records each has, and their bytes."""
    at = 0
    while at < len(data):
        count, at = _long(data, at)
        size, at = _long(data, at)
        content = data[at : at + size]
        yield count, zlib.decompress(content, -15) if codec == "deflate" else content
        at += size + 16


def _compressed(data: bytes, codec: str) -> bytes:
    if codec != "deflate":
        return data
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def _block(count: int, content: bytes, sync: bytes) -> bytes:
    return _varint(count) + _varint(len(content)) + content + sync


def _long(data: bytes, at: int) -> tuple[int, int]:
    """Avro's variable-length long, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at


def _varint(value: int) -> bytes:
    value = value << 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
