"""Rewrites of position delete files: which are rewritten, and which commits of them are refused."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.expressions import EqualTo

from catalog.base.errors import ConcurrentModification
from catalog.maintenance.delete_rewrites import DeleteGroup, DeleteRewriteRequest
from catalog.planning.request import ScanRequest
from catalog.writes.new_files import NewFile
from policy.errors import LakewardenError, NotSupportedYet
from tests.support.lake import ALICE, Lake
from tests.support.row_changes import Ledger
from tests.support.tables import ENCRYPTED, name_of

ALL = {"rewrite-all": "true"}
PER_PARTITION = {"write.delete.granularity": "partition"}
FEW = {"min-input-files": "2"}


def groups(ledger: Ledger, options: dict[str, str] | None = None, **asked: Any) -> list[DeleteGroup]:
    request = DeleteRewriteRequest(max_groups=100, options=options or {}, **asked)
    caller = ledger.lake.caller(ALICE, "spark")
    found = ledger.lake.services.delete_rewriter.groups(caller, name_of(ledger.table), request)
    return list(found.groups)


def delete(ledger: Ledger, *paths: str, part: str = "a", rows: int = 1) -> str:
    engine = ledger.engine()
    base = ledger.head().snapshot_id
    file = ledger.deletes(engine, *paths, part=part, record_count=rows)
    ledger.commit("delete", [file], engine, base_snapshot_id=base, command="delete")
    return file.path


def pack(ledger: Ledger, group: DeleteGroup, *added: tuple[tuple[str, ...], int], part: str = "a") -> None:
    """Replace the delete files of a group by one for each of the given data files and numbers of rows."""
    engine = ledger.engine()
    new = [ledger.deletes(engine, *paths, part=part, record_count=rows) for paths, rows in added]
    commit(ledger, group.paths, new, engine, group.snapshot_id)


def commit(
    ledger: Ledger, gone: tuple[str, ...], new: list[NewFile], engine: Any, base: int, **given: Any
) -> None:
    ledger.commit("replace", new, engine, deleted_paths=gone, base_snapshot_id=base, **given)


def refusal(call: Any) -> tuple[str, str | None]:
    with pytest.raises(LakewardenError) as refused:
        call()
    return type(refused.value).__name__, refused.value.rule


@pytest.mark.nightly
@pytest.mark.parametrize(
    "properties", [PER_PARTITION, PER_PARTITION | ENCRYPTED], ids=["plaintext", "encrypted"]
)
def test_small_delete_files_of_a_partition_are_packed(lake: Lake, properties: dict[str, str]) -> None:
    plain = {"encryption.plaintext-columns": "part"} if "encryption.mechanism" in properties else {}
    ledger = Ledger.of(lake, properties=properties | plain)
    first, second, other = ledger.append(1, 9), ledger.append(10, 19), ledger.append(1, 9, "b")
    old = {delete(ledger, path) for path in (first, second, first)}
    delete(ledger, other, part="b")
    assert groups(ledger) == []
    (group,) = groups(ledger, FEW)
    assert (set(group.paths), group.outputs) == (old, 1)
    (reached,) = group.partitions
    assert (reached.spec_id, reached.partition) == (0, '{"part": "a"}')
    assert dict(zip(reached.paths, reached.sequence_numbers, strict=True)) == {first: 1, second: 2}
    pack(ledger, group, ((first, second), 3))
    assert ledger.paths(content=1).isdisjoint(old)
    assert ledger.summary("added-delete-files", "removed-delete-files") == {
        "operation": "replace",
        "added-delete-files": "1",
        "removed-delete-files": "3",
    }
    assert groups(ledger, FEW) == []
    assert len(groups(ledger, ALL)) == 1
    planned = lake.services.planner.plan(lake.caller(ALICE, "spark"), name_of(ledger.table), ScanRequest())
    rows = {row["file_path"]: row for row in planned.files.to_pylist()}
    assert [len(rows[each]["deletes"]) for each in (first, second, other)] == [1, 1, 1]


@pytest.mark.nightly
def test_one_delete_file_for_each_data_file_is_left_alone(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    paths = [ledger.append(number, number + 9) for number in range(3)]
    files = [delete(ledger, path) for path in paths]
    assert groups(ledger, FEW) == []
    again = delete(ledger, paths[0])
    (group,) = groups(ledger, FEW)
    assert set(group.paths) == {files[0], again}


@pytest.mark.nightly
def test_files_outside_of_the_filter_are_left_alone(lake: Lake) -> None:
    ledger = Ledger.of(lake, properties=PER_PARTITION)
    for part in ("a", "b"):
        path = ledger.append(1, 9, part)
        for _ in range(2):
            delete(ledger, path, part=part)
    (group,) = groups(ledger, FEW, row_filter=EqualTo("part", "b"))
    assert {each.partition for each in group.partitions} == {'{"part": "b"}'}
    assert groups(ledger, FEW, without=group.paths, row_filter=EqualTo("part", "b")) == []
    assert groups(ledger, FEW, sequence_number=1) == []


@pytest.mark.nightly
def test_delete_files_of_data_files_that_are_gone_are_dropped(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    path, kept = ledger.append(1, 9), ledger.append(10, 19)
    loose, live = delete(ledger, path), delete(ledger, kept)
    base, engine = ledger.head().snapshot_id, ledger.engine()
    ledger.commit(
        "replace", [ledger.file(engine, 1, 8)], engine, deleted_paths=(path,), base_snapshot_id=base
    )
    (group,) = groups(ledger)
    assert (group.paths, group.partitions) == ((loose,), ())
    pack(ledger, group)
    assert ledger.paths(content=1) == {live}


@pytest.mark.nightly
def test_delete_files_of_an_earlier_encryption_are_rewritten(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    path = ledger.append(1, 9)
    old = delete(ledger, path)
    changes = {**ENCRYPTED, "encryption.plaintext-columns": "part"}
    with lake.catalog().load_table(ledger.table.name()).transaction() as change:
        change.set_properties(changes)
    (group,) = groups(ledger)
    assert group.paths == (old,)
    pack(ledger, group, ((path,), 1))
    assert groups(ledger) == []


def test_a_replace_of_delete_files_deletes_no_other_rows(lake: Lake) -> None:
    """Attack or defect: rows are deleted under an operation that is exempt from conflicts."""
    ledger = Ledger.of(lake, properties=PER_PARTITION)
    path, other = ledger.append(1, 9), ledger.append(10, 19)
    for _ in range(2):
        delete(ledger, path)
    (group,) = groups(ledger, FEW)
    for added in ([((path,), 3)], [((other,), 1)], [((path, other), 3)], [((path,), 2)] * 2):
        assert refusal(lambda added=added: pack(ledger, group, *added)) == ("RequestInvalid", "replaced-rows")
    pack(ledger, group, ((path,), 2))


def test_a_replace_of_delete_files_brings_no_row_back(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    path, other = ledger.append(1, 9), ledger.append(10, 19)
    for each in (path, path, other):
        delete(ledger, each)
    (group,) = groups(ledger, ALL)
    assert refusal(lambda: pack(ledger, group, ((path,), 2))) == ("RequestInvalid", "removed-deletes")
    assert refusal(lambda: pack(ledger, group)) == ("RequestInvalid", "removed-deletes")


def test_a_replace_brings_no_row_back_that_a_delete_file_of_several_data_files_certainly_deletes(
    lake: Lake,
) -> None:
    """The bounds of its paths are two of its data files. What is between them can only be read."""
    ledger = Ledger.of(lake, properties=PER_PARTITION)
    paths = sorted(ledger.append(number, number + 9) for number in (0, 10, 20))
    for _ in range(2):
        delete(ledger, *paths, rows=3)
    (group,) = groups(ledger, FEW)
    for some in ([], paths[:2], paths[1:]):
        added = [(tuple(some), 6)] if some else []
        assert refusal(lambda added=added: pack(ledger, group, *added)) == (
            "RequestInvalid",
            "removed-deletes",
        )
    pack(ledger, group, (tuple(paths), 3))


@pytest.mark.nightly
def test_a_delete_file_of_several_data_files_that_are_gone_or_newer_needs_no_successor(lake: Lake) -> None:
    ledger = Ledger.of(lake, properties=PER_PARTITION)
    paths = sorted(ledger.append(number, number + 9) for number in (0, 10))
    for _ in range(2):
        delete(ledger, *paths, rows=2)
    engine, base = ledger.engine(), ledger.head().snapshot_id
    new = [ledger.file(engine, 0, 15)]
    ledger.commit("replace", new, engine, deleted_paths=tuple(paths), base_snapshot_id=base)
    (group,) = groups(ledger)
    pack(ledger, group)
    assert ledger.paths(content=1) == set()


def test_a_delete_file_has_a_row_for_each_data_file_that_it_names(lake: Lake) -> None:
    """Otherwise one without rows would take the place of one with rows."""
    ledger = Ledger.of(lake, properties=PER_PARTITION)
    path, other = ledger.append(1, 9), ledger.append(10, 19)
    for paths, rows in (((path,), 0), ((path, other), 1)):
        assert refusal(lambda paths=paths, rows=rows: delete(ledger, *paths, rows=rows)) == (
            "RequestInvalid",
            "delete-file",
        )


def test_data_files_are_not_replaced_by_delete_files(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    path, other = ledger.append(1, 9), ledger.append(10, 19)
    delete(ledger, other)
    engine, base = ledger.engine(), ledger.head().snapshot_id
    file = ledger.deletes(engine, other)
    with pytest.raises(NotSupportedYet):
        commit(ledger, (path,), [file], engine, base)


@pytest.mark.nightly
def test_a_data_file_that_is_rewritten_meanwhile_is_a_conflict(lake: Lake) -> None:
    """Its rows are deleted already: the positions would be those of a file that is gone."""
    ledger = Ledger.of(lake)
    path = ledger.append(1, 9)
    for _ in range(2):
        delete(ledger, path)
    (group,) = groups(ledger, FEW)
    base, engine = ledger.head().snapshot_id, ledger.engine()
    new = [ledger.file(engine, 1, 7)]
    ledger.commit("replace", new, engine, deleted_paths=(path,), base_snapshot_id=base)
    assert refusal(lambda: pack(ledger, group, ((path,), 2))) == (
        "ConcurrentModification",
        "referenced-files",
    )


def test_rows_that_are_deleted_meanwhile_stay_deleted(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    path = ledger.append(1, 9)
    for _ in range(2):
        delete(ledger, path)
    (group,) = groups(ledger, FEW)
    later = delete(ledger, path)
    pack(ledger, group, ((path,), 2))
    assert later in ledger.paths(content=1)
    assert len(ledger.paths(content=1)) == 2


def test_delete_files_that_another_delete_took_over_are_a_conflict(lake: Lake) -> None:
    """A DELETE can put the earlier positions of its data files into its own delete file."""
    ledger = Ledger.of(lake)
    path = ledger.append(1, 9)
    for _ in range(2):
        delete(ledger, path)
    (group,) = groups(ledger, FEW)
    engine, base = ledger.engine(), ledger.head().snapshot_id
    taken = ledger.deletes(engine, path, record_count=3)
    ledger.commit(
        "overwrite", [taken], engine, deleted_paths=group.paths, base_snapshot_id=base, command="delete"
    )
    with pytest.raises(ConcurrentModification):
        pack(ledger, group, ((path,), 2))
    assert ledger.paths(content=1) == {taken.path}


def test_options_that_have_no_effect_are_refused(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    ledger.append(1, 9)
    for options in ({"delete-file-threshold": "1"}, {"output-spec-id": "0"}, {"nonsense": "1"}):
        assert refusal(lambda options=options: groups(ledger, options)) == (
            "NotSupportedYet",
            "rewrite-option",
        )
    assert refusal(lambda: groups(ledger, {"min-input-files": "0"})) == ("RequestInvalid", "rewrite-option")
    assert refusal(lambda: groups(ledger, branch="absent")) == ("RequestInvalid", "branch")
