"""What the catalog encrypts under a table's key counts; a key that has done so often enough is refused."""

from __future__ import annotations

import pytest
from pyiceberg.expressions import EqualTo
from sqlalchemy import update

from catalog.base.identifiers import TableName
from catalog.db.engine import read, write
from catalog.db.schema import lw_key_invocations
from catalog.kms_server.store import Denial, KeySpec
from catalog.planning.request import ScanRequest
from catalog.state import invocations
from policy.errors import KeyNotUsable
from tests.support.lake import ALICE, Lake
from tests.support.table_keys import encrypted, peks, released, rewrap, rotate, versions
from tests.support.tables import ENCRYPTED, Engine, fresh, make, name_of

_BOUNDS = {"lower_bounds": {1: bytes(8)}, "upper_bounds": {1: bytes(8)}}


@pytest.fixture
def exact(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take uses one by one, so that as many are counted as there were."""
    monkeypatch.setattr(invocations, "_FIRST", 1)
    monkeypatch.setattr(invocations, "_LARGEST", 1)
    lake.reopen()


def counts(lake: Lake, name: TableName) -> dict[tuple[str, int], int]:
    """How often each version of a table's keys has encrypted, by master key id and version."""
    shown = lake.services.key_life.keys(lake.caller(ALICE), name)
    return {(each.pek.master_key_id, each.pek.version): each.invocations for each in shown}


def use_up(lake: Lake, name: TableName, but: int = 0) -> None:
    """Let every key of a table have encrypted as often as it may, but for some times."""
    mine = lw_key_invocations.c.key_id.in_([str(each.id) for each in peks(lake, name)])
    with write(lake.services.engine) as connection:
        connection.execute(update(lw_key_invocations).where(mine).values(counted=invocations.MOST - but))
    lake.reopen()


def test_what_is_sealed_under_a_key_counts(lake: Lake, exact: None) -> None:
    """The write's key; and of each file its data key and its bounds. What is opened does not."""
    name = encrypted(lake)
    assert counts(lake, name) == {("lakewarden", 1): 0}
    engine = Engine.begin(lake, name)
    assert counts(lake, name) == {("lakewarden", 1): 1}
    engine.append(engine.file(), engine.file(**_BOUNDS))
    assert counts(lake, name) == {("lakewarden", 1): 1 + 3}
    released(lake, name)
    lake.services.planner.plan(lake.caller(ALICE), name, ScanRequest(filter=EqualTo("id", 1)))
    assert counts(lake, name) == {("lakewarden", 1): 4}


def test_what_is_rewrapped_counts_for_the_later_version(lake: Lake, exact: None) -> None:
    name = encrypted(lake)
    engine = Engine.begin(lake, name)
    engine.append(engine.file(), engine.file(**_BOUNDS))
    rotate(lake, name)
    assert counts(lake, name) == {("lakewarden", 1): 4, ("lakewarden", 2): 0}
    assert rewrap(lake, name) == {"main": 2}
    assert counts(lake, name) == {("lakewarden", 1): 4, ("lakewarden", 2): 3}


def test_keys_of_columns_and_keys_for_stock_readers_count(lake: Lake, exact: None) -> None:
    lake.kms.create_master_key("pii")
    groups = {"encryption.columns": "pii:name", "encryption.stock-readers": "true"}
    name = name_of(make(lake, properties=ENCRYPTED | groups))
    engine = Engine.begin(lake, name)
    assert counts(lake, name) == {("lakewarden", 1): 2, ("pii", 1): 1}
    engine.append(engine.file(**_BOUNDS))
    assert counts(lake, name) == {("lakewarden", 1): 3, ("pii", 1): 2}


def test_a_table_that_comes_with_its_rows_counts_before_it_is_there(lake: Lake, exact: None) -> None:
    name = fresh()
    engine = Engine.stage(lake, name, properties=ENCRYPTED)
    engine.append(engine.file())
    assert counts(lake, name) == {("lakewarden", 1): 2}


def test_a_key_that_has_encrypted_often_enough_is_refused_until_it_is_rotated(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    before = released(lake, name)
    use_up(lake, name, but=1)
    engine = Engine.begin(lake, name)
    with pytest.raises(KeyNotUsable, match="key rotate") as refusal:
        engine.append(engine.file())
    assert refusal.value.rule == "key-invocations"
    with pytest.raises(KeyNotUsable):
        Engine.begin(lake, name)
    assert released(lake, name) == before, "what is there stays readable"
    rotate(lake, name)
    engine.append(engine.file())
    assert sorted(versions(lake, name).values()) == [1, 2]
    assert rewrap(lake, name) == {"main": 1}


@pytest.mark.nightly
def test_a_rewrap_under_a_key_that_is_used_up_is_refused_and_nothing_is_lost(lake: Lake) -> None:
    name = encrypted(lake, files=2)
    rotate(lake, name)
    Engine.begin(lake, name)
    before = released(lake, name)
    use_up(lake, name)
    with pytest.raises(KeyNotUsable, match="key rotate"):
        rewrap(lake, name)
    assert released(lake, name) == before
    rotate(lake, name)
    assert rewrap(lake, name) == {"main": 2}
    assert released(lake, name) == before


def test_keys_of_the_kms_endpoint_count(lake: Lake) -> None:
    made = lake.services.endpoint_keys.create(KeySpec("counted", 256, None, {}, Denial.ERROR), ALICE)
    with read(lake.services.engine) as connection:
        found = invocations.counted(connection, [made.wrapping.id])
    assert found == {(made.wrapping.id, 1): 1_024}
