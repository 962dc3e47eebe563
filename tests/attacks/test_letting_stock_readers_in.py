"""Who lets standard readers in gives keys out of the reach of the engine's checks: that takes `unprotect`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate, SetPropertiesUpdate, TableUpdate
from pyiceberg.types import LongType, NestedField, StringType

from catalog.tables.drafts import NewTable
from catalog.writes.new_files import FileCommit
from policy.errors import NotAuthorized, PropertyInvalid
from tests.attacks.test_dropping_protection import DAVE, grant, make_vault
from tests.support.attacker import OWN_ROWS, Attacker
from tests.support.lake import Lake, policy, tables
from tests.support.tables import named

STOCK = {"encryption.stock-readers": "true"}
KEYS = policy("dave-keys", {"key": ["lakewarden"]}, {DAVE: ["use", "release"]})
RIGHTS = ["select", "update", "alter", "create", "drop"]


@pytest.fixture
def vault(lake: Lake) -> Attacker:
    """An encrypted table that Dave may alter, its keys included, without `unprotect`."""
    attacker = make_vault(lake)
    grant(lake, policy("dave", tables("bobs"), {DAVE: RIGHTS}), KEYS)
    return attacker


def let(lake: Lake) -> None:
    """Dave may drop protection."""
    grant(lake, policy("dave", tables("bobs"), {DAVE: [*RIGHTS, "unprotect"]}), KEYS)


def renamed(vault: Attacker) -> list[TableUpdate]:
    """A change of the schema."""
    metadata = vault.loaded().metadata
    first, *others = metadata.schema().fields
    fields = [NestedField(first.field_id, "renamed", first.field_type, required=first.required), *others]
    number = metadata.current_schema_id + 1
    return [
        AddSchemaUpdate(schema=Schema(*fields, schema_id=number)),
        SetCurrentSchemaUpdate(schema_id=-1),
    ]


CHANGES: dict[str, Callable[[Attacker], object]] = {
    "alter": lambda vault: vault.commit(SetPropertiesUpdate(updates=STOCK)),
    "option": lambda vault: vault.commit(
        SetPropertiesUpdate(updates={"option.encryption.stock-readers": "true"})
    ),
    "with a change of the schema": lambda vault: vault.commit(
        *renamed(vault), SetPropertiesUpdate(updates=STOCK)
    ),
    "create": lambda vault: vault.catalog.create_table("bobs.new", OWN_ROWS.schema, properties=STOCK),
    "staged": lambda vault: vault.catalog.create_table_transaction(
        "bobs.new", OWN_ROWS.schema, properties=STOCK
    ),
    "staged write": lambda vault: vault.lake.services.writes.begin_staged(
        vault.lake.caller(DAVE),
        NewTable(named("new", "bobs"), Schema(NestedField(1, "id", LongType())), None, properties=STOCK),
    ),
}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("change", CHANGES)
def test_stock_readers_let_in_without_unprotect(vault: Attacker, change: str) -> None:
    before = vault.loaded().governed
    with pytest.raises(NotAuthorized, match="unprotect"):
        CHANGES[change](vault)
    assert vault.loaded().governed == before
    assert not vault.catalog.table_exists("bobs.new")
    let(vault.lake)
    CHANGES[change](vault)


def test_a_staged_write_is_committed_only_by_who_still_may(vault: Attacker) -> None:
    let(vault.lake)
    services, dave = vault.lake.services, vault.lake.caller(DAVE)
    new = NewTable(named("new", "bobs"), Schema(NestedField(1, "s", StringType())), None, properties=STOCK)
    session = services.writes.begin_staged(dave, new)
    assert session.stock_keys
    grant(vault.lake, policy("dave", tables("bobs"), {DAVE: RIGHTS}), KEYS)
    with pytest.raises(NotAuthorized, match="unprotect"):
        services.writes.commit(dave, session.id, FileCommit("append", ()))


def test_turning_it_off_takes_no_more_than_alter(vault: Attacker) -> None:
    let(vault.lake)
    vault.commit(SetPropertiesUpdate(updates=STOCK))
    grant(vault.lake, policy("dave", tables("bobs"), {DAVE: RIGHTS}), KEYS)
    vault.commit(SetPropertiesUpdate(updates={"encryption.stock-readers": "false"}))
    assert not vault.loaded().governed.spec.stock_readers


def test_stock_readers_of_orc_are_not_let_in(vault: Attacker) -> None:
    """They have keys of the KMS endpoint's own; what Parquet's key tools want means nothing to them."""
    let(vault.lake)
    orc = {**STOCK, "write.format.default": "orc"}
    with pytest.raises(PropertyInvalid, match="keys from the KMS endpoint"):
        vault.catalog.create_table("bobs.new", OWN_ROWS.schema, properties=orc)
    vault.commit(SetPropertiesUpdate(updates=STOCK))
    with pytest.raises(PropertyInvalid, match="keys from the KMS endpoint"):
        vault.commit(SetPropertiesUpdate(updates={"write.format.default": "orc"}))
