"""Migrates one table, and goes on where an earlier attempt was interrupted.

| step | what keeps it from being done twice |
|---|---|
| the right to rewrite is checked | nothing is changed |
| the rows of all branches are read: `begun` | recorded before the first change |
| the properties are set | they are compared with those in force |
| files are rewritten, group by group | the catalog counts what is left |
| the rows are compared: `compared` | recorded; until then it is done again from `begun` |
| snapshots with earlier files expire | the catalog lists them |
| earlier epochs are forbidden | the catalog says whether they are |

A table that has nothing to be done is not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pyiceberg.table.metadata import TableMetadata

from catalog.base.identifiers import TableName
from policy.encryption import governed
from policy.encryption.specification import Mechanism
from spark_ext.pipelines.items import Finding, Item, Outcome, Rule, Severity, Status
from spark_ext.pipelines.lake import Lake, on_table, quoted
from spark_ext.pipelines.migrate.comparing import (
    ROWS_DIFFER,
    ROWS_NOT_COMPARED,
    Compared,
    Recorded,
    compare,
    recorded,
)
from spark_ext.pipelines.migrate.lineage import branches, on_branches
from spark_ext.pipelines.pipeline import Steps
from spark_ext.pipelines.refusals import REFUSALS, outcome_of, status_of_problem
from spark_ext.pipelines.rewriting import Rewriting, Rewritten

History = Literal["keep", "expire"]

FILES_KEPT: Final = Rule(
    "files-kept",
    Severity.WARNING,
    "Files of expired snapshots were kept, which can be unencrypted.",
    "Remove them by hand, with their copies and object versions.",
)
FILES_LEFT: Final = Rule(
    "files-left",
    Severity.WARNING,
    "Files could not be rewritten.",
    "Correct the cause, and run the migration again.",
)

_BEGUN: Final = "begun"
_COMPARED: Final = "compared"
_SHOWN: Final = 10
#: Before every snapshot: none expires for its age.
_NEVER: Final = "TIMESTAMP '1970-01-02'"


@dataclass(frozen=True, slots=True)
class Wanted:
    """How tables are migrated.

    Attributes:
        history: whether snapshots with earlier files are kept or expire.
        forbid_old: whether files of earlier encryption epochs are refused at the end.
        max_group_bytes: bytes of files that are rewritten in one commit; None for the procedure's default.
    """

    history: History = "keep"
    forbid_old: bool = True
    max_group_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Begun:
    """What a table was when its migration began.

    Attributes:
        attempt: counts beginnings.
        uuid: of the table.
        snapshots: all that it had.
        branches: the rows of each.
    """

    attempt: int
    uuid: str
    snapshots: frozenset[int]
    branches: Mapping[str, Recorded]

    def to_json(self) -> dict[str, Any]:
        rows = {name: each.to_json() for name, each in self.branches.items()}
        return {
            "attempt": self.attempt,
            "uuid": self.uuid,
            "snapshots": sorted(self.snapshots),
            "branches": rows,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> _Begun:
        rows = {name: Recorded.from_json(each) for name, each in document["branches"].items()}
        return cls(document["attempt"], document["uuid"], frozenset(document["snapshots"]), rows)


class TableMigration:
    """The migration of one table.

    Args:
        lake: the lake.
        item: the table, and in its payload the properties to `set` and to `unset`, or what is `undecided`.
        steps: what was done to it before.
        wanted: how it is migrated.
    """

    def __init__(self, lake: Lake, item: Item, steps: Steps, wanted: Wanted) -> None:
        self._lake = lake
        self._item = item
        self._steps = steps
        self._wanted = wanted
        self._table = TableName(tuple(item.payload["namespace"]), item.payload["name"])
        self._counts: Counter[str] = Counter()
        self._findings: list[Finding] = []

    def run(self) -> Outcome:
        """Do what is left to be done; return what became of the table.

        Raises:
            LakewardenError, PySparkException: an error that concerns all tables.
        """
        if "undecided" in self._item.payload:
            return Outcome.of(self._item, Status.LEFT, self._item.payload["undecided"])
        try:
            status, why = self._migrate()
        except REFUSALS as error:
            return outcome_of(self._item, error, tuple(self._findings))
        return Outcome.of(self._item, status, why, tuple(self._findings), self._counts)

    def _migrate(self) -> tuple[Status, str | None]:
        rewriting = Rewriting(self._lake, self._table, self._wanted.max_group_bytes)
        metadata = self._lake.metadata(self._table)
        changes = changed(metadata, self._item.payload["set"], self._item.payload["unset"])
        begun = self._open_attempt(metadata)
        if rewriting.count() or changes or begun is not None:
            begun = begun or self._begin(metadata)
            self._alter(changes)
            ended = self._ended(rewriting.run()) or self._compare(begun)
            if ended is not None:
                return ended
        return self._changed_back() or self._end_history()

    def _changed_back(self) -> tuple[Status, str] | None:
        """Return how the migration ends if a user has changed its properties since they were set."""
        metadata = self._lake.metadata(self._table)
        changes = changed(metadata, self._item.payload["set"], self._item.payload["unset"])
        if not changes:
            return None
        return Status.LEFT, (
            f"A user has changed {', '.join(sorted(changes))} since the migration set them. "
            "Agree on the encryption, and run the migration again."
        )

    def _open_attempt(self, metadata: TableMetadata) -> _Begun | None:
        """Return what was recorded before, if it is of this table and its rows were not compared since."""
        done = self._steps.of(self._item)
        if _BEGUN not in done:
            return None
        begun = _Begun.from_json(done[_BEGUN])
        closed = done.get(_COMPARED, {}).get("attempt", 0) >= begun.attempt
        return None if closed or begun.uuid != str(metadata.table_uuid) else begun

    def _begin(self, metadata: TableMetadata) -> _Begun:
        before = self._steps.of(self._item).get(_BEGUN, {}).get("attempt", 0)
        ids = frozenset(each.snapshot_id for each in metadata.snapshots)
        rows = recorded(self._lake, self._table, metadata)
        begun = _Begun(before + 1, str(metadata.table_uuid), ids, rows)
        self._steps.record(self._item, _BEGUN, begun.to_json())
        return begun

    def _alter(self, changes: Mapping[str, str | None]) -> None:
        if changes:
            given = {name: value for name, value in changes.items() if value is not None}
            body = {"set": given, "unset": sorted(changes.keys() - given.keys())}
            self._lake.admin("PATCH", on_table(self._table), body)

    def _ended(self, done: Rewritten) -> tuple[Status, str] | None:
        """Count what was rewritten; return how the migration ends if files are left."""
        self._counts.update(
            {"rewritten-files": done.files, "rewritten-bytes": done.bytes, "added-files": done.added}
        )
        if not done.left:
            return None
        self._counts["left-files"] = done.left
        self._findings.append(FILES_LEFT.found(self._item.table, done.problem, bytes=done.left_bytes))
        why = f"{done.left} files could not be rewritten. {done.problem or ''}".strip()
        if done.error is not None:
            return outcome_of(self._item, done.error).status, why
        return status_of_problem(done.problem), why

    def _compare(self, begun: _Begun) -> tuple[Status, str] | None:
        """Compare the rows; return how the migration ends if they differ, or could not be compared."""
        metadata = self._lake.metadata(self._table)
        if str(metadata.table_uuid) != begun.uuid:
            return Status.LEFT, "Another table has the name now. Run the migration again."
        found = compare(self._lake, self._table, metadata, begun.snapshots, begun.branches)
        self._findings += found.findings
        self._counts["compared-rows"] = found.rows
        if found.broke(ROWS_DIFFER):
            return Status.FAILED, _told(found)
        self._steps.record(self._item, _COMPARED, {"attempt": begun.attempt})
        return (Status.LEFT, _told(found)) if found.broke(ROWS_NOT_COMPARED) else None

    def _end_history(self) -> tuple[Status, str | None]:
        """Expire snapshots with earlier files, and forbid earlier epochs, as wanted."""
        if self._wanted.history == "keep" and not self._wanted.forbid_old:
            return Status.DONE, None
        metadata = self._lake.metadata(self._table)
        if metadata.properties.get(governed.MECHANISM) == Mechanism.PLAINTEXT:
            return Status.DONE, None
        report = self._lake.admin("GET", on_table(self._table, "regimes"))
        if self._wanted.history == "expire" and self._expire(metadata, report["snapshots"]):
            report = self._lake.admin("GET", on_table(self._table, "regimes"))
        if self._wanted.forbid_old and not report["snapshots"] and not report["old-forbidden"]:
            self._lake.admin("POST", on_table(self._table, "regimes", "forbid-old"), {})
        if report["snapshots"]:
            return Status.LEFT, self._needed(report["snapshots"])
        return Status.DONE, None

    def _expire(self, metadata: TableMetadata, old: Sequence[Mapping[str, Any]]) -> bool:
        """Expire snapshots in the history of branches; those with names, and staged ones, stay."""
        history = on_branches(metadata) - set(branches(metadata).values())
        ids = [each["snapshot-id"] for each in old if not each["names"] and each["snapshot-id"] in history]
        if not ids:
            return False
        (row,) = self._lake.sql(
            f"CALL {quoted(self._lake.catalog)}.system.expire_snapshots(table => :table, "
            f"older_than => {_NEVER}, snapshot_ids => array({', '.join(map(str, ids))}))",
            {"table": self._lake.name(self._table)},
        )
        self._counts["expired-snapshots"] += len(ids)
        self._counts["deleted-data-files"] += row["deleted_data_files_count"]
        if row["problem"]:
            self._findings.append(FILES_KEPT.found(self._item.table, row["problem"]))
        return True

    def _needed(self, old: Sequence[Mapping[str, Any]]) -> str:
        shown = ", ".join(_use(each) for each in old[:_SHOWN])
        more = f" and {len(old) - _SHOWN} more" if len(old) > _SHOWN else ""
        keeps = self._wanted.history == "keep"
        do = "Let them expire, or migrate with history='expire'" if keeps else "Remove or publish them"
        return (
            f"Files of earlier encryption can still be read: {len(old)} retained snapshots have some: "
            f"{shown}{more}. {do}, and run the migration again."
        )


def changed(
    metadata: TableMetadata, wanted: Mapping[str, str], unwanted: Sequence[str]
) -> dict[str, str | None]:
    """Return the properties that are not in force, and with None those that are and are unwanted."""
    in_force = metadata.properties
    found: dict[str, str | None] = {
        name: value for name, value in wanted.items() if in_force.get(name) != value
    }
    return found | {name: None for name in unwanted if name in in_force}


def _told(found: Compared) -> str:
    told = (f"Branch {each.ref}: {each.message}" for each in found.findings)
    return " ".join(told)


def _use(old: Mapping[str, Any]) -> str:
    names = f" ({', '.join(old['names'])})" if old["names"] else ""
    return f"{old['snapshot-id']}{names} with {old['old-files']} files"
