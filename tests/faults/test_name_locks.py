"""Names of tables and views that change at once, on PostgreSQL: none waits for another in a circle."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest
from sqlalchemy import event, text

from catalog.base.errors import CommitConflict, ViewExists
from catalog.base.identifiers import TableName
from catalog.db.engine import read, write
from catalog.state import views
from catalog.tables.views import ViewDefinition
from tests.faults.conftest import Shared
from tests.support.crash import PATIENCE_S
from tests.support.lake import ALICE, Lake
from tests.support.tables import SCHEMA, make, name_of


def test_a_view_is_renamed_to_a_name_that_another_one_is_getting(on_postgres: Shared) -> None:
    """A deadlock would be answered as a failure of the database."""
    lake, namespace = on_postgres.lake, ("views",)
    alice, services = lake.caller(ALICE), lake.services
    services.namespaces.create(alice, namespace, {})
    name, taken = TableName(namespace, "v"), TableName(namespace, "w")
    record = services.views.create(alice, ViewDefinition(name, SCHEMA, "SELECT 1", None, namespace, {}, {}))
    renames: list[Future[None]] = []
    with ThreadPoolExecutor(1) as pool:
        with write(services.engine) as connection:

            def rename(_connection: object, _cursor: object, statement: str, *_: object) -> None:
                if statement.startswith("INSERT") and not renames:
                    renames.append(pool.submit(services.views.rename, alice, name, taken))
                    _wait_for_a_lock(lake)

            event.listen(connection, "after_cursor_execute", rename)
            catalog = lake.settings.catalog.name
            views.add(connection, catalog, replace(record, id=str(uuid4()), name=taken))
        with pytest.raises(ViewExists):
            renames[0].result(PATIENCE_S)


def test_a_drop_waits_for_a_rename_and_finds_the_table_gone(on_postgres: Shared) -> None:
    """A rename locks the pointer, then the table; a drop locks the table alone, and then does the same."""
    lake, services = on_postgres.lake, on_postgres.lake.services
    name = name_of(make(lake))
    target = TableName(name.namespace, f"{name.name}_renamed")
    drops: list[Future[None]] = []
    with ThreadPoolExecutor(1) as pool:

        def drop(_connection: object, _cursor: object, statement: str, *_: object) -> None:
            if statement.startswith("UPDATE lw_binding") and not drops:
                drops.append(pool.submit(services.lifecycle.drop, lake.caller(ALICE), name))
                _wait_for_a_lock(lake)

        event.listen(services.engine, "after_cursor_execute", drop)
        try:
            services.lifecycle.rename(lake.caller(ALICE), name, target)
        finally:
            event.remove(services.engine, "after_cursor_execute", drop)
        with pytest.raises(CommitConflict):
            drops[0].result(PATIENCE_S)
    assert services.loader.load_sealed(target).record.name == target
    assert services.pointers.load(name) is None


def _wait_for_a_lock(lake: Lake) -> None:
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    for _ in range(1_000):
        with read(lake.services.engine) as connection:
            if connection.scalar(waiting):
                return
        time.sleep(0.01)
    raise AssertionError("nothing waits")
