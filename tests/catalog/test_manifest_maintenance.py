"""Snapshots that change manifests alone: rewritten manifests, and dangling delete files."""

from __future__ import annotations

import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from catalog.base import crash_points
from catalog.maintenance.manifests import RewrittenManifests
from catalog.writes.new_files import FileCommit
from policy.errors import NotAuthorized, RequestInvalid
from tests.support.delete_files import add_deletes
from tests.support.lake import ALICE, BOB, Lake
from tests.support.plans import plan
from tests.support.rewrites import paths
from tests.support.table_keys import load
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of


def rewritten(lake: Lake, table: Table, user: str = ALICE, **options: object) -> RewrittenManifests:
    return lake.services.manifests.rewrite(lake.caller(user, "spark"), name_of(table), **options)  # type: ignore[arg-type]


def dangling(lake: Lake, table: Table, branch: str | None = None) -> int:
    return lake.services.manifests.remove_dangling(lake.caller(ALICE, "spark"), name_of(table), branch)


def manifests(lake: Lake, table: Table) -> list[str]:
    loaded = load(lake, name_of(table))
    head = loaded.metadata.current_snapshot()
    assert head is not None
    return [each.manifest_path for each in lake.services.reader.manifests(loaded, head)]


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, ENCRYPTED], ids=["plaintext", "encrypted"])
def test_manifests_are_rewritten_and_rows_stay(lake: Lake, properties: dict[str, str]) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    table = make(lake, partition_spec=spec) if not properties else make(lake, properties=properties)
    for value in (3, 1, 2):
        append_files(lake, name_of(table), **({} if properties else {"partition": {"id": value}}))
    before = plan(lake, table).files.drop_columns("keys").sort_by("file_path")
    assert rewritten(lake, table) == RewrittenManifests(3, 1)
    assert len(manifests(lake, table)) == 1
    after = plan(lake, table).files.drop_columns("keys").sort_by("file_path")
    assert before.equals(after)
    head = load(lake, name_of(table)).metadata.current_snapshot()
    assert head is not None and head.summary is not None
    assert head.summary.operation.value == "replace"
    assert head.summary["manifests-replaced"] == "3" and head.summary["total-data-files"] == "3"
    assert rewritten(lake, table) == RewrittenManifests()
    append_files(lake, name_of(table), **({} if properties else {"partition": {"id": 1}}))
    assert len(paths(lake, table)) == 4


def test_manifests_are_split_at_their_size(lake: Lake) -> None:
    table = make(lake, properties={"commit.manifest.target-size-bytes": "1000"})
    append_files(lake, name_of(table), 30)
    files = paths(lake, table)
    done = rewritten(lake, table)
    assert done.rewritten == 1 and done.added > 1
    assert len(manifests(lake, table)) == done.added and paths(lake, table) == files


@pytest.mark.nightly
def test_a_commit_that_comes_first_is_built_upon(lake: Lake) -> None:
    table = make(lake)
    files = {path for _ in range(2) for path in append_files(lake, name_of(table))}
    came: list[str] = []

    def hook(point: str) -> None:
        if point == "checked" and not came:
            came.append("")
            came[:] = append_files(lake, name_of(table))

    with crash_points.hooked(hook):
        rewritten(lake, table)
    assert paths(lake, table) == files | set(came)


def test_what_a_table_does_not_have_is_refused(lake: Lake) -> None:
    table = make(lake)
    assert rewritten(lake, table) == RewrittenManifests()
    for options in ({"spec_id": 7}, {"branch": "absent"}):
        append_files(lake, name_of(table))
        with pytest.raises(RequestInvalid):
            rewritten(lake, table, **options)
    with pytest.raises(NotAuthorized):
        rewritten(lake, table, BOB)


@pytest.mark.nightly
def test_delete_files_go_once_they_apply_to_nothing(lake: Lake) -> None:
    """Of a file, of a partition, and of the whole table; not those that still apply."""
    table = make(lake)
    first, second = append_files(lake, name_of(table), 2)
    of_file = add_deletes(lake, table, DataFileContent.POSITION_DELETES, applies_to=[first])
    of_any = add_deletes(lake, table, DataFileContent.POSITION_DELETES)
    equal = add_deletes(lake, table, DataFileContent.EQUALITY_DELETES)
    assert dangling(lake, table) == 0

    def replace(*old: str) -> None:
        engine = Engine.begin(lake, name_of(table))
        base = load(lake, name_of(table)).metadata.current_snapshot_id
        engine.commit(FileCommit("replace", (engine.file(record_count=10 * len(old)),), old, base))

    def deletes() -> set[str]:
        loaded = load(lake, name_of(table))
        head = loaded.metadata.current_snapshot()
        assert head is not None
        opened = lake.services.reader.open(loaded, lake.services.reader.manifests(loaded, head))
        found = [row for each in opened for row in each.entries.to_pylist()]
        return {row["file_path"] for row in found if row["content"] and row["status"] != 2}

    replace(first)
    assert (dangling(lake, table), deletes()) == (1, {of_any, equal})
    assert of_file not in deletes()
    replace(second)
    assert (dangling(lake, table), deletes()) == (2, set())
    assert dangling(lake, table) == 0
    assert len(paths(lake, table)) == 2


def test_a_delete_file_stays_where_it_could_apply_to_files_of_its_own_commit(lake: Lake) -> None:
    """It names two files that are gone, and is as old as one that is left."""
    table = make(lake)
    old = append_files(lake, name_of(table), 2)
    base = load(lake, name_of(table)).metadata.current_snapshot_id
    engine = Engine.begin(lake, name_of(table))
    deletes = engine.file(content=1, referenced_data_files=tuple(old), record_count=2)
    engine.commit(FileCommit("overwrite", (engine.file(), deletes), (), base, command="update"))
    base = load(lake, name_of(table)).metadata.current_snapshot_id
    engine = Engine.begin(lake, name_of(table))
    engine.commit(FileCommit("replace", (engine.file(record_count=18),), tuple(old), base))
    assert dangling(lake, table) == 0
