"""Writes the audit log as lines of JSON, for other systems and as evidence.

- A line is a record in one of the forms of `catalog.audit.formats`, or has the fields of a checkpoint.
- A separate thread appends to files after the database has the records. If a file fails (a full disk, a
  missing directory, a pipe without a reader), the database has the records, no grant waits, and the missing
  lines are written later from the database.
- A file that was moved or removed is created again, so that other programs can rotate it. A line that was cut
  by a full disk is ended, and written again as a whole.
- A file has the records of all processes since this process began. For older records, run `lakewarden audit
  export`.
- A process that takes the place of another one continues where that one was, if it gets its positions. Lines
  that were written after the last position was kept are written twice, and none is left out.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from catalog.audit.checkpoints import last_checkpoint
from catalog.audit.formats import LineFormat, document, formatter
from catalog.audit.reading import ends, rows_after
from catalog.audit.records import canonical
from catalog.db.engine import read
from catalog.db.schema import lw_audit_checkpoint
from policy.errors import LakewardenError

_log: Final = logging.getLogger("lakewarden.audit")

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_LOOK_S: Final = 1.0
_CLOSING_S: Final = 10.0
_PAGE: Final = 100


def checkpoint_line(row: Mapping[str, object]) -> str:
    """Return a checkpoint as one line of JSON, without its end."""
    return canonical({**row, "content": document(row["content"])})


def last_checkpoint_row(engine: Engine) -> dict[str, object]:
    """Return the last checkpoint.

    Raises:
        StateUnavailable: the database does not answer.
        sqlalchemy.exc.NoResultFound: there is none.
    """
    query = select(lw_audit_checkpoint).order_by(lw_audit_checkpoint.c.number.desc()).limit(1)
    with read(engine) as connection:
        return dict(connection.execute(query).mappings().one())


class NewRecords:
    """New records of all chains, from now on or from given numbers on, each exactly once.

    Args:
        engine: the catalog's database.
        numbers: number of the last known record, by chain; by default the last existing one.
        form: the form of lines.

    Raises:
        StateUnavailable: the database does not answer.
    """

    def __init__(
        self, engine: Engine, numbers: Mapping[str, int] | None = None, form: LineFormat = LineFormat.JSON
    ) -> None:
        self._engine = engine
        self._line = formatter(form)
        self._numbers = dict(ends(engine) if numbers is None else numbers)

    @property
    def position(self) -> dict[str, int]:
        """Return the number of the last record that has arrived, by chain."""
        return dict(self._numbers)

    def lines(self) -> list[str]:
        """Return the next lines, the same ones until `taken` is called; empty if there are none yet.

        Raises:
            StateUnavailable: the database does not answer.
        """
        self._next = rows_after(self._engine, self._numbers)
        return [self._line(row) for row in self._next]

    def taken(self) -> None:
        """Confirm that the last answer of `lines` has arrived."""
        self._numbers.update({str(row["writer"]): int(str(row["sequence"])) for row in self._next})


class NewCheckpoints:
    """New checkpoints of all processes, from now on.

    Args:
        engine: the catalog's database.
        number: of the last known checkpoint; by default the last existing one.

    Raises:
        StateUnavailable: the database does not answer.
    """

    def __init__(self, engine: Engine, number: int | None = None) -> None:
        self._engine = engine
        self._number = self._last() if number is None else number

    @property
    def position(self) -> int:
        """Return the number of the last checkpoint that has arrived."""
        return self._number

    def lines(self) -> list[str]:
        """Return the next lines, the same ones until `taken` is called; empty if there are none yet.

        Raises:
            StateUnavailable: the database does not answer.
        """
        number = lw_audit_checkpoint.c.number
        query = select(lw_audit_checkpoint).where(number > self._number).order_by(number).limit(_PAGE)
        with read(self._engine) as connection:
            self._next = [dict(row) for row in connection.execute(query).mappings()]
        return [checkpoint_line(row) for row in self._next]

    def taken(self) -> None:
        """Confirm that the last answer of `lines` has arrived."""
        self._number = int(str(self._next[-1]["number"])) if self._next else self._number

    def _last(self) -> int:
        with read(self._engine) as connection:
            last = last_checkpoint(connection)
        return 0 if last is None else last.sequence


class LineFile:
    """A file to append lines to, which other programs can rotate.

    Args:
        path: the file; made with mode 0600 if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._torn = False

    def append(self, lines: Iterable[str]) -> None:
        """Append all lines, or raise; a failed append ends with a torn line.

        Raises:
            OSError: not all of them could be written.
        """
        text = "".join(f"{line}\n" for line in lines)
        descriptor = self._open()
        data = (f"\n{text}" if self._torn else text).encode("ascii")
        while data:
            data = data[os.write(descriptor, data) :]
            self._torn = bool(data)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is not None and not self._is_same(self._descriptor):
            self.close()
            self._torn = False
        if self._descriptor is None:
            # Without O_NONBLOCK, a pipe without a reader would block the thread forever.
            self._descriptor = os.open(self._path, _FLAGS, 0o600)
        return self._descriptor

    def _is_same(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(descriptor))
        except OSError:
            return False


class Exports:
    """Keeps files up to date, in a separate thread.

    Args:
        engine: the catalog's database, upgraded.
        records: the file for records, or None.
        checkpoints: the file for checkpoints, or None.
        positions: where it is kept how far the files are, to continue from there; None to keep nothing.
        form: the form of records.

    Raises:
        StateUnavailable: the database does not answer.
    """

    def __init__(
        self,
        engine: Engine,
        records: Path | None,
        checkpoints: Path | None,
        positions: Path | None = None,
        form: LineFormat = LineFormat.JSON,
    ) -> None:
        self._files: list[tuple[LineFile, NewRecords | NewCheckpoints]] = []
        self._positions = positions
        known = _kept(positions)
        if records is not None:
            self._files.append((LineFile(records), NewRecords(engine, known.get("records"), form)))
        if checkpoints is not None:
            self._files.append((LineFile(checkpoints), NewCheckpoints(engine, known.get("checkpoints"))))
        self._keep()
        self._failing = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lakewarden-audit-files", daemon=True)
        if self._files:
            self._thread.start()

    def close(self) -> None:
        """Write the remaining lines, then stop."""
        self._ended.set()
        if self._files:
            self._thread.join(_CLOSING_S)

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_S):
            self._write()
        self._write()
        for file, _ in self._files:
            file.close()

    def _write(self) -> None:
        failures: list[str] = []
        for file, source in self._files:
            try:
                while lines := source.lines():
                    file.append(lines)
                    source.taken()
                    self._keep()
            except (OSError, LakewardenError, SQLAlchemyError) as error:
                failures.append(getattr(error, "strerror", None) or type(error).__name__)
        if failures and not self._failing:
            _log.error("a file of the audit log cannot be written and is behind: %s", "; ".join(failures))
        self._failing = bool(failures)

    def _keep(self) -> None:
        if self._positions is None:
            return
        found = {
            "records" if isinstance(source, NewRecords) else "checkpoints": source.position
            for _, source in self._files
        }
        new = self._positions.with_suffix(".new")
        new.write_text(json.dumps(found))
        new.replace(self._positions)


def _kept(positions: Path | None) -> dict[str, Any]:
    """Return the positions that an earlier process kept, by kind; empty if there was none."""
    if positions is None or not positions.exists():
        return {}
    found: dict[str, Any] = json.loads(positions.read_text())
    return found
