"""Tables whose encryption was changed, and what an engine does to rewrite their files."""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table

from catalog.maintenance.rewrites import RewriteGroup, RewriteRequest, Rewrites
from catalog.writes.new_files import FileCommit
from tests.support.lake import ALICE, Lake
from tests.support.plans import plan
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of

_LARGE = 2**40


def ask(lake: Lake, table: Table, user: str = ALICE, **options: Any) -> Rewrites:
    """What is to be rewritten, for an engine that acts for a user."""
    given = {name: str(value) for name, value in options.pop("options", {}).items()}
    given = {"max-file-group-size-bytes": str(options.pop("max_bytes", _LARGE))} | given
    request = RewriteRequest(**{"max_groups": 100} | options, options=given)
    return lake.services.rewriter.groups(lake.caller(user, "spark"), name_of(table), request)


def paths(lake: Lake, table: Table, ref: str = "main") -> set[str]:
    """The live files of a branch."""
    return set(plan(lake, table, ref=ref).files["file_path"].to_pylist())


def encrypt(lake: Lake, table: Table, **properties: str) -> None:
    """ALTER the table's encryption."""
    with lake.catalog().load_table(table.name()).transaction() as transaction:
        transaction.set_properties(ENCRYPTED | {name.replace("_", "."): v for name, v in properties.items()})


def rewrite(lake: Lake, table: Table, group: RewriteGroup, *, records: int | None = None) -> str:
    """Commit one file in place of a group's; its path."""
    engine = Engine.begin(lake, name_of(table))
    file = engine.file(record_count=group.records if records is None else records)
    engine.commit(FileCommit("replace", (file,), group.paths, group.snapshot_id, group.branch))
    return file.path


def make_keys(lake: Lake, *names: str) -> None:
    """Master keys of these names, unless they are there."""
    known = {key.id for key in lake.kms.list_master_keys()}
    for name in set(names) - known:
        lake.kms.create_master_key(name)


def migrating(lake: Lake, files: int = 2) -> Table:
    """A table with files in plaintext, which was encrypted since."""
    table = make(lake)
    for _ in range(files):
        append_files(lake, name_of(table))
    encrypt(lake, table)
    return table
