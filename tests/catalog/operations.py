"""The public operations of the catalog's core: how each is done, and who may.

Alice looks after everything, Bob after the database `bobs`, Carol reads the database `db`; to Dave nobody has
granted anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCreate,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.types import LongType, NestedField

from catalog.authorization.authorizer import Caller
from catalog.base.errors import NamespaceNotEmpty, NoSuchPlan, NoSuchPlanTask, NoSuchTable
from catalog.base.identifiers import TableName
from catalog.commits.committer import TableChange
from catalog.maintenance.delete_rewrites import DeleteRewriteRequest
from catalog.maintenance.rewrites import RewriteRequest
from catalog.planning.request import ScanRequest
from catalog.planning.standard_request import StandardScan
from catalog.tables.alter import Change, SetProperty
from catalog.tables.drafts import NewTable
from catalog.tables.paging import PageRequest
from catalog.tables.schema_changes import AddColumn, DropColumn
from catalog.writes.new_files import FileCommit
from policy.errors import (
    LocationNotAllowed,
    RequestInvalid,
)
from tests.support.lake import ALICE, BOB, CAROL, Lake, policy, standard_policies, tables
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, fresh, make, name_of

DAVE = "dave"
USERS = (ALICE, BOB, CAROL, DAVE)
READS = {"db": {ALICE, CAROL}, "bobs": {ALICE, BOB}}
WRITES = {"db": {ALICE}, "bobs": {ALICE, BOB}}
ADMINISTERS = {"db": {ALICE}, "bobs": {ALICE}}
PATHS = "read.allowed.data.paths"


@dataclass(frozen=True)
class Row:
    """One operation.

    Attributes:
        operation: class and method.
        act: does it for a caller in a database; what it returns does it, so that preparing is not judged.
        granted: who may, by database.
        action: how the audit trail names it.
        ends: what may come after a grant, where doing it to the end would be beside the point.
    """

    operation: str
    act: Callable[[Lake, Caller, str], Callable[[], object]]
    granted: dict[str, set[str]]
    action: str
    ends: tuple[type[Exception], ...] = ()
    variant: str = ""


@contextmanager
def everything_granted(lake: Lake) -> Iterator[None]:
    """For a moment everybody may do everything."""
    resources = (tables("*"), {"storage-type": ["*"], "storage-url": ["*"]}, {"key": ["*"]})
    accesses = (["all"], ["rwstorage"], ["use", "release"])
    granted = [
        policy(f"all-{number}", each, dict.fromkeys(USERS, access))
        for number, (each, access) in enumerate(zip(resources, accesses, strict=True))
    ]
    lake.set_policies(granted)
    try:
        yield
    finally:
        lake.set_policies(standard_policies())


def on_table(ask: Callable[[Lake, Caller, TableName], object], **options: Any) -> Callable[..., Any]:
    """An operation on a table of Alice's with rows in it."""

    def act(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
        table = make(lake, fresh(database), **options)
        return lambda: ask(lake, caller, name_of(table))

    return act


def commit(*updates: TableUpdate, **options: Any) -> Callable[..., Any]:
    return on_table(lambda lake, who, name: lake.services.committer.commit(who, name, [], updates), **options)


def commit_together(*updates: TableUpdate) -> Callable[..., Any]:
    def ask(lake: Lake, caller: Caller, name: TableName) -> object:
        return lake.services.committer.commit_together(caller, [TableChange(name, [], updates)])

    return on_table(ask)


def in_namespace(ask: Callable[[Lake, Caller, tuple[str, ...]], object]) -> Callable[..., Any]:
    return lambda lake, who, database: lambda: ask(lake, who, (database,))


def create(**options: Any) -> Callable[..., Any]:
    def act(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
        new = NewTable(fresh(database), SCHEMA, **options)
        return lambda: lake.services.creator.create(caller, new)

    return act


def stage(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
    new = NewTable(fresh(database), SCHEMA)
    return lambda: lake.services.creator.stage(caller, new)


def commit_staged(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
    name = fresh(database)
    with everything_granted(lake):
        catalog = lake.catalog(caller.principal.name)
        transaction = catalog.create_table_transaction(str(name), SCHEMA)
    updates = transaction._updates
    return lambda: lake.services.creator.commit_staged(caller, name, [AssertCreate()], updates)


def rename(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
    source, target = name_of(make(lake, fresh(database))), fresh(database)
    return lambda: lake.services.lifecycle.rename(caller, source, target)


def rename_away(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
    source = name_of(make(lake, fresh(database)))
    target = fresh("bobs" if database == "db" else "db")
    return lambda: lake.services.lifecycle.rename(caller, source, target)


def register(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
    table = make(lake, fresh(database))
    lake.catalog().drop_table(table.name())
    location = table.metadata_location
    return lambda: lake.services.registration.register(caller, fresh(database), location)


def began(lake: Lake, caller: Caller, database: str) -> Engine:
    name = name_of(make(lake, fresh(database)))
    with everything_granted(lake):
        return Engine.begin(lake, name, caller.principal.name)


def commit_write(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
    engine = began(lake, caller, database)
    files = FileCommit("append", (engine.file(),))
    return lambda: lake.services.writes.commit(caller, engine.session.id, files)


def screen_write(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
    engine = began(lake, caller, database)
    return lambda: lake.services.writes.screen(caller, engine.session.id)


def screen_staged_write(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
    with everything_granted(lake):
        engine = Engine.stage(lake, fresh(database), caller.principal.name)
    return lambda: lake.services.writes.screen(caller, engine.session.id)


def abort_write(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
    engine = began(lake, caller, database)
    return lambda: lake.services.writes.abort(caller, engine.session.id)


def begin_staged(**options: Any) -> Callable[..., Any]:
    def act(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
        new = NewTable(fresh(database), SCHEMA, **options)
        return lambda: lake.services.writes.begin_staged(caller, new)

    return act


def commit_staged_write(lake: Lake, caller: Caller, database: str) -> Callable[[], object]:
    with everything_granted(lake):
        engine = Engine.stage(lake, fresh(database), caller.principal.name)
    files = FileCommit("append", (engine.file(),))
    return lambda: lake.services.writes.commit(caller, engine.session.id, files)


def alter(*changes: Change) -> Callable[..., Any]:
    return on_table(lambda lake, who, name: lake.services.alterer.alter(who, name, changes))


_WIDER = Schema(*SCHEMA.fields, NestedField(3, "x", LongType()), schema_id=1)
_ELSEWHERE = "file:///somewhere/else"
_EVERYONE = {"db": set(USERS), "bobs": set(USERS)}
TABLE = [
    Row(
        "TableAccess.load",
        on_table(lambda lake, who, n: lake.services.access.load(who, n)),
        READS,
        "table.load",
    ),
    Row(
        "TableAccess.load_restricted",
        on_table(lambda lake, who, n: lake.services.access.load_restricted(who, n)),
        READS,
        "table.load",
    ),
    Row(
        "TableAccess.load_to_plan",
        on_table(lambda lake, who, n: lake.services.access.load_to_plan(who, n)),
        READS,
        "table.plan",
    ),
    Row(
        "TableAccess.load_for_files",
        on_table(lambda lake, who, n: lake.services.access.load_for_files(who, n, "table.sign", None)),
        READS,
        "table.sign",
    ),
    Row(
        "TableAccess.report",
        on_table(lambda lake, who, n: lake.services.access.report(who, n)),
        READS,
        "table.report",
    ),
    Row(
        "StandardPlanner.plan",
        on_table(lambda lake, who, n: lake.services.standard_planner.plan(who, n, StandardScan())),
        READS,
        "table.plan",
    ),
    Row(
        "StandardPlanner.result",
        on_table(lambda lake, who, n: lake.services.standard_planner.result(who, n, "x")),
        READS,
        "table.plan",
        (NoSuchPlan,),
    ),
    Row(
        "StandardPlanner.part",
        on_table(lambda lake, who, n: lake.services.standard_planner.part(who, n, "x")),
        READS,
        "table.plan",
        (NoSuchPlanTask,),
    ),
    Row(
        "StandardPlanner.cancel",
        on_table(lambda lake, who, n: lake.services.standard_planner.cancel(who, n, "x")),
        READS,
        "table.plan.cancel",
        (NoSuchPlan,),
    ),
    Row(
        "TableAccess.exists",
        on_table(lambda lake, who, n: lake.services.access.exists(who, n)),
        READS,
        "table.load",
    ),
    Row(
        "TableAccess.exists",
        lambda lake, who, database: lambda: lake.services.access.exists(who, fresh(database)),
        READS,
        "table.load",
        variant="absent",
    ),
    Row(
        "Planner.plan",
        on_table(lambda lake, who, n: lake.services.planner.plan(who, n, ScanRequest())),
        READS,
        "table.plan",
    ),
    Row(
        "Committer.commit",
        commit(RemoveSnapshotRefUpdate(ref_name="b")),
        WRITES,
        "table.commit",
        (RequestInvalid,),
        "data",
    ),
    Row("Committer.commit", commit(), WRITES, "table.commit", variant="nothing"),
    Row("Committer.commit", commit(AddSchemaUpdate(schema=_WIDER)), WRITES, "table.commit", variant="schema"),
    Row(
        "Committer.commit",
        commit(SetPropertiesUpdate(updates={"comment": "c"})),
        WRITES,
        "table.commit",
        variant="property",
    ),
    Row(
        "Committer.commit",
        commit(SetPropertiesUpdate(updates={PATHS: _ELSEWHERE})),
        ADMINISTERS,
        "table.commit",
        variant="paths",
    ),
    Row(
        "Committer.commit",
        commit(SetPropertiesUpdate(updates=ENCRYPTED)),
        ADMINISTERS,
        "table.commit",
        variant="key",
    ),
    Row(
        "Committer.commit",
        commit(SetPropertiesUpdate(updates={"encryption.mechanism": "plaintext"}), properties=ENCRYPTED),
        WRITES,
        "table.commit",
        variant="unprotect",
    ),
    Row(
        "Committer.commit",
        commit(SetPropertiesUpdate(updates={"write.data.path": _ELSEWHERE})),
        ADMINISTERS,
        "table.commit",
        variant="write-path",
    ),
    Row(
        "Committer.commit",
        commit(SetLocationUpdate(location=_ELSEWHERE)),
        ADMINISTERS,
        "table.commit",
        (LocationNotAllowed,),
        "location",
    ),
    Row(
        "Committer.commit",
        commit(RemovePropertiesUpdate(removals=[PATHS])),
        WRITES,
        "table.commit",
        variant="unset-paths",
    ),
    Row(
        "Committer.commit_together",
        commit_together(SetPropertiesUpdate(updates={"comment": "c"})),
        WRITES,
        "table.commit",
    ),
    Row("Alterer.alter", alter(AddColumn(("x",), LongType())), WRITES, "table.commit"),
    Row("Alterer.alter", alter(DropColumn(("x",), True)), WRITES, "table.commit", variant="nothing"),
    Row("Alterer.alter", alter(SetProperty(PATHS, _ELSEWHERE)), ADMINISTERS, "table.commit", variant="paths"),
    Row("Creator.create", create(), WRITES, "table.create"),
    Row(
        "Creator.create",
        create(location="file:///tmp/lw-custom-location"),
        ADMINISTERS,
        "table.create",
        (Exception,),
        "location",
    ),
    Row("Creator.create", create(properties=ENCRYPTED), ADMINISTERS, "table.create", variant="key"),
    Row("Creator.stage", stage, WRITES, "table.stage"),
    Row("Creator.commit_staged", commit_staged, WRITES, "table.create"),
    Row("Lifecycle.rename", rename, WRITES, "table.rename"),
    Row("Lifecycle.rename", rename_away, ADMINISTERS, "table.rename", variant="away"),
    Row(
        "Lifecycle.drop",
        on_table(lambda lake, who, n: lake.services.lifecycle.drop(who, n)),
        WRITES,
        "table.drop",
    ),
    Row(
        "Unregistration.unregister",
        on_table(lambda lake, who, n: lake.services.unregistration.unregister(who, n)),
        WRITES,
        "table.unregister",
    ),
    Row(
        "Lifecycle.purge",
        on_table(lambda lake, who, n: lake.services.lifecycle.purge(who, n)),
        WRITES,
        "table.purge",
    ),
    Row("Registration.register", register, ADMINISTERS, "table.register"),
    Row(
        "Registration.adopt",
        lambda lake, who, database: lambda: lake.services.registration.adopt(who, fresh(database)),
        WRITES,
        "table.adopt",
        (NoSuchTable,),
    ),
    Row(
        "Registration.reseal",
        on_table(lambda lake, who, n: lake.services.registration.reseal(who, n)),
        WRITES,
        "table.reseal",
        (RequestInvalid,),
    ),
    Row(
        "Registration.restore",
        on_table(lambda lake, who, n: lake.services.registration.restore(who, n)),
        WRITES,
        "table.restore",
    ),
    Row(
        "Namespaces.create",
        in_namespace(lambda lake, who, n: lake.services.namespaces.create(who, (*n, fresh().name), {})),
        ADMINISTERS,
        "namespace.create",
    ),
    Row(
        "Namespaces.load",
        in_namespace(lambda lake, who, n: lake.services.namespaces.load(who, n)),
        READS,
        "namespace.load",
    ),
    Row(
        "Namespaces.exists",
        in_namespace(lambda lake, who, n: lake.services.namespaces.exists(who, n)),
        READS,
        "namespace.load",
    ),
    Row(
        "Namespaces.children",
        in_namespace(lambda lake, who, n: lake.services.namespaces.children(who, n)),
        READS,
        "namespace.list",
    ),
    Row(
        "Namespaces.children",
        lambda lake, who, _: lambda: lake.services.namespaces.children(who, ()),
        _EVERYONE,
        "namespace.list",
        variant="top",
    ),
    Row(
        "Namespaces.tables",
        in_namespace(lambda lake, who, n: lake.services.namespaces.tables(who, n)),
        READS,
        "table.list",
    ),
    Row(
        "Namespaces.children_page",
        in_namespace(lambda lake, who, n: lake.services.namespaces.children_page(who, n, PageRequest())),
        READS,
        "namespace.list",
    ),
    Row(
        "Namespaces.tables_page",
        in_namespace(lambda lake, who, n: lake.services.namespaces.tables_page(who, n, PageRequest())),
        READS,
        "table.list",
    ),
    Row(
        "Namespaces.update",
        in_namespace(lambda lake, who, n: lake.services.namespaces.update(who, n, [], {"a": "b"})),
        WRITES,
        "namespace.update",
    ),
    Row(
        "Namespaces.update",
        in_namespace(
            lambda lake, who, n: lake.services.namespaces.update(who, n, [], {"location": _ELSEWHERE})
        ),
        ADMINISTERS,
        "namespace.update",
        variant="location",
    ),
    Row(
        "Namespaces.drop",
        in_namespace(lambda lake, who, n: lake.services.namespaces.drop(who, n)),
        WRITES,
        "namespace.drop",
        (NamespaceNotEmpty,),
    ),
    Row(
        "Writes.begin",
        on_table(lambda lake, who, n: lake.services.writes.begin(who, n)),
        WRITES,
        "table.write",
    ),
    Row("Writes.begin_staged", begin_staged(), WRITES, "table.stage"),
    Row(
        "Writes.begin_staged",
        begin_staged(properties=ENCRYPTED),
        ADMINISTERS,
        "table.stage",
        variant="key",
    ),
    Row(
        "Writes.begin_staged",
        begin_staged(properties={PATHS: _ELSEWHERE}),
        ADMINISTERS,
        "table.stage",
        (LocationNotAllowed,),
        "paths",
    ),
    Row(
        "Writes.begin_replacing",
        on_table(lambda lake, who, n: lake.services.writes.begin_replacing(who, NewTable(n, SCHEMA))),
        WRITES,
        "table.replace",
    ),
    Row("Writes.screen", screen_write, WRITES, "table.write"),
    Row("Writes.screen", screen_staged_write, WRITES, "table.create", variant="staged"),
    Row("Writes.commit", commit_write, WRITES, "table.write"),
    Row("Writes.commit", commit_staged_write, WRITES, "table.create", variant="staged"),
    Row("Writes.abort", abort_write, _EVERYONE, "table.write"),
    Row(
        "Rewriter.groups",
        on_table(lambda lake, who, n: lake.services.rewriter.groups(who, n, RewriteRequest(max_groups=1))),
        WRITES,
        "table.rewrite",
    ),
    Row(
        "DeleteRewriter.groups",
        on_table(
            lambda lake, who, n: lake.services.delete_rewriter.groups(
                who, n, DeleteRewriteRequest(max_groups=1)
            )
        ),
        WRITES,
        "table.rewrite",
    ),
    Row(
        "OldEpochs.report",
        on_table(lambda lake, who, n: lake.services.old_epochs.report(who, n)),
        WRITES,
        "table.epochs",
    ),
    Row(
        "OldEpochs.forbid",
        on_table(lambda lake, who, n: lake.services.old_epochs.forbid(who, n)),
        WRITES,
        "table.forbid-old-epochs",
        (RequestInvalid,),
    ),
]
