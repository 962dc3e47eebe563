"""One running service with a console a test module."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.support.console import URL
from tests.support.service import Service, open_service


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service that the tests of a module share."""
    with open_service(tmp_path_factory.mktemp("lake"), CONSOLE__URL=URL) as running:
        yield running


@pytest.fixture
def alice(served: Service) -> Iterator[httpx.Client]:
    """Alice, who may do everything, as a client of the API."""
    with served.client() as client:
        yield client
