"""Definer views: who reads tables through them, and whose permissions decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import pytest

from catalog.authorization.authorizer import Caller
from catalog.authorization.definers import CATALOG_NAME
from catalog.authorization.user_deletion import delete_user
from catalog.base.errors import CommitConflict, NoSuchTable, NoSuchView
from catalog.base.identifiers import TableName
from catalog.planning.request import ScanRequest
from catalog.tables.definer_views import ThroughView
from catalog.tables.views import ViewDefinition
from policy.errors import NotAuthorized, PropertyInvalid, RequestInvalid
from policy.principal import Principal
from policy.sql_lint.view_text import tables_of
from tests.support.delete_commits import EQUALITY, DeleteCommit
from tests.support.lake import ALICE, BOB, CAROL, Lake, open_lake, policies_without_code, policy, tables
from tests.support.tables import SCHEMA, Engine, name_of, records

ENGINE = "spark"
DEFINER = {"security": "definer"}


@dataclass
class Door:
    """Carol's view of a table of Alice's; Bob may read the view."""

    lake: Lake
    view: TableName
    table: TableName

    def new(self, sql: str = "", **more: Any) -> ViewDefinition:
        text = sql or "SELECT id, name FROM t WHERE id > 1"
        made = ViewDefinition(
            self.view, SCHEMA, text, None, self.table.namespace, {CATALOG_NAME: "lake"}, DEFINER
        )
        return replace(made, **more)

    def let(self, *others: dict[str, Any], **rights: list[str]) -> None:
        """Give rights on the table, and set other policies; Bob always reads the view."""
        database = self.view.database
        view = policy(
            "view", tables(database) | {"table": [self.view.name]}, {BOB: ["select"], CAROL: ["all"]}
        )
        table = policy("table", tables(database) | {"table": [self.table.name]}, dict(rights))
        self.lake.set_policies([*policies_without_code(), view, table, *others])

    def alter(self, user: str, kind: str) -> None:
        """Put a mask on `name`, or a row filter on the table, for a user; Carol reads the table."""
        database, table = self.table.database, self.table.name
        seen = policy("view", tables(database) | {"table": ["v"]}, {BOB: ["select"], CAROL: ["all"]})
        on_table = policy("table", tables(database) | {"table": [table]}, {CAROL: ["select"]})
        rule: dict[str, Any] = {"users": [user], "accesses": [{"type": "select", "isAllowed": True}]}
        where: dict[str, Any] = {"database": [database], "table": [table]}
        if kind == "mask":
            items = [rule | {"dataMaskInfo": {"dataMaskType": "MASK_HASH"}}]
            change = policy("m", where | {"column": ["name"]}, {}, policyType=1, dataMaskPolicyItems=items)
        else:
            items = [rule | {"rowFilterInfo": {"filterExpr": "id < 5"}}]
            change = policy("f", where, {}, policyType=2, rowFilterPolicyItems=items)
        self.lake.set_policies([*policies_without_code(), seen, on_table, change | {"policyItems": []}])

    def reader(self, user: str = BOB) -> Caller:
        return self.lake.caller(user, ENGINE)

    def through(self, **other: Any) -> ThroughView:
        found = self.lake.services.views._find(self.view)
        assert found is not None
        return replace(ThroughView(self.view, found.id, found.version, self.table), **other)

    def plan(self, caller: Caller | None = None, *, request: ScanRequest | None = None, **other: Any) -> Any:
        asked = ScanRequest(columns=("id", "name")) if request is None else request
        return self.lake.services.definer_views.plan(caller or self.reader(), self.through(**other), asked)

    def refused(self, caller: Caller | None = None, **other: Any) -> str:
        """The rule that refuses a plan."""
        with pytest.raises(NotAuthorized) as refusal:
            self.plan(caller, **other)
        return str(refusal.value.rule)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog with an identity provider, which is not asked for anything."""
    corp = {"ISSUER": "https://login.example", "AUDIENCE": "lake"}
    settings = {f"IDENTITY__ISSUERS__CORP__{name}": value for name, value in corp.items()}
    with open_lake(tmp_path_factory.mktemp("lake"), **settings) as opened:
        yield opened


@pytest.fixture
def door(lake: Lake) -> Iterator[Door]:
    namespace = f"n{uuid4().hex[:10]}"
    lake.services.namespaces.create(lake.caller(ALICE), (namespace,), {})
    lake.catalog().create_table((namespace, "t"), SCHEMA)
    made = Door(lake, TableName((namespace,), "v"), TableName((namespace,), "t"))
    made.let(**{CAROL: ["select"]})
    lake.services.tokens.issue(Principal(CAROL), "user", None)
    lake.services.views.create(lake.caller(CAROL), made.new())
    yield made


def test_a_table_is_read_with_the_permissions_of_the_definer(door: Door) -> None:
    services, bob = door.lake.services, door.reader()
    for read in (
        lambda: services.access.load(bob, door.table),
        lambda: services.planner.plan(bob, door.table, ScanRequest()),
    ):
        with pytest.raises(NotAuthorized):
            read()
    plan = door.plan()
    assert (plan.header.principal, plan.header.columns) == (BOB, ("id", "name"))
    assert services.definer_views.load(bob, door.through()).name == str(door.table)


def test_an_error_for_an_unknown_column_tells_a_reader_of_the_view_no_column(door: Door) -> None:
    request = ScanRequest(columns=("nam",))
    with pytest.raises(RequestInvalid, match="Did you mean 'name'"):
        door.lake.services.planner.plan(door.lake.caller(CAROL, ENGINE), door.table, request)
    with pytest.raises(RequestInvalid) as told:
        door.plan(request=request)
    assert "name'" not in str(told.value)


def test_the_record_names_reader_and_definer(door: Door) -> None:
    caller = door.reader()
    door.plan(caller)
    door.let()
    refused = door.reader()
    assert door.refused(refused) == "policy-no-match"
    for each, allowed in ((caller, True), (refused, False)):
        found = [record for record in records(door.lake, each) if record.resource == str(door.table)]
        assert found and {record.principal for record in found} == {BOB}
        assert {record.allowed for record in found} == {allowed}
        told = f"Decided for {CAROL}, the definer of the view {door.view}."
        assert all(told in {reason.detail for reason in record.reasons} for record in found)


def test_only_an_engine_opens_the_door_in_which_the_reader_runs_no_code(door: Door) -> None:
    assert door.refused(door.lake.caller(BOB)) == "view-engine"
    door.plan()
    code = policy("code", {"engine": [ENGINE]}, {BOB: ["code"]})
    kept = policy("view", tables(door.view.database), {BOB: ["select"], CAROL: ["all"]})
    door.lake.set_policies([*policies_without_code(), kept, code])
    assert door.refused() == "view-engine"


@pytest.mark.parametrize(
    ("undo", "rule"),
    [
        (lambda door: door.let(), "policy-no-match"),
        (lambda door: door.lake.set_policies(policies_without_code()), "policy-no-match"),
        (lambda door: _revoke(door.lake, CAROL), "view-definer"),
        (
            lambda door: door.lake.services.views.replace(door.lake.caller(CAROL), door.new(properties={})),
            "view-text",
        ),
        (
            lambda door: door.lake.services.views.replace(
                door.lake.caller(CAROL), door.new("SELECT id, name FROM t2")
            ),
            "view-text",
        ),
    ],
    ids=["definer's SELECT", "reader's SELECT", "definer's tokens", "security", "text"],
)
def test_what_is_taken_away_ends_the_view_with_the_next_request(
    door: Door, undo: Callable[[Door], Any], rule: str
) -> None:
    door.plan()
    undo(door)
    assert door.refused() == rule
    with pytest.raises(NotAuthorized):
        door.lake.services.definer_views.load(door.reader(), door.through())


def _revoke(lake: Lake, user: str) -> None:
    for token in lake.services.tokens.list():
        if token.principal.name == user:
            lake.services.tokens.revoke(token.id)


def test_the_engine_has_read_the_text_that_is_stored(door: Door) -> None:
    views, carol, before = door.lake.services.views, door.lake.caller(CAROL), door.through()
    for version in (0, 2):
        with pytest.raises(CommitConflict):
            door.plan(version=version)
    views.drop(carol, door.view)
    everything = policy("all", tables(door.view.database), {CAROL: ["all"]})
    reads = policy("view", tables(door.view.database) | {"table": ["v"]}, {BOB: ["select"]})
    door.lake.set_policies([*policies_without_code(), everything, reads])
    views.create(carol, door.new())
    with pytest.raises(CommitConflict):
        door.plan(view_id=before.view_id)
    door.plan()
    other = TableName(door.table.namespace, "other")
    assert door.refused(table=other) == "view-text"
    reads = policy("b", tables(door.view.database), {BOB: ["select"]})
    door.lake.set_policies([*policies_without_code(), reads])
    with pytest.raises(NoSuchView):
        door.plan(view=TableName(door.view.namespace, "w"))


def test_a_view_in_the_text_is_no_table(door: Door) -> None:
    views, carol = door.lake.services.views, door.lake.caller(CAROL)
    everything = policy("all", tables(door.view.database), {CAROL: ["all"]})
    door.lake.set_policies([*policies_without_code(), everything])
    nested = replace(door.new("SELECT id, name FROM v"), name=TableName(door.view.namespace, "w"))
    views.create(carol, nested)
    with pytest.raises(NoSuchTable):
        made = views.load(carol, nested.name)
        door.plan(door.reader(CAROL), view=nested.name, view_id=made.id, version=1, table=door.view)
    with pytest.raises(RequestInvalid):
        views.replace(carol, door.new("SELECT id, name FROM v"))


def test_a_definer_who_is_no_current_user_reads_nothing(door: Door) -> None:
    services = door.lake.services
    services.principals.disable(CAROL)
    assert door.refused() == "view-definer"
    services.principals.disable(CAROL, disabled=False)
    door.plan()
    _revoke(door.lake, CAROL)
    of_an_engine = services.tokens.issue(Principal(CAROL), "engine", None)
    services.tokens.issue(Principal(BOB), "user", None)
    assert door.refused() == "view-definer"
    services.tokens.revoke(of_an_engine.id)
    # A user of an identity provider has no token of the catalog.
    services.principals.claimed(Principal(CAROL), "corp")
    door.plan()


def test_a_definer_reads_with_the_groups_of_now(door: Door) -> None:
    services, carol = door.lake.services, Principal(CAROL, frozenset({"staff"}))
    on_table = tables(door.table.database) | {"table": [door.table.name]}
    denied = policy(
        "suspended",
        on_table,
        {},
        denyPolicyItems=[{"groups": ["suspended"], "accesses": [{"type": "select", "isAllowed": True}]}],
    )
    door.let(denied, **{CAROL: ["select"]})
    services.principals.claimed(carol, "corp")
    door.plan()
    services.principals.claimed(Principal(CAROL, frozenset({"staff", "suspended"})), "corp")
    assert door.refused() == "policy-deny"
    services.principals.claimed(carol, "corp")
    door.plan()


@pytest.mark.parametrize("user", [BOB, CAROL])
@pytest.mark.parametrize("kind", ["mask", "row filter"])
def test_a_mask_or_row_filter_of_definer_or_reader_refuses(door: Door, user: str, kind: str) -> None:
    door.alter(user, kind)
    assert door.refused() == ("mask" if kind == "mask" else "row-filter")
    if kind == "mask":
        door.plan(request=ScanRequest(columns=("id",)))


def test_a_mask_of_the_reader_on_a_column_that_deletes_compare_refuses(door: Door) -> None:
    """Which rows are left tells of its values."""
    table = door.lake.catalog().load_table(str(door.table))
    engine = Engine.begin(door.lake, name_of(table))
    commit = DeleteCommit(door.lake.services, door.lake.caller(ALICE), engine.session)
    commit.add(engine.file(), EQUALITY, (SCHEMA.find_field("name").field_id,))
    commit.commit()
    read = ScanRequest(columns=("id",))
    door.plan(request=read)
    door.alter(BOB, "mask")
    assert door.refused(request=read) == "mask"


@pytest.mark.parametrize(
    "asked",
    [{"start_snapshot_id": 1}, {"changes": True}, {"files": frozenset({"file:/x"})}],
    ids=["appends", "changes", "files"],
)
def test_only_rows_of_a_snapshot_are_read_through_a_view(door: Door, asked: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid) as refusal:
        door.plan(request=ScanRequest(columns=("id",), **asked))
    assert refusal.value.rule == "view-scan"


def test_whoever_changes_the_text_or_the_rights_is_the_definer(door: Door) -> None:
    """Nobody gets the permissions of another user by editing a view."""
    views, alice = door.lake.services.views, door.lake.caller(ALICE)
    door.lake.services.tokens.issue(Principal(ALICE), "user", None)
    views.replace(alice, door.new(properties={**DEFINER, "team": "b"}))
    assert views._find(door.view).definer == CAROL
    for changed in (
        door.new("SELECT id, name FROM t"),
        door.new(summary={CATALOG_NAME: "lake", "spark.sql-configs": "{}"}),
        door.new(default_namespace=("x",)),
    ):
        views.replace(door.lake.caller(CAROL), door.new())
        assert views.replace(alice, changed).definer == ALICE
    views.replace(door.lake.caller(CAROL), door.new(properties={}))
    record = views.replace(alice, door.new())
    assert (record.definer, record.definer_rights) == (ALICE, True)


def test_only_the_definer_renames_a_view_with_definer_rights(door: Door) -> None:
    views, target = door.lake.services.views, TableName(door.view.namespace, "w")
    with pytest.raises(NotAuthorized) as refusal:
        views.rename(door.lake.caller(ALICE), door.view, target)
    assert refusal.value.rule == "definer-view"
    door.lake.set_policies(
        [*policies_without_code(), policy("carol", tables(door.view.database), {CAROL: ["all"]})]
    )
    views.rename(door.lake.caller(CAROL), door.view, target)
    assert views._find(target).definer_rights


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT f(id) AS id FROM lake.{table}",
        "SELECT mask_hash(name) AS name FROM lake.{table}",
        "SELECT lake.system.bucket(2, id) AS id FROM lake.{table}",
        "SELECT input_file_name() AS name FROM lake.{table}",
        "SELECT reflect('a', 'b') AS name FROM lake.{table}",
        "SELECT TRANSFORM (id) USING 'cat' AS (id) FROM lake.{table}",
        "SELECT * FROM spark_catalog.default.t",
        "SELECT * FROM global_temp.t",
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT * FROM IDENTIFIER('lake.' || 'a.b')",
        "SELECT * FROM lake.{table}.branch_x",
        "SELECT id, name FROM STREAM t",
        "SELECT id, name FROM lake.{table} JOIN stream t",
        "SELECT 1 AS id; SELECT 2 AS id",
        "DROP TABLE lake.{table}",
    ],
)
def test_a_text_that_is_not_understood_has_no_definer_rights(door: Door, text: str) -> None:
    views, sql = door.lake.services.views, text.format(table=door.table)
    with pytest.raises(RequestInvalid) as refusal:
        views.replace(door.lake.caller(CAROL), door.new(sql))
    assert refusal.value.rule == "view-text"
    views.replace(door.lake.caller(CAROL), door.new(sql, properties={}))


def test_names_without_the_catalog_are_those_of_the_view_s_own(door: Door) -> None:
    views, carol = door.lake.services.views, door.lake.caller(CAROL)
    unqualified = door.new("SELECT id, name FROM t")
    views.replace(carol, unqualified)
    door.plan()
    common = door.new("WITH t AS (SELECT 1 AS id, 'a' AS name) SELECT id, name FROM t")
    views.replace(carol, common)
    assert door.refused() == "view-text"
    for wrong in (
        replace(unqualified, default_catalog="spark_catalog"),
        replace(unqualified, default_namespace=()),
        replace(unqualified, summary={}),
    ):
        with pytest.raises(RequestInvalid):
            views.replace(carol, wrong)


@pytest.mark.parametrize(
    "text", ["SELECT id FROM `stream` s", "SELECT id FROM stream", "SELECT id FROM x.stream s"]
)
def test_a_table_can_have_the_name_of_a_keyword(text: str) -> None:
    (table,) = tables_of(text, "lake", ("x",), default_elsewhere=False)
    assert table == TableName(("x",), "stream")


def test_hints_name_no_tables() -> None:
    """They name tables of the query, by their aliases."""
    text = "SELECT /*+ BROADCAST(b), MERGE(x.b) */ id FROM x.t b"
    assert tables_of(text, "lake", (), default_elsewhere=False) == {TableName(("x",), "t")}


@pytest.mark.parametrize(
    "properties",
    [{"security": "DEFINER"}, {"security": ""}, {"Security": "definer"}, {" security": "definer"}],
)
def test_the_property_of_definer_rights_has_two_values(door: Door, properties: dict[str, str]) -> None:
    with pytest.raises(PropertyInvalid):
        door.lake.services.views.replace(door.lake.caller(CAROL), door.new(properties=properties))


def test_views_that_do_not_say_so_have_the_rights_of_their_readers(door: Door) -> None:
    views, carol = door.lake.services.views, door.lake.caller(CAROL)
    for properties in ({}, {"security": "invoker"}):
        views.replace(carol, door.new("SELECT f(id) AS id FROM t", properties=properties, summary={}))
        assert door.refused() == "view-text"


def test_a_definer_is_not_deleted(door: Door) -> None:
    """A later user of the name would lend their permissions."""
    services = door.lake.services
    with pytest.raises(RequestInvalid, match="definer views"):
        delete_user(services.engine, services.settings.identity, services.now(), CAROL)
    door.plan()


@pytest.mark.parametrize("act", ["create", "replace"])
def test_a_user_who_was_deleted_meanwhile_defines_no_view(door: Door, act: str) -> None:
    """Attack: a request that began before its user was deleted makes a view for a later user of the name."""
    services, dan = door.lake.services, door.lake.caller("dan")
    views, database = services.views, tables(door.view.database)
    door.let(policy("dan", database | {"table": [door.view.name]}, {"dan": ["all"]}))
    if act == "create":
        views.drop(door.lake.caller(CAROL), door.view)
    services.tokens.issue(Principal("dan"), "user", None)
    delete_user(services.engine, services.settings.identity, services.now(), "dan")
    with pytest.raises(RequestInvalid, match="knows no user 'dan'"):
        views.create(dan, door.new()) if act == "create" else views.replace(dan, door.new("SELECT 1 AS id"))
