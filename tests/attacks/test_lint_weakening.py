"""Where the catalog asks for the right to unprotect a table, lint has told of it before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from catalog.reports.table_facts import facts_of
from policy.errors import NotAuthorized
from policy.principal import Principal
from policy.sql_lint import LintContext, lint
from tests.support.attacker import Attacker
from tests.support.lake import ALICE, MASTER_KEY, Lake, policy, standard_policies, tables

DAVE: Final = "dave"
VAULT: Final = "bobs.vault"
#: Dave may do all of this, and drop no protection.
MAY: Final = ["select", "update", "alter"]


def _vault(lake: Lake, properties: dict[str, str]) -> Attacker:
    fields = (NestedField(1, "id", StringType()), NestedField(2, "s", StringType()))
    lake.catalog(ALICE).create_namespace("bobs")
    lake.catalog(ALICE).create_table(VAULT, Schema(*fields), properties=properties)
    keys = policy("keys", {"key": ["*"]}, {DAVE: ["use"]})
    lake.set_policies([*standard_policies(), policy("dave", tables("bobs"), {DAVE: MAY}), keys])
    return Attacker(lake, VAULT, DAVE)


def _lint_allows(lake: Lake, vault: Attacker, *changes: str) -> bool:
    """Whether lint allows the last of these changes of the table as it is."""
    facts = facts_of(vault.loaded())
    context = LintContext(
        Principal(DAVE),
        lake.services.policies.current(),
        lake.services.policies.encryption(),
        datetime.now(UTC),
        catalog="lake",
        master_key_id=MASTER_KEY,
        known=lambda _: facts,
    )
    told = lint("; ".join(f"ALTER TABLE lake.{VAULT} {each}" for each in changes), "spark", context)
    assert all(each.decision.allowed for each in told[:-1])
    return told[-1].decision.allowed


def _set(name: str, value: str) -> str:
    return f"SET TBLPROPERTIES ('{name}'='{value}')"


def _rename(vault: Attacker, old: str, new: str) -> None:
    with vault.catalog.load_table(VAULT).update_schema() as update:
        update.rename_column(old, new)


def test_a_name_that_another_column_has_now(lake: Lake) -> None:
    columns = ("encryption.columns", f"{MASTER_KEY}:s")
    vault = _vault(lake, dict([columns]))
    renames = "RENAME COLUMN s TO z", "RENAME COLUMN id TO s"
    assert not _lint_allows(lake, vault, *renames, _set(*columns))
    _rename(vault, "s", "z")
    _rename(vault, "id", "s")
    with pytest.raises(NotAuthorized, match="unprotect"):
        vault.commit_properties(dict([columns]))


def test_the_name_that_a_column_has_now(lake: Lake) -> None:
    vault = _vault(lake, {"encryption.columns": f"{MASTER_KEY}:s"})
    columns = ("encryption.columns", f"{MASTER_KEY}:z")
    assert _lint_allows(lake, vault, "RENAME COLUMN s TO z", _set(*columns))
    _rename(vault, "s", "z")
    vault.commit_properties(dict([columns]))


def test_digests_that_a_table_has_by_its_format(lake: Lake) -> None:
    vault = _vault(lake, {"write.format.default": "orc"})
    encrypted, never = ("encryption.mechanism", "envelope"), ("encryption.verify-digest", "never")
    assert not _lint_allows(lake, vault, _set(*encrypted), _set(*never))
    vault.commit_properties(dict([encrypted]))
    with pytest.raises(NotAuthorized, match="unprotect"):
        vault.commit_properties(dict([never]))
