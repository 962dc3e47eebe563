"""What was granted is on record whole, however wide the table is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from catalog.audit.records import MAX_REASONS
from catalog.audit.trail import AuditRecord
from catalog.authorization.authorizer import Authorizer
from catalog.planning.request import ScanRequest
from policy.errors import NotAuthorized
from policy.privileges.requests import AccessRequest, Resource
from tests.support.lake import ALICE, BOB, MASTER_KEY, Lake, open_lake
from tests.support.tables import ENCRYPTED, append_files, make, named, records

COLUMNS = 2 * MAX_REASONS


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    root: Path = tmp_path_factory.mktemp("lake")
    with open_lake(root) as lake:
        lake.catalog().create_namespace("db")
        yield lake


def _authorizer(lake: Lake) -> Authorizer:
    return lake.services.authorizer


def _details(found: list[AuditRecord]) -> list[str]:
    return [reason.detail for record in found for reason in record.reasons]


def test_keys_released_for_a_wide_table_are_on_record(lake: Lake) -> None:
    """Attack: ask for keys together with so many columns that the record has no room for the keys."""
    wide = named("wide")
    schema = Schema(*(NestedField(i, f"c{i}", LongType()) for i in range(1, COLUMNS + 1)))
    make(lake, wide, schema, properties=ENCRYPTED)
    append_files(lake, wide)
    caller = lake.caller(ALICE)
    lake.services.planner.plan(caller, wide, ScanRequest())
    details = _details(records(lake, caller))
    assert any(f"release on key {MASTER_KEY}" in detail for detail in details)
    assert any("more reasons were left out" in detail for detail in details)


def test_every_key_and_location_of_a_grant_is_on_record(lake: Lake) -> None:
    caller = lake.caller(ALICE)
    columns = [
        AccessRequest(caller.principal, Resource.column("db", "t", f"c{number}"), "select")
        for number in range(COLUMNS)
    ]
    keys = [AccessRequest(caller.principal, Resource.key(f"key-{number}"), "release") for number in range(40)]
    paths = [
        AccessRequest(caller.principal, Resource.storage(f"s3://b/{number}"), "rwstorage")
        for number in range(40)
    ]
    _authorizer(lake).require(caller, "table.plan", "db.t", [*columns, *keys, *paths])
    found = records(lake, caller)
    details = _details(found)
    for request in [*keys, *paths]:
        assert any(str(request.resource) + " to" in detail for detail in details)
    assert {(record.action, record.resource, record.allowed) for record in found} == {
        ("table.plan", "db.t", True)
    }
    assert details[-1] == f"{COLUMNS - MAX_REASONS} more reasons were left out."


def test_a_grant_that_fits_is_one_record(lake: Lake) -> None:
    caller = lake.caller(ALICE)
    requests = [
        AccessRequest(caller.principal, Resource.column("db", "t", "c"), "select"),
        AccessRequest(caller.principal, Resource.key("k"), "release"),
    ]
    _authorizer(lake).require(caller, "table.plan", "db.t", requests)
    (record,) = records(lake, caller)
    assert len(record.reasons) == 2


@pytest.mark.nightly
def test_a_refusal_is_one_record_that_counts_what_it_leaves_out(lake: Lake) -> None:
    """Attack: fill the trail with one request for very many keys, none of which is granted."""
    caller = lake.caller(BOB)
    keys = [AccessRequest(caller.principal, Resource.key(f"key-{number}"), "use") for number in range(500)]
    with pytest.raises(NotAuthorized):
        _authorizer(lake).require(caller, "table.create", "db.t", keys)
    (record,) = records(lake, caller)
    assert record.reasons[-1].detail == f"{500 - MAX_REASONS} more reasons were left out."


def test_a_request_for_nothing_is_refused(lake: Lake) -> None:
    caller = lake.caller(ALICE)
    with pytest.raises(NotAuthorized):
        _authorizer(lake).require(caller, "table.plan", "db.t", [])
    assert [record.allowed for record in records(lake, caller)] == [False]
