"""Plans for standard clients, in process: the same checks as for engines, and forms that clients read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.expressions import EqualTo, GreaterThan, In
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.types import DateType, DoubleType, PrimitiveType, StringType

from catalog.base.errors import NoSuchPlanTask, NoSuchTable
from catalog.http import scan_tasks
from catalog.http.scan_tasks import planned_answer
from catalog.planning.standard import StandardPlanner
from catalog.planning.standard_request import StandardScan
from catalog.planning.standard_scan import StandardPlan
from catalog.reading.snapshots import SnapshotReader
from catalog.state import scan_plans
from policy.errors import (
    LocationNotAllowed,
    MetadataTampered,
    NotAuthorized,
    RequestInvalid,
    StateUnavailable,
)
from tests.planning.test_plan_hostile import partitioned, plant
from tests.support.lake import ALICE, CAROL, Lake, policy
from tests.support.tables import append_files, make, name_of, named, rows

SELECT = [{"type": "select", "isAllowed": True}]


@pytest.fixture(scope="module")
def planner(lake: Lake) -> StandardPlanner:
    """The planner."""
    return lake.services.standard_planner


@pytest.fixture
def small_parts(planner: StandardPlanner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of more than one file are answered in parts."""
    monkeypatch.setattr(planner, "_answer_files", 1)


def plan(lake: Lake, table: Table, user: str = ALICE, **scan: Any) -> StandardPlan:
    """The plan of a standard client."""
    caller = replace(lake.caller(user), standard=True)
    return lake.services.standard_planner.plan(caller, name_of(table), StandardScan(**scan))


def part(lake: Lake, table: Table, task: str, user: str = ALICE) -> StandardPlan:
    """A part of a plan."""
    caller = replace(lake.caller(user), standard=True)
    return lake.services.standard_planner.part(caller, name_of(table), task)


def partitions(planned: StandardPlan) -> list[str]:
    return sorted(planned.files["partition"].to_pylist())


def test_a_manifest_that_was_edited_is_not_planned(
    lake: Lake, planner: StandardPlanner, small_parts: None
) -> None:
    table = make(lake)
    paths = [append_files(lake, name_of(table)) for _ in range(2)]
    planned = plan(lake, table)
    assert len(planned.plan_tasks) == len(paths)
    for manifest in lake.catalog().load_table(table.name()).inspect.manifests()["path"].to_pylist():
        with open(manifest.removeprefix("file://"), "r+b") as stored:
            stored.seek(-20, 2)
            stored.write(b"x")
    for task in planned.plan_tasks:
        with pytest.raises(MetadataTampered):
            part(lake, table, task)
    planner._answer_files = 10
    with pytest.raises(MetadataTampered):
        plan(lake, table)


def test_a_file_outside_of_the_allowed_locations_is_not_planned(
    lake: Lake, planner: StandardPlanner, small_parts: None
) -> None:
    """The list is narrowed by force after the files came: a part has paths of its own, which are checked."""
    table = make(lake)
    for _ in range(2):
        append_files(lake, name_of(table))
    planned = plan(lake, table, filter=GreaterThan("id", 5))
    (path, *_) = part(lake, table, planned.plan_tasks[0]).files["file_path"].to_pylist()
    narrow = SetPropertiesUpdate(updates={"read.allowed.data.paths": f"{table.location()}/metadata"})
    lake.services.committer.commit(lake.caller(ALICE), name_of(table), (), (narrow,), force=True)
    with pytest.raises(LocationNotAllowed):
        part(lake, table, planned.plan_tasks[0])
    planner._answer_files = 10
    with pytest.raises(LocationNotAllowed) as refused:
        plan(lake, table, CAROL)
    assert refused.value.path is None and path not in str(refused.value), "Carol does not maintain the table"


@pytest.mark.nightly
def test_manifests_without_live_files_are_parts_of_a_plan(lake: Lake, small_parts: None) -> None:
    """Such a manifest comes first in the list here."""
    table = make(lake)
    for first in (0, 10):
        lake.catalog().load_table(table.name()).append(rows(first))
    lake.catalog().load_table(table.name()).delete(EqualTo("id", 0))
    lake.catalog().load_table(table.name()).delete(EqualTo("id", 1))
    planned = plan(lake, table)
    found = [part(lake, table, task) for task in planned.plan_tasks] or [planned]
    assert sum(each.data_files for each in found) == 1


def test_every_replica_answers_a_part(lake: Lake, small_parts: None) -> None:
    table = make(lake)
    paths = [path for _ in range(3) for path in append_files(lake, name_of(table))]
    planned = plan(lake, table)
    replica, caller = StandardPlanner(lake.services, lake.services.access), lake.caller(ALICE)
    found = [replica.part(caller, name_of(table), task) for task in planned.plan_tasks]
    assert {path for each in found for path in each.files["file_path"].to_pylist()} == set(paths)
    assert planned.plan_id is not None
    replica.cancel(caller, name_of(table), planned.plan_id)
    with pytest.raises(NoSuchPlanTask):
        part(lake, table, planned.plan_tasks[0])


def test_kept_plans_of_a_user_have_a_bounded_size(
    lake: Lake, small_parts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(lake)
    for _ in range(2):
        append_files(lake, name_of(table))
    monkeypatch.setattr(scan_plans, "MAX_CHARACTERS", 20_000)
    plan(lake, table, CAROL)
    with pytest.raises(StateUnavailable):
        plan(lake, table, CAROL, columns=("id",) * 10_000)


def test_an_answer_has_a_bounded_size(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(lake)
    append_files(lake, name_of(table), 2)
    monkeypatch.setattr(scan_tasks, "MAX_ANSWER", 1_000)
    assert planned_answer(plan(lake, table)).status_code == 200
    with pytest.raises(RequestInvalid) as refused:
        planned_answer(plan(lake, table, filter=In("name", [f"n{number}" for number in range(200)])))
    assert refused.value.rule == "plan-size"


def test_partition_values_without_a_column_are_null(lake: Lake) -> None:
    """A client takes their types from the current schema; the snapshot's own schema can filter by them."""
    table = partitioned(lake, StringType())
    for value in ("x", "y"):
        append_files(lake, name_of(table), partition={"p": value})
    table = lake.catalog().load_table(table.name())
    first = table.metadata.snapshots[-1].snapshot_id
    with table.update_spec() as spec:
        spec.remove_field("p")
    with lake.catalog().load_table(table.name()).update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("p")
    append_files(lake, name_of(table), partition={}, spec_id=1)
    assert partitions(plan(lake, table)) == ["[]", "[null]", "[null]"]
    some: dict[str, Any] = {"snapshot_id": first, "use_snapshot_schema": True, "filter": EqualTo("p", "y")}
    planned = plan(lake, table, **some)
    assert partitions(planned) == ["[null]"]
    assert planned.left is not None and planned.left.of(0, "[null]") == EqualTo("p", "y")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (DateType(), 2**31 - 1, '["+5881580-07-11"]'),
        (DoubleType(), float("nan"), '["NaN"]'),
        (DoubleType(), 1.0, "[1.0]"),
        (StringType(), None, "[null]"),
    ],
    ids=str,
)
def test_forms_of_partition_values(lake: Lake, kind: PrimitiveType, value: object, text: str) -> None:
    table = partitioned(lake, kind)
    plant(lake, table, value)
    assert partitions(plan(lake, table)) == [text]


def test_two_zeros_are_two_partitions(lake: Lake) -> None:
    table = partitioned(lake, DoubleType())
    for value in (0.0, -0.0):
        plant(lake, table, value)
    assert partitions(plan(lake, table)) == ["[-0.0]", "[0.0]"]


def test_a_table_without_snapshots_has_an_empty_plan(lake: Lake) -> None:
    planned = plan(lake, make(lake))
    assert planned.data_files == 0 and planned.plan_id is None
    caller = replace(lake.caller(ALICE), standard=True)
    with pytest.raises(NoSuchTable):
        lake.services.standard_planner.plan(caller, named("gone"), StandardScan())


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Do something while the manifests of the next plan are read."""

    def set_up(action: Callable[[], None]) -> None:
        real, left = SnapshotReader.open, [action]

        def opening(*arguments: Any, **named: Any) -> Any:
            if left:
                left.pop()()
            return real(*arguments, **named)

        monkeypatch.setattr(SnapshotReader, "open", opening)

    yield set_up


def test_policies_that_come_while_a_scan_is_planned_decide_it(
    lake: Lake, policies: Callable[..., None], meanwhile: Callable[[Callable[[], None]], None]
) -> None:
    table = make(lake)
    append_files(lake, name_of(table))
    column = {"database": ["db"], "table": ["*"], "column": ["name"]}
    denied = policy("no", column, {}, denyPolicyItems=[{"users": [CAROL], "accesses": SELECT}])
    meanwhile(lambda: policies(denied))
    with pytest.raises(NotAuthorized) as refused:
        plan(lake, table, CAROL)
    assert refused.value.rule == "policy-deny"


def test_masks_that_come_while_a_scan_is_planned_refuse_it(
    lake: Lake, policies: Callable[..., None], meanwhile: Callable[[Callable[[], None]], None]
) -> None:
    """The client enforces masks, but the plan was pruned by values that it shows masked by now."""
    table = make(lake)
    append_files(lake, name_of(table))
    column = {"database": ["db"], "table": ["*"], "column": ["name"]}
    shown = {"users": [CAROL], "accesses": SELECT, "dataMaskInfo": {"dataMaskType": "MASK_HASH"}}
    masked = policy("mask", column, {}, policyType=1, dataMaskPolicyItems=[shown])
    trusts = policy("trusts", {"service": ["*"]}, {CAROL: ["enforce"]})
    policies(trusts)
    meanwhile(lambda: policies(trusts, masked))
    with pytest.raises(NotAuthorized) as refused:
        plan(lake, table, CAROL, filter=EqualTo("name", "a"))
    assert refused.value.rule == "policy-changed"


def test_whole_files_are_refused_whatever_way_they_are_asked_for(
    lake: Lake, policies: Callable[..., None]
) -> None:
    table = make(lake)
    rows = {"users": [CAROL], "accesses": SELECT, "rowFilterInfo": {"filterExpr": "id < 2"}}
    where = {"database": ["db"], "table": [table.name()[-1]]}
    policies(policy("rows", where, {}, policyType=2, rowFilterPolicyItems=[rows]))
    with pytest.raises(NotAuthorized) as refused:
        lake.services.standard_planner.plan(lake.caller(CAROL), name_of(table), StandardScan())
    assert refused.value.rule == "row-filter"


def test_scans_are_kept_as_they_were_asked_for() -> None:
    scan = StandardScan(
        snapshot_id=1,
        columns=("a", "b.c"),
        filter=GreaterThan("a", 1.5),
        case_sensitive=False,
        stats_fields=("a",),
        min_rows=3,
        schema_id=2,
    )
    assert StandardScan.from_json(scan.to_json()) == scan
    assert StandardScan.from_json(StandardScan().to_json()) == StandardScan()
