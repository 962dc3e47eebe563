"""Policies that come into force while a scan is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from catalog.audit import trail as audit
from catalog.audit.store import ChainWriter
from catalog.audit.trail import AuditTrail
from catalog.keyring.keyring import Keyring
from catalog.planning.plan import Plan, Planner
from catalog.planning.request import ScanRequest
from policy.errors import NotAuthorized, StateUnavailable
from tests.support.lake import ALICE, CAROL, Lake, open_lake, policy, standard_policies
from tests.support.tables import ENCRYPTED, append_files, make, name_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with open_lake(tmp_path) as lake:
        lake.catalog().create_namespace("db")
        yield lake


@pytest.fixture
def table(lake: Lake) -> Table:
    """An encrypted table with a file."""
    table = make(lake, properties=ENCRYPTED)
    append_files(lake, name_of(table))
    return table


def _plan(lake: Lake, table: Table) -> Plan:
    return lake.services.planner.plan(lake.caller(CAROL, "spark"), name_of(table), ScanRequest())


def _masked(table: Table) -> Mapping[str, Any]:
    item = {
        "users": [CAROL],
        "accesses": [{"type": "select", "isAllowed": True}],
        "dataMaskInfo": {"dataMaskType": "MASK_HASH"},
    }
    resources = {"database": ["db"], "table": [table.name()[-1]], "column": ["name"]}
    masking = policy("mask", resources, {}, policyType=1, dataMaskPolicyItems=[item])
    return {name: value for name, value in masking.items() if name != "policyItems"}


def _without_carol() -> list[Mapping[str, Any]]:
    return [each for each in standard_policies() if each["name"] != "carol-reads"]


def _once(action: Callable[[], None], then: Callable[..., Any]) -> Callable[..., Any]:
    """`then`, with something done before the first time."""
    left = [action]

    def call(*arguments: Any, **named: Any) -> Any:
        if left:
            left.pop()()
        return then(*arguments, **named)

    return call


def test_a_mask_that_goes_together_with_the_grant_still_counts(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, Carol sees the column masked; afterwards not at all; at no time in plaintext."""
    lake.set_policies([*standard_policies(), _masked(table)])
    revoke = _once(lambda: lake.set_policies(_without_carol()), AuditTrail.append)
    monkeypatch.setattr(AuditTrail, "append", revoke)
    with pytest.raises(NotAuthorized) as refused:
        _plan(lake, table)
    assert refused.value.rule == "mask"


def test_a_right_that_is_taken_away_while_manifests_are_read_releases_no_key(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _plan(lake, table).header.transport is not None
    monkeypatch.setattr(Planner, "files", _once(lambda: lake.set_policies(_without_carol()), Planner.files))
    monkeypatch.setattr(Keyring, "scan_keys", lambda *_: pytest.fail("keys were released"))
    with pytest.raises(NotAuthorized):
        _plan(lake, table)


def test_a_plan_names_the_policies_that_decided_last(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = [*standard_policies(), policy("more", {"engine": ["*"]}, {"another": ["act"]})]
    monkeypatch.setattr(Planner, "files", _once(lambda: lake.set_policies(other), Planner.files))
    before = lake.services.policies.current().version
    version = _plan(lake, table).header.policy_version
    assert version == lake.services.policies.current().version != before


@pytest.mark.parametrize("failing", [1, 2], ids=["of the columns", "of the keys"])
def test_a_plan_is_not_answered_whose_record_fails_while_it_is_made(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    write, attempts = ChainWriter.write, count(1)

    def fail(writer: ChainWriter, written: Sequence[Any]) -> None:
        if next(attempts) == failing:
            raise StateUnavailable("The database does not answer.")
        write(writer, written)

    monkeypatch.setattr(audit, "_BATCH_RECORDS", 1)
    monkeypatch.setattr(ChainWriter, "write", fail)
    with pytest.raises(StateUnavailable, match="could not be recorded in the audit log"):
        lake.services.planner.plan(lake.caller(ALICE), name_of(table), ScanRequest())
    lake.services.planner.plan(lake.caller(ALICE), name_of(table), ScanRequest())
    assert next(attempts) > failing
