"""What auditors get of all tables, over HTTP: names, pointers, seals, epochs, and what tables share."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from catalog.maintenance import lake
from tests.support.attacker import sql
from tests.support.http_calls import encrypted_table, new_table, refused
from tests.support.lake import policy, standard_policies
from tests.support.rules import put_rules, rule
from tests.support.service import Service
from tests.support.tables import append_files, named

TABLES, STATES = "/admin/v1/lake/tables", "/admin/v1/lake/states"


def states(client: httpx.Client, *tables: str) -> dict[str, Any]:
    """The states of tables, all pages together."""
    answer = client.post(STATES, json={"tables": tables})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    after = found["next"]
    while after is not None:
        page = client.post(STATES, json={"tables": tables, "after": after}).json()
        assert page["tables"] == []
        found["seals"] += page["seals"]
        after = page["next"]
    return found


def test_tables_are_listed_in_pages_with_how_the_catalog_knows_them(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    for name in ("a", "b", "c"):
        assert new_table(alice, served.prefix, namespace, name).status_code == 200
    sql(
        served.lake,
        "UPDATE iceberg_tables SET table_name='x' WHERE table_namespace=? AND table_name='b'",
        namespace,
    )
    found, after = {}, None
    while True:
        page = alice.get(TABLES, params={"limit": 1} | ({"after": after} if after else {})).json()
        found |= {each["table"]: each["standing"] for each in page["tables"]}
        after = page["next"]
        if after is None:
            break
    mine = {name.rpartition(".")[2]: each for name, each in found.items() if name.startswith(f"{namespace}.")}
    assert mine == {"a": "governed", "b": "pointerless", "c": "governed", "x": "ungoverned"}


def test_the_state_of_tables_has_seals_epochs_and_names_of_keys(
    served: Service, alice: httpx.Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "SEALS", 2)
    new_table(alice, served.prefix, namespace, "plain")
    encrypted_table(alice, namespace, "safe")
    for _ in range(2):
        append_files(served.lake, named("safe", namespace))
    names = [f"{namespace}.{name}" for name in ("plain", "safe", "absent")]
    found = states(alice, *names)
    plain, safe = found["tables"]
    assert plain["metadata-location"] == plain["sealed-location"]
    assert plain["seal"]["length"] > 0
    assert plain["governed"]["allowed"] == [plain["location"]]
    assert [each["kind"] for each in found["seals"] if each["table-uuid"] == safe["table-uuid"]].count(
        "manifest-list"
    ) == 2
    assert len(found["seals"]) == len({each["path"] for each in found["seals"]}) == 4
    (key,) = safe["keys"]
    assert (key["state"], key["in-force"], key["version"]) == ("active", True, 1)
    assert key["pek-id"] == safe["governed"]["epochs"][-1]["peks"][0][0]
    assert "wrapped" not in str(found)
    refused(
        alice.post(STATES, json={"tables": names[:1], "after": f"{safe['table-uuid']} x"}),
        400,
        "RequestInvalid",
    )


def test_what_other_tables_claim_of_a_location_is_told(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    new_table(alice, served.prefix, namespace, "outer")
    (outer,) = states(alice, f"{namespace}.outer")["tables"]
    assert (outer["others"], outer["shared"]) == ([], False)
    inner = f"{outer['location']}/inner"
    assert new_table(alice, served.prefix, namespace, "inner", location=inner).status_code == 200
    outer, below = states(alice, f"{namespace}.outer", f"{namespace}.inner")["tables"]
    assert outer["others"] == [{"table": f"{namespace}.inner", "location": inner, "dropped": False}]
    assert [each["table"] for each in below["others"]] == [f"{namespace}.outer"]
    assert outer["shared"] and below["shared"]


def test_tables_that_break_the_encryption_rules_say_so(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    new_table(alice, served.prefix, namespace, "plain")
    put_rules(served.lake, rule("names", databases=[namespace], columns=["name"]))
    try:
        (found,) = states(alice, f"{namespace}.plain")["tables"]
    finally:
        put_rules(served.lake)
    assert found["violations"] == ["names: Column 'name' must be encrypted."]


def test_each_page_is_recorded_once_and_needs_audit_alone(service: Service) -> None:
    auditor = policy("auditors", {"service": ["lakewarden"]}, {"auditor": ["audit"]})
    service.lake.set_policies([*standard_policies(), auditor])
    with service.client("auditor") as client:
        assert client.get(TABLES).status_code == 200
        assert client.post(STATES, json={"tables": ["db.a", "db.b"]}).json()["tables"] == []
        records = client.get("/admin/v1/audit", params={"principal": "auditor"}).json()["records"]
    told = [(each["action"], each["resource"]) for each in records if not each["begun"]]
    assert told.count(("audit.tables", "lakewarden")) == 1
    assert told.count(("audit.states", "2 tables")) == 1
