"""Erases rows from one table, and goes on where an earlier attempt was interrupted.

| step | what keeps it from being done twice |
|---|---|
| all retained snapshots are searched | nothing is changed |
| tags that hold rows are dropped, if that is wanted | a tag that is gone is not found again |
| matching rows are deleted, branch by branch | the rows of a branch are recorded before: `branch NAME` |
| files with deleted rows are rewritten, then manifests | what is left is counted |
| snapshots that hold rows expire, with their files | their ids are recorded before: `expiring` |
| all retained snapshots are searched again | nothing is changed |
| the certificate is recorded | it has the same id each time |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.errors import PySparkException

from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from catalog.rules.file_deletion import require_deletable
from policy.errors import NotAuthorized, RequestInvalid
from spark_ext.pipelines.erase.history import State
from spark_ext.pipelines.erase.identifiers import Identifiers, Scrypt
from spark_ext.pipelines.erase.search import Search, Views
from spark_ext.pipelines.items import Finding, Item, Outcome, Rule, Severity, Status
from spark_ext.pipelines.lake import Lake, quoted
from spark_ext.pipelines.pipeline import Steps
from spark_ext.pipelines.refusals import REFUSALS, name_of, outcome_of

TAG_HOLDS_ROWS: Final = Rule(
    "tag-holds-rows",
    Severity.ERROR,
    "A tag keeps a snapshot that has, or can have, rows of the identifiers.",
    "Drop the tag, or erase with drop_tags.",
)
ROWS_LEFT: Final = Rule(
    "rows-left",
    Severity.ERROR,
    "Rows of the identifiers are in the table after they were deleted.",
    "Stop the writer that adds them, and run the erasure again.",
)
FILES_LEFT: Final = Rule(
    "files-left",
    Severity.ERROR,
    "Files that have, or can have, rows of the identifiers were not removed.",
    "Correct the cause, and run the erasure again. Remove files outside of the table's location by hand.",
)
ROWS_FOUND: Final = Rule(
    "rows-found",
    Severity.NOTE,
    "A branch has rows of the identifiers.",
    "Run the erasure without dry_run to delete them.",
)

#: Before every snapshot: none expires for its age.
_NEVER: Final = "TIMESTAMP '1970-01-02'"
_EXPIRING: Final = "expiring"
_CONFLICTS: Final = frozenset({"CONCURRENT_MODIFICATION", "COMMIT_CONFLICT"})
#: How often a statement is run that another commit came before, and expiry is decided again.
_ATTEMPTS: Final = 4
_REASON: Final = 900


@dataclass(frozen=True)
class Erasure:
    """What is erased.

    Attributes:
        id: names the erasure in certificates.
        identifiers: whose rows.
        scrypt: how they are digested.
        digests: their digests.
        drop_tags: whether tags that hold rows are dropped.
    """

    id: str
    identifiers: Identifiers
    scrypt: Scrypt
    digests: tuple[str, ...]
    drop_tags: bool


class TableErasure:
    """The erasure of rows from one table.

    Args:
        lake: the lake.
        item: the table, with its `columns`.
        steps: what was done to it before.
        erasure: what is erased.
        views: the identifiers in the session.
    """

    def __init__(self, lake: Lake, item: Item, steps: Steps, erasure: Erasure, views: Views) -> None:
        self._lake = lake
        self._item = item
        self._steps = steps
        self._erasure = erasure
        self._views = views
        self._table = TableName(tuple(item.payload["namespace"]), item.payload["name"])
        self._counts: Counter[str] = Counter()
        self._findings: list[Finding] = []

    def run(self) -> Outcome:
        """Erase what is left, and record a certificate.

        Raises:
            LakewardenError, PySparkException: an error that concerns all tables.
        """
        outcome = self._outcome()
        if outcome.status is not Status.DONE:
            with suppress(NotAuthorized, NoSuchTable):
                self._certify({"left": (outcome.reason or "unknown")[:_REASON]})
        return outcome

    def look(self) -> Outcome:
        """Count the matching rows, and change nothing; errors as in `run`."""
        if (problem := self._item.payload.get("problem")) is not None:
            return self._redacted(Outcome.of(self._item, Status.FAILED, problem))
        try:
            state = self._state(self._search())
        except REFUSALS as error:
            return self._redacted(outcome_of(self._item, error))
        for branch, head in state.branches.items():
            if rows := state.matches[head]:
                message = f"{rows} rows of the branch {branch} match."
                self._findings.append(ROWS_FOUND.found(self._item.table, message, snapshot=head, ref=branch))
        if state.concerned:
            self._report_tags(state)
        self._counts["rows"] = sum(state.matches[head] for head in state.branches.values())
        self._counts["expiring-snapshots"] = len(state.expiring) if state.concerned else 0
        return self._redacted(
            Outcome.of(self._item, findings=tuple(self._findings), counts=dict(self._counts))
        )

    def _outcome(self) -> Outcome:
        try:
            status, why = self._erase()
        except REFUSALS as error:
            return self._redacted(outcome_of(self._item, error, tuple(self._findings)))
        return self._redacted(Outcome.of(self._item, status, why, tuple(self._findings), dict(self._counts)))

    def _redacted(self, outcome: Outcome) -> Outcome:
        """Return the outcome without identifiers: errors of the catalog can name partitions and paths."""
        redacted = self._erasure.identifiers.redacted
        findings = tuple(
            replace(each, message=redacted(each.message), path=each.path and redacted(each.path))
            for each in outcome.findings
        )
        return replace(outcome, reason=outcome.reason and redacted(outcome.reason), findings=findings)

    def _erase(self) -> tuple[Status, str | None]:
        problem = self._item.payload.get("problem")
        if problem is not None:
            return Status.FAILED, problem
        search = self._search()
        state = self._state(search)
        if self._touched(state):
            self._require_no_equality_deletes(state)
            if self._erasure.drop_tags:
                self._drop_tags(state)
            self._delete(search, state)
            state = self._rewrite(search, state)
            problem = self._expire(search, state)
        # The second search: of all that is retained, with nothing taken over from the first one.
        state = self._state(search)
        return self._end(state, problem)

    def _touched(self, state: State) -> bool:
        """Return whether the table has, or had, rows of the identifiers."""
        return state.concerned or bool(self._steps.of(self._item))

    def _search(self) -> Search:
        metadata = self._lake.metadata(self._table)
        require_deletable(metadata, self._item.table)
        return Search(self._lake, self._table, self._views, metadata, self._item.payload["columns"])

    def _state(self, search: Search, known: State | None = None) -> State:
        """Search the retained snapshots; those that an earlier state knows are not searched again."""
        metadata = self._lake.metadata(self._table)
        ids = {each.snapshot_id for each in metadata.snapshots}
        before = {} if known is None else {each: n for each, n in known.matches.items() if each in ids}
        matches = before | search.count(metadata, ids - before.keys())
        rows = self._lake.sql(
            "SELECT reference_snapshot_id AS id, max(content) > 0 AS deletes, "
            "sum(deleted_data_files_count + deleted_delete_files_count) > 0 AS removed "
            f"FROM {self._lake.name(self._table)}.all_manifests GROUP BY reference_snapshot_id"
        )
        deletes = frozenset(row["id"] for row in rows if row["deletes"]) & ids
        removed = frozenset(row["id"] for row in rows if row["removed"]) & ids
        return State(metadata, matches, deletes, removed)

    def _require_no_equality_deletes(self, state: State) -> None:
        if not state.deletes:
            return
        (row,) = self._lake.sql(
            f"SELECT count(*) AS n FROM {self._lake.name(self._table)}.all_delete_files WHERE content = 2"
        )
        if row["n"]:
            raise RequestInvalid(
                f"The table has {row['n']} equality delete files, which can have identifiers.",
                table=self._item.table,
                rule="equality-deletes",
                hint="Compact the table, expire its snapshots, and run the erasure again.",
            )

    def _drop_tags(self, state: State) -> None:
        for tag in state.holding_tags:
            self._lake.sql(f"ALTER TABLE {self._lake.name(self._table)} DROP TAG IF EXISTS {quoted(tag)}")
            self._counts["dropped-tags"] += 1

    def _delete(self, search: Search, state: State) -> None:
        for branch, head in state.branches.items():
            for attempt in range(1, _ATTEMPTS + 1):
                rows = state.matches.get(head, 0)
                if not rows:
                    break
                self._note_rows(branch, head, rows)
                try:
                    search.delete(branch)
                    break
                except PySparkException as error:
                    if name_of(error) not in _CONFLICTS or attempt == _ATTEMPTS:
                        raise
                    self._note_rows(branch, head, 0)  # A conflict deleted nothing.
                state = self._state(search, state)
                head = state.branches.get(branch, head)

    def _note_rows(self, branch: str, head: int, rows: int) -> None:
        """Record how many rows are about to be deleted; the same head again was not deleted from."""
        step = f"branch {branch}"
        done = self._steps.of(self._item).get(step, {"head": None, "rows": 0, "before": 0})
        before = done["before"] if done["head"] == head else done["before"] + done["rows"]
        self._steps.record(self._item, step, {"head": head, "rows": rows, "before": before})

    @property
    def _deleted_rows(self) -> int:
        noted = self._steps.of(self._item)
        return sum(
            each["rows"] + each["before"] for step, each in noted.items() if step.startswith("branch ")
        )

    def _rewrite(self, search: Search, state: State) -> State:
        """Rewrite what holds deleted rows at the heads of branches: data files, then manifests."""
        state = self._state(search, state)
        for branch, head in state.branches.items():
            if head in state.deletes:
                self._lake.sql(
                    f"CALL {quoted(self._lake.catalog)}.system.rewrite_data_files(table => :table, "
                    "branch => :branch, options => map('delete-file-threshold', '1'))",
                    {"table": self._lake.name(self._table), "branch": branch},
                )
            for spec in state.metadata.partition_specs:
                body = {"branch": branch, "spec-id": spec.spec_id}
                self._lake.engine(self._table, ("manifests", "rewrite"), body)
        return self._state(search, state)

    def _expire(self, search: Search, state: State) -> str | None:
        """Expire the snapshots that hold rows; return why files were kept."""
        problem = None
        for _ in range(_ATTEMPTS):
            noted = set(self._steps.of(self._item).get(_EXPIRING, {"snapshots": []})["snapshots"])
            if not state.expiring <= noted:
                noted |= state.expiring
                self._steps.record(self._item, _EXPIRING, {"snapshots": sorted(noted)})
            # Also those that are gone: an interrupted call can have left files. Others of the record stay.
            retained = {each.snapshot_id for each in state.metadata.snapshots}
            named = noted - (retained - state.expiring)
            if not named:
                break
            ids = ", ".join(map(str, sorted(named)))
            (row,) = self._lake.sql(
                f"CALL {quoted(self._lake.catalog)}.system.expire_snapshots(table => :table, "
                f"older_than => {_NEVER}, snapshot_ids => array({ids}))",
                {"table": self._lake.name(self._table)},
            )
            self._counts["deleted-data-files"] += row["deleted_data_files_count"]
            problem = row["problem"]
            state = self._state(search, state)
            if not state.expiring:
                break
        self._counts["expired-snapshots"] = len(self._gone(state))
        return problem

    def _gone(self, state: State) -> list[int]:
        noted = self._steps.of(self._item).get(_EXPIRING, {"snapshots": []})["snapshots"]
        return sorted(set(noted) - {each.snapshot_id for each in state.metadata.snapshots})

    def _end(self, state: State, problem: str | None) -> tuple[Status, str | None]:
        """Report what is left; if nothing is, record the certificate."""
        self._counts["rows"] = self._deleted_rows
        tags = self._report_tags(state) if self._touched(state) else ()
        branches = [
            f"{state.matches[head]} rows match on the branch {branch}"
            for branch, head in state.branches.items()
            if state.matches[head]
        ]
        if branches:
            self._findings.append(ROWS_LEFT.found(self._item.table, f"{'; '.join(branches)}."))
            return Status.LEFT, f"Rows were added meanwhile: {'; '.join(branches)}."
        if tags:
            return Status.FAILED, f"Tags keep snapshots that hold rows, or can: {', '.join(tags)}."
        left = self._files_left(state) if self._touched(state) else None
        if left or problem:
            told = " ".join(filter(None, (left, problem)))
            self._findings.append(FILES_LEFT.found(self._item.table, told))
            return Status.FAILED if problem else Status.LEFT, told
        self._certify({"erased": self._erased(state)})
        return Status.DONE, None

    def _report_tags(self, state: State) -> Sequence[str]:
        for tag, at in state.holding_tags.items():
            rows = state.matches.get(at, 0)
            message = f"{rows} rows match in the snapshot of the tag {tag}." if rows else None
            self._findings.append(TAG_HOLDS_ROWS.found(self._item.table, message, snapshot=at, ref=tag))
        return list(state.holding_tags)

    def _files_left(self, state: State) -> str | None:
        heads = set(state.branches.values())
        if state.expiring:
            return f"{len(state.expiring)} snapshots that hold rows are retained."
        if heads & state.deletes:
            return "A branch has delete files, so its data files can have deleted rows."
        if heads & state.removed:
            return "A branch has manifests with entries of removed files."
        return None

    def _erased(self, state: State) -> dict[str, Any]:
        return {
            "table-uuid": str(state.metadata.table_uuid),
            "columns": list(self._item.payload["columns"]),
            "rows": self._deleted_rows,
            "snapshots-gone": self._gone(state),
            "snapshots-searched": sorted(state.matches),
        }

    def _certify(self, statement: dict[str, Any]) -> None:
        scrypt = self._erasure.scrypt
        identifiers = {
            "cost": scrypt.cost,
            "block-size": scrypt.block_size,
            "parallelism": scrypt.parallelism,
            "salt": scrypt.salt,
            "digests": list(self._erasure.digests),
        }
        body = {"id": self._erasure.id, "table": str(self._table), "identifiers": identifiers, **statement}
        self._lake.admin("POST", ("lake", "certificates"), body)
