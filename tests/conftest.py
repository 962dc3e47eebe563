"""Fixtures that any test may use: real servers, started once a session, and catalogs on top of them.

What a fixture needs is imported by the fixture, so that a test of one function loads no S3 server.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.memory import temporary_files_in_memory
from tests.support.rows_by_day import leave_rows_to_nightly

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

    from tests.support.lake import Lake
    from tests.support.moto_server import MotoS3
    from tests.support.postgres import PostgresServer
    from tests.support.service import Service

#: New objects; by default 700, for which the services of each test bring it to work all the time.
_OBJECTS_UNTIL_COLLECTION = 10_000

# No example has a deadline: that would ask how fast the machine is.
settings.register_profile("tests", max_examples=25, deadline=None)
settings.load_profile("tests")
# For `make nightly` and `make fuzz`: tests that set no number of their own try more examples.
for name, examples in {"nightly": 1_000, "fuzz": 100_000}.items():
    settings.register_profile(
        name, max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck)
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--interop", action="store_true", help="run what needs the programs of others, too")
    parser.addoption("--connect", action="store_true", help="run the shared Spark through Spark Connect")


def pytest_configure() -> None:
    temporary_files_in_memory()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Before pytest looks at the marks that `-m` asks for.
    leave_rows_to_nightly(items)
    # The longest files first, so that no worker waits for another one at the end.
    items.sort(key=lambda item: not item.nodeid.startswith("tests/spark/"))
    others = [item for item in items if not _is_asked_for(config, item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if _is_asked_for(config, item)]


def _is_asked_for(config: pytest.Config, item: pytest.Item) -> bool:
    """Some tests need an option. With `--connect`, those without the shared Spark would run a second time."""
    if config.getoption("--connect"):
        return "spark_lake" in getattr(item, "fixturenames", ())
    needs = item.get_closest_marker("connect") is not None
    return not needs and (config.getoption("--interop") or item.get_closest_marker("interop") is None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector what was imported and collected, which stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(_OBJECTS_UNTIL_COLLECTION)
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """With `--dist loadfile`, two workers run the tests of the Spark that they share."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.support.scheduling import FewSparks

    return FewSparks(config, log)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer | str]:
    """A PostgreSQL server, or the reason why there is none."""
    from tests.support.postgres import start_postgres

    server, reason = start_postgres()
    yield server or reason
    if server is not None:
        server.remove()


@pytest.fixture
def postgres(postgres_server: PostgresServer | str) -> PostgresServer:
    """A PostgreSQL server; the test is skipped where none can be started."""
    if isinstance(postgres_server, str):
        pytest.skip(postgres_server)
    return postgres_server


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoS3]:
    """An S3 server."""
    from tests.support.moto_server import moto_s3

    with moto_s3() as server:
        yield server


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A catalog on SQLite and the local disk."""
    from tests.support.lake import open_lake

    with open_lake(tmp_path) as opened:
        yield opened


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """The running service over a catalog on SQLite and the local disk."""
    from tests.support.service import open_service

    with open_service(tmp_path) as running:
        yield running


@pytest.fixture
def every_refusal_has_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that share a catalog: they are refused more often in a minute than any user is."""
    monkeypatch.setattr("catalog.audit.tallies.DISTINCT", 1_000_000)
