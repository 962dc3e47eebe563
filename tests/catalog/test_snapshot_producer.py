"""The snapshots that the catalog makes: appends, overwrites and row deltas, on every branch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, NestedField

from catalog.base.errors import CommitConflict
from catalog.commits.snapshot_producer import MadeSnapshot, SnapshotProducer
from catalog.snapshot_checks.inspection import Origin
from policy.errors import MetadataTampered, RequestInvalid
from tests.support.lake import ALICE, Lake
from tests.support.tables import make, name_of

DATA, DELETES = DataFileContent.DATA, DataFileContent.POSITION_DELETES
NAMES = ("a", "b/c", None)


@dataclass
class World:
    """A table, its files by branch, and the sequence number of each file."""

    lake: Lake
    table: Table
    branches: dict[str, dict[str, tuple[DataFile, int]]] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)

    def now(self) -> Table:
        """The table as it is now."""
        self.table = self.lake.catalog().load_table(self.table.name())
        return self.table

    def file(self, content: DataFileContent = DATA, spec_id: int = 0, **given: Any) -> DataFile:
        """A new file, which is there."""
        path = f"{self.table.location()}/data/f{len(self.made)}.parquet"
        self.made.append(path)
        partition = given.pop("partition", Record(*[None] * spec_id))
        known = {"record_count": 3, "file_size_in_bytes": 10, "file_format": FileFormat.PARQUET} | given
        file = DataFile.from_args(3, content=content, file_path=path, partition=partition, **known)
        file.spec_id = spec_id
        local = Path(path.removeprefix("file://"))
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(bytes(file.file_size_in_bytes))
        return file

    def commit(
        self,
        operation: Operation,
        added: Sequence[DataFile] = (),
        removed: Collection[str] = (),
        *,
        branch: str = "main",
        parent: str | None = None,
        summary: Mapping[str, str] = {},
    ) -> Snapshot:
        """Make a snapshot on a branch, or on the head of another one, and commit it as a write does."""
        base = parent or branch
        metadata = self.now().metadata
        loaded = self.lake.services.loader.load_sealed(name_of(self.table))
        producer = SnapshotProducer(self.lake.services, loaded, branch, metadata.snapshot_by_name(base))
        gone = producer.remove(removed)
        assert {each.data_file.file_path for each in gone} == set(removed)
        made = producer.make(operation, added, summary)
        self.take(made)
        files = {path: each for path, each in self.branches.get(base, {}).items() if path not in removed}
        new = {each.file_path: (each, producer.sequence_number) for each in added}
        self.branches[branch] = files | new
        return made.snapshot

    def take(self, made: MadeSnapshot, **changed: Any) -> None:
        """Commit a snapshot."""
        given = {"written": made.written} | changed
        name = name_of(self.table)
        self.lake.services.committer.commit(
            self.lake.caller(ALICE), name, made.requirements, made.updates, origin=Origin.WRITE, **given
        )

    def check(self) -> None:
        """Every branch has the files that it should have, for pyiceberg, and totals that say so."""
        table = self.now()
        for branch, files in self.branches.items():
            snapshot = table.metadata.snapshot_by_name(branch)
            assert snapshot is not None
            found = [
                (manifest, entry)
                for manifest in snapshot.manifests(table.io)
                for entry in manifest.fetch_manifest_entry(table.io)
            ]
            assert sorted(described(entry.data_file, entry.sequence_number) for _, entry in found) == sorted(
                described(*each) for each in files.values()
            )
            assert all(each.file_sequence_number == each.sequence_number for _, each in found)
            assert all(
                manifest.min_sequence_number <= (each.sequence_number or 0) for manifest, each in found
            )
            scanned = table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
            assert sorted(task.file.file_path for task in scanned) == sorted(
                path for path, (file, _) in files.items() if file.content is DATA
            )
            assert totals(snapshot) == counted(files)


def described(file: DataFile, number: int | None) -> tuple[Any, ...]:
    """What has to stay as it is of a file."""
    parts = [repr(file.partition[each]) for each in range(len(file.partition))]
    return file.file_path, file.content, number, file.record_count, file.spec_id, parts


def totals(snapshot: Snapshot) -> dict[str, str]:
    """The totals in a summary."""
    assert snapshot.summary is not None
    return {
        name: value for name, value in snapshot.summary.additional_properties.items() if name[:6] == "total-"
    }


def counted(files: Mapping[str, tuple[DataFile, int]]) -> dict[str, str]:
    """The same of files."""
    data, deletes = ([file for file, _ in files.values() if file.content is each] for each in (DATA, DELETES))
    return {
        "total-data-files": str(len(data)),
        "total-delete-files": str(len(deletes)),
        "total-records": str(sum(each.record_count for each in data)),
        "total-files-size": str(sum(each.file_size_in_bytes for each in data + deletes)),
        "total-position-deletes": str(sum(each.record_count for each in deletes)),
        "total-equality-deletes": "0",
    }


@pytest.fixture
def world(lake: Lake) -> World:
    return World(lake, make(lake))


@pytest.mark.nightly
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_every_difference_of_files_is_accepted_and_read_as_it_was_made(lake: Lake, data: DataObject) -> None:
    world = World(lake, make(lake))
    with world.table.update_spec() as update:
        update.add_identity("name")
    for _ in range(data.draw(st.integers(1, 4))):
        branch = data.draw(st.sampled_from(["main", "dev"]))
        parent = branch if branch in world.branches or "main" not in world.branches else "main"
        live = sorted(world.branches.get(parent, {}))
        removed = data.draw(st.sets(st.sampled_from(live))) if live else set()
        contents = data.draw(st.lists(st.sampled_from([DATA, DATA, DELETES]), max_size=3))
        added = [_drawn(world, each, data) for each in contents]
        operation = data.draw(st.sampled_from([Operation.OVERWRITE, Operation.DELETE, Operation.REPLACE]))
        world.commit(operation if removed else Operation.APPEND, added, removed, branch=branch, parent=parent)
    world.check()


def _drawn(world: World, content: DataFileContent, data: DataObject) -> DataFile:
    count, spec_id = data.draw(st.integers(1, 5)), data.draw(st.sampled_from([0, 1]))
    partition = Record(data.draw(st.sampled_from(NAMES))) if spec_id else Record()
    return world.file(content, spec_id, partition=partition, record_count=count)


def test_only_manifests_with_a_removed_file_are_written_again(world: World) -> None:
    one, two, three = (world.file() for _ in range(3))
    first = world.commit(Operation.APPEND, [one, two]).manifests(world.now().io)
    second = world.commit(Operation.APPEND, [three]).manifests(world.now().io)
    snapshot = world.commit(Operation.OVERWRITE, [], [one.file_path])
    manifests = snapshot.manifests(world.now().io)
    assert len(second) == len(manifests) == 2
    assert set(second) - set(first) < set(manifests)
    (new,) = set(manifests) - set(second)
    entries = new.fetch_manifest_entry(world.table.io, discard_deleted=False)
    assert [(each.data_file.file_path, each.status) for each in entries] == [
        (one.file_path, ManifestEntryStatus.DELETED),
        (two.file_path, ManifestEntryStatus.EXISTING),
    ]
    assert [each.snapshot_id == snapshot.snapshot_id for each in entries] == [True, False]
    assert [each.sequence_number for each in entries] == [1, 1]
    world.check()


def test_manifests_without_a_live_file_are_left_out_of_the_next_snapshot(world: World) -> None:
    old, new, last = (world.file() for _ in range(3))
    world.commit(Operation.APPEND, [old])
    overwritten = world.commit(Operation.OVERWRITE, [new], [old.file_path])
    assert len(overwritten.manifests(world.now().io)) == 2
    assert len(world.commit(Operation.APPEND, [last]).manifests(world.now().io)) == 2
    world.check()


def test_a_delete_file_is_carried_over_with_the_data_file_that_it_refers_to(world: World) -> None:
    data = world.file()
    world.commit(Operation.APPEND, [data])
    kept, gone = (world.file(DELETES, referenced_data_file=data.file_path) for _ in range(2))
    world.commit(Operation.DELETE, [kept, gone])
    world.commit(Operation.OVERWRITE, [], [gone.file_path])
    world.check()
    loaded = world.lake.services.loader.load_sealed(name_of(world.table))
    reader, head = world.lake.services.reader, loaded.metadata.current_snapshot()
    assert head is not None
    opened = [each.entries for each in reader.open(loaded, reader.manifests(loaded, head))]
    referred = {
        row["file_path"]: row["referenced_data_file"]
        for each in opened
        for row in each.select(["file_path", "referenced_data_file"]).to_pylist()
    }
    assert referred[kept.file_path] == data.file_path


def test_a_branch_begins_at_the_snapshot_that_is_its_parent(world: World) -> None:
    world.commit(Operation.APPEND, [world.file()])
    head = world.now().metadata.snapshot_by_name("main")
    snapshot = world.commit(Operation.APPEND, [world.file()], branch="dev", parent="main")
    assert head is not None
    assert snapshot.parent_snapshot_id == head.snapshot_id
    assert world.now().metadata.snapshot_by_name("main") == head
    world.check()


def test_a_branch_that_somebody_moved_meanwhile_is_a_conflict(world: World) -> None:
    world.commit(Operation.APPEND, [world.file()])
    loaded = world.lake.services.loader.load_sealed(name_of(world.table))
    late = SnapshotProducer(world.lake.services, loaded, "main", loaded.metadata.current_snapshot())
    world.commit(Operation.APPEND, [world.file()])
    with pytest.raises(CommitConflict):
        world.take(late.make(Operation.APPEND, [world.file()], {}))


def test_a_tag_is_no_branch(world: World) -> None:
    snapshot = world.commit(Operation.APPEND, [world.file()])
    world.now().manage_snapshots().create_tag(snapshot.snapshot_id, "release").commit()
    with pytest.raises(RequestInvalid, match="'release' is a tag"):
        world.commit(Operation.APPEND, [world.file()], branch="release")


def test_files_of_a_partition_whose_column_was_dropped_are_carried_over_and_removed(world: World) -> None:
    with world.table.update_spec() as update:
        update.add_identity("name")
    kept, gone = (world.file(spec_id=1, partition=Record("a"), record_count=each) for each in (2, 4))
    world.commit(Operation.APPEND, [kept, gone])
    with world.now().update_spec() as update:
        update.remove_field("name")
    with world.now().update_schema() as change:
        change.delete_column("name")
    world.commit(Operation.OVERWRITE, [], [gone.file_path])
    world.check()


def test_partitions_beyond_pythons_calendar_are_summed_up(lake: Lake) -> None:
    schema = Schema(NestedField(1, "at", DateType()))
    by_day = PartitionSpec(PartitionField(1, 1000, DayTransform(), "day"))
    options = {"partition_spec": by_day, "properties": {"write.summary.partition-limit": "5"}}
    world = World(lake, make(lake, schema=schema, **options))
    snapshot = world.commit(Operation.APPEND, [world.file(partition=Record(4_000_000))])
    assert snapshot.summary is not None
    partitions = {each for each in snapshot.summary.additional_properties if each.startswith("partitions.")}
    assert partitions == {"partitions.day=%2B12921-08-18"}


def test_headers_and_fields_are_those_of_version_2(world: World) -> None:
    snapshot = world.commit(Operation.APPEND, [world.file()])
    (manifest,) = snapshot.manifests(world.now().io)
    header, fields = stored(manifest.manifest_path)
    names = ("format-version", "content", "schema-id", "partition-spec-id", "partition-spec")
    assert [header[each] for each in names] == ["2", "data", "0", "0", "[]"]
    assert {"referenced_data_file"} == fields & {"referenced_data_file", "first_row_id", "content_offset"}
    header, _ = stored(snapshot.manifest_list)
    names = ("format-version", "snapshot-id", "parent-snapshot-id", "sequence-number")
    assert [header[each] for each in names] == ["2", str(snapshot.snapshot_id), "null", "1"]
    assert snapshot.schema_id == 0


def stored(path: str) -> tuple[Mapping[str, str], set[str]]:
    """The header of an Avro file, and the fields of its data files."""
    with Path(path.removeprefix("file://")).open("rb") as file:
        reader = fastavro.reader(file)
        file_types = [each["type"] for each in reader.writer_schema["fields"] if each["name"] == "data_file"]
        return reader.metadata, {each["name"] for kind in file_types for each in kind["fields"]}


def test_the_codec_of_data_files_is_not_that_of_manifests(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table from before can have a property that is refused now."""
    with monkeypatch.context() as earlier:
        earlier.setattr("policy.iceberg_properties._PREFIXES", ())
        earlier.setattr("policy.iceberg_properties.REFUSED", {})
        world = World(lake, make(lake, properties={"write.avro.compression-codec": "uncompressed"}))
    world.commit(Operation.APPEND, [world.file()])
    world.check()


@pytest.mark.parametrize("name", ["total-records", "added-data-files", "operation"])
def test_counts_are_the_catalogs_own(world: World, name: str) -> None:
    with pytest.raises(RequestInvalid):
        world.commit(Operation.APPEND, [world.file()], summary={name: "7"})


def test_what_was_not_written_for_the_commit_is_refused(world: World) -> None:
    loaded = world.lake.services.loader.load_sealed(name_of(world.table))
    made = SnapshotProducer(world.lake.services, loaded, "main", None).make(
        Operation.APPEND, [world.file()], {}
    )
    for path, digest in made.written.items():
        others = {each: known for each, known in made.written.items() if each != path}
        for written in (
            others,
            others | {path: type(digest)("0" * 64, digest.length)},
            made.written | {"a": digest},
        ):
            with pytest.raises(MetadataTampered):
                world.take(made, written=written)
    world.take(made)
