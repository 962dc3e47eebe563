"""The life of a key over HTTP: what is answered, and what is refused by what."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest

from catalog.base.identifiers import TableName
from tests.support.http_calls import refused
from tests.support.lake import BOB, policy, standard_policies
from tests.support.service import ENGINE, Service
from tests.support.table_keys import encrypted, let_waiting_end, load, pek, states
from tests.support.tables import append_files, make, name_of


@pytest.fixture
def name(served: Service) -> TableName:
    """An encrypted table with a file."""
    served.lake.catalog().create_namespace_if_not_exists("db")
    return encrypted(served.lake, files=1)


def url(name: TableName, door: str = "admin") -> str:
    return f"/{door}/v1/tables/{name.database}/{name.name}/keys"


def post(client: httpx.Client, where: str, **body: Any) -> Any:
    answer = client.post(where, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_key_from_its_first_version_to_the_end_of_it(
    served: Service, alice: httpx.Client, name: TableName
) -> None:
    (key,) = alice.get(url(name)).json()["keys"]
    rotated = post(alice, f"{url(name)}/rotate")
    assert rotated == {
        "governed-version": 2,
        "keys": [{"id": key["id"], "master-key-id": "lakewarden", "version": 2, "previous-version": 1}],
    }
    (branch,) = post(alice, f"{url(name)}/rewrap")["branches"]
    head = load(served.lake, name).metadata.current_snapshot_id
    assert branch == {"branch": "main", "snapshot-id": head, "manifests": 1, "files": 1, "lost": 0}
    (branch,) = post(alice, f"{url(name)}/rewrap")["branches"]
    assert branch == {"branch": "main", "snapshot-id": None, "manifests": 0, "files": 0, "lost": 0}
    first, second = alice.get(f"{url(name)}/{key['id']}").json()["keys"]
    assert (first["version"], first["state"], len(first["needed-by"])) == (1, "decrypt-only", 1)
    assert second["needed-by"] == [{"snapshot-id": head, "names": ["branch main"]}]
    one = {"id": key["id"], "version": 1, "confirm": str(name)}
    needed = refused(alice.post(f"{url(name)}/destroy", json=one), 403, "KeyNotUsable")
    assert str(first["needed-by"][0]["snapshot-id"]) in needed["message"]
    stock = served.lake.catalog().load_table(str(name))
    stock.maintenance.expire_snapshots().by_id(first["needed-by"][0]["snapshot-id"]).commit()
    first, second = post(alice, f"{url(name)}/destroy", **one)["keys"]
    assert (first["state"], second["state"]) == ("disabled", "active")
    assert first["destroy-after-ms"] > 0 and second["destroy-after-ms"] is None
    first, _ = post(alice, f"{url(name)}/enable", id=key["id"], version=1)["keys"]
    assert (first["state"], first["destroy-after-ms"]) == ("decrypt-only", None)


def test_what_is_lost_is_told_where_it_is_rewrapped(
    served: Service, alice: httpx.Client, name: TableName
) -> None:
    post(alice, f"{url(name)}/destroy", confirm=str(name))
    let_waiting_end(served.lake, name)
    post(alice, f"{url(name)}/rotate")
    for door in ("admin", "engine"):
        with served.client(engine=ENGINE) as engine:
            (branch,) = post(engine if door == "engine" else alice, f"{url(name, door)}/rewrap")["branches"]
        assert branch == {"branch": "main", "snapshot-id": None, "manifests": 0, "files": 0, "lost": 1}


def test_engines_rotate_and_rewrap_for_their_users(served: Service, name: TableName) -> None:
    with served.client(engine=ENGINE) as engine:
        assert post(engine, f"{url(name, 'engine')}/rotate")["keys"][0]["version"] == 2
        assert post(engine, f"{url(name, 'engine')}/rewrap")["branches"][0]["files"] == 1
    with served.client(BOB, engine=ENGINE) as engine:
        for what in ("rotate", "rewrap"):
            refused(engine.post(f"{url(name, 'engine')}/{what}", json={}), 403, "NotAuthorized")


def test_keys_are_made_ahead_disabled_and_destroyed(
    served: Service, alice: httpx.Client, name: TableName
) -> None:
    served.lake.kms.create_master_key("pii")
    made = post(alice, url(name), **{"master-key-id": "pii"})["keys"]
    assert [key["master-key-id"] for key in made] == ["lakewarden", "pii"]
    refused(alice.post(url(name), json={"master-key-id": "none"}), 403, "KeyNotUsable")
    aside = made[1]["id"]
    disabled = post(alice, f"{url(name)}/disable", id=aside)["keys"]
    assert [key["state"] for key in disabled] == ["active", "disabled"]
    post(alice, f"{url(name)}/destroy", confirm=str(name))
    append = alice.post(f"/engine/v1/tables/{name.database}/{name.name}/writes")
    refused(append, 403, "KeyNotUsable")
    post(alice, f"{url(name)}/enable")
    append_files(served.lake, name)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"confirm": "yes"},
        {"confirm": 1},
        {"confirm": "db.t", "id": "no-uuid"},
        {"confirm": "db.t", "version": 0},
        {"confirm": "db.t", "version": 2**31},
        {"confirm": "db.t", "force": True},
    ],
    ids=str,
)
def test_what_is_not_exactly_asked_destroys_nothing(
    served: Service, alice: httpx.Client, name: TableName, body: dict[str, Any]
) -> None:
    refused(alice.post(f"{url(name)}/destroy", json=body), 400, "RequestInvalid")
    assert states(served.lake, name) == {1: "active"}


def test_a_key_that_is_not_there_is_refused(alice: httpx.Client, name: TableName) -> None:
    refused(alice.get(f"{url(name)}/{uuid4()}"), 400, "RequestInvalid")
    refused(alice.post(f"{url(name)}/disable", json={"id": str(uuid4())}), 400, "RequestInvalid")
    refused(alice.post(f"{url(name)}/disable", json={"version": 1}), 400, "RequestInvalid")


def test_a_plaintext_table_is_told_so(served: Service, alice: httpx.Client, name: TableName) -> None:
    plain = name_of(make(served.lake))
    assert alice.get(url(plain)).json() == {"keys": []}
    refused(alice.post(f"{url(plain)}/rotate", json={}), 400, "RequestInvalid")


def test_a_master_key_is_rotated_and_what_it_wraps_rewrapped(
    served: Service, alice: httpx.Client, name: TableName
) -> None:
    assert post(alice, "/admin/v1/master-keys", id="turned")["version"] == 1
    post(alice, url(name), **{"master-key-id": "turned"})
    assert post(alice, "/admin/v1/master-keys/rotate", id="turned")["version"] == 2
    assert post(alice, "/admin/v1/master-keys/rewrap", id="turned") == {
        "rewrapped": 1,
        "failed": [],
    }
    refused(alice.post("/admin/v1/master-keys/rotate", json={"id": "none"}), 403, "KeyNotUsable")


def test_keys_of_the_whole_catalog_are_listed_in_pages_and_moved(
    served: Service, alice: httpx.Client, name: TableName
) -> None:
    master = f"listed-{uuid4().hex}"
    for made in (master, f"{master}-2"):
        post(alice, "/admin/v1/master-keys", id=made)
    tables = [name_of(make(served.lake, properties={"encryption.master-key-id": master})) for _ in range(3)]
    query, found, token = {"master-key-id": master, "limit": 2}, list[Any](), None
    while True:
        page = alice.get(
            "/admin/v1/master-keys/keys", params=query | ({"page-token": token} if token else {})
        )
        found += page.json()["keys"]
        token = page.json()["next-page-token"]
        if token is None:
            break
    assert {each["table"] for each in found} == {str(each) for each in tables}
    assert all(each["in-force"] and each["kms-key-id"] == master for each in found)
    young = alice.get("/admin/v1/master-keys/keys", params={**query, "created-before-ms": 1}).json()
    assert young == {"keys": [], "next-page-token": None}
    assigned = post(
        alice, "/admin/v1/master-keys/assign", id=master, kms="local", **{"kms-key-id": f"{master}-2"}
    )
    assert (assigned["previous-kms-key-id"], assigned["kms-key-id"]) == (master, f"{master}-2")
    body = {"id": master, "table-uuid": found[0]["table-uuid"]}
    assert post(alice, "/admin/v1/master-keys/move", **body) == {
        "moved": 1,
        "failed": [],
        "next-page-token": None,
    }
    needs = alice.get("/admin/v1/master-keys/needs", params={"kms": "local", "kms-key-id": master}).json()
    assert [(each["by"], each["keys"]) for each in needs["needs"]] == [("table", 1), ("table", 1)]
    assert post(alice, "/admin/v1/master-keys/move", id=master, limit=2)["moved"] == 2
    for path in ("keys?page-token=1", "keys?limit=0", "needs"):
        refused(alice.get(f"/admin/v1/master-keys/{path}"), 400, "RequestInvalid")


def test_moving_a_master_key_needs_a_right_on_it_beside_administration(service: Service) -> None:
    policies = [
        policy("dave-service", {"service": ["*"]}, {"dave": ["admin"]}),
        policy("dave-keys", {"key": ["other"]}, {"dave": ["rotate"]}),
    ]
    service.lake.set_policies([*standard_policies(), *policies])
    with service.client("dave") as dave:
        for path, more in (("assign", {"kms": "local"}), ("move", {})):
            answer = dave.post(f"/admin/v1/master-keys/{path}", json={"id": "lakewarden", **more})
            refused(answer, 403, "NotAuthorized")
        assert dave.post("/admin/v1/master-keys/move", json={"id": "other"}).status_code == 200


def test_no_master_key_is_assigned_while_replicas_have_other_kmss(
    served: Service, alice: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.lake.services.replicas, "_differences", ("other_kms.aws.kind",))
    body = {"id": "unused", "kms": "local", "kms-key-id": "lakewarden"}
    answer = refused(alice.post("/admin/v1/master-keys/assign", json=body), 400, "RequestInvalid")
    assert "other_kms.aws.kind" in answer["message"]
    monkeypatch.setattr(served.lake.services.replicas, "_differences", ("http.workers",))
    assert post(alice, "/admin/v1/master-keys/assign", **body)["kms"] == "local"


def test_no_answer_holds_a_wrapped_key(served: Service, alice: httpx.Client, name: TableName) -> None:
    wrapped = pek(served.lake, name, 1).wrapped
    answers = [alice.get(url(name)), alice.get(f"{url(name)}/{pek(served.lake, name, 1).id}")]
    answers.append(alice.post(f"{url(name)}/rotate", json={}))
    for answer in answers:
        assert wrapped.hex() not in answer.text
        assert "wrapped" not in answer.text and "check" not in answer.text
