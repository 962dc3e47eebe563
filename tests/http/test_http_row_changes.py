"""Commits over HTTP that remove files or rows: how they are described, and how conflicts are answered."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.http_calls import encrypted_table, new_table, refused, written_file
from tests.support.service import Service

ALL = {"type": "true"}


@pytest.fixture
def table(served: Service, alice: httpx.Client, namespace: str) -> str:
    """The address of a table `t`."""
    assert new_table(alice, served.prefix, namespace).status_code == 200
    return f"/engine/v1/tables/{namespace}/t"


def _begin(client: httpx.Client, table: str) -> dict[str, Any]:
    answer = client.post(f"{table}/writes")
    assert answer.status_code == 200, answer.text
    begun: dict[str, Any] = answer.json()
    return begun


def _commit(client: httpx.Client, begun: dict[str, Any], operation: str, **body: Any) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in body.items()}
    return client.post(
        f"/engine/v1/writes/{begun['write-id']}/commit", json={"operation": operation, **named}
    )


def _head(answer: httpx.Response) -> int:
    assert answer.status_code == 200, answer.text
    head: int = answer.json()["metadata"]["current-snapshot-id"]
    return head


def _append(client: httpx.Client, table: str) -> tuple[str, int]:
    begun = _begin(client, table)
    file = written_file(begun)
    return file["path"], _head(_commit(client, begun, "append", added=[file]))


def test_a_delete_file_is_committed_with_what_it_refers_to(alice: httpx.Client, table: str) -> None:
    path, base = _append(alice, table)
    begun = _begin(alice, table)
    assert begun["position-deletes"] == {"format": "parquet", "granularity": "file", "encryption": None}
    file = written_file(begun, content=1, **{"referenced-data-files": [path]})
    given = {"base_snapshot_id": base, "command": "delete"}
    bare = {name: value for name, value in file.items() if name != "referenced-data-files"}
    refused(_commit(alice, begun, "delete", added=[bare], **given), 400, "RequestInvalid", "delete-file")
    refused(_commit(alice, begun, "append", added=[file], **given), 400, "RequestInvalid", "operation")
    answer = _commit(alice, begun, "delete", added=[file], **given)
    assert answer.status_code == 200, answer.text
    summary = answer.json()["metadata"]["snapshots"][-1]["summary"]
    assert summary["operation"] == "delete" and summary["added-position-delete-files"] == "1"
    assert _commit(alice, begun, "delete", added=[file], **given).json() == answer.json()


@pytest.mark.nightly
def test_a_conflict_says_what_conflicts_and_what_to_do(alice: httpx.Client, table: str) -> None:
    path, base = _append(alice, table)
    other, head = _append(alice, table)
    begun = _begin(alice, table)
    body = {"deleted_paths": [path], "base_snapshot_id": base}
    error = refused(_commit(alice, begun, "delete", **body), 409, "ConcurrentModification", "new-data")
    assert error["type"] == "CommitFailedException"
    assert error["snapshot"] == head and other in error["message"]
    assert error["hint"].startswith("Nothing was committed. Run the statement again")
    error = refused(
        _commit(alice, begun, "delete", command="update", conflict_filter=ALL, **body),
        409,
        "ConcurrentModification",
        "new-data",
    )
    assert _commit(alice, begun, "delete", isolation_level="snapshot", **body).status_code == 200


def test_the_catalog_says_whether_whole_files_can_be_deleted(alice: httpx.Client, table: str) -> None:
    _append(alice, table)
    partly = {"type": "eq", "term": "id", "value": 1}
    answers = {}
    for name, row_filter in (("all", ALL), ("partly", partly), ("none", {"type": "false"})):
        answer = alice.post(f"{table}/whole-files", json={"filter": row_filter})
        assert answer.status_code == 200, answer.text
        answers[name] = answer.json()
    assert answers == {
        "all": {"whole-files": True},
        "partly": {"whole-files": False},
        "none": {"whole-files": True},
    }
    refused(
        _commit(alice, _begin(alice, table), "delete", delete_filter=partly),
        400,
        "RequestInvalid",
        "partial-file",
    )
    unknown = {"type": "eq", "term": "nothing", "value": 1}
    refused(alice.post(f"{table}/whole-files", json={"filter": unknown}), 400, "RequestInvalid", "column")
    upper = {"filter": {"type": "is-null", "term": "ID"}, "case-sensitive": False}
    assert alice.post(f"{table}/whole-files", json=upper).status_code == 200
    assert _head(_commit(alice, _begin(alice, table), "delete", delete_filter=ALL))


@pytest.mark.parametrize(
    "field",
    [{"isolation_level": "chaos"}, {"command": "insert"}, {"delete_filter": {"type": "odd"}}, {"wap": "x"}],
)
def test_what_is_not_understood_is_refused(alice: httpx.Client, table: str, field: dict[str, Any]) -> None:
    answer = _commit(alice, _begin(alice, table), "delete", **field)
    refused(answer, 400, "RequestInvalid")


def test_delete_files_of_encrypted_tables_are_under_the_footer_s_key(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    columns = {"encryption.columns": "lakewarden:name"}
    assert encrypted_table(alice, namespace, **columns).status_code == 200
    begun = _begin(alice, f"/engine/v1/tables/{namespace}/t")
    of_deletes = begun["position-deletes"]["encryption"]
    assert begun["encryption"]["column-keys"]
    assert of_deletes == begun["encryption"] | {"column-keys": [], "masks": []}
