"""One running service a test module, and clients of its users; each test takes tables of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from pyiceberg.schema import Schema

import lakewarden
from tests.support.lake import ALICE
from tests.support.service import Service, open_service

_numbers = count(1)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service that the tests of a module share, with master keys for columns and a namespace `db`."""
    with open_service(tmp_path_factory.mktemp("lake").resolve()) as running:
        for key in ("pii", "hr"):
            running.lake.kms.create_master_key(key)
        running.lake.catalog().create_namespace("db")
        yield running


@pytest.fixture
def alice(served: Service) -> lakewarden.Connection:
    """Alice's own process."""
    return lakewarden.connect(served.url, served.token(ALICE))


@pytest.fixture
def make(served: Service) -> Callable[..., str]:
    """Makes a table in `db` and returns its name; options are pyiceberg's."""

    def made(schema: Schema, **options: Any) -> str:
        name = f"db.t{next(_numbers)}"
        served.lake.catalog().create_table(name, schema, **options)
        return name

    return made
