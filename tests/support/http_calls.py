"""What HTTP tests say again and again."""

from __future__ import annotations

from typing import Any

import httpx

SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "name", "type": "string", "required": False},
    ],
}


ENCRYPTED = {"encryption.mechanism": "envelope"}


def refused(answer: httpx.Response, status: int, ours: str, rule: str | None = None) -> dict[str, Any]:
    """The one typed error of an answer, in Iceberg's error model; at the KMS endpoint, in Hadoop's too."""
    assert answer.status_code == status, answer.text
    document = answer.json()
    at_the_door = answer.request.url.path.startswith("/kms/v1/")
    assert set(document) == ({"error", "RemoteException"} if at_the_door else {"error"})
    error: dict[str, Any] = document["error"]
    assert error["code"] == status
    assert error["lakewarden"] == ours, error
    assert error["message"] and error["type"]
    if rule is not None:
        assert error["rule"] == rule, error
    return error


def new_table(
    client: httpx.Client, prefix: str, namespace: str, name: str = "t", **body: Any
) -> httpx.Response:
    """Ask for a table to be created."""
    document = {"name": name, "schema": SCHEMA, **body}
    return client.post(f"{prefix}/namespaces/{namespace}/tables", json=document)


def encrypted_table(
    client: httpx.Client, namespace: str, name: str = "t", **properties: str
) -> httpx.Response:
    """Ask for an encrypted table; standard clients get none, so that it goes through the engine interface."""
    document = {"name": name, "schema": SCHEMA, "properties": properties or ENCRYPTED}
    return client.post(f"/engine/v1/namespaces/{namespace}/tables", json=document)


def tables_of(client: httpx.Client, prefix: str, namespace: str) -> list[str]:
    """The names of a namespace's tables."""
    answer = client.get(f"{prefix}/namespaces/{namespace}/tables")
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["identifiers"]]
