"""Storage credentials for standard clients, against a store that enforces them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from policy.principal import Principal
from policy.token_scope import TokenScope
from tests.support.guarded_store import GuardedStore, guarded_store
from tests.support.lake import ALICE, BOB, CAROL, policy, standard_policies, tables
from tests.support.moto_server import MotoS3
from tests.support.service import Service, open_service

ASKED = {"X-Iceberg-Access-Delegation": "vended-credentials"}
SECRETS = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")
ROWS = pa.table({"id": [1, 2], "item": ["tea", "jam"]})


@pytest.fixture(scope="module")
def store(moto: MotoS3) -> Iterator[GuardedStore]:
    with guarded_store(moto) as server:
        yield server


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, store: GuardedStore) -> Iterator[Service]:
    root = tmp_path_factory.mktemp("lake")
    with open_service(root, s3=store.s3, **store.settings()) as served:
        # Clients have no permissions on storage of their own.
        served.client_properties = {}
        served.lake.catalog().create_namespace("db")
        yield served


def _made(service: Service, name: str, **properties: str) -> Any:
    return service.iceberg().create_table(f"db.{name}", schema=ROWS.schema, properties=properties)


def _load(service: Service, name: str, user: str = ALICE, **headers: str) -> httpx.Response:
    with service.client(user) as client:
        return client.get(f"{service.prefix}/namespaces/db/tables/{name}", headers=headers)


def _credentials(service: Service, name: str, user: str = ALICE, **query: str) -> httpx.Response:
    with service.client(user) as client:
        return client.get(f"{service.prefix}/namespaces/db/tables/{name}/credentials", params=query)


@pytest.mark.nightly
def test_pyiceberg_writes_and_reads_with_credentials_alone(service: Service) -> None:
    table = _made(service, "orders")
    table.append(ROWS)
    table.append(ROWS)
    read = service.iceberg(CAROL).load_table("db.orders")
    assert read.scan().to_arrow().num_rows == 4
    assert read.scan(row_filter="id > 1").to_arrow().num_rows == 2
    with pytest.raises(Exception, match=r"ACCESS_DENIED|AccessDenied|403"):
        read.append(ROWS)


@pytest.mark.nightly
def test_pyiceberg_creates_a_table_with_its_rows(service: Service) -> None:
    with service.iceberg().create_table_transaction("db.staged", schema=ROWS.schema) as transaction:
        transaction.append(ROWS)
    assert service.iceberg().load_table("db.staged").scan().to_arrow().num_rows == 2


def test_a_load_has_credentials_only_if_the_client_asks(service: Service) -> None:
    _made(service, "asked")
    plain = _load(service, "asked")
    assert "ETag" in plain.headers and "storage-credentials" not in plain.json()
    assert not any(name in plain.json()["config"] for name in SECRETS)
    assert (
        "storage-credentials"
        not in _load(service, "asked", **{"X-Iceberg-Access-Delegation": "remote"}).json()
    )
    answer = _load(service, "asked", **{"X-Iceberg-Access-Delegation": "remote-signing, vended-credentials"})
    (entry,) = answer.json()["storage-credentials"]
    assert entry["prefix"] == answer.json()["metadata"]["location"]
    assert entry["config"].items() <= answer.json()["config"].items()
    assert set(SECRETS) < entry["config"].keys()
    endpoint = entry["config"]["client.refresh-credentials-endpoint"]
    with service.client() as client:
        renewed = client.get(f"/{endpoint}")
    assert renewed.json() == {"storage-credentials": [entry]}
    assert renewed.headers["Cache-Control"] == "no-store"


def test_an_answer_with_credentials_is_kept_by_no_cache(service: Service) -> None:
    """A client that has the table already still gets the credential, and it is its own."""
    _made(service, "kept")
    etag = _load(service, "kept").headers["ETag"]
    for user in (ALICE, CAROL):
        answer = _load(service, "kept", user, **ASKED, **{"If-None-Match": etag})
        assert answer.status_code == 200 and "ETag" not in answer.headers
        assert answer.headers["Cache-Control"] == "no-store"
    assert _load(service, "kept", **{"If-None-Match": etag}).status_code == 304
    assert _load(service, "kept", BOB, **ASKED, **{"If-None-Match": etag}).status_code == 403


def test_an_answer_with_credentials_is_not_compressed(service: Service) -> None:
    _made(service, "uncompressed")
    plain = _load(service, "uncompressed", **{"Accept-Encoding": "gzip"})
    answer = _load(service, "uncompressed", **{"Accept-Encoding": "gzip", **ASKED})
    assert plain.headers["Content-Encoding"] == "gzip" and "storage-credentials" not in plain.json()
    assert "Content-Encoding" not in answer.headers and answer.json()["storage-credentials"]


def test_a_credential_is_kept_for_its_user_until_the_policies_change(
    service: Service, store: GuardedStore
) -> None:
    _made(service, "cached")
    before = len(store.roles)
    reads = [*standard_policies(), policy("reads", tables("db"), {BOB: ["select"]})]
    service.lake.set_policies(reads)
    keys = [_credentials(service, "cached", user).json() for user in (CAROL, CAROL, BOB, ALICE, CAROL)]
    assert keys[0] == keys[1] == keys[4] and keys[2] not in (keys[0], keys[3]) and keys[3] != keys[0]
    assert len(store.roles) == before + 3
    service.lake.set_policies([*reads, policy("more", tables("other"), {CAROL: ["select"]})])
    assert _credentials(service, "cached", CAROL).json() != keys[0]
    service.lake.set_policies([each for each in standard_policies() if each["name"] != "carol-reads"])
    assert _credentials(service, "cached", CAROL).status_code == 403
    service.lake.set_policies(standard_policies())


def test_users_without_update_write_nothing(service: Service, store: GuardedStore) -> None:
    table = _made(service, "read")
    bucket, _, key = table.location().removeprefix("s3://").partition("/")
    (entry,) = _credentials(service, "read", CAROL).json()["storage-credentials"]
    client = store.client(entry["config"])
    client.get_object(Bucket=bucket, Key=table.metadata_location.partition(f"{bucket}/")[2])
    for call in (
        lambda: client.put_object(Bucket=bucket, Key=f"{key}/data/x", Body=b""),
        lambda: client.delete_object(Bucket=bucket, Key=f"{key}/data/x"),
        lambda: client.list_objects_v2(Bucket=bucket, Prefix=f"{key}/"),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            call()


def test_a_token_that_reads_alone_gets_no_credential_to_write(service: Service, store: GuardedStore) -> None:
    """Nor does it get the one that its user has by another token."""
    table = _made(service, "scoped")
    bucket, _, key = table.location().removeprefix("s3://").partition("/")
    reader = Principal(ALICE, scope=TokenScope(read_only=True))
    token = service.lake.services.tokens.issue(reader, "user", None).text
    (whole,) = _credentials(service, "scoped").json()["storage-credentials"]
    store.client(whole["config"]).put_object(Bucket=bucket, Key=f"{key}/data/x", Body=b"")
    with service.client() as http:
        path = f"{service.prefix}/namespaces/db/tables/scoped/credentials"
        answer = http.get(path, headers={"Authorization": f"Bearer {token}"})
    (entry,) = answer.json()["storage-credentials"]
    client = store.client(entry["config"])
    client.get_object(Bucket=bucket, Key=table.metadata_location.partition(f"{bucket}/")[2])
    with pytest.raises(ClientError, match="AccessDenied"):
        client.put_object(Bucket=bucket, Key=f"{key}/data/x", Body=b"")


def test_where_the_catalog_plans_no_credential_is_issued(service: Service) -> None:
    _made(service, "planned", **{"read.scan-planning-mode": "server"})
    for answer in (_credentials(service, "planned"), _load(service, "planned", **ASKED)):
        assert answer.status_code == 403
        assert answer.json()["error"]["rule"] == "planned-files"
        assert "remote-signing" in answer.json()["error"]["hint"]
    assert _load(service, "planned").status_code == 200


def test_a_prefix_that_another_table_has_in_common_is_given_to_nobody(service: Service) -> None:
    one, other = _made(service, "one"), _made(service, "other")
    assert _credentials(service, "one").status_code == 200
    with service.client() as client:
        path = "/admin/v1/tables/db/other"
        paths = f"{other.location()}, {one.location()}/data/old"
        assert (
            client.patch(path, json={"set": {"read.allowed.data.paths": paths}, "unset": []}).status_code
            == 200
        )
    for name in ("one", "other"):
        refusal = _credentials(service, name)
        assert (refusal.status_code, refusal.json()["error"]["rule"]) == (403, "shared-prefix")
        assert f"db.{'other' if name == 'one' else 'one'}" not in refusal.text
    service.lake.catalog().drop_table("db.other")
    assert _credentials(service, "one").json()["error"]["rule"] == "shared-prefix", (
        "it can be registered again"
    )


def test_the_audit_log_says_for_whom_a_credential_was_issued(service: Service) -> None:
    table = _made(service, "audited")
    (entry,) = _credentials(service, "audited", CAROL).json()["storage-credentials"]
    with service.client() as client:
        query = {"principal": CAROL, "table": "db.audited", "limit": 50}
        records = client.get("/admin/v1/audit", params=query).json()["records"]
    (record,) = [each for each in records if each["action"] == "table.credentials"]
    assert record["allowed"]
    reasons = {reason["rule"]: reason["detail"] for reason in record["reasons"]}
    assert reasons["credential-read"] == table.location() and "credential-write" not in reasons
    assert "ends at" in reasons["credential"]
    assert not any(entry["config"][name] in str(records) for name in SECRETS)


def test_parameters_of_load_credentials(service: Service) -> None:
    _made(service, "params")
    assert _credentials(service, "params", **{"planId": "0" * 36}).status_code == 404
    assert _credentials(service, "params", **{"referenced-by": "db.view"}).status_code == 400
    assert _credentials(service, "nothing").status_code == 404


def test_without_the_setting_nothing_is_offered(tmp_path: Path, moto: MotoS3) -> None:
    with open_service(tmp_path, s3=moto) as served:
        served.lake.catalog().create_namespace("db")
        _made(served, "plain")
        answer = _load(served, "plain", **ASKED)
        assert answer.status_code == 200 and "ETag" in answer.headers
        assert not any(name in answer.text for name in SECRETS)
        assert _credentials(served, "plain").status_code == 404
        with served.client() as client:
            assert "/credentials" not in client.get("/v1/config").text
