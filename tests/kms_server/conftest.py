"""One running service with the KMS endpoint open; each test takes keys of its own."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.support.kms_endpoint import endpoint_policies
from tests.support.service import Service, open_service


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service that the tests of a module share; each client is believed by its own name."""
    root = tmp_path_factory.mktemp("lake")
    settings = {"KMS_ENDPOINT__ENABLED": "true", "KMS_ENDPOINT__PSEUDO": "true"}
    with open_service(root, policies=endpoint_policies(), **settings) as running:
        yield running


@pytest.fixture
def name() -> str:
    """A name that no key has."""
    return f"k{uuid4().hex[:12]}"
