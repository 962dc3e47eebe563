"""The KMS endpoint for standard Parquet readers: whose keys it opens, for whom, and what is on record."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import httpx
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from catalog.audit.reading import read
from catalog.base.identifiers import table_name
from catalog.crypto.aead import Aead
from catalog.envelope.parquet_key_tools import StockKey, transport_kek_aad
from catalog.kms_server.parquet_readers import ACTION
from catalog.writes.sessions import WriteSession
from tests.support.lake import ALICE, BOB, CAROL, MASTER_KEY, policy, standard_policies
from tests.support.service import Service, open_service
from tests.support.tables import fresh, make, named

pytestmark = pytest.mark.nightly

STOCK: Final = {"encryption.stock-readers": "true"}
KEYED: Final = {**STOCK, "encryption.columns": "pii:ssn"}
SCHEMA: Final = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "name", StringType()),
)
DAVE, ERIN, FRANK, GRACE = "dave", "erin", "frank", "grace"


def policies() -> list[dict[str, Any]]:
    """In `db`, Carol may read all; Dave all but the ssn; Erin the ssn alone; Frank all, an ssn masked;
    Grace all, some rows. All of them may have the keys released, but for Bob, who may read all. The mask and
    the row filter hold everywhere: no table could leave them.
    """

    def columns(*names: str) -> dict[str, Any]:
        return {"database": ["db"], "table": ["*"], "column": list(names)}

    everybody = (CAROL, DAVE, ERIN, FRANK, GRACE)
    mask = {
        "policyType": 1,
        "dataMaskPolicyItems": [
            {
                "users": [FRANK],
                "accesses": [{"type": "select", "isAllowed": True}],
                "dataMaskInfo": {"dataMaskType": "MASK_NULL"},
            }
        ],
    }
    rows = {
        "policyType": 2,
        "rowFilterPolicyItems": [
            {
                "users": [GRACE],
                "accesses": [{"type": "select", "isAllowed": True}],
                "rowFilterInfo": {"filterExpr": "id = 1"},
            }
        ],
    }
    return [
        *standard_policies(),
        policy("readers", columns("*"), {user: ["select"] for user in (BOB, FRANK, GRACE)}),
        policy("dave", columns("id", "name"), {DAVE: ["select"]}),
        policy("erin", columns("ssn"), {ERIN: ["select"]}),
        policy("keys", {"key": [MASTER_KEY, "pii"]}, {user: ["release"] for user in everybody}),
        policy("mask", {**columns("ssn"), "database": ["*"]}, {}, **mask),
        policy("rows", {"database": ["*"], "table": ["*"]}, {}, **rows),
    ]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    root = tmp_path_factory.mktemp("lake")
    with open_service(root, policies=policies(), KMS_ENDPOINT__ENABLED="true") as running:
        running.lake.kms.create_master_key("pii")
        running.lake.catalog().create_namespace_if_not_exists("db")
        yield running


def begun(served: Service, properties: dict[str, str]) -> tuple[WriteSession, str]:
    """A write to a new table, and the table's name."""
    name = fresh("db", "stock")
    make(served.lake, name, SCHEMA, properties=properties)
    return served.lake.services.writes.begin(served.lake.caller(ALICE), name), name.name


def unwrap(served: Service, user: str, key: StockKey, **changed: str) -> httpx.Response:
    body = {"masterKeyID": key.label.key_name, "wrappedKEK": key.wrapped, **changed}
    with served.client(user) as client:
        return client.post("/kms/v1/kek/_unwrap", json=body)


def status(served: Service, user: str, key: StockKey, **changed: str) -> int:
    return unwrap(served, user, key, **changed).status_code


def refusal(answer: httpx.Response) -> str:
    assert answer.status_code == 403, answer.text
    document = answer.json()
    assert document["RemoteException"]["javaClassName"] == "java.lang.SecurityException"
    told: str = document["error"]["lakewarden"]
    return told


def test_the_engine_and_the_kms_endpoint_open_the_same_key(served: Service) -> None:
    session, _ = begun(served, KEYED)
    assert session.transport is not None
    for key in session.stock_keys:
        aad = transport_kek_aad(session.transport, session.table.record.table_uuid, key.kek_id, key.label)
        sent = Aead(session.transport.key).open(key.kek, aad)
        answer = unwrap(served, CAROL, key)
        assert base64.b64decode(answer.json()["material"]) == sent


def test_a_table_without_stock_readers_has_no_such_keys(served: Service) -> None:
    session, _ = begun(served, {"encryption.mechanism": "envelope"})
    assert session.stock_keys == ()


@pytest.mark.parametrize(
    ("properties", "place", "allowed"),
    [
        # One key opens every column.
        (STOCK, 0, {ALICE, CAROL}),
        # The footer's key opens those in plaintext.
        (KEYED, 0, {ALICE, CAROL, DAVE, FRANK}),
        (KEYED, 1, {ALICE, CAROL, ERIN}),
        # Where all have keys, the footer opens none by itself.
        ({**STOCK, "encryption.columns": "pii:id,ssn,name"}, 0, {ALICE, CAROL, DAVE, ERIN, FRANK}),
        ({**STOCK, "encryption.columns": "pii:id,ssn,name"}, 1, {ALICE, CAROL}),
    ],
    ids=["whole", "footer", "group", "footer of groups alone", "group of all"],
)
def test_a_key_is_for_who_may_have_every_column_under_it(
    served: Service, properties: dict[str, str], place: int, allowed: set[str]
) -> None:
    session, name = begun(served, properties)
    key = session.stock_keys[place]
    everybody = (ALICE, BOB, CAROL, DAVE, ERIN, FRANK, GRACE, "mallory")
    found = {user for user in everybody if status(served, user, key) == 200}
    assert found == allowed
    records = read(
        served.lake.services.engine, since_ms=None, principal=None, table=None, before=None, limit=50
    )
    on_record = {
        (each.record.principal, each.record.allowed)
        for each in records
        if (each.record.action, each.record.resource) == (ACTION, f"db.{name}")
    }
    # Of the table nothing is told to Mallory, who has no right on it.
    assert on_record >= {(user, user in allowed) for user in everybody if user != "mallory"}
    assert "mallory" not in {user for user, _ in on_record}


def test_what_is_refused_tells_nothing_of_the_key(served: Service) -> None:
    session, _ = begun(served, STOCK)
    answer = unwrap(served, BOB, session.stock_keys[0])
    assert refusal(answer) == "NotAuthorized"
    assert "release on key lakewarden" in answer.text and "material" not in answer.text


def test_a_column_counts_under_every_name_that_it_had(served: Service) -> None:
    session, name = begun(served, KEYED)
    served.lake.set_policies([each for each in policies() if each["name"] != "mask"])
    with served.lake.catalog().load_table(f"db.{name}").update_schema() as update:
        update.rename_column("ssn", "number")
    served.lake.set_policies(policies())
    assert status(served, CAROL, session.stock_keys[1]) == 200
    # Erin may have what is called ssn, and not what it is called now.
    assert refusal(unwrap(served, ERIN, session.stock_keys[1])) == "NotAuthorized"


def test_another_master_key_table_or_role_is_refused(served: Service) -> None:
    session, _ = begun(served, KEYED)
    footer, group = session.stock_keys
    assert refusal(unwrap(served, ALICE, footer, masterKeyID="pii")) == "DecryptionRefused"
    assert refusal(unwrap(served, ALICE, group, masterKeyID=MASTER_KEY)) == "DecryptionRefused"
    data = bytearray(base64.b64decode(footer.wrapped))
    for at in (0, 1, 17, 36, 40, 41, 50, 101):
        changed = bytes(data[:at]) + bytes([data[at] ^ 1]) + bytes(data[at + 1 :])
        answer = unwrap(served, ALICE, footer, wrappedKEK=base64.b64encode(changed).decode())
        assert answer.status_code == 403, at
    for text in ("x", "é", "A" * 136, "A" * 135 + "=", footer.wrapped + "\n"):
        assert status(served, ALICE, footer, wrappedKEK=text) == 403, text
    assert status(served, ALICE, footer, wrappedKEK="") == 400


def test_who_may_read_less_cannot_pass_a_groups_key_for_the_footers(served: Service) -> None:
    """The role is changed to the one that Dave may have; the columns follow, the key does not open."""
    session, _ = begun(served, {**STOCK, "encryption.columns": "lakewarden:ssn"})
    _, group = session.stock_keys
    data = bytearray(base64.b64decode(group.wrapped))
    data[41] = 0
    answer = unwrap(served, DAVE, group, wrappedKEK=base64.b64encode(bytes(data)).decode())
    assert refusal(answer) == "DecryptionRefused"


def test_turned_off_it_opens_nothing_more(served: Service) -> None:
    session, name = begun(served, STOCK)
    table = served.lake.catalog().load_table(f"db.{name}")
    table.transaction().set_properties({"encryption.stock-readers": "false"}).commit_transaction()
    assert refusal(unwrap(served, ALICE, session.stock_keys[0])) == "KeyNotUsable"


def test_a_dropped_table_opens_nothing_and_a_renamed_one_by_its_new_name(served: Service) -> None:
    session, name = begun(served, STOCK)
    (key,) = session.stock_keys
    served.lake.catalog().create_namespace_if_not_exists("other")
    served.lake.catalog().rename_table(f"db.{name}", f"other.{name}")
    assert status(served, ALICE, key) == 200
    assert refusal(unwrap(served, CAROL, key)) == "NotAuthorized"
    served.lake.catalog().drop_table(f"other.{name}")
    assert refusal(unwrap(served, ALICE, key)) == "NotAuthorized"
    make(served.lake, named(name), SCHEMA, properties=STOCK)
    assert refusal(unwrap(served, ALICE, key)) == "NotAuthorized"


def test_who_has_no_right_is_not_told_of_the_table(served: Service) -> None:
    """What a wrapped key claims is not proved yet: any UUID can be asked about."""
    session, name = begun(served, STOCK)
    (key,) = session.stock_keys
    data = bytearray(base64.b64decode(key.wrapped))
    data[1:17] = bytes(16)
    unknown = base64.b64encode(bytes(data)).decode()
    there, absent = (unwrap(served, "mallory", key, **more) for more in ({}, {"wrappedKEK": unknown}))
    assert refusal(there) == refusal(absent) == "NotAuthorized"
    assert there.text == absent.text and name not in there.text
    records = read(
        served.lake.services.engine, since_ms=None, principal="mallory", table=None, before=None, limit=5
    )
    resources = {each.record.resource for each in records if each.record.action == ACTION}
    assert {f"table {session.table.record.table_uuid}", f"table {UUID(int=0)}"} <= resources


def test_a_disabled_key_opens_nothing_until_it_is_enabled(served: Service) -> None:
    session, name = begun(served, STOCK)
    (key,) = session.stock_keys
    life, alice = served.lake.services.key_life, served.lake.caller(ALICE)
    (pek,) = session.table.governed.epochs.current.peks
    life.disable(alice, table_name(["db"], name), pek.pek_id, pek.version)
    assert refusal(unwrap(served, ALICE, key)) == "KeyNotUsable"
    life.enable(alice, table_name(["db"], name), pek.pek_id, pek.version)
    assert status(served, ALICE, key) == 200


def test_an_older_version_of_the_key_goes_on_opening(served: Service) -> None:
    session, name = begun(served, STOCK)
    served.lake.services.key_rotation.rotate(served.lake.caller(ALICE), table_name(["db"], name))
    assert status(served, CAROL, session.stock_keys[0]) == 200


@pytest.mark.parametrize("body", [{}, {"masterKeyID": "x"}, {"masterKeyID": "x", "wrappedKEK": "y", "z": 1}])
def test_a_malformed_request_is_one(served: Service, body: dict[str, Any]) -> None:
    with served.client(ALICE) as client:
        assert client.post("/kms/v1/kek/_unwrap", json=body).status_code == 400


def test_closed_and_without_a_token_there_is_nothing(served: Service, service: Service) -> None:
    session, _ = begun(served, STOCK)
    body = {"masterKeyID": MASTER_KEY, "wrappedKEK": session.stock_keys[0].wrapped}
    with served.client(None) as nobody:
        assert nobody.post("/kms/v1/kek/_unwrap", json=body).status_code == 401
    with service.client(ALICE) as client:
        assert client.post("/kms/v1/kek/_unwrap", json=body).status_code == 404
