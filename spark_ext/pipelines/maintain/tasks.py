"""Does one task of a table, by a CALL of the catalog's procedure.

The procedures decide what is done to which file, and stay inside the table's own locations. Each can be
stopped at any time, and called again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pyspark.sql import Row

from catalog.base.identifiers import TableName
from spark_ext.pipelines.items import Item, Outcome, Rule, Severity, Status
from spark_ext.pipelines.lake import Lake, quoted
from spark_ext.pipelines.maintain.document import Kind, Task
from spark_ext.pipelines.refusals import REFUSALS, outcome_of, status_of_problem

FILES_LEFT: Final = Rule(
    "files-not-compacted",
    Severity.WARNING,
    "Files could not be compacted.",
    "Correct the cause. The next run tries again.",
)
FILES_KEPT: Final = Rule(
    "files-kept",
    Severity.NOTE,
    "Files of expired snapshots were kept.",
    "Remove them by hand, if they belong to no other table.",
)
RULES: Final = (FILES_LEFT, FILES_KEPT)

#: By setting of the policy, the option of the procedures.
_OPTIONS: Final = {
    "target-size": "target-file-size-bytes",
    "group-size": "max-file-group-size-bytes",
    "min-input-files": "min-input-files",
    "delete-files": "delete-file-threshold",
    "delete-ratio": "delete-ratio-threshold",
}
_ARGUMENTS: Final = {"strategy": "strategy", "sort-order": "sort_order", "where": "where"}


class Maintenance:
    """One task of one table.

    Args:
        lake: the lake.
        item: the table and the task.
        now: the time, with a zone: ages are counted from it.
    """

    def __init__(self, lake: Lake, item: Item, now: datetime) -> None:
        self._lake = lake
        self._item = item
        self._now = now
        self._table = TableName(tuple(item.payload["namespace"]), item.payload["name"])

    def run(self) -> Outcome:
        """Do it; return what became of it.

        Raises:
            LakewardenError, PySparkException: an error that concerns all tables.
        """
        if "task" not in self._item.payload:
            return Outcome.of(self._item, Status.FAILED, self._item.why)
        kind = Kind(self._item.payload["task"])
        task = Task(kind, 0, self._item.payload["settings"])
        work = {
            Kind.COMPACT: self._compact,
            Kind.POSITION_DELETES: self._position_deletes,
            Kind.MANIFESTS: self._manifests,
            Kind.EXPIRE: self._expire,
            Kind.ORPHANS: self._orphans,
        }
        try:
            return work[kind](task.settings)
        except REFUSALS as error:
            return outcome_of(self._item, error)

    def _compact(self, settings: Mapping[str, str]) -> Outcome:
        (row,) = self._call("rewrite_data_files", _arguments(settings), settings)
        counts = {
            "rewritten-files": row["rewritten_data_files_count"],
            "rewritten-bytes": row["rewritten_bytes_count"],
            "added-files": row["added_data_files_count"],
        }
        groups, files = row["failed_groups"], row["failed_data_files_count"]
        if not groups + files:
            return Outcome.of(self._item, counts=counts)
        found = FILES_LEFT.found(self._item.table, row["problem"])
        why = f"{groups} groups and {files} files could not be compacted. {row['problem'] or ''}".strip()
        return Outcome.of(self._item, status_of_problem(row["problem"]), why, (found,), counts)

    def _position_deletes(self, settings: Mapping[str, str]) -> Outcome:
        (row,) = self._call("rewrite_position_delete_files", _arguments(settings), settings)
        names = ("rewritten_delete_files_count", "added_delete_files_count")
        return Outcome.of(self._item, counts=_counts(row, names))

    def _manifests(self, settings: Mapping[str, str]) -> Outcome:
        (row,) = self._call("rewrite_manifests", {}, settings)
        return Outcome.of(
            self._item, counts=_counts(row, ("rewritten_manifests_count", "added_manifests_count"))
        )

    def _expire(self, settings: Mapping[str, str]) -> Outcome:
        keep = {"retain_last": int(settings["keep"])} if "keep" in settings else {}
        (row,) = self._call("expire_snapshots", {**self._older_than(settings), **keep}, {})
        found = (FILES_KEPT.found(self._item.table, row["problem"]),) if row["problem"] else ()
        counted = _counts(row, tuple(name for name in row.asDict() if name.startswith("deleted_")))
        return Outcome.of(self._item, findings=found, counts=counted)

    def _orphans(self, settings: Mapping[str, str]) -> Outcome:
        rows = self._call("remove_orphan_files", self._older_than(settings), {})
        return Outcome.of(self._item, counts={"removed-orphan-files": len(rows)})

    def _older_than(self, settings: Mapping[str, str]) -> dict[str, datetime]:
        if "age" not in settings:
            return {}
        return {"older_than": self._now - timedelta(seconds=int(settings["age"]))}

    def _call(self, procedure: str, arguments: Mapping[str, Any], settings: Mapping[str, str]) -> list[Row]:
        given = {"table": self._lake.name(self._table), **arguments}
        options = {_OPTIONS[name]: value for name, value in settings.items() if name in _OPTIONS}
        texts = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
        listed = [f"{name} => :{name}" for name in given]
        listed += [f"options => map({texts})"] if options else []
        return self._lake.sql(
            f"CALL {quoted(self._lake.catalog)}.system.{procedure}({', '.join(listed)})", given
        )


def _arguments(settings: Mapping[str, str]) -> dict[str, str]:
    return {_ARGUMENTS[name]: value for name, value in settings.items() if name in _ARGUMENTS}


def _counts(row: Row, names: tuple[str, ...]) -> dict[str, int]:
    return {name.removesuffix("_count").replace("_", "-"): row[name] for name in names}
