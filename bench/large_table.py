"""A table of up to millions of files, whose manifests are written without a commit for each.

The table is made and first committed through the catalog. Its manifest is then replaced by larger ones with
the same fields, in blocks as Java writes them, and the rows of the seals by theirs, as commits would have
recorded them. Only manifests exist: planning opens no data file.

Entries of an encrypted table have key metadata with a wrapped data key each, made as a commit makes it.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro

from bench.samples import ROWS_A_FILE, SCHEMA, append, bounds_at
from catalog.base.identifiers import TableName
from catalog.envelope.data_keys import NewKey, new_dek, wrap_deks
from catalog.envelope.file_ids import FileIdentity
from catalog.keyring.keyring import Keyring
from catalog.reading.loading import LoadedTable
from policy.encryption.specification import Algorithm, Footer
from tests.support.lake import Lake
from tests.support.tables import append_files

#: Bytes of a block of an Avro file, as Java writes them.
_BLOCK = 64_000
#: The values of `quantity`, by which files are not ordered.
SPREAD = 2**31 - 1
_SCATTER = 2_654_435_761

#: Makes the key metadata of a file at a path.
Keys = Callable[[str], bytes | None]


def make_large(lake: Lake, name: TableName, files: int, a_manifest: int, *, encrypted: bool = False) -> None:
    """Make a table of `files` files, ordered by `id`.

    Args:
        lake: the catalog, on SQLite.
        name: the table's.
        files: how many.
        a_manifest: how many a manifest lists.
        encrypted: whether its files are; then they have no bounds.
    """
    properties = {"encryption.mechanism": "envelope"} if encrypted else {}
    made = lake.catalog().create_table(str(name), SCHEMA, properties=properties)
    if encrypted:
        append_files(lake, name)
    else:
        append(made, 0, 1)
    table = lake.services.loader.load(name)
    keys = _keys(lake.services.keyring, table) if encrypted else lambda path: None
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    [listed], header = _records(snapshot.manifest_list)
    [entry], manifest_header = _records(listed["manifest_path"])
    lists, seals = [], []
    for first in range(0, files, a_manifest):
        count = min(a_manifest, files - first)
        path = listed["manifest_path"].replace(".avro", f"-{first:09d}.avro")
        entries = _entries(entry, f"{table.metadata.location}/data", first, count, keys)
        data = _written(manifest_header, entries)
        local(path).write_bytes(data)
        lists.append(
            {**listed, "manifest_path": path, "manifest_length": len(data), "added_files_count": count}
        )
        seals.append((path, hashlib.sha256(data).hexdigest(), len(data)))
    data = _written(header, iter(lists))
    local(snapshot.manifest_list).write_bytes(data)
    _seal(lake, listed["manifest_path"], seals, snapshot.manifest_list, data)


def local(location: str) -> Path:
    """Return the path of a local file."""
    return Path(location.removeprefix("file://"))


def _keys(keyring: Keyring, table: LoadedTable) -> Keys:
    [pek] = keyring.writing_peks(table.record, table.governed).values()

    def key_metadata(path: str) -> bytes:
        file = FileIdentity.of(table.record.table_uuid, path)
        keys = [NewKey(pek, (), new_dek(32))]
        return wrap_deks(Algorithm.AES_GCM_V1, Footer.ENCRYPTED, file, keys).to_bytes()

    return key_metadata


def _entries(entry: Any, directory: str, first: int, count: int, keys: Keys) -> Iterator[dict[str, Any]]:
    known = entry["data_file"]
    plain = known["key_metadata"] is None
    for number in range(first, first + count):
        path = f"{directory}/part-{number:07d}-{uuid4().hex}.parquet"
        file = {
            **known,
            "file_path": path,
            "file_size_in_bytes": 8_000_000 + number,
            "key_metadata": keys(path),
        }
        if plain:
            scattered = (number * _SCATTER % 2**32) >> 1
            first_row, last_row = number * ROWS_A_FILE, (number + 1) * ROWS_A_FILE - 1
            file["lower_bounds"] = _pairs(bounds_at(first_row) | {7: scattered.to_bytes(4, "little")})
            file["upper_bounds"] = _pairs(bounds_at(last_row) | {7: (scattered + 1).to_bytes(4, "little")})
        yield {**entry, "data_file": file}


def _pairs(bounds: dict[int, bytes]) -> list[dict[str, Any]]:
    return [{"key": field_id, "value": value} for field_id, value in bounds.items()]


def _records(location: str) -> tuple[list[Any], dict[str, str]]:
    reader = fastavro.reader(io.BytesIO(local(location).read_bytes()))
    return list(reader), reader.metadata


def _written(header: dict[str, str], records: Iterator[Any]) -> bytes:
    written = io.BytesIO()
    metadata = {key: value for key, value in header.items() if not key.startswith("avro.")}
    schema = json.loads(header["avro.schema"])
    fastavro.writer(written, schema, records, codec="deflate", metadata=metadata, sync_interval=_BLOCK)
    return written.getvalue()


def _seal(
    lake: Lake, original: str, seals: list[tuple[str, str, int]], list_path: str, list_data: bytes
) -> None:
    """Replace the first manifest's seal by those of the others, and that of the manifest list."""
    database = Path(lake.settings.database.url.get_secret_value().partition("///")[2])
    with sqlite3.connect(database) as connection:
        connection.row_factory = sqlite3.Row
        found = connection.execute("SELECT * FROM lw_sealed_file WHERE path = ?", [original]).fetchone()
        for path, digest, length in seals:
            row = dict(found) | {"path": path, "sha256": digest, "length": length}
            marks = ", ".join("?" * len(row))
            statement = f"INSERT INTO lw_sealed_file ({', '.join(row)}) VALUES ({marks})"  # noqa: S608
            connection.execute(statement, list(row.values()))
        connection.execute(
            "UPDATE lw_sealed_file SET sha256 = ?, length = ? WHERE path = ?",
            [hashlib.sha256(list_data).hexdigest(), len(list_data), list_path],
        )
