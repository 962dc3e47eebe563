"""Commits that race, by the rules of Iceberg's own tests: which conflict, and which go on top of each other.

Each row is a test of Apache Iceberg (`TestOverwriteWithValidation`, `TestRowDelta`, `TestReplacePartitions`),
or a case beside it. The table has a file of ids 0 to 9 in each of the partitions `a` and `b`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue, And, EqualTo, GreaterThan, LessThan
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import RemoveSnapshotsUpdate, SetSnapshotRefUpdate
from pyiceberg.types import LongType, NestedField

from catalog.base.errors import ConcurrentModification
from catalog.writes.new_files import FileCommit, Isolation
from policy.errors import RequestInvalid
from tests.support.delete_files import add_deletes
from tests.support.lake import ALICE, Lake
from tests.support.row_changes import Ledger
from tests.support.tables import name_of

IN_A, IN_B = EqualTo("part", "a"), EqualTo("part", "b")
LOW, HIGH = LessThan("id", 10), GreaterThan("id", 50)


@dataclass
class Race:
    """A statement that began at the base, and what others commit before it does."""

    ledger: Ledger
    a: str
    b: str
    base: int
    paths: dict[str, str] = field(default_factory=dict)

    def commit(self, operation: Any, *, adds: str = "", deletes: str = "", **given: Any) -> None:
        """Commit.

        Args:
            operation: of the commit.
            adds: partitions that get a data file of ids 0 to 9; in capitals: of ids 100 to 109.
            deletes: files of which rows are deleted.
            given: fields of the commit.
        """
        engine = self.ledger.engine()
        parts = [(each.lower(), 0 if each.islower() else 100) for each in adds]
        files = [self.ledger.file(engine, low, low + 9, part) for part, low in parts]
        for each in deletes:
            files.append(self.ledger.deletes(engine, self.file(each), part=each))
        engine.commit(FileCommit(operation, tuple(files), **({"base_snapshot_id": self.base} | given)))
        self.paths |= {f"new {each}": file.path for each, file in zip(adds + deletes, files, strict=True)}

    def file(self, name: str) -> str:
        return {"a": self.a, "b": self.b}[name]

    def latest(self) -> dict[str, Any]:
        return {"base_snapshot_id": self.ledger.head().snapshot_id}

    def expire(self) -> None:
        self.update(RemoveSnapshotsUpdate(snapshot_ids=[self.base]))

    def move_back(self) -> None:
        """Read a commit that is taken back then."""
        first = self.base
        self.ledger.append(20, 29, "b")
        self.base = self.ledger.head().snapshot_id
        self.update(SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=first))

    def update(self, update: Any) -> None:
        lake = self.ledger.lake
        lake.services.committer.commit(lake.caller(ALICE), name_of(self.ledger.table), [], [update])

    def metadata(self) -> Any:
        return self.ledger.lake.services.loader.load_sealed(name_of(self.ledger.table)).metadata


def race(lake: Lake, **options: Any) -> Race:
    ledger = Ledger.of(lake, **options)
    engine = ledger.engine()
    files = [ledger.file(engine, 0, 9, part) for part in ("a", "b")]
    engine.append(*files)
    return Race(ledger, files[0].path, files[1].path, ledger.head().snapshot_id)


Act = Callable[[Race], Any]


def append(adds: str) -> Act:
    return lambda race: race.commit("append", adds=adds)


def remove(*names: str) -> Act:
    """Remove files by name, as a client's DELETE of whole files."""
    return lambda race: race.commit("delete", deleted_paths=tuple(map(race.file, names)), **race.latest())


def rewrite(name: str) -> Act:
    """Compact a file."""
    return lambda race: race.commit(
        "replace", adds=name, deleted_paths=(race.file(name),), schema_id=0, **race.latest()
    )


def delete_rows(name: str) -> Act:
    return lambda race: race.commit("delete", deletes=name, command="delete", **race.latest())


def equality_deletes(race: Race) -> None:
    add_deletes(race.ledger.lake, race.ledger.table, DataFileContent.EQUALITY_DELETES)


def change(
    adds: str = "",
    *,
    removes: str = "",
    deletes: str = "",
    command: str | None = "update",
    **given: Any,
) -> Act:
    """The statement: UPDATE by default."""
    return lambda race: race.commit(
        "overwrite" if adds else "delete",
        adds=adds,
        deletes=deletes,
        deleted_paths=tuple(map(race.file, removes)),
        command=command,
        **given,
    )


def by_filter(**given: Any) -> Act:
    return change("a", command=None, delete_filter=IN_A, **given)


def replace_partitions(adds: str = "a", **given: Any) -> Act:
    return change(adds, command=None, replace_partitions=True, **given)


SERIALIZABLE = {"isolation": Isolation.SERIALIZABLE}
SNAPSHOT = {"isolation": Isolation.SNAPSHOT}
update_a = change("a", removes="a", conflict_filter=IN_A)
update_rows_of_a = change("a", deletes="a", conflict_filter=IN_A)

#: The rule or test; what others commit; the statement; the rule by which it conflicts, None if it does not.
RULES: list[tuple[str, list[Act], Act, str | None]] = [
    ("OverwriteTableValidated", [], update_a, None),
    ("OverwriteTableStrictValidated", [], change("a", removes="a"), None),
    ("OverwriteCompatibleAdditionStrictValidated", [append("b")], change("a", removes="a"), "new-data"),
    ("OverwriteCompatibleAdditionValidated", [append("b")], update_a, None),
    ("OverwriteCompatibleDeletionValidated", [remove("b")], update_a, None),
    ("OverwriteIncompatibleAdditionValidated", [append("a")], change("a", conflict_filter=IN_A), "new-data"),
    ("OverwriteIncompatibleDeletionValidated", [remove("a")], update_a, "removed-files"),
    ("OverwriteIncompatibleRewrite", [rewrite("a")], update_a, "removed-files"),
    ("OverwriteCompatibleRewrite", [rewrite("b")], change("a", removes="a"), None),
    ("OverwriteExpiredBase", [append("b"), Race.expire], update_a, "base-snapshot"),
    ("OverwriteAfterRollback", [Race.move_back], update_a, "base-snapshot"),
    (
        "OverwriteAnotherRangeValidated",
        [append("A")],
        change("a", removes="a", conflict_filter=LOW),
        None,
    ),
    (
        "OverwriteAnotherRangeWithinPartitionValidated",
        [append("A")],
        change("a", removes="a", conflict_filter=And(IN_A, LOW)),
        None,
    ),
    ("OverwriteSameRange", [append("A")], change("a", removes="a", conflict_filter=HIGH), "new-data"),
    ("OverwriteEmptyBase", [], change("a", base_snapshot_id=None, conflict_filter=IN_A), "new-data"),
    ("OverwriteEmptyBaseOfOtherRows", [], change("a", base_snapshot_id=None, conflict_filter=HIGH), None),
    ("OverwriteTableNotValidated", [append("a")], by_filter(base_snapshot_id=None), None),
    ("ConcurrentConflictingPositionDeletes", [delete_rows("a")], update_a, "deleted-data"),
    (
        "ConcurrentConflictingPositionDeletesUnderSnapshot",
        [delete_rows("a")],
        change("a", removes="a", command=None, **SNAPSHOT),
        "new-deletes",
    ),
    ("ConcurrentNonConflictingPositionDeletes", [delete_rows("b")], update_a, None),
    (
        "ConcurrentConflictingPositionDeletesOverwriteByFilter",
        [delete_rows("a")],
        by_filter(**SNAPSHOT),
        "deleted-data",
    ),
    (
        "ConcurrentNonConflictingPositionDeletesOverwriteByFilter",
        [delete_rows("b")],
        by_filter(**SERIALIZABLE),
        None,
    ),
    (
        "ConcurrentConflictingDataFileDeleteOverwriteByFilter",
        [remove("a")],
        by_filter(**SNAPSHOT),
        "deleted-data",
    ),
    (
        "ConcurrentNonConflictingDataFileDeleteOverwriteByFilter",
        [remove("b")],
        by_filter(**SERIALIZABLE),
        None,
    ),
    ("ConcurrentAppendOverwriteByFilter", [append("a")], by_filter(**SERIALIZABLE), "new-data"),
    ("ConcurrentAppendOverwriteByFilterUnderSnapshot", [append("a")], by_filter(**SNAPSHOT), None),
    (
        "OverwriteByFilterInheritsConflictDetectionFilter",
        [append("b"), delete_rows("b")],
        by_filter(**SERIALIZABLE),
        None,
    ),
    ("ValidateDataFilesExistOverwrite", [update_a], update_rows_of_a, "referenced-files"),
    ("ValidateDataFilesExistRewrite", [rewrite("a")], update_rows_of_a, "referenced-files"),
    ("ValidateDataFilesExistValidateDeletes", [remove("a")], update_rows_of_a, "referenced-files"),
    (
        "ValidateDataFilesExistReplacePartitions",
        [replace_partitions()],
        change(deletes="a", command="delete", conflict_filter=HIGH),
        "referenced-files",
    ),
    ("ValidateDataFilesExistWithConflictDetectionFilter", [remove("b")], update_rows_of_a, None),
    ("ValidateNoConflicts", [append("a")], update_rows_of_a, "new-data"),
    ("ConcurrentConflictingRowDelta", [delete_rows("a")], update_rows_of_a, "deleted-data"),
    (
        "ConcurrentConflictingRowDeltaWithoutAppendValidation",
        [delete_rows("a")],
        change("a", deletes="a", command=None, **SNAPSHOT),
        "new-deletes",
    ),
    ("ConcurrentNonConflictingRowDelta", [delete_rows("b")], update_rows_of_a, None),
    ("FileDeleteAndRowDelete", [], change("b", deletes="a", removes="b"), None),
    (
        "ValidateFileDeleteAndRowDelete",
        [delete_rows("b")],
        change("b", deletes="a", removes="b", command="delete", conflict_filter=IN_A),
        "new-deletes",
    ),
    ("ConcurrentDeletesOfRows", [delete_rows("a")], change(deletes="a", command="delete"), None),
    ("ConcurrentAppendAndDeleteOfRows", [append("a")], change(deletes="a", command="delete"), "new-data"),
    ("ConcurrentEqualityDeletes", [equality_deletes], change("a", removes="a"), "deleted-data"),
    ("ConcurrentReplaceConflict", [replace_partitions()], replace_partitions(**SERIALIZABLE), "new-data"),
    ("ConcurrentReplaceNoConflict", [replace_partitions("b")], replace_partitions(**SERIALIZABLE), None),
    ("AppendReplaceConflict", [append("a")], replace_partitions(**SERIALIZABLE), "new-data"),
    ("AppendReplaceNoConflict", [append("b")], replace_partitions(**SERIALIZABLE), None),
    ("DeleteReplaceConflict", [delete_rows("a")], replace_partitions(**SNAPSHOT), "deleted-data"),
    ("DeleteReplaceNoConflict", [delete_rows("b"), remove("b")], replace_partitions(**SERIALIZABLE), None),
    ("OverwriteReplaceConflict", [remove("a")], replace_partitions(**SNAPSHOT), "deleted-data"),
    ("OverwriteReplaceNoConflict", [update_a], replace_partitions("b", **SERIALIZABLE), None),
    ("ValidateOnlyDeletes", [append("a")], replace_partitions(**SNAPSHOT), None),
    ("ReplaceNotValidated", [append("a"), delete_rows("a")], replace_partitions(), None),
]


@pytest.mark.rows_by_day(12)
@pytest.mark.parametrize(
    ("others", "statement", "rule"), [row[1:] for row in RULES], ids=[row[0] for row in RULES]
)
def test_a_commit_conflicts_by_iceberg_s_rules(
    lake: Lake, others: list[Act], statement: Act, rule: str | None
) -> None:
    made = race(lake, **({"partition_spec": PartitionSpec()} if equality_deletes in others else {}))
    for each in others:
        each(made)
    before = made.metadata()
    if rule is None:
        statement(made)
        assert made.ledger.head().parent_snapshot_id == before.current_snapshot_id
        return
    with pytest.raises(ConcurrentModification, match="Run the statement again") as refused:
        statement(made)
    assert refused.value.rule == rule
    assert made.metadata() == before


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["delete", "update", "merge"])
def test_the_table_s_property_is_the_isolation_of_a_command(lake: Lake, command: str) -> None:
    made = race(lake, properties={f"write.{command}.isolation-level": "Snapshot"})
    append("a")(made)
    change("a", removes="a", command=command)(made)
    others = {"delete", "update", "merge"} - {command}
    made.base = made.ledger.head().snapshot_id
    append("a")(made)
    for other in sorted(others):
        with pytest.raises(ConcurrentModification):
            change("a", removes="b", command=other)(made)


@pytest.mark.nightly
def test_two_deletes_can_rewrite_the_same_delete_file(lake: Lake) -> None:
    """Iceberg: testConcurrentDeletesRewriteSameRemoveRows and testConcurrentMergeRewriteSameRemoveRows."""
    made = race(lake)
    delete_rows("a")(made)
    first = made.paths["new a"]
    made.base = made.ledger.head().snapshot_id
    for _ in range(2):
        made.commit("delete", deletes="a", command="delete", deleted_paths=(first,))
    assert len(made.ledger.paths(content=1)) == 2 and first not in made.ledger.paths(content=1)
    with pytest.raises(ConcurrentModification) as refused:
        made.commit("delete", deletes="a", command="merge", deleted_paths=(first,), conflict_filter=HIGH)
    assert refused.value.rule in ("removed-files", "deleted-data")


def test_a_compaction_does_not_hide_rows_that_came_before_it(lake: Lake) -> None:
    """Iceberg validates each commit since the base, not the head alone."""
    made = race(lake)
    files = {name: made.ledger.append(0, 9, name) for name in "ab"}
    for _ in range(2):
        made.commit("replace", adds="a", deleted_paths=(files["a"],), schema_id=0, **made.latest())
        files["a"] = made.paths["new a"]
    rewrite("b")(made)
    with pytest.raises(ConcurrentModification) as refused:
        change("a", removes="a", conflict_filter=IN_A)(made)
    assert refused.value.rule == "new-data"
    change("a", removes="a", conflict_filter=And(IN_A, HIGH))(made)


def test_a_filter_means_the_columns_that_were_read(lake: Lake) -> None:
    schema = Schema(*(NestedField(number, name, LongType()) for number, name in ((1, "id"), (2, "other"))))
    ledger = Ledger.of(lake, schema=schema, partition_spec=PartitionSpec())
    ledger.append(0, 9)
    given: dict[str, Any] = {"base_snapshot_id": ledger.head().snapshot_id, "delete_filter": LOW}
    for old, new in (("id", "was"), ("other", "id")):
        with lake.catalog().load_table(ledger.table.name()).update_schema() as update:
            update.rename_column(old, new)
    for more in ({}, {"schema_id": 0}):
        with pytest.raises(ConcurrentModification) as refused:
            ledger.commit("delete", **given, **more)
        assert refused.value.rule == "schema"
    with pytest.raises(RequestInvalid) as partial:
        ledger.commit("delete", **given, schema_id=ledger.engine().session.table.metadata.current_schema_id)
    assert partial.value.rule == "partial-file"


def test_a_file_that_came_since_and_matches_in_part_is_a_conflict(lake: Lake) -> None:
    """Also where the filter is evaluated at the head: the statement succeeds when it is run again."""
    schema = Schema(NestedField(1, "id", LongType()))
    ledger = Ledger.of(lake, schema=schema, partition_spec=PartitionSpec())
    ledger.append(0, 9)
    base = ledger.head().snapshot_id
    ledger.append(5, 14)
    with pytest.raises(ConcurrentModification) as refused:
        ledger.commit("delete", base_snapshot_id=base, delete_filter=LOW)
    assert refused.value.rule == "new-data"


def test_a_file_of_which_rows_are_deleted_is_not_removed_as_well(lake: Lake) -> None:
    """Iceberg: testValidateFileDeleteAndRowDeleteSameFile."""
    made = race(lake)
    with pytest.raises(RequestInvalid) as refused:
        change(deletes="a", removes="a")(made)
    assert refused.value.rule == "delete-reference"


def test_commits_on_other_branches_never_conflict(lake: Lake) -> None:
    made = race(lake)
    append("a")(made)
    made.commit(
        "overwrite", adds="a", deleted_paths=(made.a,), command="update", branch="other", **made.latest()
    )
    made.base = made.ledger.head().snapshot_id
    change("a", removes="a")(made)
    assert made.a not in made.ledger.paths() | made.ledger.paths("other")


def test_a_new_branch_begins_at_the_head_of_main(lake: Lake) -> None:
    made = race(lake)
    made.ledger.append(20, 29, branch="fresh")
    assert made.ledger.paths("fresh") > {made.a, made.b} == made.ledger.paths()
    assert made.ledger.head("fresh").parent_snapshot_id == made.base


def test_a_file_that_matches_partly_is_a_conflict_if_it_came_since(lake: Lake) -> None:
    made = race(lake)
    conflicting = change(command=None, delete_filter=And(IN_A, LessThan("id", 105)), **SNAPSHOT)
    append("A")(made)
    with pytest.raises(ConcurrentModification) as refused:
        conflicting(made)
    assert refused.value.rule == "new-data"
    with pytest.raises(RequestInvalid) as again:
        change(command=None, delete_filter=LessThan("id", 5))(made)
    assert again.value.rule == "partial-file"


def test_truncate_needs_no_base(lake: Lake) -> None:
    made = race(lake)
    delete_rows("a")(made)
    change(command=None, delete_filter=AlwaysTrue(), base_snapshot_id=None)(made)
    assert made.ledger.paths() == made.ledger.paths(content=1) == set()
