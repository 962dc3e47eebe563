"""What the tests of planning share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.lake import ALLOWS_UNSEALED, Lake, open_lake, standard_policies


@pytest.fixture(autouse=True)
def _shared(every_refusal_has_a_record: None) -> None:
    """Tests of a module share a lake."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog with the namespaces `db` and `bobs` and some master keys, one for all tests of a module."""
    with open_lake(tmp_path_factory.mktemp("lake")) as lake:
        for namespace in ("db", "bobs"):
            lake.catalog().create_namespace(namespace, ALLOWS_UNSEALED)
        for key in ("pii", "hr", "place"):
            lake.kms.create_master_key(key)
        yield lake


@pytest.fixture
def policies(lake: Lake) -> Iterator[Callable[..., None]]:
    """Put policies in force beside the standard ones, for one test."""

    def put(*more: dict[str, Any]) -> None:
        lake.set_policies([*standard_policies(), *more])

    yield put
    lake.set_policies(standard_policies())
