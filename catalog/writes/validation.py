"""Validates a commit against the commits that its branch got since its base (docs/rest-api.md, "Conflicts").

The rules are those of Iceberg's `OverwriteFiles`, `RowDelta`, `ReplacePartitions` and `RewriteFiles`. They
compare the base with the head, not each snapshot between them. Four differences are on the side of a
conflict:

- A base that expired, or from which an expired snapshot leads to the head, is a conflict.
- A data file that a delete file refers to has to be live, also if a DELETE removed it.
- Files that a snapshot added that has expired count as files with new rows.
- Under `serializable`, new delete files in the scope conflict with a copy-on-write commit too.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.schema import Schema

from catalog.base.errors import ConcurrentModification
from catalog.reading.loading import LoadedTable
from catalog.rules.required_columns import lacking
from catalog.writes.applying import DeleteFiles
from catalog.writes.new_files import FileCommit, Isolation
from catalog.writes.scopes import Files, Scope
from catalog.writes.since import HINT, Since
from policy.errors import RequestInvalid

_LEVEL: Final = "write.{}.isolation-level"
#: What to do if it is not known which columns rows have; the same commit fails each time.
_UNKNOWN: Final = "Nothing was committed. Give the id of the schema of the rows in schema-id."


def isolation_of(table: LoadedTable, files: FileCommit) -> Isolation:
    """Return the isolation level of a commit."""
    if files.isolation is not None:
        return files.isolation
    if files.command is not None:
        level = table.metadata.properties.get(_LEVEL.format(files.command), Isolation.SERIALIZABLE.value)
        return Isolation(level.lower())
    by_condition = files.removes_rows_by_condition
    return Isolation.NONE if by_condition else Isolation.SERIALIZABLE


def _id_of(schema: Schema | None, name: str, files: FileCommit) -> int | None:
    try:
        return None if schema is None else schema.find_field(name, files.case_sensitive).field_id
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Validation:
    """Validates one commit.

    Attributes:
        table: the table, sealed.
        files: the commit.
        scope: the rows that it read or removes.
        since: what the branch got and lost since the base.
        level: the isolation level.
    """

    table: LoadedTable
    files: FileCommit
    scope: Scope
    since: Since
    level: Isolation

    def check_read(self, live: Container[str], referenced: Iterable[str]) -> None:
        """Check that the files that the commit names are the ones that were read.

        Args:
            live: those data files of the head that new delete files refer to.
            referenced: the data files that they refer to.

        Raises:
            ConcurrentModification: a file is gone, or was removed and added again.
            RequestInvalid: a delete file refers to a file that the branch never had.
        """
        new, gone = self.since.new_paths, self.since.gone_paths
        for path in sorted(new.intersection(self.files.deleted_paths)):
            raise self._conflict("removed-files", "A file to remove is not the file that was read.", path)
        for path in sorted(set(referenced)):
            if path in self.files.deleted_paths:
                raise self._foreign("A delete file refers to a data file that the commit removes.", path)
            if path not in live and path not in gone:
                raise self._foreign(
                    "A delete file refers to a data file that the branch does not have.", path
                )
            if path not in live or path in new:
                message = "Another commit removed a data file that the statement deletes rows of."
                raise self._conflict("referenced-files", message, path)

    def to_remove(self) -> list[str]:
        """Return the files to remove by name that another commit has not removed already.

        A DELETE that includes the positions of an earlier delete file in its own can find it removed by
        another DELETE, which includes them too.
        """
        if self.files.command != "delete":
            return list(self.files.deleted_paths)
        gone = frozenset(
            path
            for each in self.since.gone
            if not each.is_data
            for path in each.entries["file_path"].to_pylist()
        )
        return [path for path in self.files.deleted_paths if path not in gone]

    def check_deletes(
        self,
        removed: Sequence[ManifestEntry],
        referenced: Mapping[str, tuple[DataFile, int]],
    ) -> None:
        """Check that no new delete file deletes rows of files that the commit removes or deletes rows of.

        Args:
            removed: the entries of the removed files.
            referenced: the data files that new delete files refer to, with their sequence numbers.

        Raises:
            ConcurrentModification: one does.
        """
        # Deleting a row twice is no conflict, nor is packing its earlier deletes.
        harmless = self.files.command == "delete" or self.files.operation == "replace"
        files = {} if harmless else dict(referenced)
        if not self.files.removes_rows_by_condition:
            files |= {
                each.data_file.file_path: (each.data_file, each.sequence_number or 0)
                for each in removed
                if each.data_file.content == DataFileContent.DATA
            }
        deletes = DeleteFiles(self.table, (each for each in self.since.new if not each.is_data))
        for file, number in files.values():
            found = deletes.applying(file, number)
            if found is not None:
                message = (
                    "Another commit added a delete file, which deletes rows of a file that the statement "
                    "rewrites or deletes rows of."
                )
                raise self._conflict("new-deletes", message, file.file_path, found.snapshot_id)

    def check_scope(self) -> None:
        """Check that no conflicting files came into the scope, or went out of it.

        Raises:
            ConcurrentModification: one did.
        """
        if self.level is Isolation.NONE or self.files.operation in ("append", "replace"):
            return
        new, conditional = self.since.new, self.files.removes_rows_by_condition
        data, deletes = ([each for each in new if each.is_data is wanted] for wanted in (True, False))
        if self.level is Isolation.SERIALIZABLE:
            message = "Another commit added rows that the statement would have read."
            self._refuse("new-data", message, self._changing(data))
        # Deleting a row twice is no conflict.
        if conditional or (self.level is Isolation.SERIALIZABLE and self.files.command != "delete"):
            message = "Another commit deleted rows that the statement read or removes."
            self._refuse("deleted-data", message, self._changing(deletes))
        if conditional:
            gone = (each for each in self.since.gone if each.is_data)
            message = "Another commit removed a file that the statement removes."
            self._refuse("deleted-data", message, gone, told=False)

    def check_schema(self) -> None:
        """Check that the rows mean under the current schema what they meant when they were read and written.

        Raises:
            ConcurrentModification: they do not.
        """
        read_by, metadata = self.files.schema_id, self.table.metadata
        if read_by is None:
            self._check_names()
        elif read_by != metadata.current_schema_id and self.files.reads_by_schema:
            raise self._other_schema(f"The rows were read with schema {read_by}", "")
        if any(each.content == DataFileContent.DATA for each in self.files.added):
            missing = lacking(metadata, read_by)
            if missing is not None:
                wrote = "an unknown schema" if read_by is None else f"schema {read_by}"
                raise self._other_schema(
                    f"The rows were written with {wrote}",
                    f", which requires the column {missing}",
                    _UNKNOWN if read_by is None else HINT,
                )

    def _other_schema(self, what: str, why: str, hint: str = HINT) -> ConcurrentModification:
        return ConcurrentModification(
            f"{what}, but the table now has schema {self.table.metadata.current_schema_id}{why}.",
            table=self.table.name,
            rule="schema",
            hint=hint,
        )

    def _check_names(self) -> None:
        """Check that no name in a filter was another column's in the schema of the base."""
        metadata, base_id = self.table.metadata, self.files.base_snapshot_id
        base = None if base_id is None else metadata.snapshot_by_id(base_id)
        then = None if base is None or base.schema_id is None else metadata.schema_by_id(base.schema_id)
        for name in sorted(self.files.filtered_names) if then is not None else ():
            if _id_of(then, name, self.files) not in (None, _id_of(metadata.schema(), name, self.files)):
                raise ConcurrentModification(
                    f"The name {name[:80]!r} in a filter was another column's in the snapshot {base_id}.",
                    table=self.table.name,
                    snapshot=base_id,
                    rule="schema",
                    hint="Give the id of the plan's schema in schema-id.",
                )

    def _changing(self, some: Iterable[Files]) -> Iterable[Files]:
        """Return the files without those that a `replace` of files of the base added: it changes no row."""
        for files in some:
            added_by = files.manifest.entries["snapshot_id"].to_pylist()
            came = np.array([each not in self.since.replaces for each in added_by], np.bool_)
            yield Files(files.manifest, files.chosen & came)

    def _refuse(self, rule: str, message: str, some: Iterable[Files], *, told: bool = True) -> None:
        """Refuse files in the scope; `told` says whether their entries name the snapshot that conflicts."""
        for files in some:
            touched = Files(files.manifest, self.scope.touches(files))
            if touched.chosen.any():
                entry = touched.entries.slice(0, 1).select(["file_path", "snapshot_id"]).to_pylist()[0]
                raise self._conflict(
                    rule, message, entry["file_path"], entry["snapshot_id"] if told else None
                )

    def _foreign(self, message: str, path: str) -> RequestInvalid:
        return RequestInvalid(
            message,
            table=self.table.name,
            path=path,
            rule="delete-reference",
            hint="Refer to data files as the plan of the branch named them.",
        )

    def _conflict(
        self, rule: str, message: str, path: str, snapshot_id: int | None = None
    ) -> ConcurrentModification:
        return ConcurrentModification(
            message, table=self.table.name, snapshot=snapshot_id, path=path, rule=rule, hint=HINT
        )
