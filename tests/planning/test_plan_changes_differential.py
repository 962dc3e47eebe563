"""Plans of changes of random snapshots are the differences of the plans before and after."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any, Final, TypeAlias

import pytest
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    read_manifest_list,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from catalog.planning.plan import Plan
from tests.support.delete_commits import EQUALITY, POSITIONS
from tests.support.delete_files import DeletesWriter
from tests.support.lake import Lake
from tests.support.plans import plan
from tests.support.tables import make

pytestmark = pytest.mark.nightly

ROWS: Final = 4
DATA: Final = DataFileContent.DATA
#: Bounds of the paths that a position delete file is for.
PATHS: Final = 2147483546
#: A row: its file, number and value.
Place: TypeAlias = tuple[str, int, int]


class Writer:
    """Commits random snapshots, and knows which rows their files hold and delete."""

    def __init__(self, lake: Lake, table: Table, random: Random) -> None:
        self.lake, self.table, self.random = lake, table, random
        self.values: dict[str, list[int]] = {}
        self.deleted: dict[str, set[tuple[str, int]]] = {}
        self.equal: dict[str, int] = {}
        self.live: dict[str, tuple[DataFile, int, int]] = {}
        self.manifests: list[tuple[ManifestFile, set[str]]] = []
        self.count = 0

    def commit(self) -> int:
        """Add and remove data files and delete files, and rewrite some manifests."""
        table = self.lake.catalog().load_table(self.table.name())
        head, number = table.current_snapshot(), table.metadata.last_sequence_number + 1
        made = table.metadata.new_snapshot_id()
        parent = head.snapshot_id if head else None
        removed = {each for each in self.live if self.random.random() < 0.2}
        kept, entries = self._carried(removed, made)
        for path in removed:
            del self.live[path]
        for file in self._added():
            self.live[file.file_path] = file, number, made
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=made, data_file=file
            )
            entries[file.content is DATA].append(entry)
        listed = [*kept, *(each for group in entries.values() for each in self._written(group, made))]
        self.random.shuffle(listed)
        path = f"{table.location()}/metadata/snap-{made}.avro"
        with write_manifest_list(2, table.io.new_output(path), made, parent, number, "deflate") as out:
            out.add_manifests([each for each, _ in listed])
        stored = {each.manifest_path: each for each in read_manifest_list(table.io.new_input(path))}
        self.manifests = [(stored[each.manifest_path], paths) for each, paths in listed]
        snapshot = Snapshot(
            snapshot_id=made,
            parent_snapshot_id=parent,
            sequence_number=number,
            timestamp_ms=table.metadata.last_updated_ms + 1,
            manifest_list=path,
            summary=Summary(Operation.OVERWRITE),
            schema_id=0,
        )
        reference = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=made)
        self.lake.catalog().commit_table(table, (), (AddSnapshotUpdate(snapshot=snapshot), reference))
        return made

    def _carried(self, removed: set[str], made: int) -> tuple[list[Any], dict[bool, list[ManifestEntry]]]:
        """The manifests that stay, and the entries of the others."""
        kept, entries = [], defaultdict[bool, list[ManifestEntry]](list)
        for manifest, paths in self.manifests:
            if not paths & removed and self.random.random() < 0.75:
                kept.append((manifest, paths))
                continue
            for path in sorted(paths):
                file, number, by = self.live[path]
                gone = path in removed
                entry = ManifestEntry.from_args(
                    status=ManifestEntryStatus.DELETED if gone else ManifestEntryStatus.EXISTING,
                    snapshot_id=made if gone else by,
                    sequence_number=number,
                    file_sequence_number=number,
                    data_file=file,
                )
                entries[file.content is DATA].append(entry)
        return kept, entries

    def _added(self) -> Iterator[DataFile]:
        for _ in range(self.random.randrange(3)):
            file = self._file(DATA)
            self.values[file.file_path] = [self.random.randrange(5) for _ in range(ROWS)]
            yield file
        paths = sorted(self.values)
        for _ in range(self.random.randrange(3)):
            kind = self.random.choice(["equality", "file", "partition"])
            if kind == "equality" or not paths:
                file = self._file(EQUALITY)
                self.equal[file.file_path] = self.random.randrange(5)
            else:
                about = [self.random.choice(paths)] if kind == "file" else paths
                file = self._file(POSITIONS, *about[: kind == "file"])
                self.deleted[file.file_path] = {(each, self.random.randrange(ROWS)) for each in about}
            yield file

    def _file(self, content: DataFileContent, *about: str) -> DataFile:
        self.count += 1
        path = f"{self.table.location()}/data/{self.count}.parquet"
        with self.table.io.new_output(path).create() as stored:
            stored.write(bytes(10))
        bounds = {PATHS: about[0].encode()} if about else {}
        return DataFile.from_args(
            content=content,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=ROWS,
            file_size_in_bytes=10,
            lower_bounds=bounds,
            upper_bounds=bounds,
            equality_ids=[1] if content is EQUALITY else None,
        )

    def _written(self, entries: list[ManifestEntry], made: int) -> Iterator[tuple[ManifestFile, set[str]]]:
        """Put entries into manifests of random sizes."""
        self.random.shuffle(entries)
        while entries:
            size = self.random.randint(1, len(entries))
            part, entries = entries[:size], entries[size:]
            self.count += 1
            output = self.table.io.new_output(f"{self.table.location()}/metadata/m-{self.count}.avro")
            kind = ManifestWriterV2 if part[0].data_file.content is DATA else DeletesWriter
            with kind(self.table.spec(), self.table.schema(), output, made, "deflate") as writer:
                for each in part:
                    writer.add_entry(each)
            live = {e.data_file.file_path for e in part if e.status is not ManifestEntryStatus.DELETED}
            yield writer.to_manifest_file(), live

    def rows(self, made: Plan) -> Iterator[tuple[dict[str, Any], Place]]:
        """What a reader of a plan reads: the rows, each with that of the plan."""
        planned = made.files.to_pylist()
        for each in planned:
            path = each["file_path"]
            for number, value in enumerate(self.values.get(path, ())):
                place = path, number, value
                if self._is_gone(place, planned, each["deletes"]):
                    continue
                by = each.get("deleted_by")
                if by is None or self._is_gone(place, planned, by):
                    yield each, place

    def _is_gone(self, place: Place, planned: list[dict[str, Any]], by: list[int] | None) -> bool:
        paths = [planned[each]["file_path"] for each in by or ()]
        return any(
            place[:2] in self.deleted[each] if each in self.deleted else place[2] == self.equal[each]
            for each in paths
        )


@pytest.mark.parametrize("seed", range(6))
def test_planned_changes_are_the_differences_of_states(lake: Lake, seed: int) -> None:
    random = Random(seed)
    table = make(lake)
    writer = Writer(lake, table, random)
    known = [writer.commit() for _ in range(12)]
    states = [
        Counter[Place](),
        *(Counter(place for _, place in writer.rows(plan(lake, table, snapshot_id=each))) for each in known),
    ]
    for first in (0, random.randrange(1, len(known))):
        start = {"start_snapshot_id": known[first - 1]} if first else {}
        found = defaultdict[tuple[int, int], Counter[Place]](Counter)
        for each, place in writer.rows(plan(lake, table, changes=True, **start)):
            found[each["change_ordinal"], each["change_type"]][place] += 1
        for ordinal, (before, after) in enumerate(zip(states[first:], states[first + 1 :], strict=False)):
            added, removed = found[ordinal, 0], found[ordinal, 1]
            assert (added - removed, removed - added) == (after - before, before - after), ordinal
