"""Files that are checked against their digests: what was verified is what is read, piece by piece."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import lakewarden
from catalog.client import files, private_copy
from policy.errors import DecryptionRefused, StorageUnavailable

SCHEMA = Schema(NestedField(1, "id", LongType()))
ROWS = pa.table({"id": range(5000)})
PROPERTIES = {
    "encryption.algorithm": "AES_GCM_CTR_V1",
    "encryption.verify-digest": "always",
    "write.parquet.compression-codec": "uncompressed",
}


@pytest.fixture(params=["memory", "file"])
def scan(
    request: pytest.FixtureRequest,
    make: Callable[..., str],
    alice: lakewarden.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """The scan of a table with one file, whose copies are in memory, or else in a file."""
    table = alice.table(make(SCHEMA, properties=PROPERTIES))
    table.append(ROWS)
    if request.param == "file":
        monkeypatch.setattr(private_copy, "_MOST_IN_MEMORY", 1000)
    monkeypatch.setattr(private_copy, "_PIECE", 512)
    return table.scan()


def test_what_was_verified_is_read_whatever_lies_under_the_path_by_then(scan: Any) -> None:
    plan = scan._plan()
    (file,) = plan.files
    path = Path(file.path.removeprefix("file://"))
    wanted = plan.schema.as_struct().fields
    with files.opened(plan, file, scan.storage, wanted) as source:
        path.write_bytes(bytes(path.stat().st_size))
        assert pa.concat_tables(rows for _, rows in source.row_groups(wanted)).equals(ROWS)
    with pytest.raises(DecryptionRefused, match="file-digest"):
        scan.to_arrow()


@pytest.mark.parametrize("change", [lambda data: data + b"\0", lambda data: data[:-1]], ids=["longer", "cut"])
def test_a_file_of_another_length(scan: Any, change: Callable[[bytes], bytes]) -> None:
    plan = scan._plan()
    (file,) = plan.files
    path = Path(file.path.removeprefix("file://"))
    path.write_bytes(change(path.read_bytes()))
    for claimed in (file, dataclasses.replace(file, size=path.stat().st_size)):
        with (
            pytest.raises(DecryptionRefused, match="file-digest"),
            files.opened(plan, claimed, scan.storage, plan.schema.as_struct().fields),
        ):
            pass


def test_copies_leave_nothing_behind(scan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with scan.to_reader() as reader:
        assert reader.read_next_batch().num_rows > 0
        assert list(tmp_path.iterdir()) == []
    assert scan.to_arrow().num_rows == 5000
    assert list(tmp_path.iterdir()) == []


def test_no_room_for_a_copy_is_not_the_files_fault(
    scan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_copy, "_MOST_IN_MEMORY", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageUnavailable, match="local-directory"):
        scan.to_arrow()
