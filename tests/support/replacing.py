"""Writes that replace their table, and what tests look at afterwards."""

from __future__ import annotations

from typing import Any

from catalog.planning.request import ScanRequest
from catalog.tables.drafts import NewTable
from catalog.writes.new_files import FileCommit
from tests.support.lake import ALICE, CAROL, Lake, policy, standard_policies, tables
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, fresh

KEYED = ENCRYPTED | {"encryption.columns": "lakewarden:name"}
REST = FileCommit("none", ())


def staged(lake: Lake, name: Any, user: str = ALICE, **options: Any) -> Engine:
    """Begin a write that replaces its table."""
    new = NewTable(name, **({"schema": SCHEMA} | options))
    return Engine(lake, lake.services.writes.begin_replacing(lake.caller(user), new))


def made(lake: Lake, **options: Any) -> Any:
    """The name of a table with one file."""
    name = fresh()
    first = Engine.stage(lake, name, **options)
    first.append(first.file())
    return name


def loaded(lake: Lake, name: Any) -> Any:
    return lake.services.loader.load_sealed(name)


def files(lake: Lake, name: Any, **request: Any) -> list[dict[str, Any]]:
    plan = lake.services.planner.plan(lake.caller(ALICE, "spark"), name, ScanRequest(**request))
    rows: list[dict[str, Any]] = plan.files.to_pylist()
    return rows


def past_id(table: Any) -> int:
    number: int = table.metadata.current_snapshot_id
    return number


def only(*accesses: str) -> list[dict[str, Any]]:
    """The standard policies, and these privileges of Carol on every table."""
    mine = policy("carol-too", tables("*"), {CAROL: list(accesses)})
    return [*standard_policies(), mine, policy("carol-keys", {"key": ["*"]}, {CAROL: ["use", "release"]})]
