"""One running service a test module; each test takes a namespace of its own in it."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from tests.support.service import Service, open_service


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service that the tests of a module share."""
    with open_service(tmp_path_factory.mktemp("lake")) as running:
        yield running


@pytest.fixture
def alice(served: Service) -> Iterator[httpx.Client]:
    """Alice, who may do everything."""
    with served.client() as client:
        yield client


@pytest.fixture
def namespace(served: Service, alice: httpx.Client) -> str:
    """An empty namespace."""
    name = f"n{uuid4().hex[:12]}"
    made = alice.post(f"{served.prefix}/namespaces", json={"namespace": [name]})
    assert made.status_code == 200, made.text
    return name
