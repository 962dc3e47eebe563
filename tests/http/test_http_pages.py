"""Lists in pages, as clients of the Iceberg REST specification ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.http_calls import new_table, refused
from tests.support.lake import policy, standard_policies
from tests.support.service import Service


def _pages(client: httpx.Client, url: str, size: int, **params: str) -> Iterator[dict[str, Any]]:
    token: str | None = ""
    while token is not None:
        answer = client.get(url, params={"pageToken": token, "pageSize": size, **params})
        assert answer.status_code == 200, answer.text
        yield answer.json()
        token = answer.json()["next-page-token"]


def test_a_list_without_a_page_token_is_whole(served: Service, alice: httpx.Client, namespace: str) -> None:
    for name in ("b", "a", "c"):
        assert new_table(alice, served.prefix, namespace, name).status_code == 200
    url = f"{served.prefix}/namespaces/{namespace}/tables"
    for params in ({}, {"pageSize": 1}):
        answer = alice.get(url, params=params).json()
        assert [each["name"] for each in answer["identifiers"]] == ["a", "b", "c"]
        assert answer["next-page-token"] is None


def test_pages_have_what_the_caller_sees_and_tell_of_nothing_else(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    for name in ("a", "b1", "b2", "b3", "c", "d", "e"):
        assert new_table(alice, served.prefix, namespace, name).status_code == 200
    here = {"database": [namespace], "column": ["*"]}
    served.lake.set_policies(
        [*standard_policies(), policy("pages", {**here, "table": ["b1", "b3", "c"]}, {"pat": ["select"]})]
    )
    url = f"{served.prefix}/namespaces/{namespace}/tables"
    with served.client("pat") as pat:
        names = [[each["name"] for each in page["identifiers"]] for page in _pages(pat, url, 2)]
        assert names == [["b1", "b3"], ["c"]]
        # There is more in the namespace, of which the list does not tell.
        whole = pat.get(url, params={"pageToken": "", "pageSize": 3}).json()
        assert [each["name"] for each in whole["identifiers"]] == ["b1", "b3", "c"]
        assert whole["next-page-token"] is None
    served.lake.set_policies(standard_policies())


def test_namespaces_are_listed_in_pages(served: Service, alice: httpx.Client, namespace: str) -> None:
    url = f"{served.prefix}/namespaces"
    for levels in (["z"], ["x", "y"], ["x-1"], ["w"]):
        made = alice.post(url, json={"namespace": [namespace, *levels]})
        assert made.status_code == 200
    pages = [page["namespaces"] for page in _pages(alice, url, 3, parent=namespace)]
    assert pages == [[[namespace, "w"], [namespace, "x"], [namespace, "x-1"]], [[namespace, "z"]]]
    top = [each for page in _pages(alice, url, 1) for each in page["namespaces"]]
    assert top == alice.get(url).json()["namespaces"]


def test_a_page_token_of_another_list_or_user_is_refused(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    for name in ("a", "b"):
        assert new_table(alice, served.prefix, namespace, name).status_code == 200
    url = f"{served.prefix}/namespaces/{namespace}/tables"
    token = alice.get(url, params={"pageToken": "", "pageSize": 1}).json()["next-page-token"]
    other = f"{served.prefix}/namespaces"
    here = {"database": [namespace], "table": ["*"], "column": ["*"]}
    served.lake.set_policies([*standard_policies(), policy("pages", here, {"pat": ["select"]})])
    with served.client("pat") as pat:
        refused(pat.get(url, params={"pageToken": token}), 400, "RequestInvalid", "page-token")
    served.lake.set_policies(standard_policies())
    refused(alice.get(other, params={"pageToken": token}), 400, "RequestInvalid", "page-token")
    for forged in (f"{token}A", token[:-2], "b", "AAAA" * 6, "é", "x" * 2000):
        error = refused(alice.get(url, params={"pageToken": forged}), 400, "RequestInvalid")
        assert error["type"] == "BadRequestException"
    for twice in (("pageToken", token), ("pageSize", "1"), ("unknown", "")):
        asked = [("pageToken", token), ("pageSize", "1"), ("unknown", ""), twice]
        refused(alice.get(url, params=asked), 400, "RequestInvalid", "request")
    assert alice.get(url, params={"pageToken": token}).status_code == 200


@pytest.mark.parametrize("size", ["0", "-1", "x", "1.5", ""])
def test_a_page_has_a_positive_size(served: Service, alice: httpx.Client, namespace: str, size: str) -> None:
    url = f"{served.prefix}/namespaces/{namespace}/tables"
    refused(alice.get(url, params={"pageToken": "", "pageSize": size}), 400, "RequestInvalid", "request")
