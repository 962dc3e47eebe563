"""Unregistering a table, and registering it again."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import httpx
import pytest

from catalog.authorization.authorizer import Caller
from catalog.authorization.table_access import TableAccess
from catalog.base.identifiers import TableName, table_name
from catalog.http.idempotency import HEADER
from catalog.reading.loading import LoadedTable
from catalog.tables.unregistration import Unregistration
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


def test_the_answer_has_every_commit_that_took_effect(
    served: Service, alice: httpx.Client, namespace: str, url: str
) -> None:
    services, name = served.lake.services, table_name([namespace], "t")
    met = iter(("1", "2"))

    class Overtaken:
        """Loads tables, which others change right after."""

        def load(self, caller: Caller, name: TableName) -> LoadedTable:
            table = services.access.load(caller, name)
            for value in islice(met, 1):
                assert _set(alice, url, value).status_code == 200
            return table

    access = cast(TableAccess, Overtaken())
    unregistration = Unregistration(services, services.lifecycle, access)
    table = unregistration.unregister(served.lake.caller("alice"), name)
    assert table.metadata.properties["n"] == "2"
    refused(_set(alice, url, "3"), 404, "NoSuchTable")


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
