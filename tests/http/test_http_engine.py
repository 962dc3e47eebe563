"""What engines call: plans as Arrow, writes in two steps, keys to those who may have them."""

from __future__ import annotations

import base64
import json
import secrets
import uuid
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from catalog.base.identifiers import table_name
from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, open_transported, wrap_for_write
from catalog.http.plan_stream import BATCH_ROWS, HEADER, TRANSPORT_KEY, stream
from catalog.planning.plan import Plan, PlanHeader
from tests.support.http_calls import encrypted_table, new_table, refused, tables_of, written_file
from tests.support.lake import policy, standard_policies
from tests.support.plan_streams import planned_files
from tests.support.service import ENGINE, Service


def _begin(client: httpx.Client, namespace: str) -> dict[str, Any]:
    answer = client.post(f"/engine/v1/tables/{namespace}/t/writes")
    assert answer.status_code == 200, answer.text
    begun: dict[str, Any] = answer.json()
    return begun


def _key(
    begun: dict[str, Any], path: str, label: KeyLabel | None = None
) -> tuple[dict[str, Any], SecretBytes]:
    """A data key as an executor makes and wraps it; that of the footer if it has no label."""
    given = begun["transport-key"]
    transport = TransportKey(
        base64.b64decode(given["id"]), Purpose.WRITE, SecretBytes(base64.b64decode(given["key"]))
    )
    dek = SecretBytes(secrets.token_bytes(begun["encryption"]["data-key-length"]))
    label = label or KeyLabel(begun["encryption"]["footer-key-name"])
    identity = FileIdentity.of(uuid.UUID(begun["table-uuid"]), path)
    wrapped = base64.b64encode(wrap_for_write(transport, dek, identity, label)).decode()
    return {"key-name": label.key_name, "field-ids": list(label.field_ids), "wrapped": wrapped}, dek


def _commit(client: httpx.Client, begun: dict[str, Any], **body: Any) -> httpx.Response:
    return client.post(f"/engine/v1/writes/{begun['write-id']}/commit", json={"operation": "append", **body})


def _plan(client: httpx.Client, namespace: str, **body: Any) -> tuple[dict[str, Any], pa.Table]:
    answer = client.post(f"/engine/v1/tables/{namespace}/t/plan", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    files = planned_files(answer.content)
    return json.loads(files.schema.metadata[HEADER.encode()]), files


@pytest.fixture
def table(served: Service, alice: httpx.Client, namespace: str) -> str:
    """A plaintext table `t`; its namespace."""
    assert new_table(alice, served.prefix, namespace).status_code == 200
    return namespace


@pytest.fixture
def encrypted(served: Service, alice: httpx.Client, namespace: str) -> str:
    """An encrypted table `t` with one file; its namespace."""
    assert encrypted_table(alice, namespace).status_code == 200
    begun = _begin(alice, namespace)
    file = written_file(begun)
    key, _ = _key(begun, file["path"])
    answer = _commit(alice, begun, added=[{**file, "keys": [key]}])
    assert answer.status_code == 200, answer.text
    return namespace


def test_plan_of_an_empty_table_is_an_empty_stream(alice: httpx.Client, table: str) -> None:
    header, files = _plan(alice, table)
    assert files.num_rows == 0 and header["snapshot-id"] is None
    assert header["columns"] == ["id", "name"] and header["sealed"] is True


def test_load_says_for_whom_and_by_which_policies(served: Service, alice: httpx.Client) -> None:
    """What an engine keeps of a table for one user, or under one set of policies, is told from others."""
    alice.post(f"{served.prefix}/namespaces", json={"namespace": ["db"]})
    new_table(alice, served.prefix, "db", "seen")
    with served.client("carol", engine=ENGINE) as carol:
        configs = [each.post("/engine/v1/tables/db/seen/load").json()["config"] for each in (alice, carol)]
        assert [each.pop("lakewarden.principal") for each in configs] == ["alice", "carol"]
        assert configs[0] == configs[1]
        served.lake.set_policies([*standard_policies(), policy("more", {"key": ["x"]}, {"dan": ["use"]})])
        try:
            after = carol.post("/engine/v1/tables/db/seen/load").json()["config"]
        finally:
            served.lake.set_policies(standard_policies())
    assert after["lakewarden.policy-version"] != configs[1]["lakewarden.policy-version"]


def test_engine_may_send_its_token_with_iceberg_requests(served: Service, namespace: str) -> None:
    """An engine lists, creates, renames and drops under `/v1` with the headers that it sends everywhere."""
    with served.client("alice", engine=ENGINE) as spark:
        base, levels = f"{served.prefix}/namespaces", [f"{namespace}_of_spark"]
        assert spark.get("/v1/config").status_code == 200
        assert spark.post(base, json={"namespace": levels}).status_code == 200
        assert levels in spark.get(base).json()["namespaces"]
        assert spark.get(f"{base}/{levels[0]}").json()["properties"] == {}
        changed = spark.post(f"{base}/{levels[0]}/properties", json={"updates": {"owner": "spark"}})
        assert changed.status_code == 200
        assert new_table(spark, served.prefix, levels[0]).status_code == 200
        identifiers = [{"namespace": levels, "name": name} for name in "tu"]
        body = {"source": identifiers[0], "destination": identifiers[1]}
        assert spark.post(f"{served.prefix}/tables/rename", json=body).status_code == 204
        assert tables_of(spark, served.prefix, levels[0]) == ["u"]
        assert spark.head(f"{base}/{levels[0]}/tables/u").status_code == 204
        assert spark.delete(f"{base}/{levels[0]}/tables/u?purgeRequested=true").status_code == 204
        assert spark.delete(f"{base}/{levels[0]}").status_code == 204


def test_write_is_planned_after_its_commit(alice: httpx.Client, table: str) -> None:
    begun = _begin(alice, table)
    assert begun["encryption"] is None and begun["transport-key"] is None
    file = written_file(
        begun,
        **{
            "value-counts": {"1": 3, "2": 3},
            "lower-bounds": {"1": _long(1)},
            "upper-bounds": {"1": _long(3)},
        },
    )
    answer = _commit(alice, begun, added=[file], summary={"by": "test"})
    assert answer.status_code == 200, answer.text
    header, files = _plan(alice, table)
    assert files["file_path"].to_pylist() == [file["path"]]
    assert header["snapshot-id"] == answer.json()["metadata"]["current-snapshot-id"]
    assert TRANSPORT_KEY.encode() not in files.schema.metadata
    assert header["table"] == f"{table}.t"


def test_filter_columns_and_snapshots(alice: httpx.Client, table: str) -> None:
    begun = _begin(alice, table)
    bounds = {"value-counts": {"1": 3}, "lower-bounds": {"1": _long(1)}, "upper-bounds": {"1": _long(3)}}
    snapshot = _commit(alice, begun, added=[written_file(begun, **bounds)]).json()["metadata"][
        "current-snapshot-id"
    ]
    over = {"type": "gt", "term": "id", "value": 10}
    assert _plan(alice, table, filter=over)[1].num_rows == 0
    assert _plan(alice, table, filter={"type": "not", "child": over})[1].num_rows == 1
    assert _plan(alice, table, columns=["name"])[0]["columns"] == ["name"]
    assert _plan(alice, table, columns=["NAME"], **{"case-sensitive": False})[0]["columns"] == ["name"]
    for how in ({"snapshot-id": snapshot}, {"ref": "main"}, {"as-of-ms": 2**52}):
        assert _plan(alice, table, **how)[1].num_rows == 1


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "body",
    [
        {"columns": ["missing"]},
        {"columns": "id"},
        {"filter": {"type": "eq", "term": "missing", "value": 1}},
        {"filter": {"type": "eq", "term": "id", "value": "x"}},
        {"filter": {"type": "eq", "term": "id"}},
        {"filter": "id = 1"},
        {"snapshot-id": 77},
        {"snapshot-id": 2**80},
        {"ref": "nowhere"},
        {"ref": "main", "as-of-ms": 1},
        {"as-of-ms": -1},
    ],
)
def test_malformed_plan_is_one_error(alice: httpx.Client, table: str, body: dict[str, Any]) -> None:
    refused(alice.post(f"/engine/v1/tables/{table}/t/plan", json=body), 400, "RequestInvalid")


def test_overwrite_removes_what_the_plan_named(alice: httpx.Client, table: str) -> None:
    begun = _begin(alice, table)
    first = written_file(begun)
    base = _commit(alice, begun, added=[first]).json()["metadata"]["current-snapshot-id"]
    again = _begin(alice, table)
    second = written_file(again)
    body = {"operation": "overwrite", "added": [second], "deleted-paths": [first["path"]]}
    refused(_commit(alice, again, **body, **{"base-snapshot-id": 5}), 409, "ConcurrentModification")
    assert _commit(alice, again, **body, **{"base-snapshot-id": base}).status_code == 200
    assert _plan(alice, table)[1]["file_path"].to_pylist() == [second["path"]]


def test_commit_twice_is_one_commit(alice: httpx.Client, table: str) -> None:
    begun = _begin(alice, table)
    file = written_file(begun)
    first = _commit(alice, begun, added=[file])
    assert _commit(alice, begun, added=[file]).json() == first.json()


def test_file_outside_of_the_write_is_refused(alice: httpx.Client, table: str) -> None:
    begun = _begin(alice, table)
    file = {**written_file(begun), "path": "file:///srv/other/data.parquet"}
    refused(_commit(alice, begun, added=[file]), 403, "LocationNotAllowed")
    assert _plan(alice, table)[1].num_rows == 0


def test_aborted_write_leaves_nothing(alice: httpx.Client, table: str) -> None:
    begun = _begin(alice, table)
    file = written_file(begun)
    for _ in range(2):  # again, as after a lost answer
        assert alice.delete(f"/engine/v1/writes/{begun['write-id']}").status_code == 204
    assert not Path(file["path"].removeprefix("file://")).exists()
    refused(_commit(alice, begun, added=[file]), 400, "RequestInvalid", "write-state")


def test_write_of_another_is_unknown(served: Service, alice: httpx.Client, table: str) -> None:
    begun = _begin(alice, table)
    with served.client("bob") as bob:
        refused(_commit(bob, begun), 400, "RequestInvalid", "write-id")
        refused(bob.delete(f"/engine/v1/writes/{begun['write-id']}"), 400, "RequestInvalid", "write-id")
    refused(alice.delete("/engine/v1/writes/x"), 400, "RequestInvalid", "write-id")


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "change",
    [
        {"record-count": -1},
        {"record-count": 2**70},
        {"file-size-in-bytes": "x"},
        {"file-format": 7},
        {"partition": []},
        {"lower-bounds": {"1": "no base64!"}},
        {"lower-bounds": {"x": "AA=="}},
        {"value-counts": {"-1": 1}},
        {"keys": [{"key-name": "k"}]},
        {"keys": [{"key-name": "k", "wrapped": "====", "extra": 1}]},
        {"unknown": 1},
    ],
)
def test_malformed_file_is_one_error(alice: httpx.Client, table: str, change: dict[str, Any]) -> None:
    begun = _begin(alice, table)
    refused(
        _commit(alice, begun, added=[{**written_file(begun), **change}]), 400, "RequestInvalid", "request"
    )


def test_plan_carries_the_keys_of_its_files(served: Service, encrypted: str) -> None:
    with served.client("alice", engine=ENGINE) as spark:
        header, files = _plan(spark, encrypted)
    given = json.loads(files.schema.metadata[TRANSPORT_KEY.encode()])
    transport = TransportKey(
        base64.b64decode(given["id"]), Purpose.SCAN, SecretBytes(base64.b64decode(given["key"]))
    )
    assert header["transport-key-id"] == transport.id.hex()
    assert given["key"] not in json.dumps(header)
    (row,) = files.to_pylist()
    (key,) = row["keys"]
    identity = FileIdentity.of(uuid.UUID(header["table-uuid"]), row["file_path"])
    dek = open_transported(transport, key["wrapped"], identity, KeyLabel(key["key_name"]))
    assert len(dek) == 32


@pytest.mark.nightly
def test_columns_with_keys_of_their_own(served: Service, alice: httpx.Client, namespace: str) -> None:
    """How to write them stands in the answer to the beginning; a plan has the keys that the scan needs."""
    governed = {"encryption.columns": "lakewarden:name"}
    assert encrypted_table(alice, namespace, **governed).status_code == 200
    begun = _begin(alice, namespace)
    (group,) = begun["encryption"]["column-keys"]
    assert group == {"key-name": "lakewarden", "field-ids": [2]}
    file = written_file(begun)
    labels = [None, KeyLabel(group["key-name"], tuple(group["field-ids"]))]
    keys = [_key(begun, file["path"], label)[0] for label in labels]
    footer = {"footer-bytes": 70, "footer-sha256": base64.b64encode(bytes(32)).decode()}
    for wrong in (
        {"keys": keys[:1], **footer},
        {"keys": keys[:1]},
        {"keys": keys},
        {"keys": keys, **footer, "footer-bytes": None},
    ):
        refused(_commit(alice, begun, added=[{**file, **wrong}]), 403, "EncryptionPolicyViolation")
    for number in (-1, 2**32):
        wrong = {"keys": keys, **footer, "footer-bytes": number}
        refused(_commit(alice, begun, added=[{**file, **wrong}]), 400, "RequestInvalid")
    answer = _commit(alice, begun, added=[{**file, "keys": keys, **footer}])
    assert answer.status_code == 200, answer.text
    (planned,) = _plan(alice, namespace)[1]["footer_digest"].to_pylist()
    assert planned == (70).to_bytes(4, "big") + bytes(32)
    for columns, expected in ((["id"], [[]]), (["name"], [[], [2]]), (None, [[], [2]])):
        (row,) = _plan(alice, namespace, **({"columns": columns} if columns else {}))[1].to_pylist()
        assert row["column_keys"] is True
        assert [key["field_ids"] for key in row["keys"]] == expected


def test_two_plans_have_two_keys(alice: httpx.Client, encrypted: str) -> None:
    first, second = _plan(alice, encrypted), _plan(alice, encrypted)
    assert first[0]["transport-key-id"] != second[0]["transport-key-id"]
    assert first[1]["keys"].to_pylist() != second[1]["keys"].to_pylist()


def test_own_process_needs_the_right_to_release(served: Service, alice: httpx.Client) -> None:
    """Carol may read every column of `db`; only an engine gets its keys for her."""
    alice.post(f"{served.prefix}/namespaces", json={"namespace": ["db"]})
    encrypted_table(alice, "db")
    begun = _begin(alice, "db")
    file = written_file(begun)
    _commit(alice, begun, added=[{**file, "keys": [_key(begun, file["path"])[0]]}])
    with served.client("carol") as own:
        refused(own.post("/engine/v1/tables/db/t/plan", json={}), 403, "NotAuthorized")
    with served.client("carol", engine=ENGINE) as spark:
        assert _plan(spark, "db")[1].num_rows == 1


def test_file_without_keys_is_refused_where_the_table_encrypts(alice: httpx.Client, encrypted: str) -> None:
    begun = _begin(alice, encrypted)
    error = refused(_commit(alice, begun, added=[written_file(begun)]), 403, "EncryptionPolicyViolation")
    assert error["rule"] == "encryption-required"


def test_key_of_another_file_is_refused(alice: httpx.Client, encrypted: str) -> None:
    begun = _begin(alice, encrypted)
    first, second = written_file(begun), written_file(begun)
    key, _ = _key(begun, first["path"])
    refused(_commit(alice, begun, added=[{**second, "keys": [key]}]), 403, "DecryptionRefused")


def test_keys_are_in_no_answer_but_their_own(served: Service, alice: httpx.Client, encrypted: str) -> None:
    begun = _begin(alice, encrypted)
    secret = begun["transport-key"]["key"]
    answers = [
        alice.get(f"{served.prefix}/namespaces/{encrypted}/tables/t").text,
        alice.get(f"/admin/v1/tables/{encrypted}/t").text,
        alice.get(f"/admin/v1/tables/{encrypted}/t/keys").text,
        alice.get("/admin/v1/audit").text,
        alice.get("/metrics").text,
        _commit(alice, begun).text,
    ]
    assert not any(secret in each for each in answers)


def test_long_plans_are_streamed_in_batches(served: Service, alice: httpx.Client, table: str) -> None:
    rows = 2 * BATCH_ROWS + 5
    files = pa.table({"file_path": pa.array([f"d/p{i}" for i in range(rows)])})
    loaded = served.lake.services.loader.load(table_name([table], "t"))
    header = PlanHeader(loaded, None, loaded.metadata.schema(), (), "alice", "v", 1000, None)
    pieces = list(stream(Plan(header, files)))
    assert len(pieces) >= 4
    reader = pa.ipc.open_stream(b"".join(pieces))
    assert [batch.num_rows for batch in reader] == [BATCH_ROWS, BATCH_ROWS, 5]


def _long(value: int) -> str:
    return base64.b64encode(value.to_bytes(8, "little")).decode()
