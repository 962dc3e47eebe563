"""Who may do what at the KMS endpoint, what is told of it, and what is on record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import httpx
import pytest

from catalog.audit.reading import read
from catalog.kms_server.store import Denial
from tests.support.kms_endpoint import encrypted, make_key
from tests.support.lake import ALICE, BOB, CAROL
from tests.support.service import Service

MALLORY: Final = "mallory"


def _decrypt(client: httpx.Client, name: str) -> httpx.Response:
    return client.post(f"/kms/v1/keyversion/{name}@0/_eek?eek_op=decrypt", json=encrypted(name))


def _batch(client: httpx.Client, name: str) -> httpx.Response:
    inner = {"versionName": "EEK", "material": encrypted(name)["material"]}
    item = {"versionName": f"{name}@0", "iv": encrypted(name)["iv"], "encryptedKeyVersion": inner}
    return client.post(f"/kms/v1/key/{name}/_reencryptbatch", json=[item])


Call = Callable[[httpx.Client, str], httpx.Response]
#: By use: the call, and who may, of those who are in `endpoint_policies`.
USES: Final[dict[str, tuple[Call, set[str]]]] = {
    "metadata": (lambda client, name: client.get(f"/kms/v1/key/{name}/_metadata"), {ALICE, BOB, CAROL}),
    "key": (lambda client, name: client.get(f"/kms/v1/key/{name}"), {ALICE, BOB, CAROL}),
    "current": (lambda client, name: client.get(f"/kms/v1/key/{name}/_currentversion"), {ALICE, BOB, CAROL}),
    "versions": (lambda client, name: client.get(f"/kms/v1/key/{name}/_versions"), {ALICE, BOB, CAROL}),
    "version": (lambda client, name: client.get(f"/kms/v1/keyversion/{name}@0"), {ALICE, BOB, CAROL}),
    "several": (lambda client, name: client.get(f"/kms/v1/keys/metadata?key={name}"), {ALICE, BOB, CAROL}),
    "generate": (lambda client, name: client.get(f"/kms/v1/key/{name}/_eek?eek_op=generate"), {ALICE, BOB}),
    "decrypt": (_decrypt, {ALICE, CAROL}),
    "reencrypt": (
        lambda client, name: client.post(
            f"/kms/v1/keyversion/{name}@0/_eek?eek_op=reencrypt", json=encrypted(name)
        ),
        {ALICE, BOB},
    ),
    "batch": (_batch, {ALICE, BOB}),
    "roll": (lambda client, name: client.post(f"/kms/v1/key/{name}", json={}), {ALICE}),
    "invalidate": (lambda client, name: client.post(f"/kms/v1/key/{name}/_invalidatecache"), {ALICE}),
}
#: The action that is on record, where it is called otherwise.
ACTIONS: Final = {
    **dict.fromkeys(("key", "current", "versions", "version", "several"), "metadata"),
    "batch": "reencrypt",
    "invalidate": "roll",
}
#: The key that `endpoint_policies` gives Carol a right on.
PII: Final = "pii"


@pytest.fixture(scope="module")
def pii(served: Service) -> str:
    make_key(served.lake, PII)
    return PII


def _denied(answer: httpx.Response, status: int, java: str, ours: str) -> str:
    assert answer.status_code == status, answer.text
    document = answer.json()
    assert document["RemoteException"]["javaClassName"] == java
    assert document["error"]["lakewarden"] == ours
    message: str = document["RemoteException"]["message"]
    return message


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("use", USES)
def test_each_use_needs_its_right_and_is_on_record(served: Service, pii: str, use: str) -> None:
    call, allowed = USES[use]
    for user in (ALICE, BOB, CAROL, MALLORY):
        with served.client(user) as client:
            answer = call(client, pii)
        if user in allowed:
            assert answer.status_code == 200, (user, answer.text)
        else:
            message = _denied(answer, 403, "java.lang.SecurityException", "NotAuthorized")
            assert user in message and "door/pii" in message
        assert (f"door.{ACTIONS.get(use, use)}", user in allowed, "key door/pii") in _records(served, user)


def _records(served: Service, user: str) -> set[tuple[str, bool, str]]:
    engine = served.lake.services.engine
    found = read(engine, since_ms=None, principal=user, table=None, before=None, limit=100)
    return {(each.record.action, each.record.allowed, each.record.resource) for each in found}


def test_permission_on_the_master_key_of_that_name_is_none_at_the_kms_endpoint(served: Service) -> None:
    make_key(served.lake, "lakewarden")
    with served.client(CAROL) as carol:
        _denied(_decrypt(carol, "lakewarden"), 403, "java.lang.SecurityException", "NotAuthorized")


def test_key_of_a_table_is_not_to_be_had_at_the_kms_endpoint(served: Service) -> None:
    with served.client(ALICE) as alice:
        answer = _decrypt(alice, "unmade")
        _denied(answer, 403, "java.lang.SecurityException", "KeyNotUsable")
        assert alice.get("/kms/v1/key/unmade/_metadata").json() == {}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("use", list(USES))
def test_who_has_no_right_is_not_told_whether_there_is_a_key(served: Service, pii: str, use: str) -> None:
    with served.client(MALLORY) as mallory:
        there, not_there = (USES[use][0](mallory, name) for name in (pii, "unmade"))
    assert there.status_code == not_there.status_code == 403
    assert there.text.replace(pii, "…") == not_there.text.replace("unmade", "…")


def test_names_are_those_of_keys_that_one_has_a_right_on(served: Service, pii: str) -> None:
    make_key(served.lake, "secret-name")
    names = {}
    for user in (ALICE, CAROL, MALLORY):
        with served.client(user) as client:
            names[user] = client.get("/kms/v1/keys/names").json()
    assert {pii, "secret-name"} <= set(names[ALICE])
    assert (names[CAROL], names[MALLORY]) == ([pii], [])


def test_key_that_says_so_is_masked_and_only_for_readers(served: Service, name: str) -> None:
    make_key(served.lake, name, denial=Denial.MASK)
    with served.client(MALLORY) as mallory:
        masked = "org.apache.hadoop.security.authorize.AuthorizationException"
        _denied(_decrypt(mallory, name), 403, masked, "KeyMasked")
        answer = mallory.get(f"/kms/v1/key/{name}/_metadata")
        _denied(answer, 403, "java.lang.SecurityException", "NotAuthorized")
    with served.client(ALICE) as alice:
        # It is a lack of rights that shows masks, and nothing else.
        lost = alice.post(f"/kms/v1/keyversion/{name}@7/_eek?eek_op=decrypt", json=encrypted(name))
        _denied(lost, 403, "java.lang.SecurityException", "KeyNotUsable")


def test_creating_needs_rotate_and_master_key_of_the_settings(served: Service, name: str) -> None:
    body = {"name": name, "cipher": "AES/CTR/NoPadding", "length": 128, "description": "of people"}
    for user in (BOB, CAROL, MALLORY):
        with served.client(user) as client:
            _denied(
                client.post("/kms/v1/keys", json=body), 403, "java.lang.SecurityException", "NotAuthorized"
            )
    with served.client(ALICE) as alice:
        made = alice.post("/kms/v1/keys", json=body)
        assert (made.status_code, made.json()) == (201, {"name": name, "versionName": f"{name}@0"})
        shown = alice.get(f"/kms/v1/key/{name}/_metadata").json()
        again = alice.post("/kms/v1/keys", json=body)
    assert (shown["length"], shown["description"], shown["versions"]) == (128, "of people", 1)
    _denied(again, 400, "java.lang.IllegalArgumentException", "RequestInvalid")


def test_revoked_right_holds_at_once_and_disabled_master_key_within_the_ttl(
    served: Service, name: str
) -> None:
    make_key(served.lake, name)
    lake = served.lake
    with served.client(ALICE) as alice:
        assert _decrypt(alice, name).status_code == 200
        lake.kms.disable_master_key("lakewarden")
        try:
            lake.services.keyring._cache.forget(lake.services.endpoint_keys.find(name).wrapping.id)
            _denied(_decrypt(alice, name), 403, "java.lang.SecurityException", "KeyNotUsable")
        finally:
            lake.kms.enable_master_key("lakewarden")
        assert _decrypt(alice, name).status_code == 200
