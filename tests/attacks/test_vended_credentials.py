"""A storage credential of one table opens nothing of another, whatever is in names, locations and properties.

The store enforces the session policies (`tests.support.guarded_store`). The tests that are named after CVEs
are the attacks of Apache Polaris's security advisories of May 2026 that credentials were the goal of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from sqlalchemy import text

from catalog.db.engine import write
from tests.http.test_http_read_restrictions import deny, mask, rows
from tests.support.guarded_store import GuardedStore, guarded_store
from tests.support.http_calls import ENCRYPTED, SCHEMA
from tests.support.lake import ALICE, ALLOWS_UNSEALED, BOB, CAROL, policy, standard_policies
from tests.support.moto_server import MotoS3
from tests.support.service import ENGINE, Service, open_service

ASKED = {"X-Iceberg-Access-Delegation": "vended-credentials"}

#: Names of a directory that mean something in IAM policies, in JSON, or in conditions of other stores.
CRAFTED = (
    "vic*",
    "${aws:username}",
    'x"],"Resource":["*',
    "x' || true || '",
    "*",
    "**",
    "${*}",
    "$",
    "victim-",
    "ü*字",
)

#: Bob can put tables anywhere in the bucket where no table of another user lies.
POLICIES = [
    *standard_policies(),
    policy("bob-storage", {"storage-type": ["*"], "storage-url": ["*"]}, {BOB: ["rwstorage"]}),
]


@pytest.fixture(scope="module")
def store(moto: MotoS3) -> Iterator[GuardedStore]:
    with guarded_store(moto) as server:
        yield server


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, store: GuardedStore) -> Iterator[Service]:
    """A catalog whose tables any client reaches by credentials alone."""
    root = tmp_path_factory.mktemp("lake")
    with open_service(root, policies=POLICIES, s3=store.s3, **store.settings()) as served:
        for namespace in ("db", "bobs"):
            served.lake.catalog().create_namespace(namespace, ALLOWS_UNSEALED)
        yield served


@pytest.fixture(scope="module")
def victim(service: Service) -> str:
    """A table that Bob has no permission on; returns its location."""
    location = f"{service.lake.settings.warehouse}/victim"
    assert _post(service, ALICE, "db", "victim", location=location).status_code == 200
    return location


def _post(service: Service, user: str, namespace: str, name: str, **body: Any) -> httpx.Response:
    with service.client(user) as client:
        path = f"{service.prefix}/namespaces/{namespace}/tables"
        return client.post(path, json={"name": name, "schema": SCHEMA, **body}, headers=ASKED)


def _credentials(service: Service, user: str, table: str, engine: str | None = None) -> httpx.Response:
    namespace, _, name = table.partition(".")
    with service.client(user, engine) as client:
        return client.get(f"{service.prefix}/namespaces/{namespace}/tables/{name}/credentials")


def _rule(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.json()["error"]["rule"] if answer.status_code != 200 else None


def _client(store: GuardedStore, answer: httpx.Response) -> Any:
    """A client with the credential of an answer."""
    (entry,) = answer.json()["storage-credentials"]
    return store.client(entry["config"])


def _opened(store: GuardedStore, client: Any, place: str) -> list[str]:
    """What a client can do below a location."""
    bucket, _, key = place.removeprefix("s3://").partition("/")
    store.s3.client.put_object(Bucket=bucket, Key=f"{key}/data/f", Body=b"rows")
    calls = {
        "read": lambda: client.get_object(Bucket=bucket, Key=f"{key}/data/f"),
        "write": lambda: client.put_object(Bucket=bucket, Key=f"{key}/data/g", Body=b""),
        "list": lambda: client.list_objects_v2(Bucket=bucket, Prefix=f"{key}/"),
        "delete": lambda: client.delete_object(Bucket=bucket, Key=f"{key}/data/f"),
        "metadata": lambda: client.put_object(Bucket=bucket, Key=f"{key}/metadata/1.metadata.json", Body=b""),
    }
    found = []
    for name, call in calls.items():
        try:
            call()
        except ClientError as refusal:
            assert refusal.response["Error"]["Code"] == "AccessDenied"
        else:
            found.append(name)
    return found


_OWN = ["read", "write", "list", "delete"]


@pytest.mark.parametrize(
    "name", [*CRAFTED[:4], *(pytest.param(each, marks=pytest.mark.nightly) for each in CRAFTED[4:])]
)
def test_cve_2026_42810_and_42811_names_are_literal_in_a_session_policy(
    service: Service, store: GuardedStore, victim: str, name: str
) -> None:
    place = f"{service.lake.settings.warehouse}/{name}"
    table = f"t{CRAFTED.index(name)}"
    answer = _post(service, BOB, "bobs", table, location=place)
    assert answer.status_code == 200, answer.text
    client = _client(store, answer)
    assert _opened(store, client, place) == _OWN
    for other in (victim, service.lake.settings.warehouse, f"{place}-2"):
        assert _opened(store, client, other) == []


def test_a_credential_opens_nothing_of_another_table(
    service: Service, store: GuardedStore, victim: str
) -> None:
    answers = {name: _post(service, BOB, "bobs", name) for name in ("own", "own-2")}
    places = {name: answer.json()["metadata"]["location"] for name, answer in answers.items()}
    for name, answer in answers.items():
        client = _client(store, answer)
        opened = {other: _opened(store, client, place) for other, place in places.items()}
        assert opened == {other: _OWN if other == name else [] for other in places}
        assert _opened(store, client, victim) == []


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize("where", ["location", "write.data.path", "write.metadata.path"])
def test_cve_2026_42809_no_credential_for_a_location_that_was_not_authorized(
    service: Service, store: GuardedStore, victim: str, where: str, staged: bool
) -> None:
    before = len(store.roles)
    for place in (victim, f"{victim}/data", service.lake.settings.warehouse):
        given = {"location": place} if where == "location" else {"properties": {where: place}}
        answer = _post(service, BOB, "bobs", "stolen", **given, **({"stage-create": True} if staged else {}))
        assert answer.status_code == 403 and "storage-credentials" not in answer.text
    assert len(store.roles) == before


def test_cve_2026_42809_a_prefix_of_two_tables_is_given_to_nobody(
    service: Service, store: GuardedStore, victim: str
) -> None:
    """Alice can put a table into another one, but then a prefix is not that of one table any more."""
    place = f"{victim}/inner"
    assert _rule(_credentials(service, CAROL, "db.victim")) == (200, None)
    staged = _post(service, ALICE, "db", "inner", location=place, **{"stage-create": True})
    assert _rule(staged) == (403, "shared-prefix")
    created = _post(service, ALICE, "db", "inner", location=place)
    assert created.status_code == 200 and "storage-credentials" not in created.json()
    for table in ("db.inner", "db.victim"):
        assert _rule(_credentials(service, ALICE, table)) == (403, "shared-prefix")
    service.lake.catalog().purge_table("db.inner")
    assert _rule(_credentials(service, CAROL, "db.victim")) == (200, None)


@pytest.mark.parametrize(
    "where", ["write.metadata.path", pytest.param("write.data.path", marks=pytest.mark.nightly)]
)
def test_cve_2026_42812_a_changed_write_path_widens_no_credential(
    service: Service, store: GuardedStore, victim: str, where: str
) -> None:
    name = f"moved{len(where)}"
    created = _post(service, BOB, "bobs", name)
    free = f"{service.lake.settings.warehouse}/elsewhere-{name}"
    for place, status in ((victim, 403), (free, 200)):
        change = {"action": "set-properties", "updates": {where: place}}
        with service.client(BOB) as client:
            path = f"{service.prefix}/namespaces/bobs/tables/{name}"
            assert client.post(path, json={"requirements": [], "updates": [change]}).status_code == status
    client = _client(store, _credentials(service, BOB, f"bobs.{name}"))
    # The allowed locations decide, and they have not changed.
    assert _opened(store, client, victim) == _opened(store, client, free) == []
    assert _opened(store, client, created.json()["metadata"]["location"]) == _OWN


RESTRICTING = {
    "row-filter": rows("id > 1", CAROL),
    "mask": mask("id", "MASK_NULL", CAROL),
    "policy-deny": deny("id", CAROL),
}


@pytest.mark.parametrize("rule", RESTRICTING)
def test_users_who_do_not_see_everything_get_no_credential(
    service: Service, store: GuardedStore, victim: str, rule: str
) -> None:
    """The client of such a user gets one only if it is trusted: an engine that enforces masks and filters."""
    assert _rule(_credentials(service, CAROL, "db.victim")) == (200, None)
    roles = len(store.roles)
    service.lake.set_policies([*POLICIES, RESTRICTING[rule]])
    try:
        assert _rule(_credentials(service, CAROL, "db.victim")) == (403, rule)
        assert len(store.roles) == roles
        trusted = _credentials(service, CAROL, "db.victim", ENGINE).status_code
        assert trusted == (403 if rule == "policy-deny" else 200)
    finally:
        service.lake.set_policies(POLICIES)


def test_metadata_that_went_around_the_catalog_gets_no_credential(
    service: Service, store: GuardedStore
) -> None:
    """A writer who moves the pointer could choose the location and the write paths."""
    table = service.iceberg(BOB).create_table("bobs.rolled", schema=pa.schema([("id", pa.int64())]))
    first = table.metadata_location
    table.transaction().set_properties(comment="x").commit_transaction()
    assert _rule(_credentials(service, BOB, "bobs.rolled")) == (200, None)
    moved = text("UPDATE iceberg_tables SET metadata_location = :first WHERE table_name = 'rolled'")
    with write(service.lake.services.engine) as connection:
        connection.execute(moved, {"first": first})
    assert _rule(_credentials(service, BOB, "bobs.rolled")) == (403, "unsealed")
    with service.client(BOB) as client:
        path = f"{service.prefix}/namespaces/bobs/tables/rolled"
        assert client.get(path).status_code == 200
        assert client.get(path, headers=ASKED).status_code == 403


def test_no_credential_writes_plaintext_into_an_encrypted_table(
    service: Service, store: GuardedStore
) -> None:
    properties = {**ENCRYPTED, "encryption.standard-clients": "load"}
    assert _post(service, ALICE, "db", "sealed", properties=properties).status_code == 200
    place = str(service.iceberg().load_table("db.sealed").location())
    assert _opened(store, _client(store, _credentials(service, ALICE, "db.sealed")), place) == ["read"]
    by_engine = _credentials(service, ALICE, "db.sealed", ENGINE)
    assert _opened(store, _client(store, by_engine), place) == _OWN
    staged = _post(service, ALICE, "db", "to-be", properties=properties, **{"stage-create": True})
    assert staged.status_code == 403


def test_users_without_select_get_no_credential_for_a_table_that_they_create(
    service: Service, store: GuardedStore
) -> None:
    """What others write there while the credential is valid is not for them."""
    creates = policy(
        "create", {"database": ["db"], "table": ["*"], "column": ["*"]}, {"dan": ["create", "update"]}
    )
    before = len(store.roles)
    service.lake.set_policies([*POLICIES, creates])
    try:
        created = _post(service, "dan", "db", "blind")
        assert created.status_code == 200 and "storage-credentials" not in created.json()
        assert _post(service, "dan", "db", "blind2", **{"stage-create": True}).status_code == 403
    finally:
        service.lake.set_policies(POLICIES)
    assert len(store.roles) == before


def test_a_store_without_policy_variables_gets_no_policy_with_them(
    tmp_path_factory: pytest.TempPathFactory, store: GuardedStore
) -> None:
    """MinIO takes the `*` of `${*}` for a wildcard."""
    settings = store.settings()
    del settings["S3__STS__POLICY_VARIABLES"]
    with open_service(tmp_path_factory.mktemp("lake"), s3=store.s3, **settings) as served:
        served.lake.catalog().create_namespace("db")
        for name, rule in (("t${*}", "credential-scope"), ("t*", "credential-scope"), ("t", None)):
            place = f"{served.lake.settings.warehouse}/{name}"
            staged = _post(served, ALICE, "db", "t1", location=place, **{"stage-create": True})
            assert _rule(staged) == (403 if rule else 200, rule)
