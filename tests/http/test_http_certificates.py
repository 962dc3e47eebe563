"""Certificates of erasure: what the catalog checks, and what the audit log has of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pyarrow as pa
import pytest

from tests.support.http_calls import ROWS, refused
from tests.support.lake import BOB, policy, standard_policies, tables
from tests.support.service import Service

_URL = "/admin/v1/lake/certificates"
_DIGESTS = {"cost": 2**15, "block-size": 8, "parallelism": 1, "salt": "ab" * 16, "digests": ["cd" * 16] * 600}


class _Table:
    """A table with two snapshots, the first of which expires."""

    def __init__(self, served: Service, alice: httpx.Client, namespace: str) -> None:
        self.table = served.iceberg().create_table(f"{namespace}.t", ROWS.schema)
        self.table.append(ROWS)
        self.table.overwrite(pa.table({"id": [4], "name": ["d"]}))
        self.name, self._alice = f"{namespace}.t", alice
        self.snapshots = [each.snapshot_id for each in self.table.metadata.snapshots]

    def expire(self) -> None:
        """Expire all snapshots but the current one, and delete their files."""
        url = f"/engine/v1/tables/{self.name.replace('.', '/')}/snapshots/expire"
        answer = self._alice.post(url, json={"older-than-ms": 1, "snapshot-ids": self.snapshots[:-1]})
        assert answer.status_code == 200, answer.text

    def body(self, **erased: Any) -> dict[str, Any]:
        """A certificate that is true after `expire`."""
        facts = {
            "table-uuid": str(self.table.metadata.table_uuid),
            "columns": ["name"],
            "rows": 3,
            "snapshots-gone": self.snapshots[:-1],
            "snapshots-searched": self.snapshots[-1:],
        }
        return {"id": str(uuid4()), "table": self.name, "identifiers": _DIGESTS, "erased": facts | erased}


@pytest.fixture
def erased(served: Service, alice: httpx.Client, namespace: str) -> _Table:
    return _Table(served, alice, namespace)


def _recorded(alice: httpx.Client, table: str, action: str) -> list[dict[str, Any]]:
    records = alice.get("/admin/v1/audit", params={"table": table, "limit": 1000}).json()["records"]
    return [each for each in records if each["action"] == action]


def test_a_certificate_that_agrees_with_the_table_is_in_the_audit_log(
    alice: httpx.Client, erased: _Table
) -> None:
    erased.expire()
    body = erased.body()
    answer = alice.post(_URL, json=body)
    assert answer.status_code == 200, answer.text
    records = _recorded(alice, erased.name, "table.certify")
    assert {each["principal"] for each in records} == {"alice"}
    (closing,) = [each for each in records if each["allowed"]]
    assert ("certificate", body["id"]) in [(each["rule"], each["detail"]) for each in closing["reasons"]]
    said: dict[str, list[str]] = {}
    for record in records:
        for each in record["reasons"] if record["begun"] else ():
            said.setdefault(each["rule"], []).append(each["detail"])
    assert said["snapshots-gone"] == [" ".join(map(str, erased.snapshots[:-1]))]
    assert said["snapshots-searched"] == [str(erased.snapshots[-1])]
    assert said["erased-rows"] == ["3"]
    assert " ".join(said["identifier-digests"]).split() == _DIGESTS["digests"]
    assert "cut" not in said
    assert alice.get("/admin/v1/audit/verify").json()["intact"]


def test_what_the_table_contradicts_is_refused(served: Service, alice: httpx.Client, erased: _Table) -> None:
    refused(alice.post(_URL, json=erased.body()), 400, "RequestInvalid", "certificate")
    kept = Path(erased.table.metadata.snapshots[0].manifest_list.removeprefix("file://"))
    content = kept.read_bytes()
    erased.expire()
    for wrong in (
        {"table-uuid": str(uuid4())},
        {"snapshots-searched": erased.snapshots},
        {"snapshots-gone": [7]},
    ):
        refused(alice.post(_URL, json=erased.body(**wrong)), 400, "RequestInvalid", "certificate")
    assert not kept.exists()
    kept.write_bytes(content)
    error = refused(alice.post(_URL, json=erased.body()), 400, "RequestInvalid", "certificate")
    assert "left in storage" in error["message"]
    assert not any(each["allowed"] for each in _recorded(alice, erased.name, "table.certify"))
    with served.client("bob") as bob:
        refused(bob.post(_URL, json=erased.body()), 403, "NotAuthorized")


def _restricting(table: str, **more: Any) -> dict[str, Any]:
    database, name = table.split(".")
    resources = {"database": [database], "table": [name]}
    made = policy("restricts", resources, {}, policyItems=[], **more)
    if more["policyType"] == 1:
        made["resources"] = policy("", resources | {"column": ["name"]}, {})["resources"]
    return made


@pytest.mark.parametrize(
    "more",
    [
        {"policyType": 1, "dataMaskPolicyItems": [{"dataMaskInfo": {"dataMaskType": "MASK_HASH"}}]},
        {"policyType": 2, "rowFilterPolicyItems": [{"rowFilterInfo": {"filterExpr": "id > 1"}}]},
    ],
)
def test_a_user_who_does_not_see_all_values_cannot_certify(
    served: Service, alice: httpx.Client, erased: _Table, more: dict[str, Any]
) -> None:
    erased.expire()
    everything = policy("bob-all", tables(erased.name.split(".")[0]), {BOB: ["all"]})
    ((kind, (item,)),) = [each for each in more.items() if each[0] != "policyType"]
    of_bob = {**item, "users": [BOB], "accesses": [{"type": "select", "isAllowed": True}]}
    restricting = _restricting(erased.name, policyType=more["policyType"], **{kind: [of_bob]})
    try:
        with served.client("bob") as bob:
            served.lake.set_policies([*standard_policies(), everything, restricting])
            refused(bob.post(_URL, json=erased.body()), 403, "NotAuthorized")
            served.lake.set_policies([*standard_policies(), everything])
            assert bob.post(_URL, json=erased.body()).status_code == 200
    finally:
        served.lake.set_policies(standard_policies())


def test_that_a_table_was_not_erased_is_recorded_with_the_reason(
    served: Service, alice: httpx.Client, erased: _Table
) -> None:
    body = {**erased.body(), "left": "A tag holds rows."}
    refused(alice.post(_URL, json=body), 400, "RequestInvalid")
    del body["erased"]
    assert alice.post(_URL, json=body).status_code == 200
    (closing,) = [each for each in _recorded(alice, erased.name, "table.certify-left") if each["allowed"]]
    assert "A tag holds rows." in [each["detail"] for each in closing["reasons"]]
    with served.client("bob") as bob:
        refused(bob.post(_URL, json=body), 403, "NotAuthorized")
