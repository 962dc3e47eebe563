"""Rewrites the files of one table whose encryption differs from its properties, group by group.

Every step is a CALL of the catalog's procedure `rewrite_data_files`, which commits one group of files. So it
can be stopped at any time, and begun again: it goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Row

from catalog.base.identifiers import TableName
from spark_ext.pipelines.failures import concerns_all, reason
from spark_ext.pipelines.lake import Lake, quoted

_GROUP: Final = "max-file-group-size-bytes"

#: Is told how many bytes were rewritten, and of how many.
Tell = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What was done to a table.

    Attributes:
        files: files that were rewritten.
        bytes: their size.
        added: the files that came in their place.
        left: files that still are not as the table's properties say, on all branches.
        left_bytes: their size.
        problem: why some are left, a line each; None if nothing was in the way.
        error: the last error of a call.
    """

    files: int = 0
    bytes: int = 0
    added: int = 0
    left: int = 0
    left_bytes: int = 0
    problem: str | None = None
    error: PySparkException | None = None


class Rewriting:
    """The rewriting of one table.

    Args:
        lake: the lake.
        table: the table.
        max_group_bytes: bytes of files that are committed together; None for the procedure's default.
        tell: is told the progress.
    """

    def __init__(
        self, lake: Lake, table: TableName, max_group_bytes: int | None = None, tell: Tell | None = None
    ) -> None:
        self._lake = lake
        self._table = table
        self._size = "" if max_group_bytes is None else f", options => map('{_GROUP}', '{max_group_bytes}')"
        self._tell = tell
        self._failing = False
        self.done = Rewritten()

    def count(self) -> int:
        """Count the files that have to be rewritten. This takes the rights to rewrite them.

        Raises:
            PySparkException: the catalog refuses.
        """
        self._step(max_groups=0)
        return self.done.left

    def run(self) -> Rewritten:
        """Rewrite what has to be. What cannot be is left, with the reason.

        Raises:
            PySparkException: an error that concerns every table.
        """
        try:
            self._step(max_groups=0)
            while self.done.left and self._step(max_groups=1) and not self._failing:
                pass
        except PySparkException as problem:
            self._failed(problem)
        if self._failing:
            # The rest by one call, which passes over what fails, and need not find it out for each group.
            try:
                self._step()
            except PySparkException as problem:
                self._failed(problem)
        return self.done

    def _failed(self, problem: PySparkException) -> None:
        self._failing = True
        if concerns_all(problem):
            raise problem
        told = f"{self.done.problem or ''}\n{reason(problem)}".split("\n")
        self.done = replace(self.done, problem="\n".join(dict.fromkeys(filter(None, told))), error=problem)

    def _step(self, **options: int) -> bool:
        """Make one CALL; return whether it rewrote something."""
        row = self._call(options)
        self._failing = row["failed_groups"] + row["failed_data_files_count"] > 0
        done = self.done
        self.done = replace(
            done,
            files=done.files + row["rewritten_data_files_count"],
            bytes=done.bytes + row["rewritten_bytes_count"],
            added=done.added + row["added_data_files_count"],
            left=row["left_files"],
            left_bytes=row["left_bytes"],
            problem=row["problem"] or (done.problem if row["left_files"] else None),
        )
        if self._tell is not None:
            self._tell(self.done.bytes, self.done.bytes + row["left_bytes"])
        return bool(row["rewritten_data_files_count"])

    def _call(self, options: dict[str, int]) -> Row:
        listed = "".join(f", {name} => {value}" for name, value in options.items())
        procedure = f"{quoted(self._lake.catalog)}.system.rewrite_data_files"
        name = self._lake.name(self._table)
        (row,) = self._lake.sql(f"CALL {procedure}(table => :table{listed}{self._size})", {"table": name})
        return row
