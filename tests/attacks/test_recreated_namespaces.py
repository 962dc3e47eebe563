"""A namespace that is removed and made again, so that it protects its tables no longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.base.errors import CommitConflict
from catalog.base.identifiers import Namespace, TableName, table_name
from policy.errors import MetadataUnsealed, NotAuthorized
from tests.support.attacker import OWN_ROWS, Attacker, sql
from tests.support.lake import ALICE, Lake, open_lake, policy, standard_policies, tables

#: Nora can do everything in `db`, but drop protection.
NORA = "nora"
_ALL_BUT_UNPROTECT = ["select", "update", "create", "drop", "alter"]
_PROTECTING = {"lakewarden.unsealed": "forbid", "encryption.standard-clients": "refuse"}


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[Lake]:
    """A catalog that allows unsealed metadata, with a namespace that forbids it."""
    policies = [*standard_policies(), policy("nora", tables("db"), {NORA: _ALL_BUT_UNPROTECT})]
    with open_lake(tmp_path, policies=policies, UNSEALED_METADATA="allow") as lake:
        lake.catalog().create_namespace("db", _PROTECTING)
        yield lake


def forbids(lake: Lake) -> bool:
    return lake.services.loader.forbids_unsealed(table_name(["db"], "any"))


def test_dropped_and_made_again_without_unprotect(strict: Lake) -> None:
    """A dropped table would come back into a namespace that no longer protects it."""
    nora, alice = strict.catalog(NORA), strict.catalog(ALICE)
    with pytest.raises(NotAuthorized, match="unprotect"):
        nora.drop_namespace("db")
    assert forbids(strict)
    alice.drop_namespace("db")
    nora.create_namespace("db")
    assert not forbids(strict)
    nora.drop_namespace("db")


def test_dropped_while_it_is_protected(strict: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protection that is set once the drop was authorized would go without `unprotect`."""
    nora, alice = strict.catalog(NORA), strict.catalog(ALICE)
    alice.update_namespace_properties("db", removals=set(_PROTECTING))
    pointers = strict.services.pointers
    found = pointers.tables

    def protected_meanwhile(namespace: Namespace, limit: int) -> list[TableName]:
        alice.update_namespace_properties("db", updates=_PROTECTING)
        return found(namespace, limit=limit)

    with monkeypatch.context() as patched:
        patched.setattr(pointers, "tables", protected_meanwhile)
        with pytest.raises(CommitConflict, match="at the same time"):
            nora.drop_namespace("db")
    assert forbids(strict)
    assert nora.load_namespace_properties("db") == _PROTECTING
    alice.drop_namespace("db")


def test_removed_from_the_pointer_store_and_made_again(strict: Lake) -> None:
    """Only its tables' owner and the pointer store take part; nobody has `unprotect`."""
    alice, nora = strict.catalog(ALICE), strict.catalog(NORA)
    alice.create_table("db.mine", OWN_ROWS.schema).append(OWN_ROWS)
    attacker = Attacker(strict, "db.mine", NORA)
    sql(strict, "CREATE TABLE kept AS SELECT * FROM iceberg_tables WHERE table_namespace = 'db'")
    older = attacker.metadata.metadata_log[-1].metadata_file
    sql(strict, "DELETE FROM iceberg_tables WHERE table_namespace = 'db'")
    sql(strict, "DELETE FROM iceberg_namespace_properties WHERE namespace = 'db'")
    nora.create_namespace("db")
    sql(strict, "INSERT INTO iceberg_tables SELECT * FROM kept")
    attacker.point(older)
    assert nora.load_namespace_properties("db") == _PROTECTING
    with pytest.raises(MetadataUnsealed):
        attacker.plan()


def test_what_a_namespace_exposed_does_not_come_back_with_its_name(strict: Lake) -> None:
    alice, nora = strict.catalog(ALICE), strict.catalog(NORA)
    exposing = {"lakewarden.unsealed": "allow", "encryption.standard-clients": "load"}
    alice.update_namespace_properties("db", updates=exposing)
    sql(strict, "DELETE FROM iceberg_namespace_properties WHERE namespace = 'db'")
    nora.create_namespace("db")
    assert nora.load_namespace_properties("db") == {}
