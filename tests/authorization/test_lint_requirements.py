"""Lint requires what the service requires: of each statement that runs an operation, the same requests.

The service's requests are taken where it decides them, for a user who is granted all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Any, Final, get_args

import pytest
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.maintenance.rewrites import RewriteRequest
from catalog.planning.request import ScanRequest
from catalog.service.services import Services
from catalog.tables.alter import Change, RemoveProperty, SetProperty
from catalog.tables.drafts import NewTable
from catalog.tables.partition_changes import AddPartitionField, SetSortOrder
from catalog.tables.ref_changes import DropRef
from catalog.tables.schema_changes import AddColumn, DropColumn, RenameColumn
from catalog.tables.views import ViewDefinition
from catalog.writes.new_files import FileCommit
from policy.errors import LakewardenError, RequestInvalid
from policy.identifiers import TableName
from policy.privileges.operations import On, required
from policy.privileges.requests import AccessRequest
from policy.sql_lint import StatementDecision, lint
from policy.sql_lint.parse import parse
from policy.sql_lint.statements import CreateView, DropView, Explain, NoPrivileges, Statement
from tests.support.ddl import context_of
from tests.support.lake import ALICE, MASTER_KEY, Lake, open_lake
from tests.support.tables import ENCRYPTED, SCHEMA, fresh, make
from tests.support.vectors import each_row

#: What needs what another statement needs, or nothing.
_WITHOUT_OPERATION: Final = {CreateView, DropView, Explain, NoPrivileges}


@dataclass(frozen=True)
class Case:
    """A statement and the operations that an engine runs for it.

    Attributes:
        sql: the statement; `T` is the table, `U` a name without a table.
        run: the operations.
        encrypted: whether the table is.
    """

    sql: str
    run: Callable[[Services, Caller, TableName, TableName], object]
    encrypted: bool = False


def _alter(*changes: Change) -> Callable[[Services, Caller, TableName, TableName], object]:
    return lambda services, caller, table, _: services.alterer.alter(caller, table, changes)


def _read(services: Services, caller: Caller, table: TableName, *columns: str) -> None:
    services.access.load(caller, table)
    services.planner.plan(caller, table, ScanRequest(columns=columns or None))


def _rewrite(services: Services, caller: Caller, table: TableName, _: TableName) -> None:
    services.access.load(caller, table)
    services.rewriter.groups(caller, table, RewriteRequest(max_groups=1))
    services.planner.plan(caller, table, ScanRequest(files=frozenset()))


def _analyze(services: Services, caller: Caller, table: TableName, _: TableName) -> None:
    loaded = services.access.load(caller, table)
    names = dict.fromkeys(loaded.metadata.schema().column_names, 1)
    with suppress(RequestInvalid):  # The table has no snapshot.
        services.statistics.keep(caller, table, 1, names)


def _change(services: Services, caller: Caller, table: TableName, _: TableName) -> None:
    """Copy-on-write."""
    services.writes.begin(caller, table)
    _read(services, caller, table)


def _replace(services: Services, caller: Caller, table: TableName, _: TableName) -> None:
    write = services.writes.begin_replacing(caller, NewTable(table, SCHEMA))
    services.writes.commit(caller, write.id, FileCommit("none", ()))


def _like(services: Services, caller: Caller, table: TableName, new: TableName) -> None:
    services.access.load(caller, table)
    services.creator.create(caller, NewTable(new, SCHEMA))


def _view(services: Services, caller: Caller, table: TableName, new: TableName) -> None:
    _read(services, caller, table, "id")
    services.views.create(caller, ViewDefinition(new, SCHEMA, "SELECT id", None, (), {}, {}))


def _read_paths(services: Services, caller: Caller) -> None:
    """What an engine asks before it reads files by path."""
    assert caller.engine is not None
    requests = required("engine.code", On.engine(caller.principal, caller.engine.name))
    services.authorizer.require(caller, "engine.code", caller.engine.name, requests)


def _added(services: Services, caller: Caller, table: TableName, _: TableName) -> None:
    _read_paths(services, caller)
    services.writes.begin(caller, table)


def _copied(services: Services, caller: Caller, _: TableName, new: TableName) -> None:
    _read_paths(services, caller)
    services.writes.begin_staged(caller, NewTable(new, SCHEMA))


CASES: Final = (
    Case("CREATE TABLE U (id BIGINT)", lambda s, c, t, u: s.creator.create(c, NewTable(u, SCHEMA))),
    Case(
        "CREATE TABLE U AS SELECT 1 AS id", lambda s, c, t, u: s.writes.begin_staged(c, NewTable(u, SCHEMA))
    ),
    Case("REPLACE TABLE T (id BIGINT, other STRING)", _replace, encrypted=True),
    Case("CREATE OR REPLACE TABLE T (name STRING)", _replace),
    Case("CREATE TABLE U LIKE T", _like),
    Case("CREATE VIEW U AS SELECT id FROM T", _view),
    Case("DROP TABLE T", lambda s, c, t, u: s.lifecycle.drop(c, t)),
    Case("ALTER TABLE T RENAME TO U", lambda s, c, t, u: s.lifecycle.rename(c, t, u)),
    Case("ALTER TABLE T ADD COLUMN n BIGINT", _alter(AddColumn(("n",), LongType()))),
    Case("ALTER TABLE T DROP COLUMN name", _alter(DropColumn(("name",)))),
    Case("ALTER TABLE T RENAME COLUMN name TO n", _alter(RenameColumn(("name",), "n"))),
    Case(
        "ALTER TABLE T ADD PARTITION FIELD id", _alter(AddPartitionField(("id",), IdentityTransform(), None))
    ),
    Case("ALTER TABLE T WRITE UNORDERED", _alter(SetSortOrder(()))),
    Case("ALTER TABLE T DROP TAG IF EXISTS v", _alter(DropRef("tag", "v", if_exists=True))),
    Case("ALTER TABLE T UNSET TBLPROPERTIES ('a')", _alter(RemoveProperty("a"))),
    Case("INSERT INTO T VALUES (1, 'n')", lambda s, c, t, u: s.writes.begin(c, t), encrypted=True),
    Case("TRUNCATE TABLE T", lambda s, c, t, u: s.writes.begin(c, t), encrypted=True),
    Case("DELETE FROM T WHERE id = 1", _change, encrypted=True),
    Case("UPDATE T SET id = 2", _change),
    Case("SELECT * FROM T", lambda s, c, t, u: _read(s, c, t), encrypted=True),
    Case("SELECT id FROM T", lambda s, c, t, u: _read(s, c, t, "id")),
    Case("DESCRIBE TABLE T", lambda s, c, t, u: s.access.load(c, t)),
    Case("CALL lake.system.rotate_key(table => 'T')", lambda s, c, t, u: s.key_rotation.rotate(c, t), True),
    Case("CALL lake.system.rewrap_keys(table => 'T')", lambda s, c, t, u: s.key_rewrap.rewrap(c, t), True),
    Case("CALL lake.system.create_changelog_view(table => 'T')", lambda s, c, t, u: _read(s, c, t)),
    Case("CALL lake.system.rewrite_data_files(table => 'T')", _rewrite),
    Case("CALL lake.system.rewrite_manifests(table => 'T')", lambda s, c, t, u: s.manifests.rewrite(c, t)),
    Case("CALL lake.system.add_files( 'T' , 'parquet.`/x`')", _added, encrypted=True),
    Case("CALL lake.system.snapshot('old.t', 'U' )", _copied),
    Case("CALL lake.system.migrate( 'U' , drop_backup => true)", _copied),
    Case("CALL lake.system.compute_table_stats(table => 'T')", _analyze),
    Case("CREATE NAMESPACE n1", lambda s, c, t, u: s.namespaces.create(c, ("n1",), {})),
    Case(
        "CREATE NAMESPACE n2 LOCATION 's3://b/n' WITH PROPERTIES ('lakewarden.unsealed'='allow')",
        lambda s, c, t, u: s.namespaces.create(
            c, ("n2",), {"location": "s3://b/n", "lakewarden.unsealed": "allow"}
        ),
    ),
    Case("DESCRIBE NAMESPACE db", lambda s, c, t, u: s.namespaces.load(c, ("db",))),
    Case(
        "ALTER NAMESPACE db SET PROPERTIES ('encryption.standard-clients'='load')",
        lambda s, c, t, u: s.namespaces.update(c, ("db",), (), {"encryption.standard-clients": "load"}),
    ),
    Case("DROP NAMESPACE n1", lambda s, c, t, u: s.namespaces.drop(c, ("n1",))),
)

#: Properties that bring locations and keys, or take protection away.
BROUGHT: Final[Mapping[str, str]] = {
    "read.allowed.data.paths": "s3://b/listed",
    "write.data.path": "s3://b/data",
    "encryption.master-key-id": "spare",
    "encryption.standard-clients": "load",
    "comment": "x",
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with open_lake(tmp_path_factory.mktemp("lint")) as opened:
        opened.kms.create_master_key("spare")
        opened.catalog().create_namespace("db")
        yield opened


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> set[AccessRequest]:
    """The requests that the service decides from now on."""
    found = set[AccessRequest]()
    require = Authorizer.require

    def recording(
        self: Authorizer, caller: Caller, action: str, resource: str, requests: Any, **more: Any
    ) -> Any:
        found.update(requests)
        return require(self, caller, action, resource, requests, **more)

    monkeypatch.setattr(Authorizer, "require", recording)
    return found


def _linted(lake: Lake, sql: str) -> StatementDecision:
    (answer,) = lint(
        sql,
        "spark",
        context_of(lake.services, ALICE, catalog="lake", master_key_id=MASTER_KEY, engine="spark"),
    )
    return answer


def _named(sql: str, table: TableName, other: TableName) -> str:
    words = {"T": f"lake.{table}", "U": f"lake.{other}", "'T'": f"'{table}'", "'T')": f"'{table}')"}
    words["'U'"] = f"'{other}'"
    if " RENAME TO " in sql:
        words["U"] = str(other)
    text = " ".join(words.get(word, word) for word in sql.split())
    for word in ("NAMESPACE n", "NAMESPACE db"):
        text = text.replace(word, word.replace("NAMESPACE ", "NAMESPACE lake."))
    return text


def test_every_form_of_statement_has_a_case() -> None:
    tried = {
        type(parsed.statement)
        for case in (*CASES, Case("ALTER TABLE T SET TBLPROPERTIES ('a'='b')", _alter()))
        for parsed in parse(_named(case.sql, fresh(), fresh()), hive=False)
    }
    code = {each for each in get_args(Statement) if each.__name__ == "Code"}
    assert tried == set(get_args(Statement)) - _WITHOUT_OPERATION - code


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sql)
def test_lint_requires_what_the_service_requires(lake: Lake, decided: set[AccessRequest], case: Case) -> None:
    table, other = fresh(), fresh()
    make(lake, table, properties=ENCRYPTED if case.encrypted else {})
    decided.clear()
    answer = _linted(lake, _named(case.sql, table, other))
    assert answer.decision.allowed, answer
    case.run(lake.services, lake.caller(ALICE, engine="spark"), table, other)
    assert set(answer.needed) == decided


@pytest.mark.parametrize("encrypted", [None, False, True], ids=["CREATE", "ALTER", "ALTER of encrypted"])
def test_lint_requires_what_properties_bring(
    lake: Lake, decided: set[AccessRequest], encrypted: bool | None
) -> None:
    """Every choice of properties, for a new table and for one with and without encryption."""
    caller = lake.caller(ALICE, engine="spark")
    for names in chain.from_iterable(combinations(BROUGHT, count) for count in range(1, len(BROUGHT) + 1)):
        table, properties = fresh(), {name: BROUGHT[name] for name in names}
        listed = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
        if encrypted is None:
            sql = f"CREATE TABLE lake.{table} (id BIGINT) TBLPROPERTIES ({listed})"
        else:
            make(lake, table, properties=ENCRYPTED if encrypted else {})
            sql = f"ALTER TABLE lake.{table} SET TBLPROPERTIES ({listed})"
        answer = _linted(lake, sql)
        decided.clear()
        try:
            if encrypted is None:
                lake.services.creator.create(caller, NewTable(table, SCHEMA, properties=properties))
            else:
                changes = [SetProperty(name, value) for name, value in properties.items()]
                lake.services.alterer.alter(caller, table, changes)
        except LakewardenError as refused:
            assert (answer.decision.allowed, answer.decision.reasons[0].rule) == (False, refused.rule), sql
        else:
            assert set(answer.needed) == decided, sql


@each_row(
    ("name", "value"),
    [
        ("write.parquet.compression-codec", "none-such"),
        ("write.target-file-size-bytes", "0"),
        ("Write.Data.Path", "s3://b/x"),
        ("write.data.path", "b/x"),
        ("s3.endpoint", "https://example.org"),
        ("encryption.mechanim", "envelope"),
        ("encryption.algorithm", "ROT13"),
    ],
)
def test_lint_refuses_properties_that_the_service_refuses(lake: Lake, name: str, value: str) -> None:
    caller, table, new = lake.caller(ALICE, engine="spark"), fresh(), fresh()
    make(lake, table)
    properties = f"TBLPROPERTIES ('{name}'='{value}')"
    created = _linted(lake, f"CREATE TABLE lake.{new} (id BIGINT) {properties}")
    altered = _linted(lake, f"ALTER TABLE lake.{table} SET {properties}")
    with pytest.raises(LakewardenError) as of_create:
        lake.services.creator.create(caller, NewTable(new, SCHEMA, properties={name: value}))
    with pytest.raises(LakewardenError) as of_alter:
        lake.services.alterer.alter(caller, table, [SetProperty(name, value)])
    for answer, refused in ((created, of_create), (altered, of_alter)):
        assert (answer.decision.allowed, answer.decision.reasons[0].rule) == (False, refused.value.rule)
