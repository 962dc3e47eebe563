"""What a standard client that is trusted to enforce row filters and masks gets under `/v1`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.statistics import StatisticsFile
from pyiceberg.types import DateType, LongType, NestedField, StringType

from tests.support.http_calls import new_key, refused
from tests.support.lake import policy, standard_policies, tables
from tests.support.service import ENGINE, Service, open_service

ORDERS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "card", StringType()),
    NestedField(4, "born", DateType()),
    NestedField(5, "owner", StringType()),
)
READERS = ("sue", "bob", "max", "coder")
SELECT = [{"type": "select", "isAllowed": True}]


def mask(column: str, mask_type: str, *users: str) -> dict[str, Any]:
    """A masking policy on a column of the tables of `db`."""
    item = {"users": list(users), "accesses": SELECT, "dataMaskInfo": {"dataMaskType": mask_type}}
    resources = {"database": ["db"], "table": ["*"], "column": [column]}
    return policy(f"mask {column}", resources, {}, policyType=1, dataMaskPolicyItems=[item])


def rows(condition: str, *users: str) -> dict[str, Any]:
    """A row filter policy on the tables of `db`."""
    item = {"users": list(users), "accesses": SELECT, "rowFilterInfo": {"filterExpr": condition}}
    return policy("rows", {"database": ["db"], "table": ["*"]}, {}, policyType=2, rowFilterPolicyItems=[item])


def deny(column: str, *users: str) -> dict[str, Any]:
    """A denial of a column of the tables of `db`."""
    resources = {"database": ["db"], "table": ["*"], "column": [column]}
    items = [{"users": list(users), "accesses": SELECT}]
    return policy(f"no {column}", resources, {}, denyPolicyItems=items)


def given(*restricting: dict[str, Any]) -> list[dict[str, Any]]:
    """Policies: all readers read `db`, the clients of `sue` and `max` are trusted."""
    reads = policy("read", tables("db"), {each: ["select", "update", "alter", "create"] for each in READERS})
    enforces = policy("enforce", {"service": ["*"]}, {"sue": ["enforce"], "max": ["enforce"]})
    codes = policy("code", {"engine": [ENGINE]}, {"coder": ["code"]})
    return [*standard_policies(), reads, enforces, codes, *restricting]


SET_PROPERTY = {"changes": [{"action": "set-property", "name": "comment", "value": "x"}]}
RESTRICTING = (
    rows("region = 'eu' AND owner <> current_user()", *READERS),
    mask("card", "MASK_SHOW_LAST_4", *READERS),
    mask("born", "MASK_DATE_SHOW_YEAR", *READERS),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a table `db.orders`."""
    with open_service(tmp_path_factory.mktemp("lake"), policies=given()) as running:
        running.lake.catalog().create_namespace("db")
        running.lake.catalog().create_table("db.orders", ORDERS)
        yield running


@pytest.fixture
def restricted(served: Service) -> Service:
    served.lake.set_policies(given(*RESTRICTING))
    return served


def _load(
    served: Service, user: str, name: str = "orders", engine: str | None = None, **headers: str
) -> httpx.Response:
    with served.client(user, engine) as client:
        return client.get(f"{served.prefix}/namespaces/db/tables/{name}", headers=headers)


def _restrictions(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json().get("read-restrictions")


def _eq(field: int, value: str, kind: str = "eq") -> dict[str, Any]:
    return {
        "type": kind,
        "left": {"type": "reference", "id": field},
        "right": {"type": "literal", "value": value},
    }


@pytest.mark.parametrize(("user", "engine"), [("sue", None), ("bob", ENGINE)])
def test_a_trusted_client_gets_the_row_filter_and_the_masks_of_its_user(
    restricted: Service, user: str, engine: str | None
) -> None:
    found = _restrictions(_load(restricted, user, engine=engine))
    assert found["required-column-projections"] == [
        {"field-id": 3, "action": "mask-to-fixed-value"},
        {"field-id": 4, "action": "truncate-to-year"},
    ]
    text = str(found["required-row-filter"])
    assert str(_eq(2, "eu")) in text and str(_eq(5, user, "not-eq")) in text
    assert "current_user" not in text and "region" not in text


def test_no_other_client_gets_the_table(restricted: Service) -> None:
    location = restricted.lake.catalog().load_table("db.orders").metadata_location
    for answer in (_load(restricted, "bob"), _load(restricted, "coder", engine=ENGINE)):
        error = refused(answer, 403, "NotAuthorized")
        assert "`enforce`" in error["message"] and location not in answer.text
        assert "rows" in error["message"] or "card" in error["message"]


def test_an_unrestricted_user_gets_no_restrictions(restricted: Service) -> None:
    restricted.lake.set_policies(given(mask("card", "MASK", "bob")))
    for user in ("sue", "max"):
        answer = _load(restricted, user)
        assert _restrictions(answer) is None and "read-restrictions" not in answer.json()


def test_a_mask_changes_the_etag_and_so_does_its_end(served: Service) -> None:
    served.lake.set_policies(given())
    first = _load(served, "sue").headers["ETag"]
    seen = [first]
    for restricting in (
        [mask("card", "MASK_HASH", "sue")],
        [mask("card", "MASK_NULL", "sue")],
        [mask("card", "MASK_NULL", "sue"), rows("region = 'eu'", "sue")],
        [mask("card", "MASK_NULL", "sue"), rows("region = 'us'", "sue")],
    ):
        served.lake.set_policies(given(*restricting))
        answer = _load(served, "sue", **{"If-None-Match": ", ".join(seen)})
        assert answer.status_code == 200 and answer.headers["ETag"] not in seen
        seen.append(answer.headers["ETag"])
        assert _load(served, "sue", **{"If-None-Match": seen[-1]}).status_code == 304
    served.lake.set_policies(given())
    assert _load(served, "sue", **{"If-None-Match": ", ".join(seen[1:])}).headers["ETag"] == first


def test_constants_of_the_user_change_the_etag(restricted: Service) -> None:
    known = _load(restricted, "sue").headers["ETag"]
    answer = _load(restricted, "max", **{"If-None-Match": known})
    assert answer.status_code == 200 and answer.headers["ETag"] != known


@pytest.mark.parametrize(("user", "engine"), [("sue", None), ("bob", ENGINE)])
def test_a_denied_column_refuses_the_table(served: Service, user: str, engine: str | None) -> None:
    """A client takes a column that the answer does not list for an unrestricted one."""
    served.lake.set_policies(given(mask("card", "MASK_NULL", *READERS), deny("born", *READERS)))
    error = refused(_load(served, user, engine=engine), 403, "NotAuthorized", "policy-deny")
    assert "born" in error["message"]


def test_a_mask_on_a_column_that_the_table_had_refuses_it(served: Service) -> None:
    served.lake.set_policies(given())
    made = served.lake.catalog().create_table("db.former", ORDERS)
    made.update_schema().delete_column("born").commit()
    made.update_schema().rename_column("card", "number").commit()
    for column in ("born", "card"):
        served.lake.set_policies(given(mask(column, "MASK_NULL", "sue")))
        answer = _load(served, "sue", "former")
        if answer.status_code == 200:
            assert _restrictions(answer)["required-column-projections"] == [
                {"field-id": 3, "action": "replace-with-null"}
            ]
            assert column == "card"
        else:
            refused(answer, 403, "NotAuthorized", "mask")


def test_a_mask_without_an_action_in_its_place_refuses_the_table(served: Service) -> None:
    served.lake.set_policies(given(mask("id", "MASK_NULL", "sue")))
    error = refused(_load(served, "sue"), 403, "NotAuthorized", "mask")
    assert "'id'" in error["message"] and "mask-to-fixed-value" in error["message"]
    served.lake.set_policies(given(mask("id", "mask-to-fixed-value", "sue")))
    assert _restrictions(_load(served, "sue")) == {
        "required-column-projections": [{"field-id": 1, "action": "mask-to-fixed-value"}]
    }


@pytest.mark.parametrize(("user", "engine"), [("sue", None), ("bob", ENGINE)])
def test_no_other_answer_shows_a_restricted_table(restricted: Service, user: str, engine: str | None) -> None:
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {"comment": "x"}}]}
    with restricted.client(user, engine) as client:
        answer = client.post(f"{restricted.prefix}/namespaces/db/tables/orders", json=body)
    refused(answer, 403, "NotAuthorized")
    assert "metadata" not in answer.text


def test_the_audit_log_has_the_policies_that_restrict(restricted: Service) -> None:
    _load(restricted, "sue")
    with restricted.client() as alice:
        records = alice.get("/admin/v1/audit?principal=sue&limit=1").json()["records"]
    assert records[0]["action"] == "table.load" and records[0]["allowed"]
    named = {each["policy"] for each in records[0]["reasons"]}
    assert {"rows", "mask card", "mask born"} <= named


def test_the_answer_to_a_creation_has_the_restrictions_of_a_load(restricted: Service) -> None:
    fields = [{"id": 1, "name": "region", "type": "string"}, {"id": 2, "name": "owner", "type": "string"}]
    columns = [
        {**each, "required": each["id"] == 3}
        for each in (*fields, {"id": 3, "name": "card", "type": "string"})
    ]
    schema = {"type": "struct", "schema-id": 0, "fields": columns}
    with restricted.client("sue") as client:
        create, key = {"json": {"name": "new", "schema": schema}}, new_key()
        made = client.post(f"{restricted.prefix}/namespaces/db/tables", headers=key, **create)
        repeated = client.post(f"{restricted.prefix}/namespaces/db/tables", headers=key, **create)
    refused(repeated, 403, "NotAuthorized")
    assert _restrictions(made)["required-column-projections"] == [
        {"field-id": 3, "action": "mask-to-fixed-value"}
    ]
    loaded = _load(restricted, "sue", "new")
    assert (_restrictions(made), made.headers["ETag"]) == (_restrictions(loaded), loaded.headers["ETag"])


def test_a_required_column_under_two_masks_shows_the_fixed_value(served: Service) -> None:
    served.lake.set_policies(given())
    made = served.lake.catalog().create_table("db.twice", ORDERS)
    made.update_schema().rename_column("id", "number").commit()
    served.lake.set_policies(given(mask("id", "MASK", "sue"), mask("number", "sha-256-global", "sue")))
    assert _restrictions(_load(served, "sue", "twice"))["required-column-projections"] == [
        {"field-id": 1, "action": "mask-to-fixed-value"}
    ]


def _engine_load(served: Service, user: str, name: str, engine: str | None = None) -> dict[str, Any]:
    with served.client(user, engine) as client:
        answer = client.post(f"/engine/v1/tables/db/{name}/load")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["metadata"]
    return found


@pytest.mark.parametrize("engine", [None, ENGINE])
def test_answers_to_engines_count_no_hidden_rows(served: Service, engine: str | None) -> None:
    served.lake.set_policies(given())
    name = f"counted_{engine}".lower()
    made = served.lake.catalog().create_table(f"db.{name}", ORDERS)
    made.append(
        pa.Table.from_pylist([{"id": each} for each in range(3)], schema=made.schema().as_arrow()),
        snapshot_properties={"engine-name": "loader", "loaded-rows": "3"},
    )
    assert _engine_load(served, "bob", name, engine)["snapshots"][0]["summary"]["total-records"] == "3"
    served.lake.set_policies(given(rows("id = 1", "bob")))
    with served.client("bob", engine) as client:
        altered = client.post(f"/engine/v1/tables/db/{name}/alter", json=SET_PROPERTY)
    assert altered.status_code == 200, altered.text
    for metadata in (_engine_load(served, "bob", name, engine), altered.json()["metadata"]):
        assert metadata["snapshots"][0]["summary"] == {"operation": "append", "engine-name": "loader"}
    assert _engine_load(served, "max", name, engine)["snapshots"][0]["summary"]["total-records"] == "3"


def test_answers_to_engines_tell_no_statistics_of_hidden_columns(served: Service) -> None:
    served.lake.set_policies(given())
    made = served.lake.catalog().create_table("db.described", ORDERS)
    made.append(pa.Table.from_pylist([{"id": 1, "card": "x"}], schema=made.schema().as_arrow()))
    snapshot = made.current_snapshot()
    assert snapshot is not None
    blob = {
        "type": "apache-datasketches-theta-v1",
        "snapshot-id": snapshot.snapshot_id,
        "sequence-number": 1,
        "fields": [3],
        "properties": {"ndv": "1"},
    }
    path = f"{made.location()}/metadata/statistics.puffin"
    with made.io.new_output(path).create() as stored:
        stored.write(b"PFA1")
    sizes = {"file-size-in-bytes": 4, "file-footer-size-in-bytes": 4}
    of = {"snapshot-id": snapshot.snapshot_id, "statistics-path": path, **sizes, "blob-metadata": [blob]}
    with made.update_statistics() as update:
        update.set_statistics(StatisticsFile.model_validate(of))
    assert _engine_load(served, "bob", "described")["statistics"]
    for restricting in (mask("card", "MASK_HASH", "bob"), deny("card", "bob"), rows("id = 1", "bob")):
        served.lake.set_policies(given(restricting))
        assert not _engine_load(served, "bob", "described").get("statistics")
        assert _engine_load(served, "max", "described")["statistics"]
