"""Delete files in plans: attached as the specification says, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from catalog.planning.plan import Plan, ScanRequest
from policy.errors import NotSupportedYet
from tests.support.lake import ALICE, Lake, open_lake
from tests.support.tables import (
    append_files,
    make,
    name_of,
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with open_lake(tmp_path_factory.mktemp("lake")) as lake:
        for namespace in ("db", "bobs"):
            lake.catalog().create_namespace(namespace)
        yield lake


def plan(lake: Lake, table: Table, user: str = ALICE, engine: str | None = "spark", **request: Any) -> Plan:
    return lake.warden.planner.plan(lake.caller(user, engine), name_of(table), ScanRequest(**request))


class _DeletesWriter(ManifestWriterV2):
    """pyiceberg's writer, for manifests of delete files, which it does not write by itself."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def _add_deletes(
    lake: Lake, table: Table, content: DataFileContent, *, applies_to: Sequence[str] = ()
) -> str:
    """Commit a delete file with stock pieces of pyiceberg, as another engine would."""
    table = lake.catalog().load_table(table.name())
    head = table.current_snapshot()
    assert head is not None
    number = table.metadata.last_sequence_number + 1
    snapshot_id = table.metadata.new_snapshot_id()
    path = f"{table.location()}/data/{snapshot_id}-deletes.parquet"
    bounds = {2147483546: applies_to[0].encode()} if len(applies_to) == 1 else {}
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=10,
        lower_bounds=bounds,
        upper_bounds=bounds,
        equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
    )
    directory = f"{table.location()}/metadata"
    output = table.io.new_output(f"{directory}/d-{snapshot_id}.avro")
    writer = _DeletesWriter(table.spec(), table.schema(), output, snapshot_id, "deflate")
    with writer:
        writer.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)
        )
    listed = f"{directory}/snap-{snapshot_id}.avro"
    with write_manifest_list(
        2, table.io.new_output(listed), snapshot_id, head.snapshot_id, number, "deflate"
    ) as out:
        out.add_manifests([*head.manifests(table.io), writer.to_manifest_file()])
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=number,
        timestamp_ms=head.timestamp_ms + 1,
        manifest_list=listed,
        summary=Summary(Operation.DELETE),
        schema_id=0,
    )
    updates = (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id),
    )
    lake.catalog().commit_table(table, (), updates)
    return path


def test_position_deletes_are_attached_as_pyiceberg_does(lake: Lake) -> None:
    table = make(lake)
    (first,) = append_files(lake, name_of(table))
    (second,) = append_files(lake, name_of(table))
    for_all = _add_deletes(lake, table, DataFileContent.POSITION_DELETES)
    for_first = _add_deletes(lake, table, DataFileContent.POSITION_DELETES, applies_to=[first])
    (third,) = append_files(lake, name_of(table))
    made = plan(lake, table).files.to_pylist()
    found = {
        row["file_path"]: {made[number]["file_path"] for number in row["deletes"] or []}
        for row in made
        if row["content"] == 0
    }
    assert found == {first: {for_all, for_first}, second: {for_all}, third: set()}
    assert {row["file_path"] for row in made if row["content"] == 1} == {for_all, for_first}
    theirs = {
        task.file.file_path: {each.file_path for each in task.delete_files}
        for task in lake.catalog().load_table(table.name()).scan().plan_files()
    }
    assert found == theirs


def test_equality_deletes_are_refused(lake: Lake) -> None:
    table = make(lake)
    append_files(lake, name_of(table))
    _add_deletes(lake, table, DataFileContent.EQUALITY_DELETES)
    with pytest.raises(NotSupportedYet) as refused:
        plan(lake, table)
    assert refused.value.rule == "deletes"
