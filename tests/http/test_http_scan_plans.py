"""Plans for standard clients under `/v1`: who gets one, what it has, and plans that are answered in parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.expressions import And, EqualTo, GreaterThan, In, NotNull
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import BinaryType, LongType, NestedField, StringType
from sqlalchemy import delete, func, select, update

from catalog.db.engine import read, write
from catalog.db.schema import lw_scan_plan
from catalog.http.iceberg_models import PlanTableScan
from catalog.state import scan_plans
from tests.support.delete_commits import POSITIONS, DeleteCommit
from tests.support.http_calls import ENCRYPTED, refused
from tests.support.lake import ALICE, BOB, policy, standard_policies, tables
from tests.support.service import ENGINE, Service, open_service
from tests.support.tables import Engine, append_files, make, named

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
#: Who gets no plan of `db`, and by which rule.
PARTIAL = {"granted": "policy-no-match", "denied": "policy-deny", "masked": "mask", "filtered": "row-filter"}
SELECT = [{"type": "select", "isAllowed": True}]


def _policies() -> list[dict[str, Any]]:
    name, every = (
        {"database": ["db"], "table": ["*"], "column": ["name"]},
        {"database": ["db"], "table": ["*"]},
    )
    masks = {"accesses": SELECT, "dataMaskInfo": {"dataMaskType": "MASK_SHOW_LAST_4"}}
    filters = {"accesses": SELECT, "rowFilterInfo": {"filterExpr": "id < 2"}}
    readers = ("denied", "masked", "filtered", "trusted", "shown")
    return [
        *standard_policies(),
        policy("read", tables("db"), {each: ["select"] for each in readers}),
        policy("id", name | {"column": ["id"]}, {"granted": ["select"]}),
        policy("no", name, {}, denyPolicyItems=[{"users": ["denied"], "accesses": SELECT}]),
        policy(
            "mask", name, {}, policyType=1, dataMaskPolicyItems=[{"users": ["masked", "trusted"], **masks}]
        ),
        policy(
            "rows",
            every,
            {},
            policyType=2,
            rowFilterPolicyItems=[{"users": ["filtered", "shown"], **filters}],
        ),
        policy("enforce", {"service": ["*"]}, {"trusted": ["enforce"], "shown": ["enforce"]}),
    ]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that answers plans of more than two files in parts."""
    settings = {"PLANNING__MODE": "server", "PLANNING__ANSWER_FILES": "2"}
    with open_service(tmp_path_factory.mktemp("lake"), policies=_policies(), **settings) as running:
        running.lake.catalog().create_namespace("db")
        make(running.lake, named("small"), SCHEMA)
        for first in (0, 10):
            _append(running, "small", first)
        make(running.lake, named("large"), SCHEMA)
        for first in range(0, 50, 10):
            _append(running, "large", first)
        make(running.lake, named("vault"), SCHEMA, properties=ENCRYPTED)
        yield running


def _append(served: Service, table: str, first: int, **given: Any) -> list[str]:
    """Append a file with the ids from `first` to `first` + 9."""
    ends = {name: {1: to_bytes(LongType(), end)} for name, end in _ends(first)}
    counts: dict[str, Any] = {"value_counts": {1: 10}, "null_value_counts": {1: 0}}
    return append_files(served.lake, named(table), **ends, **counts, **given)


def _ends(first: int) -> tuple[tuple[str, int], ...]:
    return ("lower_bounds", first), ("upper_bounds", first + 9)


def _url(served: Service, table: str, what: str = "plan", namespace: str = "db") -> str:
    return f"{served.prefix}/namespaces/{namespace}/tables/{table}/{what}"


def _plan(
    served: Service,
    table: str,
    user: str = ALICE,
    engine: str | None = None,
    namespace: str = "db",
    **body: Any,
) -> httpx.Response:
    with served.client(user, engine) as client:
        return client.post(_url(served, table, namespace=namespace), json=body)


def _tasks(served: Service, table: str, task: str, user: str = ALICE) -> httpx.Response:
    with served.client(user) as client:
        return client.post(_url(served, table, "tasks"), json={"plan-task": task})


def _paths(answer: httpx.Response) -> set[str]:
    assert answer.status_code == 200, answer.text
    return {each["data-file"]["file-path"] for each in answer.json()["file-scan-tasks"]}


def _kept(served: Service) -> int:
    with read(served.lake.services.engine) as connection:
        return connection.scalar(select(func.count()).select_from(lw_scan_plan)) or 0


def test_a_small_plan_is_answered_at_once(served: Service) -> None:
    kept = _kept(served)
    answer = _plan(served, "small").json()
    assert answer.keys() == {"status", "file-scan-tasks"} and answer["status"] == "completed"
    (first, second) = answer["file-scan-tasks"]
    assert first.keys() == {"data-file", "residual-filter"} and first["residual-filter"] is True
    file = first["data-file"]
    assert file["file-path"] != second["data-file"]["file-path"]
    assert file == {
        "content": "data",
        "spec-id": 0,
        "partition": [],
        "file-path": file["file-path"],
        "file-format": "parquet",
        "file-size-in-bytes": 1000,
        "record-count": 10,
    }
    assert _kept(served) == kept


def test_a_plan_has_what_the_filter_needs(served: Service) -> None:
    some = {"type": "gt", "term": "id", "value": 12}
    (task,) = _plan(served, "small", filter=some).json()["file-scan-tasks"]
    assert task["residual-filter"] == some
    assert _plan(served, "small", filter=False).json()["file-scan-tasks"] == []
    shouted = {"type": "gt", "term": "ID", "value": 12}
    (task,) = _plan(served, "small", filter=shouted, **{"case-sensitive": False}).json()["file-scan-tasks"]
    assert task["residual-filter"] == shouted
    refused(_plan(served, "small", filter=shouted), 400, "RequestInvalid", "column")


@pytest.mark.nightly
def test_a_filter_on_a_transform_is_planned(served: Service) -> None:
    buckets = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "b"))
    make(served.lake, named("buckets"), SCHEMA, partition_spec=buckets)
    for bucket in (1, 2):
        _append(served, "buckets", 0, partition={"b": bucket})

    def on(transform: str, value: Any, column: str = "id") -> dict[str, Any]:
        term = {"type": "transform", "transform": transform, "term": column}
        return {"type": "eq", "term": term, "value": value}

    some = {"type": "gt", "term": "id", "value": 3}
    both = {"type": "and", "left": on("bucket[4]", 2), "right": some}
    (task,) = _plan(served, "buckets", filter=both).json()["file-scan-tasks"]
    assert (task["data-file"]["partition"], task["residual-filter"]) == ([2], some)
    for term in (on("bucket[8]", 2), on("truncate[2]", "ab", "name"), on("truncate[10]", 70)):
        tasks = _plan(served, "buckets", filter=term).json()["file-scan-tasks"]
        assert [each["residual-filter"] for each in tasks] == [term] * 2
    # An answer in parts keeps the filter between requests.
    planned = _plan(served, "large", filter=on("bucket[8]", 2)).json()
    for each in planned["plan-tasks"]:
        tasks = _tasks(served, "large", each).json()["file-scan-tasks"]
        assert {json.dumps(each["residual-filter"]) for each in tasks} == {json.dumps(on("bucket[8]", 2))}
    for wrong in (on("year", 1), on("bucket[4]", "a"), on("bucket[4]", 1.5), on("truncate[1]", 1, "name")):
        refused(_plan(served, "buckets", filter=wrong), 400, "RequestInvalid", "filter")
    refused(_plan(served, "buckets", filter=on("day", 1, "nothing")), 400, "RequestInvalid", "column")
    # Under a mask, a condition on the column prunes nothing, nor does one on a transform of it.
    by_name = on("truncate[1]", "a", "name")
    tasks = _plan(served, "small", "trusted", ENGINE, filter=by_name).json()["file-scan-tasks"]
    assert [each["residual-filter"] for each in tasks] == [True, True]
    refused(_plan(served, "small", "denied", filter=by_name), 403, "NotAuthorized", PARTIAL["denied"])


def test_statistics_are_given_to_those_who_ask(served: Service) -> None:
    (first, *_) = _plan(served, "small", **{"stats-fields": ["id", "name"]}).json()["file-scan-tasks"]
    file = first["data-file"]
    assert file["value-counts"] == {"keys": [1], "values": [10]}
    (lower,) = file["lower-bounds"]["values"]
    assert bytes.fromhex(lower) in {to_bytes(LongType(), 0), to_bytes(LongType(), 10)}
    refused(_plan(served, "small", **{"stats-fields": ["nothing"]}), 400, "RequestInvalid", "column")


def test_enough_rows_are_enough(served: Service) -> None:
    assert len(_paths(_plan(served, "small", **{"min-rows-requested": 1}))) == 1
    assert len(_paths(_plan(served, "small", **{"min-rows-requested": 11}))) == 2
    some = {"type": "gt-eq", "term": "id", "value": 0}
    assert len(_paths(_plan(served, "small", filter=some, **{"min-rows-requested": 1}))) == 2


def test_each_kind_of_scan(served: Service) -> None:
    snapshots = served.lake.catalog().load_table("db.small").metadata.snapshots
    first, last = (each.snapshot_id for each in snapshots)
    before = _paths(_plan(served, "small", **{"snapshot-id": first, "use-snapshot-schema": True}))
    appended = _paths(_plan(served, "small", **{"start-snapshot-id": first, "end-snapshot-id": last}))
    assert len(before) == len(appended) == 1
    assert before | appended == _paths(_plan(served, "small"))
    for wrong, rule in (
        ({"snapshot-id": 7}, "snapshot"),
        ({"start-snapshot-id": first}, "increment"),
        ({"end-snapshot-id": last}, "increment"),
        ({"snapshot-id": last, "start-snapshot-id": first, "end-snapshot-id": last}, "increment"),
        ({"start-snapshot-id": last, "end-snapshot-id": first}, "start-snapshot"),
        ({"filter": None}, "filter"),
        ({"select": ["nothing"]}, "column"),
        ({"min-rows-requested": -1}, "request"),
    ):
        refused(_plan(served, "small", **wrong), 400, "RequestInvalid", rule)


def test_names_are_of_the_schema_that_is_asked_for(served: Service) -> None:
    # Policies of `db` name the column.
    served.lake.catalog().create_namespace("other")
    table = make(served.lake, named("renamed", "other"), SCHEMA)
    append_files(served.lake, named("renamed", "other"))
    table = served.lake.catalog().load_table(table.name())
    past = {"snapshot-id": table.metadata.current_snapshot_id, "namespace": "other"}
    with table.update_schema() as change:
        change.rename_column("id", "number")
    assert _paths(_plan(served, "renamed", select=["number", "_file", "_pos", "_deleted"], **past))
    refused(_plan(served, "renamed", select=["id"], **past), 400, "RequestInvalid", "column")
    assert _paths(_plan(served, "renamed", select=["id"], **past, **{"use-snapshot-schema": True}))


def test_partitions_are_lists_and_answer_conditions(served: Service) -> None:
    make(served.lake, named("parted"), SCHEMA, partition_spec=BY_NAME)
    for name in ("a", None):
        _append(served, "parted", 0, partition={"name": name})
    tasks = _plan(served, "parted").json()["file-scan-tasks"]
    assert sorted((each["data-file"]["partition"] for each in tasks), key=str) == [["a"], [None]]
    both = {
        "type": "and",
        "left": {"type": "eq", "term": "name", "value": "a"},
        "right": {"type": "gt", "term": "id", "value": 3},
    }
    (task,) = _plan(served, "parted", filter=both).json()["file-scan-tasks"]
    assert task["data-file"]["partition"] == ["a"] and task["residual-filter"] == both["right"]


def test_delete_files_are_referred_to(served: Service) -> None:
    make(served.lake, named("deleted"), SCHEMA)
    (path,) = _append(served, "deleted", 0)
    _append(served, "deleted", 10)
    engine = Engine.begin(served.lake, named("deleted"))
    commit = DeleteCommit(served.lake.services, served.lake.caller(ALICE), engine.session)
    commit.add(engine.file(content=1, referenced_data_files=(path,)), POSITIONS)
    commit.commit()
    answer = _plan(served, "deleted").json()
    (delete,) = answer["delete-files"]
    assert delete["content"] == "position-deletes"
    refers = {
        each["data-file"]["file-path"]: each.get("delete-file-references")
        for each in answer["file-scan-tasks"]
    }
    assert refers.pop(path) == [0] and list(refers.values()) == [None]
    only = _plan(served, "deleted", filter={"type": "gt", "term": "id", "value": 12}).json()
    assert "delete-files" not in only and len(only["file-scan-tasks"]) == 1


@pytest.mark.parametrize(("user", "rule"), PARTIAL.items())
def test_who_does_not_see_everything_gets_no_plan(served: Service, user: str, rule: str) -> None:
    error = refused(_plan(served, "small", user), 403, "NotAuthorized", rule)
    assert error["type"] == "ForbiddenException" and "file:" not in error["message"]
    plan = _plan(served, "large").json()
    refused(_tasks(served, "large", plan["plan-tasks"][0], user), 403, "NotAuthorized", rule)
    with served.client(user) as client:
        refused(client.get(_url(served, "large", f"plan/{plan['plan-id']}")), 403, "NotAuthorized", rule)


def test_an_encrypted_table_is_planned_for_engines_alone(served: Service) -> None:
    refused(_plan(served, "vault"), 403, "NotAuthorized", "standard-client")
    append_files(served.lake, named("vault"))
    (task,) = _plan(served, "vault", engine=ENGINE).json()["file-scan-tasks"]
    assert "key-metadata" not in task["data-file"]


def test_a_client_that_enforces_masks_filters_by_masked_values(served: Service) -> None:
    masked = {"type": "eq", "term": "name", "value": "zzz"}
    both = {"type": "and", "left": masked, "right": {"type": "gt", "term": "id", "value": 12}}
    (task,) = _plan(served, "small", "trusted", filter=both).json()["file-scan-tasks"]
    assert task["residual-filter"] == both["right"]
    for user, fields in (("trusted", ["name"]), ("shown", ["id"])):
        answer = _plan(served, "small", user, **{"stats-fields": fields})
        refused(answer, 403, "NotAuthorized", "statistics")
    assert len(_paths(_plan(served, "small", "shown", **{"min-rows-requested": 1}))) == 2
    assert _paths(_plan(served, "small", "trusted", **{"stats-fields": ["id"]}))


def test_a_large_plan_is_answered_in_parts(served: Service) -> None:
    plan = _plan(served, "large").json()
    assert plan["status"] == "completed" and plan["file-scan-tasks"] == []
    parts = [_paths(_tasks(served, "large", task)) for task in plan["plan-tasks"]]
    assert [len(each) for each in parts] == [2, 2, 1]
    assert len(set().union(*parts)) == 5
    with served.client() as client:
        assert client.get(_url(served, "large", f"plan/{plan['plan-id']}")).json() == plan
    assert _paths(_plan(served, "large", filter={"type": "lt", "term": "id", "value": 0})) == set()


@pytest.mark.nightly
def test_parts_are_of_the_snapshot_that_was_planned(served: Service) -> None:
    make(served.lake, named("growing"), SCHEMA)
    paths = [path for first in range(0, 40, 10) for path in _append(served, "growing", first)]
    some = {"type": "gt", "term": "id", "value": 12}
    plan = _plan(served, "growing", filter=some).json()
    _append(served, "growing", 40)
    found = [_tasks(served, "growing", task).json()["file-scan-tasks"] for task in plan["plan-tasks"]]
    tasks = [each for part in found for each in part]
    assert {each["data-file"]["file-path"] for each in tasks} == set(paths[1:])
    assert all(each["residual-filter"] == some for each in tasks)


def test_a_plan_is_its_users_and_its_tables(served: Service) -> None:
    """Another one's plan is answered as one that does not exist; so is one that was cancelled or expired."""
    policies = [*_policies(), policy("bob", tables("db"), {BOB: ["select"]})]
    served.lake.set_policies(policies)
    plan = _plan(served, "large").json()
    (task, *_), plan_id = plan["plan-tasks"], plan["plan-id"]
    unknown = refused(_tasks(served, "large", f"{uuid4()}.0"), 404, "NoSuchPlanTask", "scan-plan")
    assert unknown["type"] == "NoSuchPlanTaskException"
    others = (
        _tasks(served, "large", task, BOB),
        _tasks(served, "small", task),
        _tasks(served, "large", f"{plan_id}.3"),
        _tasks(served, "large", "x"),
    )
    for answer in others:
        error = refused(answer, 404, "NoSuchPlanTask", "scan-plan")
        assert error["message"].partition(" [")[0] == unknown["message"].partition(" [")[0]
    for user, table in ((BOB, "large"), (ALICE, "small")):
        with served.client(user) as client:
            for method in ("GET", "DELETE"):
                answer = client.request(method, _url(served, table, f"plan/{plan_id}"))
                assert refused(answer, 404, "NoSuchPlan", "scan-plan")["type"] == "NoSuchPlanIdException"
    assert _tasks(served, "large", task).status_code == 200
    with served.client() as client:
        assert client.delete(_url(served, "large", f"plan/{plan_id}")).status_code == 204
        refused(client.delete(_url(served, "large", f"plan/{plan_id}")), 404, "NoSuchPlan", "scan-plan")
    refused(_tasks(served, "large", task), 404, "NoSuchPlanTask", "scan-plan")


def test_a_part_is_decided_by_the_policies_in_force_when_it_is_fetched(served: Service) -> None:
    policies = [*_policies(), policy("bob", tables("db"), {BOB: ["select"]})]
    served.lake.set_policies(policies)
    (task, *_) = _plan(served, "large", BOB).json()["plan-tasks"]
    assert _tasks(served, "large", task, BOB).status_code == 200
    served.lake.set_policies(_policies())
    refused(_tasks(served, "large", task, BOB), 403, "NotAuthorized", "policy-no-match")
    masks = {"users": [BOB], "accesses": SELECT, "dataMaskInfo": {"dataMaskType": "MASK_SHOW_LAST_4"}}
    column = {"database": ["db"], "table": ["*"], "column": ["name"]}
    masked = policy("bobs", column, {}, policyType=1, dataMaskPolicyItems=[masks])
    trusts = policy("trusts", {"service": ["*"]}, {BOB: ["enforce"]})
    served.lake.set_policies([*policies, masked, trusts])
    refused(_tasks(served, "large", task, BOB), 403, "NotAuthorized", "policy-changed")
    served.lake.set_policies(_policies())


@pytest.mark.nightly
def test_parts_of_an_expired_snapshot_or_plan_do_not_exist(served: Service) -> None:
    make(served.lake, named("expiring"), SCHEMA)
    for first in range(0, 30, 10):
        _append(served, "expiring", first)
    (task, *_) = _plan(served, "expiring").json()["plan-tasks"]
    with write(served.lake.services.engine) as connection:
        connection.execute(update(lw_scan_plan).values(expires_ms=1))
    refused(_tasks(served, "expiring", task), 404, "NoSuchPlanTask", "scan-plan")
    (task, *_) = _plan(served, "expiring").json()["plan-tasks"]
    assert _kept(served) == 1, "plans that expired are removed when another one is kept"
    table = served.lake.catalog().load_table("db.expiring")
    planned = table.metadata.current_snapshot_id
    _append(served, "expiring", 30)
    assert planned is not None
    served.lake.catalog().load_table("db.expiring").maintenance.expire_snapshots().by_id(planned).commit()
    refused(_tasks(served, "expiring", task), 404, "NoSuchPlanTask", "scan-plan")


def test_a_user_keeps_a_bounded_number_of_plans(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with write(served.lake.services.engine) as connection:
        connection.execute(delete(lw_scan_plan))
    monkeypatch.setattr(scan_plans, "MAX_PLANS", 1)
    plan = _plan(served, "large").json()
    refused(_plan(served, "large"), 503, "StateUnavailable", "scan-plans")
    with served.client() as client:
        client.delete(_url(served, "large", f"plan/{plan['plan-id']}"))
    assert _plan(served, "large").status_code == 200


def test_the_catalog_and_a_table_say_who_plans(served: Service) -> None:
    with served.client() as client:
        config = client.get("/v1/config").json()
        table = f"{served.prefix}/namespaces/db/tables/small"
        assert config["defaults"] == {"scan-planning-mode": "server"}
        path = "/v1/{prefix}/namespaces/{namespace}/tables/{table}"
        wanted = {f"POST {path}/plan", f"GET {path}/plan/{{plan-id}}", f"DELETE {path}/plan/{{plan-id}}"}
        assert {*wanted, f"POST {path}/tasks"} <= set(config["endpoints"])
        assert "scan-planning-mode" not in client.get(table).json()["config"]
        for mode, status in (("client", 200), ("catalog", 400)):
            update = {"action": "set-properties", "updates": {"read.scan-planning-mode": mode}}
            assert client.post(table, json={"requirements": [], "updates": [update]}).status_code == status
        assert client.get(table).json()["config"]["scan-planning-mode"] == "client"


@pytest.mark.nightly
def test_pyiceberg_reads_what_the_catalog_plans(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client as it is: it takes the mode and the prefix from the configuration."""
    stock = served.iceberg()
    planned: list[str] = []
    real = RestCatalog.plan_scan

    def plan_scan(self: RestCatalog, identifier: Any, request: Any) -> Any:
        planned.append(str(identifier))
        return real(self, identifier, request)

    monkeypatch.setattr(RestCatalog, "plan_scan", plan_scan)
    table = stock.create_table("db.real", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    with table.update_spec() as change:
        change.add_identity("name")
    for first in range(3):
        table.append(pa.table({"id": [first, first + 100], "name": ["a", "b"]}))
    assert table.scan().to_arrow().num_rows == 6
    found = table.scan(And(EqualTo("name", "b"), GreaterThan("id", 100)), selected_fields=("id",)).to_arrow()
    assert sorted(found["id"].to_pylist()) == [101, 102]
    assert table.scan(EqualTo("name", "a"), limit=1).to_arrow().num_rows == 1
    assert len(planned) == 3
    with pytest.raises(ForbiddenError):
        served.iceberg("filtered").load_table("db.real")


def test_pyiceberg_filters_by_timestamps_with_zones(served: Service) -> None:
    """It leaves the zone out of the request, and needs it in the residual filter."""
    table = served.iceberg().create_table("db.zoned", pa.schema([("at", pa.timestamp("us", "UTC"))]))
    times = [datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    table.append(pa.table({"at": pa.array(times, pa.timestamp("us", "UTC"))}))
    for condition, count in ((EqualTo("at", times[1]), 1), (In("at", times[1:]), 2)):  # type: ignore[call-arg]
        assert table.scan(And(condition, NotNull("at"))).to_arrow().num_rows == count  # type: ignore[call-arg]


def test_the_body_is_that_of_the_specification() -> None:
    names = {each.alias for each in PlanTableScan.model_fields.values()}
    assert names == {
        "snapshot-id",
        "select",
        "filter",
        "min-rows-requested",
        "case-sensitive",
        "use-snapshot-schema",
        "start-snapshot-id",
        "end-snapshot-id",
        "stats-fields",
    }


def test_values_of_binary_columns_are_in_hexadecimal(served: Service) -> None:
    """As Iceberg's Java library sends them, and reads them in the residual filter."""
    schema = Schema(NestedField(1, "key", BinaryType()), NestedField(2, "id", LongType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "key"))
    table = served.iceberg().create_table("db.binary", schema, partition_spec=spec)
    table.append(pa.table({"key": pa.array([b"\x00\xff", b"a"], pa.binary()), "id": [1, 2]}))
    wanted = {"type": "eq", "term": "key", "value": "00FF"}
    either = {"type": "or", "left": wanted, "right": {"type": "in", "term": "id", "values": [2]}}
    unknown = {"type": "and", "left": {"type": "not-eq", "term": "key", "value": "00fe"}, "right": either}
    assert len(_paths(_plan(served, "binary", filter=wanted))) == 1
    assert len(_paths(_plan(served, "binary", filter=either))) == 2
    assert len(_paths(_plan(served, "binary", filter=unknown))) == 2
    odd = _plan(served, "binary", filter={"type": "eq", "term": "key", "value": "0"})
    refused(odd, 400, "RequestInvalid", "filter")


@pytest.mark.nightly
def test_names_of_the_current_schema_are_found_under_the_snapshots(served: Service) -> None:
    """Spark with Iceberg 1.11 says `use-snapshot-schema` of every scan, whichever schema its names are of."""
    table = served.iceberg().create_table("db.evolved", pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    table.append(pa.table({"a": [1], "b": [20]}))
    with table.update_schema() as change:
        change.rename_column("a", "z").add_column("c", LongType())
    with table.update_schema() as change:
        change.rename_column("b", "a")

    def plan(term: str, value: int, *columns: str) -> httpx.Response:
        condition = {"type": "eq", "term": term, "value": value}
        given = {"select": list(columns), "filter": condition, "use-snapshot-schema": True}
        return _plan(served, "evolved", **given)

    assert [len(_paths(plan("z", value, "z", "c"))) for value in (1, 20)] == [1, 0]
    assert [len(_paths(plan("b", value, "a", "b"))) for value in (1, 20)] == [0, 1]
    assert [len(_paths(plan("a", value, "z", "a"))) for value in (1, 20)] == [0, 1]
    refused(plan("a", 20, "a"), 400, "RequestInvalid", "ambiguous-column")
    refused(plan("z", 1, "b"), 400, "RequestInvalid", "column")
