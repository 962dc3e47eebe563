"""Checks that the fields of a commit go together, before anything is read."""

from __future__ import annotations

from typing import Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFileContent

from catalog.reading.loading import LoadedTable
from catalog.writes.new_files import FileCommit, Isolation
from policy.errors import RequestInvalid

#: Snapshot summary entry of a staged snapshot, as Iceberg writes it.
WAP_ID: Final = "wap.id"
#: Snapshot summary entry of a dynamic overwrite, as Iceberg writes it.
REPLACES: Final = "replace-partitions"
#: What clients decide by whether a snapshot can be picked, and was picked (Iceberg's `SnapshotSummary`).
_TOLD: Final = frozenset({WAP_ID, REPLACES, "source-snapshot-id", "published-wap-id"})
_WAP: Final = "write.wap.enabled"


def check_form(files: FileCommit, table: LoadedTable) -> None:
    """Check that the fields of a commit do not contradict its operation or each other.

    Raises:
        RequestInvalid: they do.
    """
    contents = {each.content for each in files.added}
    deletes = bool(contents - {DataFileContent.DATA})
    removal = [bool(files.deleted_paths), files.delete_filter is not None, files.replace_partitions]
    conditional = files.removes_rows_by_condition
    for problem, hint, found in (
        (
            "has no snapshot, but does not create or replace its table",
            "Commit the files as an append, delete, overwrite or replace.",
            files.operation == "none",
        ),
        (
            "removes files or adds delete files, but is an append",
            "Commit it as an overwrite or delete.",
            files.operation == "append" and (any(removal) or deletes),
        ),
        (
            "adds data files, but is a delete",
            "Commit it as an overwrite.",
            files.operation == "delete" and DataFileContent.DATA in contents,
        ),
        (
            "is a replace with a filter, an isolation level or a command",
            "Name the files to replace in deleted-paths.",
            files.operation == "replace"
            and (conditional or _isolated(files) or files.conflict_filter is not None),
        ),
        (
            "gives more than one of deleted-paths, delete-filter and replace-partitions",
            "Give one of them.",
            sum(removal) > 1,
        ),
        (
            "adds delete files, and removes files by a condition",
            "Name the files to remove in deleted-paths.",
            deletes and conditional,
        ),
        (
            "gives both a command and an isolation level",
            "Give one of them: the table's properties have the isolation level of a command.",
            files.command is not None and files.isolation is not None,
        ),
        (
            "names files, but has no isolation",
            "Leave isolation-level out, or give serializable or snapshot.",
            files.isolation is Isolation.NONE and (bool(files.deleted_paths) or deletes),
        ),
        (
            f"has one of the summary entries {', '.join(sorted(_TOLD))}",
            "Leave them out: the catalog writes them by wap-id and replace-partitions.",
            not _TOLD.isdisjoint(files.summary),
        ),
        (
            "has an epoch, but is neither an append nor an overwrite of all rows",
            "Commit it without an epoch.",
            files.epoch is not None and not _of_stream(files),
        ),
        (
            "names files that its rows were copied from, but is not an append",
            "Commit it without them.",
            files.copied is not None and files.operation != "append",
        ),
        (
            "has an empty wap-id",
            "Leave wap-id out to commit to the branch.",
            files.wap_id == "",
        ),
        (
            f"has a wap-id, but the table does not set {_WAP}=true",
            f"Set {_WAP}=true first.",
            files.wap_id is not None and table.metadata.properties.get(_WAP, "").lower() != "true",
        ),
    ):
        if found:
            raise RequestInvalid(f"The commit {problem}.", table=table.name, rule="operation", hint=hint)


def _of_stream(files: FileCommit) -> bool:
    return files.operation == "append" or (
        files.operation == "overwrite" and isinstance(files.delete_filter, AlwaysTrue)
    )


def _isolated(files: FileCommit) -> bool:
    return files.command is not None or files.isolation is not None
