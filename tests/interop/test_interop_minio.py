"""A warehouse in MinIO, a real S3 server: the catalog's own access, signed requests, storage credentials."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyiceberg.exceptions import SignError

from tests.attacks.test_signed_requests import Opened
from tests.support.guarded_store import GuardedStore
from tests.support.iceberg_spark import JARS, Refused, iceberg_catalog, iceberg_spark
from tests.support.lake import ALICE, CAROL
from tests.support.minio_server import minio, minio_program
from tests.support.moto_server import MotoS3
from tests.support.service import Service, open_service
from tests.support.spark import FRUGAL

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

ROWS = pa.table({"id": [1, 2], "item": ["tea", "jam"]})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoS3]:
    program = minio_program()
    if program is None:
        pytest.skip("There is no minio; `make interop` builds it where Go is installed.")
    with minio(program, tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, store: MotoS3) -> Iterator[Service]:
    root = tmp_path_factory.mktemp("lake")
    given = {"S3__STS__ROLE_ARN": "arn:minio:iam:::role/lakewarden", "S3__STS__ENDPOINT": store.endpoint}
    with open_service(root, s3=store, S3__SIGNING="true", **given) as served:
        served.lake.catalog().create_namespace("db")
        yield served


@pytest.mark.parametrize("access", ["own", "vended-credentials"])
def test_pyiceberg_writes_and_reads(service: Service, store: MotoS3, access: str) -> None:
    """With permissions of its own, or with none but what the catalog gives."""
    service.client_properties = store.pyiceberg_properties() if access == "own" else {}
    header = {"header.X-Iceberg-Access-Delegation": "" if access == "own" else access}
    name = f"db.t_{access.replace('-', '_')}"
    table = service.iceberg(**header).create_table(name, schema=ROWS.schema)
    table.append(ROWS)
    table.append(ROWS)
    read = service.iceberg(CAROL, **header).load_table(name)
    assert read.scan(row_filter="id > 1").to_arrow().num_rows == 2
    if access != "own":
        with pytest.raises(Exception, match=r"ACCESS_DENIED|AccessDenied|403|[Ff]orbidden"):
            read.append(ROWS)


def test_signed_requests_open_their_table_alone(service: Service, store: MotoS3) -> None:
    service.client_properties = store.pyiceberg_properties()
    for name in ("signed", "other"):
        service.iceberg(**{"header.X-Iceberg-Access-Delegation": ""}).create_table(
            f"db.{name}", schema=ROWS.schema
        ).append(ROWS)
    signed, other = Opened.of(service, "signed"), Opened.of(service, "other")
    s3, place = signed.client(), {"Bucket": signed.bucket}
    assert s3.get_object(**place, Key=signed.file, Range="bytes=0-3")["Body"].read() == b"PAR1"
    new = f"{signed.base}/data/new.parquet"
    s3.put_object(**place, Key=new, Body=b"rows", IfNoneMatch="*")
    with pytest.raises(ClientError, match="PreconditionFailed"):
        s3.put_object(**place, Key=new, Body=b"other", IfNoneMatch="*")
    for key in (other.file, f"{signed.base}-2/data/f"):
        with pytest.raises(SignError):
            s3.get_object(**place, Key=key)
    with pytest.raises(SignError):
        s3.delete_object(**place, Key=signed.file)
    s3.delete_object(**place, Key=new)


@pytest.mark.parametrize("mode", ["client", "server"])
def test_spark_reads_and_writes_by_signed_requests(service: Service, mode: str) -> None:
    """S3FileIO of Iceberg's AWS bundle, with no permissions of its own; also what it uploads in parts."""
    if not any(JARS.glob("iceberg-aws-bundle-*.jar")):
        pytest.skip("Iceberg's AWS bundle is missing; `make interop` fetches it where Maven is installed")
    given = {
        "type": "rest",
        "uri": service.url,
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "header.X-Iceberg-Access-Delegation": "remote-signing",
        "s3.multipart.part-size-bytes": "5242880",
    }
    users = {user: {**given, "token": service.token(user)} for user in (ALICE, CAROL)}
    catalogs = [iceberg_catalog(user, properties) for user, properties in users.items()]
    table = f"db.spark_{mode}"
    properties = f"'read.scan-planning-mode'='{mode}', 'write.parquet.compression-codec'='uncompressed'"
    with iceberg_spark(service, settings={**FRUGAL, **catalogs[0], **catalogs[1]}) as spark:
        spark.sql(
            f"CREATE TABLE {ALICE}.{table} (id BIGINT, s STRING) USING iceberg PARTITIONED BY (s) "
            f"TBLPROPERTIES ({properties})",
            f"INSERT INTO {ALICE}.{table} VALUES (1, 'ä b+c=d/e'), (2, 'z%2F*')",
            f"DELETE FROM {ALICE}.{table} WHERE id = 1",
            f"UPDATE {ALICE}.{table} SET id = 7 WHERE id = 2",
        )
        assert spark.sql(f"SELECT * FROM {CAROL}.{table}") == [[7, "z%2F*"]]
        with pytest.raises(Refused, match="Failed to close current writer"):
            spark.sql(f"INSERT INTO {CAROL}.{table} VALUES (3, 'x')")
        spark.sql(
            f"ALTER TABLE {ALICE}.{table} DROP PARTITION FIELD s",
            f"INSERT INTO {ALICE}.{table} SELECT /*+ COALESCE(1) */ id, sha2(string(id), 512) "
            "FROM range(60000)",
        )
        assert spark.sql(f"SELECT count(*), count(DISTINCT s) FROM {CAROL}.{table}") == [[60001, 60001]]


def test_spark_creates_as_select_expires_and_purges_by_signed_requests(
    service: Service, store: MotoS3
) -> None:
    """What S3FileIO writes before a table exists, and deletes after a commit or a drop."""
    if not any(JARS.glob("iceberg-aws-bundle-*.jar")):
        pytest.skip("Iceberg's AWS bundle is missing; `make interop` fetches it where Maven is installed")
    given = {
        "type": "rest",
        "uri": service.url,
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "header.X-Iceberg-Access-Delegation": "remote-signing",
        "token": service.token(ALICE),
    }

    def files(table: str) -> set[str]:
        return {each for each in store.keys(_bucket(service)) if f"/{table}-" in each}

    with iceberg_spark(service, settings={**FRUGAL, **iceberg_catalog(ALICE, given)}) as spark:
        spark.sql(f"CREATE TABLE {ALICE}.db.selected USING iceberg AS SELECT id FROM range(10)")
        assert spark.sql(f"SELECT count(*) FROM {ALICE}.db.selected") == [[10]]
        spark.sql(f"INSERT OVERWRITE {ALICE}.db.selected SELECT id FROM range(3)")
        before = files("selected")
        spark.sql(
            f"CALL {ALICE}.system.expire_snapshots(table => 'db.selected', retain_last => 1, "
            "older_than => TIMESTAMP '2100-01-01 00:00:00')"
        )
        assert {each.rpartition(".")[2] for each in before - files("selected")} == {"avro", "parquet"}
        assert spark.sql(f"SELECT count(*) FROM {ALICE}.db.selected") == [[3]]
        spark.sql(f"DROP TABLE {ALICE}.db.selected PURGE")
    assert not files("selected")


def _bucket(service: Service) -> str:
    return service.lake.settings.warehouse.removeprefix("s3://").partition("/")[0]


def test_a_credential_opens_its_table_alone(service: Service, store: MotoS3) -> None:
    """MinIO takes `${*}` for a wildcard, so that names with wildcards get no credential."""
    service.client_properties = {}
    places = {}
    for name in ("t", "t2"):
        location = f"{service.lake.settings.warehouse}/{name}"
        header = {"header.X-Iceberg-Access-Delegation": "vended-credentials"}
        table = service.iceberg(**header).create_table(f"db.{name}", schema=ROWS.schema, location=location)
        places[name] = table.metadata_location.removeprefix("s3://").partition("/")
    with service.client() as client:
        path = f"{service.prefix}/namespaces/db/tables"
        (entry,) = client.get(f"{path}/t/credentials").json()["storage-credentials"]
        wild = f"{service.lake.settings.warehouse}/*"
        body = {"name": "wild", "schema": {"type": "struct", "fields": []}, "location": wild}
        asked = {"X-Iceberg-Access-Delegation": "vended-credentials"}
        refused = client.post(path, json={**body, "stage-create": True}, headers=asked)
        assert refused.json()["error"]["rule"] == "credential-scope"
    s3 = GuardedStore(store, [], []).client(entry["config"])
    bucket, _, key = places["t"]
    assert s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    directory = key.rpartition("/")[0]
    s3.put_object(Bucket=bucket, Key=f"{directory}/mine.avro", Body=b"")
    for call in (
        lambda: s3.get_object(Bucket=bucket, Key=places["t2"][2]),
        lambda: s3.put_object(Bucket=bucket, Key=key, Body=b""),
        lambda: s3.delete_object(Bucket=bucket, Key=key),
        lambda: s3.list_objects_v2(Bucket=bucket, Prefix="warehouse/"),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            call()
