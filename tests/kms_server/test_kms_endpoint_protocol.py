"""What the KMS endpoint reads and answers: one meaning a text; no failure looks like a lack of rights."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from sqlalchemy import text

from catalog.crypto import hadoop_base64
from catalog.db.engine import read, write
from catalog.kms_server.endpoint import MAX_BATCH
from tests.support.kms_endpoint import make_key
from tests.support.lake import ALICE
from tests.support.service import Service
from tests.support.vectors import each_row

IV: Final = bytes(range(16))
#: Java exceptions that Hadoop's client throws as they are, and ORC does not take for a lack of rights.
LOUD: Final = frozenset(
    {
        "java.lang.SecurityException",
        "java.lang.IllegalArgumentException",
        "java.lang.IllegalStateException",
        "java.lang.UnsupportedOperationException",
    }
)


@pytest.fixture(scope="module")
def alice(served: Service) -> Iterator[httpx.Client]:
    with served.client(ALICE) as client:
        yield client


@pytest.fixture
def key(served: Service, name: str) -> str:
    make_key(served.lake, name)
    return name


def _eek(name: str, material: bytes, iv: bytes = IV, **more: Any) -> dict[str, Any]:
    return {"name": name, "iv": b64encode(iv).decode(), "material": b64encode(material).decode(), **more}


def _decrypt(alice: httpx.Client, key: str, body: dict[str, Any], version: int = 0) -> httpx.Response:
    return alice.post(f"/kms/v1/keyversion/{key}%40{version}/_eek?eek_op=decrypt", json=body)


def _bytes(text: str) -> bytes:
    assert "=" not in text and "+" not in text and "/" not in text
    return b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4))


def loud(answer: httpx.Response, *statuses: int) -> None:
    """An error that fails the query of a standard reader."""
    assert answer.status_code in statuses, answer.text
    assert answer.json()["RemoteException"]["javaClassName"] in LOUD


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_keys_are_decrypted_by_aes_ctr_from_the_flipped_iv(
    served: Service, alice: httpx.Client, name: str, bits: int
) -> None:
    make_key(served.lake, name, bits=bits)
    material = bytes(range(bits // 8))
    answer = _decrypt(alice, name, _eek(name, material)).json()
    assert (answer["name"], answer["versionName"]) == (name, "EK")
    # Counter mode by hand: the keystream is the counter blocks, encrypted one by one.
    endpoint_key = served.lake.services.endpoint_keys.open(served.lake.services.endpoint_keys.find(name), 0)
    first = int.from_bytes(bytes(byte ^ 0xFF for byte in IV), "big")
    blocks = b"".join(((first + n) % 2**128).to_bytes(16, "big") for n in range(2))
    stream = Cipher(AES(endpoint_key.reveal()), ECB()).encryptor().update(blocks)
    expected = bytes(a ^ b for a, b in zip(material, stream, strict=False))
    assert _bytes(answer["material"]) == expected


def test_generated_keys_open_and_stay_the_same_under_a_new_version(alice: httpx.Client, key: str) -> None:
    made = alice.get(f"/kms/v1/key/{key}/_eek?eek_op=generate&num_keys=3").json()
    assert {each["versionName"] for each in made} == {f"{key}@0"}
    assert len({each["iv"] for each in made}) == 3
    inside = [_open(alice, key, each) for each in made]
    assert len(set(inside)) == 3
    assert alice.post(f"/kms/v1/key/{key}", json={}).json() == {"name": key, "versionName": f"{key}@1"}
    moved = alice.post(f"/kms/v1/key/{key}/_reencryptbatch", json=made).json()
    assert {each["versionName"] for each in moved} == {f"{key}@1"}
    assert [_open(alice, key, each) for each in moved] == inside == [_open(alice, key, each) for each in made]
    assert alice.post(f"/kms/v1/key/{key}/_reencryptbatch", json=moved).json() == moved
    assert all(each not in other.values() for each in made for other in moved)


def _open(alice: httpx.Client, key: str, eek: dict[str, Any]) -> str:
    body = {"name": key, "iv": eek["iv"], "material": eek["encryptedKeyVersion"]["material"]}
    path = f"/kms/v1/keyversion/{eek['versionName']}/_eek?eek_op=decrypt"
    answer = alice.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["material"])


def test_material_of_versions_is_never_told(served: Service, alice: httpx.Client, key: str) -> None:
    store = served.lake.services.endpoint_keys
    material = store.open(store.find(key), 0).reveal()
    seen = [
        alice.get(f"/kms/v1/{path}").text
        for path in (
            f"key/{key}",
            f"key/{key}/_metadata",
            f"key/{key}/_currentversion",
            f"key/{key}/_versions",
            f"keyversion/{key}@0",
            f"key/{key}/_eek?eek_op=generate",
            f"keys/metadata?key={key}",
        )
    ]
    for form in (
        material.hex(),
        b64encode(material).decode(),
        urlsafe_b64encode(material).decode().rstrip("="),
    ):
        assert not any(form in answer for answer in seen)
    assert '"material"' not in "".join(seen[:5])


def test_what_there_is_not_is_empty_as_standard_clients_expect(alice: httpx.Client, key: str) -> None:
    for path in ("key/none", "key/none/_metadata", "key/none/_currentversion", "keyversion/none@0"):
        assert alice.get(f"/kms/v1/{path}").json() == {}
    assert alice.get(f"/kms/v1/keyversion/{key}@1").json() == {}
    assert alice.get("/kms/v1/key/none/_versions").json() == []
    assert alice.get(f"/kms/v1/keys/metadata?key=none&key={key}").json()[0] == {}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "body",
    [
        {"iv": "AAAAAAAAAAAAAAAAAAAAAA", "material": "AAAAAAAAAAAAAAAAAAAAAA"},
        {"name": "other"},
        {"iv": None},
        {"iv": 7},
        {"iv": ""},
        {"iv": "AAAAAAAAAAAAAAAAAAAA"},
        {"material": ""},
        {"material": "AAAA"},
        {"material": "A" * 44},
        {"material": "A" * 5000},
        {"iv": "AAAAAAAAAAAAAAAAAAAAAB=="},
        {"iv": "AAAAAAAAAAAAAAAAAAAAAA="},
        {"iv": "AAAAAAAAAAAAAAAAAAAAAA===="},
        {"iv": "AAAAAAAAAAAA AAAAAAAAAA=="},
        {"iv": "+/AAAAAAAAAAAAAAAAA-_A"},
        {"unknown": 1},
    ],
)
def test_malformed_encrypted_keys_are_refused(alice: httpx.Client, key: str, body: dict[str, Any]) -> None:
    whole = body if set(body) == {"iv", "material"} else {**_eek(key, bytes(32)), **body}
    loud(_decrypt(alice, key, whole), 400)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "path",
    [
        "keyversion/{key}/_eek?eek_op=decrypt",
        "keyversion/{key}@/_eek?eek_op=decrypt",
        "keyversion/{key}@00/_eek?eek_op=decrypt",
        "keyversion/{key}@-1/_eek?eek_op=decrypt",
        "keyversion/{key}@1e1/_eek?eek_op=decrypt",
        "keyversion/{key}@9999999999/_eek?eek_op=decrypt",
        "keyversion/{key}@0@0/_eek?eek_op=decrypt",
        "keyversion/..@0/_eek?eek_op=decrypt",
        "keyversion/{key}%2F@0/_eek?eek_op=decrypt",
        "keyversion/{key}%00@0/_eek?eek_op=decrypt",
        "keyversion/{key}%ff@0/_eek?eek_op=decrypt",
        "keyversion/{key}@0/_eek",
        "keyversion/{key}@0/_eek?eek_op=other",
        "keyversion/{key}@0/_other",
        "key/{key}/_delete",
        "nothing",
    ],
)
def test_no_mistake_in_an_address_looks_like_a_lack_of_rights(
    alice: httpx.Client, key: str, path: str
) -> None:
    loud(alice.post(f"/kms/v1/{path.format(key=key)}", json=_eek(key, bytes(32))), 400, 404, 405)


def test_version_that_there_is_not_and_key_that_was_changed_are_loud(
    served: Service, alice: httpx.Client, key: str
) -> None:
    loud(_decrypt(alice, key, _eek(key, bytes(32)), version=1), 403)
    key_id = str(served.lake.services.endpoint_keys.find(key).wrapping.id)
    with write(served.lake.services.engine) as connection:
        damage = text("UPDATE lw_door_key_version SET sealed = zeroblob(60) WHERE key_id = :id")
        connection.execute(damage, {"id": key_id})
    loud(_decrypt(alice, key, _eek(key, bytes(32))), 403)


def test_sealed_versions_do_not_open_in_another_place(
    served: Service, alice: httpx.Client, name: str
) -> None:
    """A user who writes the database can exchange rows, and wins nothing by it."""
    make_key(served.lake, name, versions=2)
    make_key(served.lake, f"{name}-2")
    with read(served.lake.services.engine) as connection:
        ids = {row.name: row.id for row in connection.execute(text("SELECT name, id FROM lw_door_key"))}
    swap = "UPDATE lw_door_key_version SET sealed = (SELECT sealed FROM lw_door_key_version WHERE key_id = :a"
    swap += " AND version = :v) WHERE key_id = :b AND version = 0"
    for a, v, b in ((ids[name], 1, ids[name]), (ids[name], 0, ids[f"{name}-2"])):
        with write(served.lake.services.engine) as connection:
            connection.execute(text(swap), {"a": a, "v": v, "b": b})
    for each in (name, f"{name}-2"):
        loud(_decrypt(alice, each, _eek(each, bytes(32))), 403)


def test_outage_and_what_nobody_foresaw_are_loud(
    served: Service, alice: httpx.Client, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = served.lake.services
    keystore = served.lake.settings.kms.options.keystore
    away = keystore.with_name("away")
    services.keyring._cache.forget(services.endpoint_keys.find(key).wrapping.id)
    keystore.rename(away)
    try:
        loud(_decrypt(alice, key, _eek(key, bytes(32))), 503)
    finally:
        away.rename(keystore)
    monkeypatch.setattr(services.kms_endpoint, "decrypt", lambda *_: 1 / 0)
    loud(_decrypt(alice, key, _eek(key, bytes(32))), 500)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "body",
    [
        {"name": "PII"},
        {"name": "a/b"},
        {"name": "a@0"},
        {"name": "../a"},
        {"name": ""},
        {"name": "a" * 129},
        {"name": "ä"},
        {"name": 1},
        {"length": 64},
        {"length": "128"},
        {"cipher": "AES/GCM/NoPadding"},
        {"cipher": "RC4"},
        {"description": "a\nb"},
        {"description": "a" * 1001},
        {"attributes": {"lakewarden.denial": "never"}},
        {"attributes": {"key.acl.name": "other"}},
        {"attributes": {f"a{n}": "" for n in range(51)}},
        {"attributes": {"a": 1}},
        {"material": "AAAAAAAAAAAAAAAAAAAAAA"},
        {"surprise": True},
    ],
)
def test_keys_are_not_made_of_anything_else(alice: httpx.Client, name: str, body: dict[str, Any]) -> None:
    loud(alice.post("/kms/v1/keys", json={"name": name, **body}), 400)
    assert alice.get(f"/kms/v1/key/{name}/_metadata").json() == {}


def test_key_is_not_rolled_to_material_of_ones_own(alice: httpx.Client, key: str) -> None:
    loud(alice.post(f"/kms/v1/key/{key}", json={"material": "AAAAAAAAAAAAAAAAAAAAAA"}), 400)
    assert alice.get(f"/kms/v1/key/{key}/_versions").json() == [{"name": key, "versionName": f"{key}@0"}]


def test_keys_are_not_deleted_here(alice: httpx.Client, key: str) -> None:
    loud(alice.delete(f"/kms/v1/key/{key}"), 405)
    assert alice.get(f"/kms/v1/key/{key}/_metadata").json()["versions"] == 1


def test_bodies_and_batches_are_bounded(alice: httpx.Client, key: str) -> None:
    for count in (0, MAX_BATCH + 1, -1, 10**30):
        loud(alice.get(f"/kms/v1/key/{key}/_eek?eek_op=generate&num_keys={count}"), 400)
    (item,) = alice.get(f"/kms/v1/key/{key}/_eek?eek_op=generate").json()
    for items in ([], [item] * (MAX_BATCH + 1), [item, {**item, "versionName": "other@0"}], {"a": item}):
        loud(alice.post(f"/kms/v1/key/{key}/_reencryptbatch", json=items), 400)
    loud(alice.post(f"/kms/v1/key/{key}", content=b" " * 1_100_000), 413)
    loud(alice.post(f"/kms/v1/key/{key}", content=b'{"a":1,"a":2}', headers=_JSON), 400)
    loud(alice.post(f"/kms/v1/key/{key}", content=b"{}"), 415)


_JSON: Final = {"Content-Type": "application/json"}


@each_row("length", range(0, 34))
def test_base64_goes_round_in_both_forms(length: int) -> None:
    data = bytes((17 * n + length) % 256 for n in range(length))
    forms = {hadoop_base64.encode(data), hadoop_base64.encode_url_safe(data)}
    forms |= {urlsafe_b64encode(data).decode(), b64encode(data).decode().rstrip("=")}
    assert {hadoop_base64.decode(form) for form in forms} == {data}


def test_unauthorized_handshake_is_answered_all_the_same(served: Service) -> None:
    """ORC takes an error in it for a reason to show masks; the call after it is what is refused."""
    for path in ("key/pii/_metadata", "anything/at/all?user.name=%22"):
        answer = httpx.options(f"{served.url}/kms/v1/{path}", timeout=30)
        assert (answer.status_code, answer.headers.get("Set-Cookie")) == (200, None)


def test_answers_hold_no_key_of_the_kms_endpoint_in_any_error(
    served: Service, alice: httpx.Client, key: str
) -> None:
    store = served.lake.services.endpoint_keys
    material = store.open(store.find(key), 0).reveal()
    answers = [_decrypt(alice, key, _eek(key, material, iv=IV[:n])).text for n in (0, 5, 15)]
    assert not any(json.dumps(b64encode(material).decode())[1:-1] in each for each in answers)
