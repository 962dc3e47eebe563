"""A commit adds files that are there: regular files, of the size that their entries say."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from policy.errors import LakewardenError, LocationNotAllowed, MetadataInvalid
from tests.support.attacker import data_file, entry, lay_siege
from tests.support.lake import Lake, open_lake
from tests.support.tables import Engine, make, name_of


def _gone(path: Path) -> None:
    path.unlink()


def _longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def _shorter(path: Path) -> None:
    path.write_bytes(b"")


def _link(path: Path) -> None:
    moved = path.with_name("elsewhere")
    path.rename(moved)
    path.symlink_to(moved)


def _linked_directory(path: Path) -> None:
    moved = path.parent.with_name("elsewhere")
    path.parent.rename(moved)
    path.parent.symlink_to(moved)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _socket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket is short
        try:
            server.bind("s")
            Path("s").rename(path.name)
        finally:
            os.chdir(here)


SPOILT: list[tuple[Callable[[Path], None], type[LakewardenError], str]] = [
    (_gone, MetadataInvalid, "file-missing"),
    (_longer, MetadataInvalid, "file-size"),
    (_shorter, MetadataInvalid, "file-size"),
    (_link, LocationNotAllowed, "no-links"),
    (_linked_directory, LocationNotAllowed, "no-links"),
    (_pipe, LocationNotAllowed, "regular-file"),
    (_directory, LocationNotAllowed, "regular-file"),
    (_socket, LocationNotAllowed, "regular-file"),
]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(("spoil", "kind", "rule"), SPOILT, ids=lambda each: getattr(each, "__name__", None))
def test_an_engine_commits_files_that_are_there(
    lake: Lake, spoil: Callable[[Path], None], kind: type[LakewardenError], rule: str
) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    files = [engine.file() for _ in range(40)]
    spoil(Path(files[20].path.removeprefix("file://")))
    with pytest.raises(kind) as refusal:
        engine.append(*files)
    assert (refusal.value.rule, refusal.value.table) == (rule, str(name_of(table)))
    assert lake.catalog().load_table(table.name()).metadata.snapshots == []


def test_a_standard_client_commits_files_that_are_there(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        mine = lay_siege(lake).attacker
        path = f"{mine.catalog.load_table(mine.table).location()}/data/never-written.parquet"
        updates = mine.appending(entry(data_file(path, file_size_in_bytes=7)))
        Path(path.removeprefix("file://")).unlink()
        with pytest.raises(MetadataInvalid, match="file-missing"):
            mine.commit(*updates)
