"""Unregistering a table, and registering it again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from catalog.http.idempotency import HEADER
from tests.support.http_calls import new_table, refused
from tests.support.service import Service


@pytest.fixture
def url(served: Service, alice: httpx.Client, namespace: str) -> str:
    assert new_table(alice, served.prefix, namespace).status_code == 200
    return f"{served.prefix}/namespaces/{namespace}/tables/t"


def _set(client: httpx.Client, url: str, value: str) -> httpx.Response:
    update = {"action": "set-properties", "updates": {"n": value}}
    return client.post(url, json={"requirements": [], "updates": [update]})


def test_an_unregistered_table_is_gone_and_can_be_registered_again(
    served: Service, alice: httpx.Client, namespace: str, url: str
) -> None:
    loaded = alice.get(url).json()
    answer = alice.post(f"{url}/unregister")
    assert answer.status_code == 200, answer.text
    assert answer.json() == {name: loaded[name] for name in ("metadata-location", "metadata")}
    assert Path(loaded["metadata-location"].removeprefix("file://")).exists()
    refused(alice.get(url), 404, "NoSuchTable")
    refused(_set(alice, url, "1"), 404, "NoSuchTable")
    refused(alice.post(f"{url}/unregister"), 404, "NoSuchTable")
    body = {"name": "t", "metadata-location": loaded["metadata-location"]}
    again = alice.post(f"{served.prefix}/namespaces/{namespace}/register", json=body)
    assert again.json()["metadata"] == loaded["metadata"]


def test_a_repeated_request_gets_the_same_answer(alice: httpx.Client, url: str) -> None:
    key = {HEADER: str(UUID(int=uuid4().int & ~(0xF << 76) | 7 << 76))}
    first = alice.post(f"{url}/unregister", headers=key)
    again = alice.post(f"{url}/unregister", headers=key)
    assert (again.status_code, again.json()) == (200, first.json())


def test_the_answer_has_every_commit_that_took_effect(alice: httpx.Client, served: Service, url: str) -> None:
    done: list[str] = []

    def commit() -> None:
        with served.client() as client:
            for number in range(200):
                if _set(client, url, str(number)).status_code != 200:
                    return
                done.append(str(number))

    committing = threading.Thread(target=commit)
    committing.start()
    while len(done) < 3:
        assert committing.is_alive()
    answer: dict[str, Any] = alice.post(f"{url}/unregister").json()
    committing.join()
    assert answer["metadata"]["properties"]["n"] == done[-1]


def test_registering_over_a_table_is_refused(
    served: Service, alice: httpx.Client, namespace: str, url: str
) -> None:
    assert new_table(alice, served.prefix, namespace, "u").status_code == 200
    location = alice.post(f"{url}/unregister").json()["metadata-location"]
    register = f"{served.prefix}/namespaces/{namespace}/register"
    over = {"name": "u", "metadata-location": location, "overwrite": True}
    refused(alice.post(register, json=over), 400, "NotSupportedYet", "register-overwrite")
    # With a free name, there is nothing to write over.
    assert alice.post(register, json=over | {"name": "t"}).status_code == 200
