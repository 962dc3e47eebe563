"""The audit trail over HTTP: who is not known is on record, pages, and floods."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.audit import tallies as audit_tallies
from catalog.audit.trail import AuditRecord, read, verify
from tests.support.http_calls import refused
from tests.support.lake import ALICE, BOB
from tests.support.service import Service, open_service

NOT_A_TOKEN = "lw_" + "0" * 32 + "_" + "s" * 43


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_service(tmp_path) as service:
        yield service


def _of(service: Service, principal: str) -> list[AuditRecord]:
    return [each.record for each in read(service.lake.services.engine, principal=principal, limit=1_000)]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": f"Bearer {NOT_A_TOKEN}"},
        {"Authorization": "Basic YWxpY2U6c2VjcmV0"},
        {"Authorization": "Bearer \x1b[2J"},
    ],
    ids=["none", "unknown", "basic", "control"],
)
def test_who_has_no_valid_token_is_on_record_without_what_he_sent(
    service: Service, headers: dict[str, str]
) -> None:
    with service.client(None) as client:
        answer = client.get("/v1/config", headers=headers | {"X-Request-Id": "mine"})
        refused(answer, 401, "NotAuthenticated")
    (record,) = _of(service, "")
    assert (record.action, record.resource, record.allowed) == ("authenticate", "127.0.0.1", False)
    assert record.request_id == "mine"
    assert "sss" not in repr(record) and "YWxp" not in repr(record) and "2J" not in repr(record)


def test_an_engines_token_that_is_not_valid_is_on_record(service: Service) -> None:
    with service.client(None) as client:
        headers = {"Authorization": f"Bearer {NOT_A_TOKEN}"}
        refused(client.post("/engine/v1/keys", headers=headers, json={}), 401, "NotAuthenticated")
    assert len(_of(service, "")) == 1


@pytest.mark.nightly
def test_a_flood_of_requests_costs_a_bounded_number_of_records_and_others_are_served(
    service: Service,
) -> None:
    """Attack: fill the trail and its queue, with and without a token, never asking the same twice."""

    def flood(user: str | None, count: int) -> None:
        with service.client(user) as client:
            for number in range(count):
                path = f"{service.prefix}/namespaces/db/tables/{threading.get_ident()}-{number}"
                assert client.get(path, headers={"X-Request-Id": f"r{number}"}).status_code in (401, 403)

    service.token(BOB)
    threads = [threading.Thread(target=flood, args=(user, 60)) for user in (None, None, BOB, BOB)]
    for thread in threads:
        thread.start()
    with service.client(ALICE) as alice:
        for _ in range(20):
            assert alice.get(f"{service.prefix}/namespaces").status_code == 200
    for thread in threads:
        thread.join()
    engine = service.lake.services.engine
    service.lake.services.audit.close()
    bound = 2 * (audit_tallies.DISTINCT + audit_tallies.KINDS + 1)
    for principal in ("", BOB):
        records = _of(service, principal)
        assert len(records) < bound
        assert sum(record.decisions for record in records) == 120
    assert verify(engine) == []


def test_pages_go_back_to_the_first_record_and_do_not_shift(service: Service) -> None:
    with service.client(ALICE) as client:
        for number in range(7):
            client.get(f"{service.prefix}/namespaces/n{number}")
        first = client.get("/admin/v1/audit", params={"limit": 3, "principal": ALICE}).json()
        seen, token = [*first["records"]], first["next-page-token"]
        while token is not None:
            asked = {"limit": 3, "principal": ALICE, "page-token": token}
            page = client.get("/admin/v1/audit", params=asked).json()
            seen += page["records"]
            token = page["next-page-token"]
    own = [record["sequence"] for record in seen]
    assert own == list(range(own[0], 0, -1))
    assert {record["decisions"] for record in seen} == {1}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("token", ["", "1", "1.2.3.4", "a.b.1", "1.x'--.1", "9" * 30 + ".w.1", "1.w.-1"])
def test_a_page_token_that_was_made_up_is_refused(service: Service, token: str) -> None:
    with service.client(ALICE) as client:
        refused(client.get("/admin/v1/audit", params={"page-token": token}), 400, "RequestInvalid")


def test_the_verdict_says_how_far_it_goes(service: Service) -> None:
    with service.client(ALICE) as client:
        client.get(f"{service.prefix}/namespaces")
        verdict = client.get("/admin/v1/audit/verify").json()
    assert verdict["intact"] is True
    assert verdict["records"] >= 1 and verdict["chains"] == 1
    assert verdict["signed-from"] is None
