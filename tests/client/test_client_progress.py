"""Progress bars: on a terminal, for long work, and never of rows that a policy hides."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from rich.console import Console

import lakewarden
from catalog.base import progress
from tests.support.lake import CAROL, policy, standard_policies
from tests.support.service import Service

Make = Callable[..., str]

SCHEMA = Schema(NestedField(1, "id", LongType()))
ROWS = pa.table({"id": list(range(10))})
HIDDEN = {"users": [CAROL], "accesses": [{"type": "select"}], "rowFilterInfo": {"filterExpr": "id < 3"}}
FEW = policy("few", {"database": ["db"], "table": ["*"]}, {}, policyType=2, rowFilterPolicyItems=[HIDDEN])


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal shows of work of any length."""
    shown = io.StringIO()
    monkeypatch.setattr(progress, "_BAR_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "console", lambda: Console(file=shown, force_terminal=True))
    return shown


@pytest.fixture
def hiding(served: Service) -> Iterator[None]:
    served.lake.set_policies([*standard_policies(), FEW])
    yield
    served.lake.set_policies(standard_policies())


def test_nothing_is_shown_without_a_terminal() -> None:
    assert progress.console() is None


def test_scans_and_appends_show_what_they_do(
    make: Make, alice: lakewarden.Connection, screen: io.StringIO
) -> None:
    table = alice.table(make(SCHEMA))
    table.append(ROWS)
    assert f"Writing {table.name}" in screen.getvalue() and "10 of 10" in screen.getvalue()
    for work in (table.scan("id > 3").to_arrow, table.scan().count, lambda: list(table.scan().to_batches())):
        screen.truncate(0)
        work()
        assert f"Reading {table.name}" in screen.getvalue() and "10 of 10" in screen.getvalue()


def test_bars_can_be_turned_off(make: Make, served: Service, screen: io.StringIO) -> None:
    table = lakewarden.connect(served.url, served.token("alice"), progress=False).table(make(SCHEMA))
    table.append(ROWS)
    table.scan().to_arrow()
    assert screen.getvalue() == ""


@pytest.mark.usefixtures("hiding")
def test_a_bar_does_not_tell_of_rows_that_a_policy_hides(
    make: Make, served: Service, screen: io.StringIO
) -> None:
    name = make(SCHEMA)
    lakewarden.connect(served.url, served.token("alice"), progress=False).table(name).append(ROWS)
    engine = lakewarden.connect(served.url, served.token(CAROL), engine_token=served.engine_token())
    assert engine.table(name).scan().to_arrow().num_rows == 3
    assert (engine.table(name).scan().count(), screen.getvalue()) == (3, "")


@pytest.mark.nightly
@pytest.mark.parametrize("filter", [None, "id > 7", "id > 1000000"])
def test_each_row_of_the_files_is_counted_once(
    make: Make, alice: lakewarden.Connection, monkeypatch: pytest.MonkeyPatch, filter: str | None
) -> None:
    table, done = alice.table(make(SCHEMA)), list[int]()
    table.append(ROWS)
    monkeypatch.setattr(progress.Progress, "advance", lambda self, rows: done.append(rows))
    scan = table.scan(filter)
    list(scan.to_batches())
    assert sum(done) == sum(each.records for each in scan._plan().files)
