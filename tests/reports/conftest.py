"""A catalog for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.lake import ALLOWS_UNSEALED, Lake, open_lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog with the namespaces `db` and `bobs` and some master keys."""
    with open_lake(tmp_path_factory.mktemp("lake")) as lake:
        for namespace in ("db", "bobs"):
            lake.catalog().create_namespace(namespace, ALLOWS_UNSEALED)
        for key in ("pii", "hr", "place"):
            lake.kms.create_master_key(key)
        yield lake
