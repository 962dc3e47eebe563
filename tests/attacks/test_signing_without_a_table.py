"""Attacks through requests that are signed for a name that no table has: one is staged, or was dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from pyiceberg.table.update import RemoveSchemasUpdate
from sqlalchemy import insert, select, update

from catalog.db.engine import read, write
from catalog.db.schema import lw_audit, lw_staged, lw_table
from tests.attacks.test_signed_requests import ASKED, ROWS, Opened
from tests.support.http_calls import refused
from tests.support.lake import ALICE, BOB, CAROL, policy, standard_policies
from tests.support.moto_server import MotoS3
from tests.support.service import ENGINE, Service, open_service

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "id", "type": "long", "required": False}]}
MAKER = "maker"


def _policies(*maker: str) -> list[dict[str, Any]]:
    every = {"database": ["db"], "table": ["*"], "column": ["*"]}
    return [*standard_policies(), policy("maker", every, {MAKER: maker or ["create", "update"]})]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, moto: MotoS3) -> Iterator[Service]:
    root = tmp_path_factory.mktemp("lake")
    with open_service(root, s3=moto, policies=_policies(), S3__SIGNING="true") as running:
        running.lake.catalog().create_namespace("db")
        running.iceberg().create_table("db.other", ROWS.schema).append(ROWS)
        yield running


def _staged(served: Service, name: str, user: str = ALICE, **more: Any) -> Opened:
    """Stage a table; return its place, with the key of a file that does not exist yet."""
    body = {"name": name, "schema": SCHEMA, "stage-create": True, **more}
    with served.client(user) as client:
        answer = client.post(f"{served.prefix}/namespaces/db/tables", json=body, headers=ASKED).json()
    assert answer["config"]["signer.endpoint"].endswith(f"/tables/{quote(name, safe='')}/sign")
    bucket, _, base = answer["metadata"]["location"].removeprefix("s3://").partition("/")
    return Opened(served, quote(name, safe=""), bucket, base, f"{base}/data/f.parquet")


@pytest.mark.nightly
def test_the_creator_of_a_staged_table_writes_and_reads_its_files(served: Service) -> None:
    client = served.iceberg()
    creation = client.create_table_transaction("db.made", ROWS.schema)
    bucket, _, base = creation.table_metadata.location.removeprefix("s3://").partition("/")
    made = Opened(served, "made", bucket, base, f"{base}/data/x")
    put = made.sign("PUT", made.file)
    assert put.json()["headers"]["if-none-match"] == ["*"]
    for method, query in (("GET", ""), ("HEAD", ""), ("DELETE", ""), ("POST", "?uploads")):
        assert made.sign(method, made.file, query=query).status_code == 200
    creation.append(ROWS)
    creation.commit_transaction()
    # The table is there, and decides: a file of no snapshot is not read, and none of one is deleted.
    refused(made.sign("GET", made.file), 403, "NotAuthorized", "named-files")
    refused(made.sign("DELETE", Opened.of(served, "made").file), 403, "NotAuthorized", "retained-file")


def test_nothing_is_overwritten_in_a_staged_table(served: Service, moto: MotoS3) -> None:
    made = _staged(served, "once")
    for body, fails in ((b"first", False), (b"second", True)):
        given = made.sign("PUT", made.file).json()["headers"]
        sent = {name: value for name, (value,) in given.items()}
        uri = f"{moto.endpoint}/{made.bucket}/{made.file}"
        with served.client() as client:
            answer = client.put(uri, content=body, headers=sent)
        assert (answer.status_code == 412) == fails


def test_a_staged_table_opens_nothing_else(served: Service) -> None:
    made, other = _staged(served, "alone"), Opened.of(served, "other")
    sibling = _staged(served, "sibling")
    outside = [other.file, f"{made.base}0/x", f"{made.base.rpartition('/')[0]}/x", made.base, sibling.file]
    for key in outside:
        for method in ("GET", "HEAD", "PUT", "DELETE"):
            assert made.sign(method, key).status_code in (400, 403, 404)
    root = f"{served.lake.settings.s3.endpoint}/{made.bucket}"
    for spelling in ("%2e%2e/", "%252e%252e%2f", "..%2f", "./", "/", "%00", "%5c..%5c"):
        answer = made.sign("PUT", "", uri=f"{root}/{made.base}/{spelling}x")
        assert answer.status_code == 400 or spelling == "%252e%252e%2f"
    keys = f"<Object><Key>{made.file}</Key></Object><Object><Key>{other.file}</Key></Object>"
    body = f"<Delete>{keys}</Delete>"
    refused(made.sign("POST", "", uri=f"{root}?delete", body=body), 403, "NotAuthorized", "write-locations")
    copy = {"x-amz-copy-source": [f"{made.bucket}/{quote(other.file)}"]}
    refused(made.sign("PUT", made.file, headers=copy), 403, "NotAuthorized", "write-locations")
    listed = f"{root}?list-type=2&prefix={quote(made.base + '/', safe='')}"
    refused(made.sign("GET", "", uri=listed), 403, "NotAuthorized")


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("name", ["*", "t*", "?", "a'b", 'a"b', "${*}", "a%2Fb", "a b"])
def test_names_of_staged_tables_are_literal(served: Service, name: str) -> None:
    made, other = _staged(served, name), Opened.of(served, "other")
    assert made.sign("PUT", made.file).status_code == 200
    assert made.sign("PUT", f"{other.base}/data/x").status_code in (403, 404)
    assert made.sign("GET", other.file).status_code in (403, 404)


def test_a_staged_table_is_its_users_alone(served: Service) -> None:
    made = _staged(served, "mine")
    for user in (BOB, CAROL, MAKER):
        for method in ("GET", "PUT", "DELETE"):
            assert made.sign(method, made.file, user).status_code in (403, 404)
    theirs = _staged(served, "mine", MAKER)
    assert theirs.sign("PUT", theirs.file, MAKER).status_code == 200
    assert theirs.sign("PUT", made.file, MAKER).status_code in (403, 404)
    assert made.sign("PUT", theirs.file).status_code in (403, 404)


def test_a_place_that_the_catalog_chose_is_no_other_users(served: Service) -> None:
    """RWStorage on all of the warehouse does not open what is not a table yet."""
    made = _staged(served, "chosen_by_the_catalog")
    wide = policy("wide", {"storage-type": ["*"], "storage-url": ["*"]}, {MAKER: ["rwstorage"]})
    try:
        served.lake.set_policies([*_policies(), wide])
        for number, place in enumerate((made.base, f"{made.base}/data")):
            theirs = _staged(served, f"over_{number}", MAKER, location=f"s3://{made.bucket}/{place}")
            for method in ("GET", "HEAD", "PUT", "DELETE"):
                refused(theirs.sign(method, made.file, MAKER), 403, "NotAuthorized", "write-locations")
                assert made.sign(method, made.file).status_code == 200
    finally:
        served.lake.set_policies(_policies())


@pytest.mark.parametrize("left", [["create"], ["update"]])
def test_a_revocation_holds_for_staged_tables(served: Service, left: list[str]) -> None:
    made = _staged(served, f"revoked_{left[0]}", MAKER)
    assert made.sign("PUT", made.file, MAKER).status_code == 200
    try:
        served.lake.set_policies(_policies(*left))
        refused(made.sign("PUT", made.file, MAKER), 403, "NotAuthorized", "policy-no-match")
    finally:
        served.lake.set_policies(_policies())


def test_an_expired_creation_is_not_signed_for(served: Service) -> None:
    made = _staged(served, "late")
    with write(served.lake.services.engine) as connection:
        connection.execute(update(lw_staged).where(lw_staged.c.name == "late").values(expires_ms=1))
    refused(made.sign("PUT", made.file), 404, "NoSuchTable")


def test_a_row_that_a_commit_left_behind_opens_no_dropped_table(served: Service) -> None:
    creation = served.iceberg().create_table_transaction("db.left", ROWS.schema)
    with read(served.lake.services.engine) as connection:
        row = connection.execute(select(lw_staged).where(lw_staged.c.name == "left")).mappings().one()
    creation.append(ROWS)
    creation.commit_transaction()
    left = Opened.of(served, "left")
    served.lake.catalog().drop_table("db.left")
    with write(served.lake.services.engine) as connection:
        connection.execute(insert(lw_staged).values(**row))
    refused(left.sign("PUT", f"{left.base}/data/new"), 403, "NotAuthorized", "write-locations")
    refused(left.sign("GET", left.file), 403, "NotAuthorized", "named-files")


def test_a_name_that_another_table_took_is_not_signed_for(served: Service) -> None:
    made = _staged(served, "taken")
    served.iceberg().create_table("db.taken", ROWS.schema)
    refused(made.sign("PUT", made.file), 403, "NotAuthorized", "write-locations")
    refused(made.sign("GET", made.file), 403, "NotAuthorized", "allowed-paths")


def test_a_location_of_ones_own_takes_the_permission_on_it(served: Service) -> None:
    """Write paths count, too. Where another table lies, nothing is read; nothing is deleted in any."""
    bucket = Opened.of(served, "other").bucket
    place, data = f"s3://{bucket}/own/chosen", f"s3://{bucket}/own/data"
    given = {"write.data.path": data, "read.allowed.data.paths": f"{place},{data}"}
    made = _staged(served, "chosen", location=place, properties=given)
    for key in ("own/chosen/metadata/m", "own/data/f"):
        assert made.sign("PUT", key).status_code == made.sign("GET", key).status_code == 200
        refused(made.sign("DELETE", key), 403, "NotAuthorized", "write-locations")
    beside = _staged(served, "beside", properties={"write.data.path": data, "read.allowed.data.paths": data})
    assert beside.sign("PUT", "own/data/f").status_code == 200
    refused(beside.sign("PUT", beside.file), 404, "NoSuchTable")
    refused(beside.sign("DELETE", "own/data/f"), 403, "NotAuthorized", "write-locations")
    served.lake.catalog().create_table("db.inner", ROWS.schema, location=f"{place}/inner")
    refused(made.sign("GET", "own/chosen/metadata/m"), 403, "NotAuthorized", "shared-location")
    refused(made.sign("PUT", "own/chosen/inner/x"), 403, "NotAuthorized", "write-locations")
    without = [each for each in _policies() if each["name"] != "alice-storage"]
    parts = [{"storage-type": ["*"], "storage-url": [f"{each}*"]} for each in (place, data)]
    try:
        for left in ([], *([policy("part", each, {ALICE: ["rwstorage"]})] for each in parts)):
            served.lake.set_policies([*without, *left])
            refused(made.sign("PUT", "own/data/f"), 403, "NotAuthorized", "policy-no-match")
    finally:
        served.lake.set_policies(_policies())


def test_what_another_table_reads_is_not_deleted_by_a_creator(served: Service) -> None:
    made = _staged(served, "read_by_another")
    assert made.sign("DELETE", made.file).status_code == 200
    served.lake.catalog().create_table(
        "db.reads_staged",
        ROWS.schema,
        properties={"read.allowed.data.paths": f"s3://{made.bucket}/{made.base}"},
    )
    for method in ("GET", "DELETE"):
        refused(made.sign(method, made.file), 403, "NotAuthorized", "shared-location")
    served.lake.catalog().drop_table("db.reads_staged")


def test_nothing_is_signed_for_a_staged_encrypted_table(served: Service) -> None:
    """An engine can stage one; its files are written by a write session alone."""
    body = {"name": "sealed", "schema": SCHEMA, "stage-create": True}
    body |= {"properties": {"encryption.mechanism": "envelope"}}
    with served.client(ALICE, ENGINE) as client:
        answer = client.post(f"{served.prefix}/namespaces/db/tables", json=body, headers=ASKED)
    bucket, _, base = answer.json()["metadata"]["location"].removeprefix("s3://").partition("/")
    made = Opened(served, "sealed", bucket, base, f"{base}/data/f")
    for engine in (None, ENGINE):
        for method in ("GET", "PUT", "DELETE"):
            refused(made.sign(method, made.file, ALICE, engine), 404, "NoSuchTable")


def test_who_expires_snapshots_reads_and_deletes_what_they_had(served: Service) -> None:
    """A client finds expired files after the commit, in metadata that no snapshot names any more."""
    made = served.iceberg().create_table("db.expiring", ROWS.schema)
    made.append(ROWS)
    old = Opened.of(served, "expiring")
    before = made.metadata_location.partition(f"{old.bucket}/")[2]
    lists = [each.manifest_list for each in made.metadata.snapshots]
    manifests = [each.manifest_path for each in made.metadata.snapshots[0].manifests(made.io)]
    made.overwrite(ROWS)
    made.maintenance.expire_snapshots().by_id(made.metadata.snapshots[0].snapshot_id).commit()
    former = [each.partition(f"{old.bucket}/")[2] for each in (*lists, *manifests)]
    for key in (before, *former):
        assert old.sign("GET", key).status_code == old.sign("HEAD", key).status_code == 200
        refused(old.sign("GET", key, CAROL), 403, "NotAuthorized", "named-files")
        refused(old.sign("GET", key, MAKER), 403, "NotAuthorized")
    refused(old.sign("GET", old.file), 403, "NotAuthorized", "named-files")
    for key in (old.file, *former):
        assert old.sign("DELETE", key).status_code == 200
    served.lake.catalog().create_table(
        "db.reads_it", ROWS.schema, properties={"read.allowed.data.paths": f"s3://{old.bucket}/{old.base}"}
    )
    for method, rule in (("GET", "named-files"), ("DELETE", "shared-location")):
        refused(old.sign(method, former[0]), 403, "NotAuthorized", rule)
    served.lake.catalog().drop_table("db.reads_it")


def test_metadata_of_columns_that_no_schema_names_is_not_read(served: Service) -> None:
    """Who removes schemas takes the names away that policies on the columns go by."""
    rows = pa.table({"id": [1, 2], "secret": ["x", "y"]})
    made = served.iceberg().create_table("db.forgetting", rows.schema)
    made.append(rows)
    old, snapshot = Opened.of(served, "forgetting"), made.metadata.snapshots[0]
    paths = [made.metadata_location, *(each.manifest_path for each in snapshot.manifests(made.io))]
    former = [each.partition(f"{old.bucket}/")[2] for each in paths]
    with made.update_schema() as evolution:
        evolution.delete_column("secret")
    made.overwrite(pa.table({"id": [3]}))
    for each in made.metadata.snapshots[:-1]:
        made.maintenance.expire_snapshots().by_id(each.snapshot_id).commit()
    items = [{"users": [MAKER], "accesses": [{"type": "select", "isAllowed": True}]}]
    place = {"database": ["db"], "table": ["forgetting"], "column": ["secret"]}
    denied = policy("secret", place, {}, denyPolicyItems=items)
    try:
        served.lake.set_policies([*_policies("select", "alter", "update", "drop"), denied])
        assert {old.sign("GET", key).status_code for key in former} == {200}
        for key in former:
            refused(old.sign("GET", key, MAKER), 403, "NotAuthorized", "policy-deny")
        with made.transaction() as change:
            change._apply((RemoveSchemasUpdate(schema_ids=[0]),))
        for key in former:
            refused(old.sign("GET", key, MAKER), 403, "NotAuthorized", "named-files")
        served.lake.catalog().drop_table("db.forgetting")
        for key in former:
            refused(old.sign("GET", key, MAKER), 403, "NotAuthorized", "named-files")
            assert old.sign("DELETE", key, MAKER).status_code == 200
    finally:
        served.lake.set_policies(_policies())


def _dropped(served: Service, name: str, **properties: str) -> tuple[Opened, list[str]]:
    """A dropped table with a file, and its metadata files."""
    made = served.iceberg().create_table(f"db.{name}", ROWS.schema, properties=properties)
    made.append(ROWS)
    gone = Opened.of(served, name)
    snapshot = made.metadata.snapshots[0]
    paths = [made.metadata_location, snapshot.manifest_list]
    paths += [each.manifest_path for each in snapshot.manifests(made.io)]
    served.lake.catalog().drop_table(f"db.{name}")
    return gone, [each.partition(f"{gone.bucket}/")[2] for each in paths]


def test_who_can_purge_deletes_the_files_of_a_dropped_table(served: Service, moto: MotoS3) -> None:
    gone, metadata = _dropped(served, "gone")
    for key in metadata:
        assert gone.sign("GET", key).status_code == gone.sign("HEAD", key).status_code == 200
    for method in ("GET", "DELETE"):
        for user in (MAKER, BOB):
            assert gone.sign(method, metadata[0], user).status_code in (403, 404)
        # As for any name without a table.
        refused(gone.sign(method, metadata[0], CAROL), 404, "NoSuchTable")
    items = [{"users": [MAKER], "accesses": [{"type": "select", "isAllowed": True}]}]
    place = {"database": ["db"], "table": ["gone"], "column": ["name"]}
    denied = policy("name", place, {}, denyPolicyItems=items)
    try:
        served.lake.set_policies([*_policies("select", "drop"), denied])
        assert gone.sign("DELETE", metadata[0], MAKER).status_code == 200
        refused(gone.sign("GET", metadata[0], MAKER), 403, "NotAuthorized", "policy-deny")
    finally:
        served.lake.set_policies(_policies())
    refused(gone.sign("GET", gone.file), 403, "NotAuthorized", "named-files")
    refused(gone.sign("PUT", f"{gone.base}/data/new"), 403, "NotAuthorized", "write-locations")
    for key in (f"{gone.base}0/x", Opened.of(served, "other").file):
        assert gone.sign("DELETE", key).status_code in (403, 404)
    keys = [*metadata, gone.file]
    body = f"<Delete>{''.join(f'<Object><Key>{key}</Key></Object>' for key in keys)}</Delete>"
    root = f"{served.lake.settings.s3.endpoint}/{gone.bucket}?delete"
    assert gone.sign("POST", "", uri=root, body=body).status_code == 200
    foreign = f"<Object><Key>{Opened.of(served, 'other').file}</Key></Object></Delete>"
    mixed = body.replace("</Delete>", foreign)
    refused(gone.sign("POST", "", uri=root, body=mixed), 403, "NotAuthorized", "write-locations")
    listed = f"{root.removesuffix('?delete')}?list-type=2&prefix={quote(gone.base + '/data/', safe='')}"
    refused(gone.sign("GET", "", uri=listed), 403, "NotAuthorized", "write-locations")
    # The last one goes, too, when the metadata is gone.
    moto.client.delete_object(Bucket=gone.bucket, Key=metadata[0])
    assert gone.sign("DELETE", gone.file).status_code == 200


@pytest.mark.nightly
def test_each_signature_without_a_table_is_on_record(served: Service) -> None:
    made, (gone, _) = _staged(served, "on_record"), _dropped(served, "gone_on_record")
    for signed, method in ((made, "PUT"), (gone, "DELETE")):
        assert signed.sign(method, signed.file).status_code == 200
        asked = select(lw_audit.c.reasons).where(
            lw_audit.c.action == "table.sign", lw_audit.c.resource == f"db.{signed.name}", lw_audit.c.allowed
        )
        with read(served.lake.services.engine) as connection:
            assert any(signed.file in each for each in connection.scalars(asked))


@pytest.mark.nightly
def test_without_its_metadata_nothing_of_a_dropped_table_is_read(served: Service, moto: MotoS3) -> None:
    """It says which columns are in the other files."""
    lost, metadata = _dropped(served, "lost")
    moto.client.delete_object(Bucket=lost.bucket, Key=metadata[0])
    refused(lost.sign("GET", metadata[1]), 403, "NotAuthorized", "named-files")
    assert lost.sign("DELETE", metadata[1]).status_code == 200


@pytest.mark.nightly
def test_files_of_a_dropped_table_in_a_location_that_a_user_chose_stay(served: Service) -> None:
    place = f"s3://{Opened.of(served, 'other').bucket}/own/dropped"
    served.iceberg().create_table("db.placed", ROWS.schema, location=place).append(ROWS)
    placed = Opened.of(served, "placed")
    served.lake.catalog().drop_table("db.placed")
    for method in ("GET", "DELETE"):
        refused(placed.sign(method, placed.file), 404, "NoSuchTable")


def test_a_dropped_name_that_is_used_again_deletes_nothing(served: Service) -> None:
    gone, metadata = _dropped(served, "again")
    served.iceberg().create_table("db.again", ROWS.schema).append(ROWS)
    new = Opened.of(served, "again")
    for key in (gone.file, metadata[0], new.file):
        assert gone.sign("DELETE", key).status_code == 403
    assert gone.sign("GET", metadata[0]).status_code == 403
    served.lake.catalog().drop_table("db.again")
    for key in (gone.file, new.file):
        assert gone.sign("DELETE", key).status_code == 200


def test_a_table_that_came_back_loses_no_file(served: Service) -> None:
    gone, metadata = _dropped(served, "back")
    assert gone.sign("DELETE", gone.file).status_code == 200
    served.lake.catalog().register_table("db.back", f"s3://{gone.bucket}/{metadata[0]}")
    refused(gone.sign("DELETE", gone.file), 403, "NotAuthorized", "retained-file")


def test_files_of_a_dropped_table_that_are_kept_or_shared(served: Service) -> None:
    kept, _ = _dropped(served, "kept", **{"gc.enabled": "false"})
    refused(kept.sign("DELETE", kept.file), 403, "NotAuthorized", "gc-enabled")
    shared, metadata = _dropped(served, "shared")
    served.lake.catalog().create_table(
        "db.reads_shared",
        ROWS.schema,
        properties={"read.allowed.data.paths": f"s3://{shared.bucket}/{shared.base}"},
    )
    refused(shared.sign("DELETE", shared.file), 403, "NotAuthorized", "shared-location")
    refused(shared.sign("GET", metadata[0]), 403, "NotAuthorized", "shared-location")
    old, _ = _dropped(served, "old")
    with write(served.lake.services.engine) as connection:
        connection.execute(update(lw_table).where(lw_table.c.name == "old").values(dropped_ms=1))
    refused(old.sign("DELETE", old.file), 404, "NoSuchTable")


def test_a_purged_table_is_not_signed_for(served: Service) -> None:
    made = served.iceberg().create_table("db.purged", ROWS.schema)
    made.append(ROWS)
    purged = Opened.of(served, "purged")
    served.iceberg().purge_table("db.purged")
    refused(purged.sign("DELETE", purged.file), 404, "NoSuchTable")
    refused(purged.sign("PUT", purged.file), 404, "NoSuchTable")
