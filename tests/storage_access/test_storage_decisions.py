"""What a caller's client can touch in the object store for a table, decided from what the catalog knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import update

from catalog.authorization.authorizer import Caller
from catalog.authorization.table_access import TableAccess
from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from catalog.db.engine import read, write
from catalog.db.schema import lw_seal
from catalog.planning.standard import StandardPlanner
from catalog.planning.standard_request import StandardScan
from catalog.state import seals
from catalog.state.seals import SealState
from catalog.storage_access.decision import StorageAccess, StorageDecisions
from policy.errors import NotAuthorized
from policy.location.location import Location
from tests.support.lake import ALICE, BOB, CAROL, Lake, open_lake, policy, standard_policies, tables
from tests.support.tables import ENCRYPTED, append_files, fresh, make, name_of

READERS = {"denied": "policy-no-match", "masked": "mask", "filtered": "row-filter"}
SELECT = [{"type": "select", "isAllowed": True}]


def _policies() -> list[dict[str, object]]:
    every = {"database": ["db"], "table": ["*"]}
    mask = {"users": ["masked"], "accesses": SELECT, "dataMaskInfo": {"dataMaskType": "MASK_NULL"}}
    rows = {"users": ["filtered"], "accesses": SELECT, "rowFilterInfo": {"filterExpr": "id < 2"}}
    return [
        *standard_policies(),
        policy("read", tables("db"), {"masked": ["select"], "filtered": ["select"]}),
        policy("id", every | {"column": ["id"]}, {"denied": ["select"]}),
        policy("mask", every | {"column": ["name"]}, {}, policyType=1, dataMaskPolicyItems=[mask]),
        policy("rows", every, {}, policyType=2, rowFilterPolicyItems=[rows]),
    ]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with open_lake(
        tmp_path_factory.mktemp("lake"), policies=_policies(), S3__SIGNING="true", S3__REGION="us-east-1"
    ) as opened:
        opened.catalog().create_namespace("db")
        yield opened


def _decisions(lake: Lake) -> StorageDecisions:
    services = lake.services
    return StorageDecisions(services, services.access, services.standard_planner)


def _access(lake: Lake, table: object, user: str = ALICE, engine: str | None = None) -> StorageAccess:
    return _decisions(lake).load(lake.caller(user, engine), table, "table.sign")  # type: ignore[arg-type]


def _rule(decision: object) -> str:
    return "" if decision.allowed else decision.reasons[0].rule  # type: ignore[attr-defined]


def test_files_of_retained_snapshots_can_be_read(lake: Lake) -> None:
    table = make(lake)
    name = name_of(table)
    first, second = (append_files(lake, name)[0] for _ in range(2))
    metadata = lake.catalog().load_table(str(name)).metadata
    access = _access(lake, name, CAROL)
    named = [first, second, lake.catalog().load_table(str(name)).metadata_location]
    named += [snapshot.manifest_list for snapshot in metadata.snapshots]
    assert all(access.decide_read(Location.parse(each)).allowed for each in (*named, *access.named.metadata))
    stray = Location.parse(metadata.location).child("data", "stray.parquet")
    assert _rule(access.decide_read(stray)) == "named-files"
    lists = lake.catalog().load_table(str(name)).metadata.metadata_log
    assert {_rule(access.decide_read(Location.parse(each.metadata_file))) for each in lists} == {
        "named-files"
    }
    assert _rule(access.decide_read(Location.parse("file:///etc/passwd"))) == "allowed-paths"


def test_readers_write_nothing(lake: Lake) -> None:
    name = name_of(make(lake))
    place = Location.parse(lake.catalog().load_table(str(name)).metadata.location).child(
        "data", "new.parquet"
    )
    carol, alice = _access(lake, name, CAROL), _access(lake, name)
    asked = ("decide_create", "decide_delete", "decide_list")
    assert {_rule(getattr(carol, each)(place)) for each in asked} == {"write-locations"}
    assert {_rule(getattr(alice, each)(place)) for each in (*asked, "decide_look")} == {""}
    assert _rule(carol.decide_look(place)) == "named-files"
    assert {_rule(alice.decide_create(each)) for each in alice.write_locations} == {"write-locations"}


def test_no_named_file_is_overwritten_or_deleted(lake: Lake) -> None:
    table = make(lake)
    name = name_of(table)
    append_files(lake, name)
    access = _access(lake, name)
    contents = [path for each in access.named.contents for path in each.live]
    named = [Location.parse(each) for each in (*contents, *access.named.metadata, *access.named.log)]
    assert len(named) > 4
    assert {_rule(access.decide_create(each)) for each in named} == {"retained-file"}
    assert {_rule(access.decide_delete(each)) for each in named} == {"retained-file"}


def test_nothing_is_deleted_where_another_table_can_be_read_from(lake: Lake) -> None:
    name = name_of(make(lake))
    location = lake.catalog().load_table(str(name)).metadata.location
    stray = Location.parse(location).child("data", "stray.parquet")
    assert _access(lake, name).decide_delete(stray).allowed
    make(lake, properties={"read.allowed.data.paths": f"{location}/data"})
    assert _rule(_access(lake, name).decide_delete(stray)) == "shared-location"


def test_another_table_below_a_write_location_is_left_alone(lake: Lake) -> None:
    name = name_of(make(lake))
    outer = Location.parse(lake.catalog().load_table(str(name)).metadata.location)
    inner = outer.child("data", "inner")
    nested = name_of(make(lake, location=inner.canonical))
    access, asked = _access(lake, name), ("decide_create", "decide_look", "decide_delete", "decide_list")
    refused = {_rule(getattr(access, each)(inner.child("x"))) for each in asked}
    assert refused == {"write-locations", "named-files"}
    assert _rule(access.decide_list(outer)) == "write-locations"
    assert access.decide_create(outer.child("data", "x")).allowed
    assert _access(lake, nested).decide_create(inner.child("x")).allowed


def test_gc_enabled_keeps_files(lake: Lake) -> None:
    name = name_of(make(lake, properties={"gc.enabled": "false"}))
    stray = Location.parse(lake.catalog().load_table(str(name)).metadata.location).child("data", "stray")
    assert _rule(_access(lake, name).decide_delete(stray)) == "gc-enabled"


@pytest.mark.parametrize(("user", "rule"), READERS.items())
def test_users_who_cannot_see_everything_touch_nothing(lake: Lake, user: str, rule: str) -> None:
    name = name_of(make(lake))
    with pytest.raises(NotAuthorized) as refusal:
        _access(lake, name, user)
    assert refusal.value.rule == rule
    with pytest.raises(NotAuthorized):
        _access(lake, name, BOB)
    with pytest.raises(NoSuchTable):
        _access(lake, fresh())
    if user != "denied":
        assert _access(lake, name, user, "spark").write_locations == ()


def test_encrypted_tables_by_the_rule_of_standard_clients(lake: Lake) -> None:
    name = name_of(make(lake, properties=ENCRYPTED))
    with pytest.raises(NotAuthorized, match="standard-client"):
        _access(lake, name)
    opened = name_of(make(lake, properties=ENCRYPTED | {"encryption.standard-clients": "load"}))
    assert _access(lake, opened).write_locations == ()
    assert _access(lake, opened, ALICE, "spark").write_locations


def test_planned_files_alone_where_the_catalog_plans(lake: Lake) -> None:
    table = make(lake, properties={"read.scan-planning-mode": "server"})
    name = name_of(table)
    old, new = (Location.parse(append_files(lake, name)[0]) for _ in range(2))
    first, _ = lake.catalog().load_table(str(name)).metadata.snapshots
    planner = lake.services.standard_planner
    assert {_rule(_access(lake, name).decide_read(each)) for each in (old, new)} == {"planned-files"}
    planner.plan(lake.caller(ALICE), name, StandardScan(snapshot_id=first.snapshot_id))
    access = _access(lake, name)
    assert access.decide_read(old).allowed
    assert _rule(access.decide_read(new)) == "planned-files"
    assert _rule(_access(lake, name, CAROL).decide_read(old)) == "planned-files"
    assert all(access.decide_read(Location.parse(each)).allowed for each in access.named.metadata)
    planner.plan(lake.caller(CAROL), name, StandardScan())
    assert {_rule(_access(lake, name, CAROL).decide_read(each)) for each in (old, new)} == {""}


def test_what_is_remembered_follows_each_commit(lake: Lake) -> None:
    name = name_of(make(lake))
    services = lake.services
    decisions = StorageDecisions(
        services,
        TableAccess(services.loader, services.inspector, services.authorizer, services.standard_clients),
        StandardPlanner(services, services.access),
    )
    files = []
    for _ in range(3):
        files.append(Location.parse(append_files(lake, name)[0]))
        access = decisions.load(replace(lake.caller(CAROL), standard=True), name, "table.sign")
        assert all(access.decide_read(each).allowed for each in files)


def test_a_judgement_goes_by_groups_names_time_and_namespaces(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users who got a whole table are judged anew once any of these is another one."""
    name, target = name_of(make(lake)), fresh()
    place = {"database": ["db"], "table": [name.name], "column": ["name"]}
    schedule = {"startTime": "2031/01/01 00:00:00", "timeZone": "UTC"}
    denied = {"denyPolicyItems": [{"users": [CAROL], "accesses": SELECT}]}
    of_group = {"denyPolicyItems": [{"groups": ["hr"], "accesses": SELECT}]}
    renamed = policy("renamed", place | {"table": [target.name]}, {}, **denied)
    later = policy("later", place, {}, validitySchedules=[schedule], **denied)
    carol = lake.caller(CAROL)
    of_hr = replace(carol, principal=replace(carol.principal, groups=frozenset({"hr"})))
    lake.catalog().create_namespace_if_not_exists("vaults")
    vault = name_of(make(lake, fresh("vaults"), properties=ENCRYPTED))
    try:
        lake.set_policies([*_policies(), policy("hr", place, {}, **of_group), renamed])
        _decisions(lake).load(carol, name, "table.sign")
        _require_refused(lake, of_hr, name)
        lake.set_policies([*_policies(), renamed])
        _decisions(lake).load(carol, name, "table.sign")
        lake.catalog().rename_table(str(name), str(target))
        _require_refused(lake, carol, target)
        lake.set_policies([*_policies(), later])
        lake.catalog().rename_table(str(target), str(name))
        _decisions(lake).load(carol, name, "table.sign")
        monkeypatch.setattr(lake.services.authorizer, "_now", lambda: datetime(2032, 1, 1, tzinfo=UTC))
        _require_refused(lake, carol, name)
    finally:
        lake.set_policies(_policies())
    lake.catalog().update_namespace_properties("vaults", updates={"encryption.standard-clients": "load"})
    _access(lake, vault)
    lake.catalog().update_namespace_properties("vaults", removals={"encryption.standard-clients"})
    _require_refused(lake, lake.caller(ALICE), vault)


def _require_refused(lake: Lake, caller: Caller, name: TableName) -> None:
    with pytest.raises(NotAuthorized):
        _decisions(lake).load(caller, name, "table.sign")


def test_metadata_is_known_as_that_of_its_table_alone(lake: Lake) -> None:
    one, other = (lake.services.loader.load(name_of(make(lake))) for _ in range(2))
    with read(lake.services.engine) as connection:
        found = [seals.was_sealed(connection, one.record.id, each.metadata_location) for each in (one, other)]
    assert found == [True, False]
    assert one.seal is not None
    with write(lake.services.engine) as connection:
        abandoned = update(lw_seal).where(lw_seal.c.id == one.seal.id).values(state=SealState.ABANDONED)
        connection.execute(abandoned)
        assert not seals.was_sealed(connection, one.record.id, one.metadata_location)
