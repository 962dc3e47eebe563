"""Statements on rows as an engine carries them out, and a model of what they may leave under each isolation
level.

The files hold no bytes: a `Rows` keeps what a Spark task would have written to them. A statement is run at
its base, and is committed later, whatever others committed meanwhile. `check_history` then compares every
snapshot with its parent: under `serializable` it holds what the statement makes of the parent's rows, as if
it had run there alone. Under `snapshot` it holds what the statement made of the rows of its base, all of
which are still there.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pyiceberg.expressions import And, EqualTo, LessThan
from pyiceberg.table.snapshots import Snapshot

from catalog.base.errors import ConcurrentModification
from catalog.reading.loading import LoadedTable
from catalog.writes.new_files import FileCommit, Isolation, NewFile
from catalog.writes.written_files import WRITE_ID
from tests.support.row_changes import Ledger
from tests.support.tables import Engine, name_of

Row = tuple[int, str, int]
Kind = Literal["insert", "update", "delete", "overwrite", "partitions", "truncate", "compact"]
#: The place of a row: its file, and the position in it.
Place = tuple[str, int]


@dataclass(frozen=True)
class Statement:
    """A statement.

    Attributes:
        kind: what it does to the rows of `part` with an id below `below`.
        part: the partition.
        below: the first id that does not match; None for all.
        rows: the rows that it inserts.
        merge_on_read: how it changes rows.
        level: its isolation level; None for that of the table's properties, serializable.
        branch: of the table.
    """

    kind: Kind
    part: str
    below: int | None = None
    rows: tuple[Row, ...] = ()
    merge_on_read: bool = False
    level: Isolation | None = None
    branch: str = "main"

    @property
    def filter(self) -> Any:
        part = EqualTo("part", self.part)
        return part if self.below is None else And(part, LessThan("id", self.below))

    @property
    def is_conditional(self) -> bool:
        return self.kind in ("overwrite", "partitions", "truncate")

    def matches(self, row: Row) -> bool:
        return row[1] == self.part and (self.below is None or row[0] < self.below)

    def changed(self, row: Row) -> list[Row]:
        """What the statement leaves of a row that matches."""
        return [(row[0], row[1], row[2] + 1)] if self.kind == "update" else []

    def run(self, rows: Counter[Row]) -> Counter[Row]:
        """What the statement leaves of rows if it runs alone."""
        if self.kind in ("insert", "compact"):
            return rows + Counter(self.rows)
        left: Counter[Row] = Counter(self.rows)
        for row, number in rows.items():
            for each in self.changed(row) if self.matches(row) else [row]:
                left[each] += number
        return left


@dataclass
class Begun:
    """A statement that was run at its base, and is not committed yet."""

    statement: Statement
    base: Snapshot | None
    matched: Counter[Row]
    engine: Engine
    commit: FileCommit


@dataclass
class Rows:
    """The contents of a table's files, and the statements of its snapshots."""

    ledger: Ledger
    files: dict[str, list[Row]] = field(default_factory=dict)
    deletes: dict[str, set[Place]] = field(default_factory=dict)
    committed: dict[str, Begun] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def loaded(self) -> LoadedTable:
        return self.ledger.lake.services.loader.load_sealed(name_of(self.ledger.table))

    def places(self, table: LoadedTable, snapshot: Snapshot | None) -> dict[Place, Row]:
        """The live rows of a snapshot, by their places."""
        if snapshot is None:
            return {}
        data: dict[str, int] = {}
        deleted: dict[Place, int] = {}
        reader = self.ledger.lake.services.reader
        for each in reader.open(table, reader.manifests(table, snapshot)):
            names = ["status", "content", "file_path", "sequence_number"]
            for entry in each.entries.select(names).to_pylist():
                if entry["status"] == 2:
                    continue
                if entry["content"] == 0:
                    data[entry["file_path"]] = entry["sequence_number"]
                for place in self.deletes.get(entry["file_path"], ()):
                    deleted[place] = max(deleted.get(place, 0), entry["sequence_number"])
        return {
            (path, place): row
            for path, number in data.items()
            for place, row in enumerate(self.files[path])
            if deleted.get((path, place), -1) < number
        }

    def begin(self, statement: Statement) -> Begun:
        """Run a statement at the head of its branch: write its files, and do not commit them."""
        table = self.loaded()
        base = table.metadata.snapshot_by_name(statement.branch)
        engine = self.ledger.engine()
        places = self.places(table, base)
        matched = {place: row for place, row in places.items() if statement.matches(row)}
        commit = self._commit(statement, engine, places, matched)
        base_id = None if base is None or statement.kind == "insert" else base.snapshot_id
        given = FileCommit(**({"base_snapshot_id": base_id, "branch": statement.branch} | commit))
        return Begun(statement, base, Counter(matched.values()), engine, given)

    def finish(self, begun: Begun) -> bool:
        """Commit a statement; return False if it conflicts."""
        with self.lock:
            self.committed[begun.engine.session.id] = begun
        try:
            begun.engine.commit(begun.commit)
        except ConcurrentModification:
            with self.lock:
                del self.committed[begun.engine.session.id]
            return False
        return True

    def _commit(
        self, statement: Statement, engine: Engine, places: dict[Place, Row], matched: dict[Place, Row]
    ) -> dict[str, Any]:
        new = self._file(engine, statement.rows, statement.part)
        if statement.kind == "insert":
            return {"operation": "append", "added": new}
        if statement.kind == "partitions":
            return {
                "operation": "overwrite",
                "added": new,
                "replace_partitions": True,
                "isolation": statement.level,
            }
        if statement.is_conditional:
            kind = "overwrite" if new else "delete"
            given = {"delete_filter": statement.filter, "isolation": statement.level}
            return {"operation": kind, "added": new} | given
        if statement.kind == "compact":
            return self._compacted(statement, engine, places)
        level = {"command": statement.kind} if statement.level is None else {"isolation": statement.level}
        return (
            level | {"conflict_filter": statement.filter} | self._changed(statement, engine, places, matched)
        )

    def _compacted(self, statement: Statement, engine: Engine, places: dict[Place, Row]) -> dict[str, Any]:
        """Replace the files of the partition of which no row is deleted."""
        whole = Counter(path for path, _ in places)
        paths = sorted(
            path
            for path, number in whole.items()
            if number == len(self.files[path]) and self.files[path][0][1] == statement.part
        )
        rows = [row for path in paths for row in self.files[path]]
        added = self._file(engine, rows, statement.part)
        return {"operation": "replace", "added": added, "deleted_paths": tuple(paths), "schema_id": 0}

    def _changed(
        self, statement: Statement, engine: Engine, places: dict[Place, Row], matched: dict[Place, Row]
    ) -> dict[str, Any]:
        touched = sorted({path for path, _ in matched})
        rows = [each for row in matched.values() for each in statement.changed(row)]
        if not statement.merge_on_read:
            rows += [row for place, row in places.items() if place[0] in touched and place not in matched]
        added = self._file(engine, rows, statement.part)
        if not statement.merge_on_read:
            kind = "overwrite" if added else "delete"
            return {"operation": kind, "added": added, "deleted_paths": tuple(touched)}
        deletes: tuple[NewFile, ...] = ()
        if touched:
            deletes = (self.ledger.deletes(engine, *touched, part=statement.part, record_count=len(matched)),)
            with self.lock:
                self.deletes[deletes[0].path] = set(matched)
        kind = "overwrite" if added or not deletes else "delete"
        return {"operation": kind, "added": added + deletes}

    def _file(self, engine: Engine, rows: Any, part: str) -> tuple[NewFile, ...]:
        """A new file with these rows; none for no rows."""
        if not rows:
            return ()
        ids = [row[0] for row in rows]
        file = self.ledger.file(engine, min(ids), max(ids), part, rows=len(ids))
        with self.lock:
            self.files[file.path] = list(rows)
        return (file,)

    def check_history(self) -> int:
        """Compare every snapshot with its parent by the model; return the number of snapshots."""
        table = self.loaded()
        for snapshot in table.metadata.snapshots:
            parent_id = snapshot.parent_snapshot_id
            parent = None if parent_id is None else table.metadata.snapshot_by_id(parent_id)
            before, after = (Counter(self.places(table, each).values()) for each in (parent, snapshot))
            assert snapshot.summary is not None
            begun = self.committed[snapshot.summary.additional_properties[WRITE_ID]]
            assert after == expected(begun, before), begun.statement
        return len(table.metadata.snapshots)


def expected(begun: Begun, before: Counter[Row]) -> Counter[Row]:
    """What a statement leaves of its parent's rows by its isolation level."""
    statement = begun.statement
    if statement.level is not Isolation.SNAPSHOT or statement.kind not in ("update", "delete"):
        return statement.run(before)
    if statement.kind == "update":
        assert begun.matched <= before, "a lost update"
    changed: Counter[Row] = Counter()
    for row, number in begun.matched.items():
        for each in statement.changed(row):
            changed[each] += number
    return before - begun.matched + changed


def by_threads(workers: dict[str, Callable[[], None]], patience_s: float) -> None:
    """Run functions in threads until all are done."""
    failures: dict[str, list[BaseException]] = defaultdict(list)

    def run(name: str) -> None:
        try:
            workers[name]()
        except BaseException as failure:  # noqa: BLE001 - told by the main thread
            failures[name].append(failure)

    threads = [threading.Thread(target=run, args=(name,)) for name in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience_s)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads)
