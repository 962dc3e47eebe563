"""Views under `/v1`, with the requests and texts of Iceberg's own view tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.http_calls import SCHEMA, new_key, new_table, refused
from tests.support.service import Service

OTHER = {
    "type": "struct",
    "schema-id": 7,
    "fields": [{"id": 1, "name": "n", "type": "int", "required": True}],
}
SPARK = {"type": "sql", "sql": "SELECT id, name FROM t", "dialect": "spark"}
TRINO = {"type": "sql", "sql": 'SELECT id, name FROM "t"', "dialect": "trino"}
Made = Callable[..., dict[str, Any]]


def version(*texts: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "version-id": 1,
        "schema-id": -1,
        "timestamp-ms": 1,
        "summary": {"engine-name": "e"},
        "representations": list(texts or [SPARK]),
        "default-namespace": ["db"],
        **more,
    }


def body(name: str = "v", *texts: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"name": name, "schema": SCHEMA, "view-version": version(*texts), "properties": {}, **more}


def replacing(*texts: dict[str, str], schema: dict[str, Any] = SCHEMA) -> list[dict[str, Any]]:
    return [
        {"action": "add-schema", "schema": schema},
        {"action": "add-view-version", "view-version": version(*texts)},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]


def _twice(**same: Any) -> dict[str, Any]:
    """A schema of two columns that have the same id or name."""
    fields = [{"id": at, "name": f"c{at}", "type": "int", "required": False, **same} for at in (1, 2)]
    return {"type": "struct", "fields": fields}


@pytest.fixture
def views(served: Service, namespace: str) -> str:
    return f"{served.prefix}/namespaces/{namespace}/views"


@pytest.fixture
def make(alice: httpx.Client, views: str) -> Made:
    """Create a view, or commit updates to it, and return the answer."""

    def made(name: str = "v", *updates: dict[str, Any], **more: Any) -> dict[str, Any]:
        if updates:
            answer = alice.post(f"{views}/{name}", json={"updates": list(updates), **more})
        else:
            answer = alice.post(views, json=body(name, **more))
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    return made


def test_a_view_is_created_loaded_listed_renamed_and_dropped(
    served: Service, alice: httpx.Client, namespace: str, views: str
) -> None:
    made = alice.post(views, json=body("v", SPARK, TRINO, properties={"comment": "c"})).json()
    metadata = made["metadata"]
    assert (metadata["format-version"], metadata["current-version-id"]) == (1, 1)
    assert metadata["properties"] == {"comment": "c"}
    (found,) = metadata["versions"]
    assert found["representations"] == [SPARK, TRINO]
    assert (found["version-id"], found["schema-id"]) == (1, 0) and found["timestamp-ms"] > 1
    assert metadata["version-log"] == [{"version-id": 1, "timestamp-ms": found["timestamp-ms"]}]
    (schema,) = metadata["schemas"]
    assert (schema["schema-id"], schema["fields"]) == (0, SCHEMA["fields"])
    assert made["metadata-location"].startswith(f"{metadata['location']}/metadata/00001-")
    assert alice.get(f"{views}/v").json() == made and alice.head(f"{views}/v").status_code == 204
    assert alice.get(views).json()["identifiers"] == [{"namespace": [namespace], "name": "v"}]
    first = alice.get(views, params={"pageToken": "", "pageSize": "1"}).json()
    assert (len(first["identifiers"]), first["next-page-token"]) == (1, None)
    names = [{"namespace": [namespace], "name": name} for name in ("v", "w")]
    moved = {"source": names[0], "destination": names[1]}
    assert alice.post(f"{served.prefix}/views/rename", json=moved).status_code == 204
    assert alice.get(f"{views}/w").json() == made
    refused(alice.get(f"{views}/v"), 404, "NoSuchView")
    assert alice.delete(f"{views}/w").status_code == 204
    assert "View does not exist" in refused(alice.delete(f"{views}/w"), 404, "NoSuchView")["message"]
    assert alice.head(f"{views}/w").status_code == 404


def test_every_operation_on_views_is_advertised(alice: httpx.Client) -> None:
    found = {each for each in alice.get("/v1/config").json()["endpoints"] if "view" in each}
    views = "/v1/{prefix}/namespaces/{namespace}/views"
    one = {f"{method} {views}/{{view}}" for method in ("GET", "HEAD", "POST", "DELETE")}
    renamed = "POST /v1/{prefix}/views/rename"
    assert found == one | {
        f"GET {views}",
        f"POST {views}",
        renamed,
        "POST /v1/{prefix}/namespaces/{namespace}/register-view",
    }


def test_names_are_shared_with_tables(
    served: Service, alice: httpx.Client, namespace: str, views: str, make: Made
) -> None:
    make("v")
    assert new_table(alice, served.prefix, namespace, "t").status_code == 200
    tables = f"{served.prefix}/namespaces/{namespace}/tables"
    taken = refused(alice.post(views, json=body("t")), 409, "ViewExists")
    assert taken["message"].startswith(f"Table with same name already exists: {namespace}.t")
    taken = refused(new_table(alice, served.prefix, namespace, "v"), 409, "TableExists")
    assert taken["message"].startswith(f"View with same name already exists: {namespace}.v")
    taken = refused(alice.post(views, json=body("v")), 409, "ViewExists")
    assert taken["message"].startswith(f"View already exists: {namespace}.v")
    assert alice.head(f"{views}/t").status_code == alice.head(f"{tables}/v").status_code == 404
    names = {name: {"namespace": [namespace], "name": name} for name in ("t", "v")}
    moved = {"source": names["v"], "destination": names["t"]}
    taken = refused(alice.post(f"{served.prefix}/views/rename", json=moved), 409, "ViewExists")
    assert f"Cannot rename {namespace}.v to {namespace}.t. Table already exists" in taken["message"]
    moved = {"source": names["t"], "destination": names["v"]}
    taken = refused(alice.post(f"{served.prefix}/tables/rename", json=moved), 409, "TableExists")
    assert f"Cannot rename {namespace}.t to {namespace}.v. View already exists" in taken["message"]


def test_a_replacement_adds_a_version_and_keeps_the_former_ones(make: Made) -> None:
    first = make()
    uuid = first["metadata"]["view-uuid"]
    allowed = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "true"}}
    requirements = [{"type": "assert-view-uuid", "uuid": uuid}]
    second = make("v", allowed, *replacing(TRINO, schema=OTHER), requirements=requirements)
    metadata = second["metadata"]
    assert [each["version-id"] for each in metadata["versions"]] == [1, 2]
    assert [each["version-id"] for each in metadata["version-log"]] == [1, 2]
    assert [each["schema-id"] for each in metadata["schemas"]] == [0, 1]
    assert (metadata["current-version-id"], metadata["versions"][1]["schema-id"]) == (2, 1)
    assert second["metadata-location"] != first["metadata-location"]
    # The same definition is the same version.
    third = make("v", *replacing(SPARK))["metadata"]
    assert third["current-version-id"] == 1 and len(third["versions"]) == len(third["schemas"]) == 2
    assert [each["version-id"] for each in third["version-log"]] == [1, 2, 1]
    back = make("v", {"action": "set-current-view-version", "view-version-id": 2})["metadata"]
    assert back["current-version-id"] == 2


def test_properties_change_without_a_version(make: Made) -> None:
    before = make(properties={"a": "1", "b": "2"})["metadata"]
    set_, remove = {"c": "3", "a": "4"}, ["b", "none"]
    after = make(
        "v",
        {"action": "set-properties", "updates": set_},
        {"action": "remove-properties", "removals": remove},
    )["metadata"]
    assert after["properties"] == {"a": "4", "c": "3"}
    assert after["versions"] == before["versions"] and after["version-log"] == before["version-log"]


def test_commits_that_contradict_the_view_are_refused(alice: httpx.Client, views: str, make: Made) -> None:
    view, uuid = f"{views}/v", make()["metadata"]["view-uuid"]
    other = "00000000-0000-0000-0000-000000000000"
    wrong: list[tuple[list[dict[str, Any]], str]] = [
        ([{"action": "assign-uuid", "uuid": other}], "Cannot reassign uuid"),
        ([{"action": "upgrade-format-version", "format-version": 2}], "Unsupported format version"),
        ([{"action": "set-current-view-version", "view-version-id": 9}], "unknown version: 9"),
        ([{"action": "set-current-view-version", "view-version-id": -1}], "Cannot set last version id"),
        ([{"action": "add-view-version", "view-version": version()}], "Cannot set last added schema"),
        ([{"action": "add-view-version", "view-version": version(**{"schema-id": 4})}], "unknown schema: 4"),
        (replacing(TRINO), "loss of view dialects"),
        (replacing(SPARK, SPARK | {"dialect": "SPARK"}), "Cannot add multiple queries for dialect spark"),
        (replacing(schema=_twice(id=1)), "field id 1 twice"),
        (replacing(schema=_twice(name="a")), ""),
        ([{"action": "set-snapshot-ref"}], "view update"),
        ([{"action": "set-properties", "updates": {"version.history.num-entries": "0"}}], "num-entries"),
        ([{"action": "set-properties", "updates": {"s3.endpoint": "http://x"}}], "s3.endpoint"),
        ([{"action": "set-properties", "updates": {"security": "owner"}}], "security"),
        ([{"action": "set-location", "location": "s3://b/../x"}], ""),
    ]
    for updates, text in wrong:
        answer = alice.post(view, json={"updates": updates})
        assert answer.status_code == 400 and text in answer.json()["error"]["message"], answer.text
    fine = {"action": "assign-uuid", "uuid": uuid}
    unmet = {"requirements": [{"type": "assert-view-uuid", "uuid": other}], "updates": [fine]}
    message = refused(alice.post(view, json=unmet), 409, "CommitConflict")["message"]
    assert message.startswith("Requirement failed: view UUID does not match")
    another = {"identifier": {"namespace": ["db"], "name": "w"}, "updates": [fine]}
    refused(alice.post(view, json=another), 400, "RequestInvalid", "identifier")
    refused(alice.post(f"{views}/none", json={"updates": [fine]}), 404, "NoSuchView")
    assert len(alice.get(view).json()["metadata"]["versions"]) == 1


def test_commits_at_the_same_time_are_applied_one_after_the_other(
    alice: httpx.Client, views: str, make: Made
) -> None:
    first = make()

    def commit(number: int) -> httpx.Response:
        return alice.post(f"{views}/v", json={"updates": replacing(SPARK | {"sql": f"SELECT {number}"})})

    with ThreadPoolExecutor(3) as pool:
        assert [each.status_code for each in pool.map(commit, range(3))] == [200] * 3
    last = alice.get(f"{views}/v").json()
    found = {each["representations"][0]["sql"] for each in last["metadata"]["versions"]}
    assert found == {SPARK["sql"], *(f"SELECT {number}" for number in range(3))}
    # Nothing is left of the states between, and of commits that came second.
    directory = Path(first["metadata"]["location"].removeprefix("file://"), "metadata")
    assert [each.name for each in directory.iterdir()] == [last["metadata-location"].rsplit("/", 1)[1]]


def test_a_location_stays_as_it_is_spelled(tmp_path: Path, make: Made) -> None:
    spelled = tmp_path.as_uri().replace("file:///", "file:/")
    made = make(location=spelled)
    assert made["metadata"]["location"] == spelled
    assert made["metadata-location"].startswith(f"{spelled}/metadata/00001-")


def test_old_versions_expire(make: Made) -> None:
    make(properties={"version.history.num-entries": "2"})
    for number in range(3):
        metadata = make("v", *replacing(SPARK | {"sql": f"SELECT {number}"}))["metadata"]
    assert [each["version-id"] for each in metadata["versions"]] == [3, 4]
    assert [each["version-id"] for each in metadata["version-log"]] == [3, 4]


def test_a_location_takes_rwstorage(served: Service, alice: httpx.Client, tmp_path: Path) -> None:
    assert alice.post(f"{served.prefix}/namespaces", json={"namespace": ["bobs"]}).status_code == 200
    views, elsewhere = f"{served.prefix}/namespaces/bobs/views", tmp_path.as_uri()
    properties = {"write.metadata.path": elsewhere}
    with served.client("bob") as bob:
        refused(bob.post(views, json=body("v", location=elsewhere)), 403, "NotAuthorized")
        refused(bob.post(views, json=body("v", properties=properties)), 403, "NotAuthorized")
        assert bob.post(views, json=body("v")).status_code == 200
        for update in (
            {"action": "set-location", "location": elsewhere},
            {"action": "set-properties", "updates": properties},
        ):
            refused(bob.post(f"{views}/v", json={"updates": [update]}), 403, "NotAuthorized")
        stolen = alice.post(views, json=body("a", properties={"gc.enabled": "false"})).json()
        register = {"name": "b", "metadata-location": stolen["metadata-location"]}
        refused(bob.post(views.replace("/views", "/register-view"), json=register), 403, "NotAuthorized")
    assert not list(tmp_path.iterdir())
    moved = alice.post(f"{views}/v", json={"updates": [{"action": "set-location", "location": elsewhere}]})
    assert moved.json()["metadata-location"].startswith(f"{moved.json()['metadata']['location']}/metadata/")


def test_a_repeated_change_takes_effect_once(
    served: Service, alice: httpx.Client, namespace: str, views: str
) -> None:
    names = [{"namespace": [namespace], "name": name} for name in ("v", "w")]
    changes: list[tuple[str, str, Any]] = [
        ("POST", views, body("v")),
        ("POST", f"{views}/v", {"updates": replacing(SPARK | {"sql": "SELECT 2"})}),
        ("POST", f"{served.prefix}/views/rename", {"source": names[0], "destination": names[1]}),
        ("DELETE", f"{views}/w", None),
    ]
    for method, path, sent in changes:
        headers = new_key()
        first, again = (alice.request(method, path, json=sent, headers=headers) for _ in range(2))
        assert first.status_code < 300 and (first.status_code, first.text) == (again.status_code, again.text)


def test_a_view_is_registered_from_its_file(
    served: Service, alice: httpx.Client, namespace: str, views: str, make: Made
) -> None:
    register = f"{served.prefix}/namespaces/{namespace}/register-view"
    make(properties={"gc.enabled": "false"})
    made = make("v", *replacing(SPARK | {"sql": "SELECT 2"}))
    asked = {"name": "v", "metadata-location": made["metadata-location"]}
    refused(alice.post(register, json=asked), 409, "ViewExists")
    assert alice.delete(f"{views}/v").status_code == 204
    found = alice.post(register, json=asked).json()
    of = {key: value for key, value in made["metadata"].items() if key != "view-uuid"}
    assert {key: value for key, value in found["metadata"].items() if key != "view-uuid"} == of
    assert found["metadata"]["view-uuid"] != made["metadata"]["view-uuid"]
    assert alice.get(f"{views}/v").json() == found


def test_files_of_former_states_are_deleted(alice: httpx.Client, views: str, make: Made) -> None:
    def exists(answer: dict[str, Any]) -> bool:
        return Path(answer["metadata-location"].removeprefix("file://")).exists()

    first = make()
    second = make("v", *replacing(SPARK | {"sql": "SELECT 2"}))
    assert (exists(first), exists(second)) == (False, True)
    assert alice.delete(f"{views}/v").status_code == 204 and not exists(second)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "damage",
    [
        {"versions": []},
        {"current-version-id": 7},
        {"schemas": []},
        {"format-version": 2},
        {"version-log": "x"},
        {"location": "s3://b/../x"},
        {"version-log": [{"version-id": 1, "timestamp-ms": 2**53}]},
        {"version-log": [{"version-id": 1, "timestamp-ms": -1}]},
        {"version-log": [{"version-id": 1, "timestamp-ms": at} for at in (1_700_000_000_000, 1)]},
    ],
    ids=lambda damage: next(iter(damage)),
)
def test_a_file_that_is_no_view_is_not_registered(
    served: Service,
    alice: httpx.Client,
    namespace: str,
    views: str,
    make: Made,
    tmp_path: Path,
    damage: dict[str, Any],
) -> None:
    file = tmp_path / "00001-x.metadata.json"
    file.write_text(json.dumps(make("of")["metadata"] | damage))
    register = f"{served.prefix}/namespaces/{namespace}/register-view"
    answer = alice.post(register, json={"name": "v", "metadata-location": file.as_uri()})
    assert answer.status_code == 400, answer.text
    refused(alice.get(f"{views}/v"), 404, "NoSuchView")


@pytest.mark.parametrize("version_id", [2**31, -1])
def test_a_view_with_an_id_that_readers_cannot_store_is_not_registered(
    served: Service, alice: httpx.Client, namespace: str, make: Made, tmp_path: Path, version_id: int
) -> None:
    file, metadata = tmp_path / "00001-x.metadata.json", make("of")["metadata"]
    for each in (*metadata["versions"], *metadata["version-log"]):
        each["version-id"] = version_id
    file.write_text(json.dumps(metadata | {"current-version-id": version_id}))
    register = f"{served.prefix}/namespaces/{namespace}/register-view"
    answer = alice.post(register, json={"name": "v", "metadata-location": file.as_uri()})
    refused(answer, 400, "MetadataInvalid")
    assert str(version_id) in answer.json()["error"]["message"]


def test_no_later_version_of_a_registered_view_has_an_id_that_readers_cannot_store(
    served: Service, alice: httpx.Client, namespace: str, views: str, make: Made, tmp_path: Path
) -> None:
    file, metadata = tmp_path / "00001-x.metadata.json", make("of")["metadata"]
    for each in (*metadata["versions"], *metadata["version-log"]):
        each["version-id"] = 2**31 - 1
    file.write_text(json.dumps(metadata | {"current-version-id": 2**31 - 1}))
    register = f"{served.prefix}/namespaces/{namespace}/register-view"
    assert alice.post(register, json={"name": "v", "metadata-location": file.as_uri()}).status_code == 200
    change = {"updates": replacing(SPARK | {"sql": "SELECT 2"})}
    refused(alice.post(f"{views}/v", json=change), 400, "ViewUpdateInvalid")


@pytest.mark.parametrize("views_", ["v", "db\x1fv,w", "\x1fv", ","])
def test_a_chain_of_views_that_names_none_is_refused(
    alice: httpx.Client, views: str, make: Made, views_: str
) -> None:
    make()
    asked = {"referenced-by": views_}
    for path in (f"{views}/v", views.replace("/views", "/tables/t")):
        refused(alice.get(path, params=asked), 400, "RequestInvalid")
    assert alice.get(f"{views}/v", params={"referenced-by": "db\x1fa\x1fv,db\x1fw"}).status_code == 200
