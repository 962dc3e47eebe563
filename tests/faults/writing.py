"""What can happen to a write, as a process that is to die does it."""

from __future__ import annotations

from pathlib import Path

from catalog.writes.new_files import FileCommit
from tests.support.lake import ALICE, Lake
from tests.support.tables import Engine


def one_file(engine: Engine) -> tuple[Path, FileCommit]:
    """A file that a write has written, and the commit that appends it."""
    file = engine.file()
    return Path(file.path.removeprefix("file://")), FileCommit("append", (file,))


def commit_write(lake: Lake, order: tuple[str, FileCommit]) -> None:
    """The commit of a write."""
    lake.services.writes.commit(lake.caller(ALICE), *order)


def abort_write(lake: Lake, write_id: str) -> None:
    """Giving a write up."""
    lake.services.writes.abort(lake.caller(ALICE), write_id)


def clean_up(lake: Lake, _: None) -> None:
    """What the service does now and then."""
    lake.services.writes.clean_up()
