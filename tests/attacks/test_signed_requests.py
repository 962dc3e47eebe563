"""Attacks through signed requests: a signature opens what it was decided for, and nothing else."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import boto3
import httpx
import pyarrow as pa
import pytest
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError
from pyiceberg.exceptions import ForbiddenError, SignError
from pyiceberg.io.fsspec import S3V4RestSigner
from pyiceberg.types import StringType
from sqlalchemy import select

from catalog.db.engine import read
from catalog.db.schema import lw_audit
from tests.support.http_calls import refused
from tests.support.lake import ALICE, BOB, CAROL, policy, standard_policies, tables
from tests.support.moto_server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, MotoS3
from tests.support.service import ENGINE, Service, open_service

ASKED = {"X-Iceberg-Access-Delegation": "remote-signing"}
ROWS = pa.table({"id": [1, 2], "name": ["tea", "jam"]})
SELECT = [{"type": "select", "isAllowed": True}]


def _policies(*, carol: bool = True) -> list[dict[str, Any]]:
    every = {"database": ["db"], "table": ["*"]}
    mask = {"users": ["masked"], "accesses": SELECT, "dataMaskInfo": {"dataMaskType": "MASK_NULL"}}
    rows = {"users": ["filtered"], "accesses": SELECT, "rowFilterInfo": {"filterExpr": "id < 2"}}
    standard = [each for each in standard_policies() if carol or each["name"] != "carol-reads"]
    return [
        *standard,
        policy("read", tables("db"), {"masked": ["select"], "filtered": ["select"]}),
        policy("id", every | {"column": ["id"]}, {"denied": ["select"]}),
        policy("mask", every | {"column": ["name"]}, {}, policyType=1, dataMaskPolicyItems=[mask]),
        policy("rows", every, {}, policyType=2, rowFilterPolicyItems=[rows]),
    ]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, moto: MotoS3) -> Iterator[Service]:
    root = tmp_path_factory.mktemp("lake")
    with open_service(root, s3=moto, policies=_policies(), S3__SIGNING="true") as running:
        running.lake.catalog().create_namespace("db")
        for name in ("t", "other"):
            running.iceberg().create_table(f"db.{name}", ROWS.schema).append(ROWS)
        yield running


@dataclass
class Opened:
    """A table as its clients see it.

    Attributes:
        served: the catalog.
        name: the table.
        bucket: its bucket.
        base: the key of its directory.
        file: the key of its newest data file.
    """

    served: Service
    name: str
    bucket: str
    base: str
    file: str

    @classmethod
    def of(cls, served: Service, name: str) -> Opened:
        """Load a table."""
        table = served.iceberg().load_table(f"db.{name}")
        files = [each.file.file_path for each in table.scan().plan_files()] or [table.metadata_location]
        bucket, _, base = table.location().removeprefix("s3://").partition("/")
        return cls(served, name, bucket, base, files[0].removeprefix(f"s3://{bucket}/"))

    def sign(
        self, method: str, key: str, user: str = ALICE, engine: str | None = None, **more: Any
    ) -> httpx.Response:
        """Ask for a signature; `more` can have `uri`, `query`, `headers`, `body`."""
        endpoint = self.served.lake.settings.s3.endpoint
        uri = more.get("uri") or f"{endpoint}/{self.bucket}/{quote(key)}{more.get('query', '')}"
        asked = {"method": method, "region": REGION, "uri": uri, "headers": more.get("headers", {})}
        asked |= {"body": more["body"]} if "body" in more else {}
        with self.served.client(user, engine) as client:
            return client.post(f"{self.served.prefix}/namespaces/db/tables/{self.name}/sign", json=asked)

    def client(self, user: str = ALICE) -> Any:
        """boto3 without credentials, with the signer of PyIceberg."""
        with self.served.client(user) as client:
            url = f"{self.served.prefix}/namespaces/db/tables/{self.name}"
            config = client.get(url, headers=ASKED).json()["config"]
        unsigned = Config(signature_version=UNSIGNED, retries={"total_max_attempts": 1})
        s3 = boto3.client(
            "s3", endpoint_url=config["s3.endpoint"], region_name=config["s3.region"], config=unsigned
        )
        signer = S3V4RestSigner({**config, "uri": self.served.url, "token": self.served.token(user)})
        s3.meta.events.register_last("before-sign.s3", signer)
        return s3


@pytest.fixture
def table(served: Service) -> Opened:
    return Opened.of(served, "t")


@pytest.fixture
def other(served: Service) -> Opened:
    return Opened.of(served, "other")


def test_a_reader_reads_the_files_of_the_table_alone(table: Opened, other: Opened) -> None:
    s3 = table.client(CAROL)
    assert s3.get_object(Bucket=table.bucket, Key=table.file)["Body"].read()[:4] == b"PAR1"
    assert s3.head_object(Bucket=table.bucket, Key=table.file)["ContentLength"] > 0
    for key in (other.file, f"{other.base}/x", f"{table.base}/data/stray", f"{table.base}0/x"):
        refused(table.sign("GET", key, CAROL), 403, "NotAuthorized")
    with pytest.raises(SignError):
        s3.put_object(Bucket=table.bucket, Key=f"{table.base}/data/new", Body=b"x")
    with pytest.raises(SignError):
        s3.list_objects_v2(Bucket=table.bucket, Prefix=f"{table.base}/")


def test_a_signature_for_one_table_opens_nothing_of_another(table: Opened, other: Opened) -> None:
    attempts = [
        ("GET", "", {}),
        ("HEAD", "", {}),
        ("PUT", "", {}),
        ("DELETE", "", {}),
        ("POST", "?uploads", {}),
    ]
    for method, query, headers in attempts:
        refused(table.sign(method, other.file, query=query, headers=headers), 403, "NotAuthorized")
    keys = (f"{table.base}/data/x", f"{other.base}/x")
    body = "".join(f"<Object><Key>{key}</Key></Object>" for key in keys)
    body = f"<Delete>{body}</Delete>"
    root = f"{table.served.lake.settings.s3.endpoint}/{table.bucket}"
    refused(table.sign("POST", "", uri=f"{root}?delete", body=body), 403, "NotAuthorized", "write-locations")
    for prefix in (f"{other.base}/", f"{table.base}0/", f"{table.base.rpartition('/')[0]}/"):
        uri = f"{root}?list-type=2&prefix={quote(prefix, safe='')}"
        refused(table.sign("GET", "", uri=uri), 403, "NotAuthorized", "write-locations")
    copy = {"x-amz-copy-source": [f"{table.bucket}/{quote(other.file)}"]}
    refused(table.sign("PUT", f"{table.base}/data/copy", headers=copy), 403, "NotAuthorized", "allowed-paths")


def test_a_file_of_the_same_key_in_another_bucket(table: Opened, moto: MotoS3) -> None:
    uri = f"{moto.endpoint}/{moto.new_bucket()}/{quote(table.file)}"
    refused(table.sign("GET", "", uri=uri), 403, "NotAuthorized", "allowed-paths")


def test_no_file_of_a_retained_snapshot_is_overwritten_or_deleted(table: Opened) -> None:
    s3, key = table.client(), f"{table.base}/data/new file+é*'.parquet"
    s3.put_object(Bucket=table.bucket, Key=key, Body=b"first")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(Bucket=table.bucket, Key=key, Body=b"second")
    found = s3.list_objects_v2(Bucket=table.bucket, Prefix=f"{table.base}/data/")["Contents"]
    named = [each["Key"] for each in found if each["Key"] != key]
    for each in named:
        for method, query in (("PUT", ""), ("DELETE", ""), ("POST", "?uploads"), ("POST", "?uploadId=u")):
            refused(table.sign(method, each, query=query), 403, "NotAuthorized", "retained-file")
    s3.delete_object(Bucket=table.bucket, Key=key)


def test_an_upload_in_parts_overwrites_nothing(table: Opened) -> None:
    s3, key = table.client(), f"{table.base}/data/parts.parquet"
    for _ in range(2):
        upload = s3.create_multipart_upload(Bucket=table.bucket, Key=key)["UploadId"]
        part = s3.upload_part(Bucket=table.bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"x")
        s3.abort_multipart_upload(Bucket=table.bucket, Key=key, UploadId=upload)
        assert part["ETag"]
    done = table.sign("POST", key, query="?uploadId=u").json()["headers"]
    assert done["if-none-match"] == ["*"]
    assert "if-none-match" in done["authorization"][0]


def test_the_signature_is_of_the_request_alone(table: Opened) -> None:
    """Verified as S3 does: another key, method or body, or a request that could overwrite, does not match."""
    answer = table.sign("PUT", f"{table.base}/data/new", headers={"Content-MD5": ["AAAA"]})
    assert answer.headers["cache-control"] == "no-store"
    given = {name: value for name, (value,) in answer.json()["headers"].items()}
    sent, uri = given | {"content-md5": "AAAA"}, answer.json()["uri"]
    assert _verifies("PUT", uri, sent)
    assert "if-none-match" in given["authorization"]
    assert not _verifies("GET", uri, sent)
    assert not _verifies("PUT", uri.replace("/new", "/old"), sent)
    assert not _verifies("PUT", f"{uri}?acl", sent)
    assert not _verifies("PUT", f"{uri}?x-id=PutObject", sent)
    for name in ("if-none-match", "content-md5", "x-amz-content-sha256"):
        assert not _verifies("PUT", uri, sent | {name: "x"})


def _verifies(method: str, uri: str, headers: dict[str, str]) -> bool:
    """Compute a signature anew (Amazon S3 API Reference, "Signature Calculations"), without botocore."""
    fields = dict(each.strip().split("=", 1) for each in headers["authorization"].split(" ", 1)[1].split(","))
    scope, names = fields["Credential"].split("/")[1:], fields["SignedHeaders"].split(";")
    assert fields["Credential"].startswith(f"{ACCESS_KEY_ID}/")
    where = urlsplit(uri)
    lines = [f"{name}:{where.netloc if name == 'host' else headers[name]}" for name in names]
    query = "&".join(each if "=" in each else f"{each}=" for each in where.query.split("&") if each)
    canonical = [method, where.path, query, *lines, "", ";".join(names), headers["x-amz-content-sha256"]]
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], "/".join(scope), digest])
    key = f"AWS4{SECRET_ACCESS_KEY}".encode()
    for each in (*scope, text):
        key = hmac.digest(key, each.encode(), "sha256")
    return key.hex() == fields["Signature"]


@pytest.mark.parametrize(
    ("user", "rule"), [("denied", "policy-no-match"), ("masked", "mask"), ("filtered", "row-filter")]
)
def test_users_who_cannot_see_everything_get_no_signature(table: Opened, user: str, rule: str) -> None:
    refused(table.sign("GET", table.file, user), 403, "NotAuthorized", rule)
    refused(table.sign("GET", table.file, BOB), 403, "NotAuthorized")
    if user != "denied":
        assert table.sign("GET", table.file, user, ENGINE).status_code == 200


def test_an_encrypted_table_gives_no_signature(served: Service) -> None:
    served.lake.catalog().create_table(
        "db.vault", ROWS.schema, properties={"encryption.mechanism": "envelope"}
    )
    vault = Opened(served, "vault", "lake", "t", "t/f")
    refused(vault.sign("GET", "t/f"), 403, "NotAuthorized", "standard-client")


def test_a_revocation_holds_from_the_next_request(served: Service, table: Opened) -> None:
    assert table.sign("GET", table.file, CAROL).status_code == 200
    try:
        served.lake.set_policies(_policies(carol=False))
        refused(table.sign("GET", table.file, CAROL), 403, "NotAuthorized")
    finally:
        served.lake.set_policies(_policies())


def test_no_judgement_of_a_user_outlives_what_it_was_made_of(served: Service) -> None:
    """The service remembers who gets a whole table; other policies or another schema make it judge anew."""
    made = served.iceberg().create_table("db.judged", ROWS.schema)
    made.append(ROWS)
    judged = Opened.of(served, "judged")
    hidden = {"users": [CAROL], "accesses": SELECT, "rowFilterInfo": {"filterExpr": "id < 2"}}
    masked = {"users": [CAROL], "accesses": SELECT, "dataMaskInfo": {"dataMaskType": "MASK_NULL"}}
    denied = {"denyPolicyItems": [{"users": [CAROL], "accesses": SELECT}]}
    place = {"database": ["db"], "table": ["judged"]}
    changes = {
        "row-filter": policy("new", place, {}, policyType=2, rowFilterPolicyItems=[hidden]),
        "mask": policy("new", place | {"column": ["name"]}, {}, policyType=1, dataMaskPolicyItems=[masked]),
        "policy-deny": policy("new", place | {"column": ["id"]}, {}, **denied),
    }
    try:
        for rule, change in changes.items():
            for _ in range(2):
                assert judged.sign("GET", judged.file, CAROL).status_code == 200
            served.lake.set_policies([*_policies(), change])
            refused(judged.sign("GET", judged.file, CAROL), 403, "NotAuthorized", rule)
            served.lake.set_policies(_policies())
        secret = policy("new", place | {"column": ["secret"]}, {}, **denied)
        served.lake.set_policies([*_policies(), secret])
        assert judged.sign("GET", judged.file, CAROL).status_code == 200
        with made.update_schema() as evolution:
            evolution.add_column("secret", StringType())
        refused(judged.sign("GET", judged.file, CAROL), 403, "NotAuthorized", "policy-deny")
        assert judged.sign("GET", judged.file).status_code == 200
    finally:
        served.lake.set_policies(_policies())


def test_an_expired_file_is_read_no_more_and_can_be_deleted(served: Service) -> None:
    made = served.iceberg().create_table("db.expiring", ROWS.schema)
    made.append(ROWS)
    before = Opened.of(served, "expiring")
    made.overwrite(ROWS)
    assert before.sign("GET", before.file, CAROL).status_code == 200
    first = made.metadata.snapshots[0].snapshot_id
    refused(before.sign("DELETE", before.file), 403, "NotAuthorized", "retained-file")
    made.maintenance.expire_snapshots().by_id(first).commit()
    refused(before.sign("GET", before.file, CAROL), 403, "NotAuthorized", "named-files")
    assert before.sign("DELETE", before.file).status_code == 200


def test_planned_files_alone_where_planning_is_required(served: Service) -> None:
    """PyIceberg plans on the server; who plans in another way gets no data file."""
    properties = {"read.scan-planning-mode": "server"}
    served.iceberg().create_table("db.planned", ROWS.schema, properties=properties).append(ROWS)
    planned = Opened.of(served, "planned")
    refused(planned.sign("GET", planned.file, CAROL), 403, "NotAuthorized", "planned-files")
    client = served.iceberg(CAROL, **{"scan-planning-mode": "server"})
    assert list(client.load_table("db.planned").scan(row_filter="id > 1").plan_files())
    assert planned.sign("GET", planned.file, CAROL).status_code == 200
    refused(planned.sign("GET", planned.file, "masked"), 403, "NotAuthorized")


def test_signatures_and_presigned_urls_are_nowhere(table: Opened, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    signature = table.sign("GET", table.file).json()["headers"]["authorization"][0].rpartition("=")[2]
    presigned = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=5ec2e7"
    refusals = [table.sign("GET", table.file, query=f"?{presigned}")]
    refusals += [table.sign("GET", table.file, headers={"Authorization": ["Signature=5ec2e7"]})]
    assert {each.status_code for each in refusals} == {400}
    with read(table.served.lake.services.engine) as connection:
        records = str(connection.execute(select(lw_audit)).all())
    told = caplog.text + records + "".join(each.text for each in refusals)
    assert table.file in records
    assert not [each for each in (signature, "5ec2e7", SECRET_ACCESS_KEY) if each in told]


def test_a_client_that_has_the_table_is_still_told_how_to_sign(served: Service) -> None:
    """An ETag of an answer without the signer does not stand for one with it, nor the other way round."""
    with served.client() as client:
        url = f"{served.prefix}/namespaces/db/tables/t"
        etags = [client.get(url, headers=each).headers["ETag"] for each in ({}, ASKED)]
        for asked, known, status in (({}, 0, 304), ({}, 1, 200), (ASKED, 0, 200), (ASKED, 1, 304)):
            answer = client.get(url, headers={**asked, "If-None-Match": etags[known]})
            assert answer.status_code == status


def test_without_the_setting_nothing_is_told_or_signed(
    tmp_path_factory: pytest.TempPathFactory, moto: MotoS3
) -> None:
    with open_service(tmp_path_factory.mktemp("lake"), s3=moto) as closed, closed.client() as client:
        closed.lake.catalog().create_namespace("db")
        closed.lake.catalog().create_table("db.t", ROWS.schema)
        loaded = client.get(f"{closed.prefix}/namespaces/db/tables/t", headers=ASKED).json()
        assert not [name for name in loaded["config"] if "sign" in name]
        assert client.post(f"{closed.prefix}/namespaces/db/tables/t/sign", json={}).status_code == 404


# The advisories of Apache Polaris of May 2026 (1.4.1), where they touch signatures.


def test_cve_2026_42809_a_table_at_a_foreign_location_gets_no_signature(table: Opened) -> None:
    """A staged creation handed out access to the location that the client named, before it was checked."""
    served, location = table.served, f"s3://{table.bucket}/{table.base}"
    schema = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
    for more in ({"location": location}, {"properties": {"write.data.path": location}}):
        with served.client(BOB) as bob:
            body = {"name": "staged", "schema": schema, "stage-create": True, **more}
            served.lake.catalog().create_namespace_if_not_exists("bobs")
            answer = bob.post(f"{served.prefix}/namespaces/bobs/tables", json=body, headers=ASKED)
            refused(answer, 403, "NotAuthorized")
            url = f"{served.prefix}/namespaces/bobs/tables/staged/sign"
            uri = f"{served.lake.settings.s3.endpoint}/{table.bucket}/{quote(table.file)}"
            asked = {"method": "GET", "region": REGION, "uri": uri, "headers": {}}
            refused(bob.post(url, json=asked), 404, "NoSuchTable")


def test_cve_2026_42810_a_wildcard_in_a_name_is_a_character(served: Service, table: Opened) -> None:
    """A table named `*` got access to the files of all tables of its namespace."""
    for name in ("*", "t*", "?", "${*}"):
        served.lake.catalog().create_table(("db", name), ROWS.schema)
        wild = Opened(served, quote(name, safe=""), table.bucket, table.base, table.file)
        for method in ("GET", "PUT", "DELETE"):
            refused(wild.sign(method, table.file), 403, "NotAuthorized")
        refused(wild.sign("PUT", f"{table.base}/data/x"), 403, "NotAuthorized", "write-locations")


def test_cve_2026_42811_a_quote_in_a_name_ends_nothing(served: Service, table: Opened) -> None:
    """A quote in a table's name ended a literal in a condition, and opened the bucket."""
    for number, name in enumerate(("a'b", "') || true || ('", 'a"b')):
        location = f"s3://{table.bucket}/warehouse/{name}"
        served.lake.catalog().create_table(f"db.q{number}", ROWS.schema, location=location)
        quoted = Opened(served, f"q{number}", table.bucket, f"warehouse/{name}", table.file)
        refused(quoted.sign("GET", table.file), 403, "NotAuthorized", "allowed-paths")
        assert quoted.sign("PUT", f"warehouse/{name}/data/f").status_code == 200
        refused(quoted.sign("PUT", f"warehouse/{name}2/data/f"), 403, "NotAuthorized", "write-locations")


def test_cve_2026_42812_a_metadata_path_alone_opens_no_location(served: Service, table: Opened) -> None:
    """A change of `write.metadata.path` alone was not checked, and later opened the location."""
    served.lake.catalog().create_namespace_if_not_exists("bobs")
    made = served.iceberg(BOB).create_table("bobs.mine", ROWS.schema)
    target = f"s3://{table.bucket}/{table.base}/metadata"
    for name in ("write.metadata.path", "write.data.path"):
        with pytest.raises(ForbiddenError), made.transaction() as change:
            change.set_properties({name: target})
    with served.client(BOB) as bob:
        uri = f"{served.lake.settings.s3.endpoint}/{table.bucket}/{quote(table.base)}/metadata/x"
        asked = {"method": "PUT", "region": REGION, "uri": uri, "headers": {}}
        answer = bob.post(f"{served.prefix}/namespaces/bobs/tables/mine/sign", json=asked)
    refused(answer, 403, "NotAuthorized", "write-locations")
