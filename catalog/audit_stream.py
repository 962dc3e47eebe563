"""The trail as lines of JSON: for other systems, and as evidence elsewhere.

- A line of a record holds its fields under the names by which they are hashed; a line of a checkpoint, those
  of a checkpoint. Lines are ASCII: no name can break a line or drive a terminal.
- Files are appended to by a thread of their own, after the database has the records. Whatever happens to them
  (a full disk, a directory that is gone, a pipe that nobody reads), the database has the record, no grant
  waits, and what was not written is read from the database and written when it can be.
- A file that was moved away or removed is made anew, so that other programs may rotate it. A line that was
  torn by a full disk is ended, and comes again whole.
- A file holds what this process decided and, if it is one for checkpoints, the checkpoints of all processes.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from catalog.audit_checkpoints import last_checkpoint
from catalog.audit_reading import rows_after
from catalog.audit_records import HASHED_FIELDS, Row, canonical
from catalog.db.engine import read
from catalog.db.schema import lw_audit_checkpoint
from policy.errors import LakewardenError

_log: Final = logging.getLogger("lakewarden.audit")

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_LOOK_S: Final = 1.0
_PAGE: Final = 100


def record_line(row: Mapping[str, object]) -> str:
    """A record as one line of JSON, without its end."""
    fields = {name: row[name] for name in (*HASHED_FIELDS, "decisions", "hash")}
    fields["reasons"] = json.loads(str(row["reasons"]))
    at = datetime.fromtimestamp(int(str(row["at_ms"])) / 1000, UTC)
    return canonical({**fields, "at": at.isoformat(timespec="milliseconds")})


def checkpoint_line(row: Mapping[str, object]) -> str:
    """A checkpoint as one line of JSON, without its end."""
    return canonical({**row, "content": json.loads(str(row["content"]))})


def checkpoint_rows(engine: Engine, after: int) -> list[Row]:
    """The next checkpoints behind a number.

    Raises:
        StateUnavailable: the database does not answer.
    """
    number = lw_audit_checkpoint.c.number
    query = select(lw_audit_checkpoint).where(number > after).order_by(number).limit(_PAGE)
    with read(engine) as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


class LineFile:
    """A file that lines are appended to, and that others may rotate.

    Args:
        path: the file; made with mode 0600 if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._torn = False

    def append(self, lines: Iterable[str]) -> None:
        """Write all lines, or fail; what was written before it failed ends with a line that is torn.

        Raises:
            OSError: they could not be written whole.
        """
        text = "".join(f"{line}\n" for line in lines)
        data = (f"\n{text}" if self._torn else text).encode("ascii")
        descriptor = self._open()
        while data:
            self._torn = True
            data = data[os.write(descriptor, data) :]
        self._torn = False

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is not None and not self._is_same(self._descriptor):
            self.close()
            self._torn = False
        if self._descriptor is None:
            # Without O_NONBLOCK, a pipe that nobody reads would stop the thread for ever.
            self._descriptor = os.open(self._path, _FLAGS, 0o600)
        return self._descriptor

    def _is_same(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(descriptor))
        except OSError:
            return False


class Export:
    """One file and how far it has come.

    Args:
        path: where to.
        after: number of the last row that it need not hold.
        rows: answers the next rows behind a number.
        number: the name of the column that numbers them.
        line: a row as a line.
    """

    def __init__(
        self,
        path: Path,
        after: int,
        rows: Callable[[int], list[Row]],
        number: str,
        line: Callable[[Row], str],
    ) -> None:
        self._file = LineFile(path)
        self._after = after
        self._rows = rows
        self._number = number
        self._line = line

    def write(self) -> None:
        """Write what there is.

        Raises:
            OSError: the file cannot be written.
            StateUnavailable: the database does not answer.
        """
        while rows := self._rows(self._after):
            self._file.append(map(self._line, rows))
            self._after = int(str(rows[-1][self._number]))

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class Exports:
    """Keeps the files of a process up to date, in a thread of its own.

    Args:
        engine: the catalog's database, upgraded.
        writer: answers the id of the chain that the process writes.
        records: the file for its records, or None.
        checkpoints: the file for the checkpoints of all processes from now on, or None.
    """

    def __init__(
        self, engine: Engine, writer: Callable[[], str], records: Path | None, checkpoints: Path | None
    ) -> None:
        self._engine = engine
        self._writer = writer
        self._exports: list[Export] = []
        self._failing = False
        self._ended = threading.Event()
        if records is not None:
            self._exports.append(Export(records, 0, self._own_rows, "sequence", record_line))
        if checkpoints is not None:
            with read(engine) as connection:
                last = last_checkpoint(connection)
            after = 0 if last is None else last.sequence
            numbered = Export(
                checkpoints, after, lambda at: checkpoint_rows(engine, at), "number", checkpoint_line
            )
            self._exports.append(numbered)
        self._thread = threading.Thread(target=self._run, name="lakewarden-audit-files", daemon=True)
        if self._exports:
            self._thread.start()

    def close(self) -> None:
        """Write what there is, then stop."""
        self._ended.set()
        if self._exports:
            self._thread.join(_LOOK_S * 10)

    def _own_rows(self, after: int) -> list[Row]:
        writer = self._writer()
        return rows_after(self._engine, {writer: after}, writer)

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self._write()
        self._write()
        for export in self._exports:
            with contextlib.suppress(OSError):
                export.close()

    def _write(self) -> None:
        failures: list[str] = []
        for export in self._exports:
            try:
                export.write()
            except (OSError, LakewardenError, SQLAlchemyError) as error:
                failures.append(getattr(error, "strerror", None) or type(error).__name__)
        if failures and not self._failing:
            _log.error("a file of the audit trail cannot be written, and is behind: %s", "; ".join(failures))
        self._failing = bool(failures)
