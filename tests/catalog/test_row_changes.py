"""Commits that remove files or rows: what they leave, and what they are refused for."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.expressions import (
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    NotEqualTo,
    NotNull,
    Or,
)
from pyiceberg.partitioning import PartitionSpec

from policy.errors import (
    RequestInvalid,
)
from tests.support.lake import ALICE, Lake
from tests.support.rewrites import make_keys
from tests.support.row_changes import Ledger
from tests.support.table_keys import rewrap
from tests.support.tables import ENCRYPTED, name_of


@pytest.fixture(params=["plaintext", "encrypted", "partly"])
def protection(request: pytest.FixtureRequest, lake: Lake) -> dict[str, Any]:
    """Options of a table: every encrypted one keeps its bounds sealed."""
    if request.param == "partly":
        make_keys(lake, "ids")
        return {"properties": {"encryption.columns": "ids:id"}}
    return (
        {} if request.param == "plaintext" else {"properties": ENCRYPTED, "partition_spec": PartitionSpec()}
    )


FILTERS: list[tuple[BooleanExpression, set[int] | None]] = [
    (AlwaysTrue(), {1, 2, 3}),
    (LessThan("id", 10), {1}),
    (GreaterThanOrEqual("id", 10), {2, 3}),
    (GreaterThan("id", 10), None),
    (EqualTo("id", 100), {3}),
    (In("id", {100, 5}), None),
    (NotEqualTo("id", 100), {1, 2}),
    (And(GreaterThan("id", 5), LessThan("id", 8)), None),
    (Or(LessThan("id", 10), EqualTo("id", 100)), {1, 3}),
    (NotNull("id"), {1, 2, 3}),
    (IsNull("id"), set()),
    (GreaterThan("id", 1000), set()),
]


def test_a_filter_removes_the_files_whose_rows_all_match(lake: Lake, protection: dict[str, Any]) -> None:
    """By the bounds, also where these are encrypted; nothing is removed if a file matches partly."""
    for row_filter, gone in FILTERS:
        ledger = Ledger.of(lake, **protection)
        files = {1: ledger.append(0, 9), 2: ledger.append(10, 19), 3: ledger.append(100, 100)}
        can = lake.services.whole_files.can_delete(
            lake.caller(ALICE), name_of(ledger.table), row_filter, "main", case_sensitive=True
        )
        assert can is (gone is not None), row_filter
        before = ledger.head()
        if gone is None:
            with pytest.raises(RequestInvalid) as refused:
                ledger.commit("delete", delete_filter=row_filter)
            assert refused.value.rule == "partial-file"
            assert ledger.head() == before
        else:
            ledger.commit("delete", delete_filter=row_filter)
            assert ledger.paths() == {path for number, path in files.items() if number not in gone}
            rows = {1: 10, 2: 10, 3: 1}
            removed = str(sum(rows[each] for each in gone)) if gone else None
            assert ledger.summary("deleted-records") == {"operation": "delete", "deleted-records": removed}


def test_partitions_decide_a_filter_without_bounds(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    engine = ledger.engine()
    files = {part: engine.file(partition={"part": part}) for part in ("a", "b", None)}
    engine.append(*files.values())
    ledger.commit("delete", delete_filter=And(NotNull("part"), NotEqualTo("part", "a")))
    assert ledger.paths() == {files["a"].path, files[None].path}
    with pytest.raises(RequestInvalid, match="not all rows"):
        ledger.commit("delete", delete_filter=And(EqualTo("part", "a"), EqualTo("id", 1)))
    ledger.commit("delete", delete_filter=Or(IsNull("part"), EqualTo("part", "zzz")))
    assert ledger.paths() == {files["a"].path}


def test_a_static_overwrite_replaces_what_matches(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    kept, _ = ledger.append(0, 9, "b"), ledger.append(0, 9, "a")
    engine = ledger.engine()
    new = ledger.file(engine, 20, 29)
    ledger.commit("overwrite", [new], engine, delete_filter=EqualTo("part", "a"))
    assert ledger.paths() == {kept, new.path}
    counts = ("added-data-files", "deleted-data-files", "added-records", "deleted-records", "total-records")
    assert list(ledger.summary(*counts).values()) == ["overwrite", "1", "1", "10", "10", "20"]


def test_a_dynamic_overwrite_replaces_the_partitions_of_its_files(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    kept, _ = ledger.append(0, 9, "b"), ledger.append(0, 9, None)
    engine = ledger.engine()
    new = [ledger.file(engine, 20, 29, part) for part in (None, "c")]
    ledger.commit("overwrite", new, engine, replace_partitions=True)
    assert ledger.paths() == {kept, *(each.path for each in new)}
    assert ledger.summary("replace-partitions") == {"operation": "overwrite", "replace-partitions": "true"}


def test_a_dynamic_overwrite_of_an_unpartitioned_table_replaces_everything(lake: Lake) -> None:
    ledger = Ledger.of(lake, partition_spec=PartitionSpec())
    ledger.append(0, 9)
    engine = ledger.engine()
    new = ledger.file(engine, 20, 29)
    ledger.commit("overwrite", [new], engine, replace_partitions=True)
    assert ledger.paths() == {new.path}


def test_position_deletes_are_committed_and_removed_with_their_partition(
    lake: Lake, protection: dict[str, Any]
) -> None:
    """They are encrypted under the epoch's footer key alone, and rewrapped as data files are."""
    ledger = Ledger.of(lake, **protection)
    partitioned = "partition_spec" not in protection
    first, second = ledger.append(0, 9), ledger.append(10, 19)
    base = ledger.head().snapshot_id
    engine = ledger.engine()
    given = {} if partitioned else {"partition": {}}
    deletes = ledger.deletes(engine, first, second, **given)
    ledger.commit("delete", [deletes], engine, base_snapshot_id=base, command="delete")
    assert ledger.paths(content=1) == {deletes.path} and ledger.paths() == {first, second}
    counts = ("added-delete-files", "added-position-deletes", "total-delete-files")
    assert list(ledger.summary(*counts).values()) == ["delete", "1", "1", "1"]
    if protection:
        lake.services.key_rotation.rotate(lake.caller(ALICE), name_of(ledger.table))
        assert rewrap(lake, name_of(ledger.table))["main"] == 3
        assert ledger.paths(content=1) == {deletes.path}
    ledger.commit("delete", delete_filter=AlwaysTrue())
    assert ledger.paths(content=1) == ledger.paths() == set()


def test_a_row_delta_has_iceberg_s_operations(lake: Lake) -> None:
    ledger = Ledger.of(lake)
    path = ledger.append(0, 9)
    for adds, operation in (
        ((True, True), "overwrite"),
        ((False, True), "delete"),
        ((True, False), "append"),
    ):
        engine = ledger.engine()
        added = [ledger.file(engine, 20, 29)] if adds[0] else []
        added += [ledger.deletes(engine, path)] if adds[1] else []
        base = ledger.head().snapshot_id
        ledger.commit("overwrite", added, engine, base_snapshot_id=base, command="merge")
        assert ledger.summary()["operation"] == operation
