"""Records which files outside of a table its rows were copied from (`add_files`).

A copy has no reference to its source, so a repeated call would add the rows again. The catalog records the
digest of each source's name in the transaction that moves the metadata pointer. The names can contain
partition values, which the metadata of an encrypted table must not show; the database is trusted.

Source: Apache Iceberg, the procedure `add_files`, `check_duplicate_files`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, insert, select

from catalog.db.schema import lw_copied_file
from policy.errors import RequestInvalid

#: Digests in one SQL statement.
_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """The source files of a commit.

    Attributes:
        digests: SHA-256 of the name of each file, in hexadecimal.
        once: whether a file that was copied into the table before is refused.
    """

    digests: frozenset[str]
    once: bool = True


@dataclass(frozen=True, slots=True)
class CopyCommit:
    """Source files that a write commits the rows of.

    Attributes:
        table_id: the table's internal id.
        table: the table's name, for messages.
        copied: the files.
        write_id: the write.
    """

    table_id: str
    table: str
    copied: CopiedFiles
    write_id: str

    def record(self, connection: Connection, now_ms: int) -> None:
        """See `CommitRecord.record`.

        Raises:
            RequestInvalid: another write copied one of the files into the table.
        """
        known = dict(self._known(connection))
        repeated = sum(write_id != self.write_id for write_id in known.values())
        if self.copied.once and repeated:
            raise RequestInvalid(
                f"{repeated} of {len(self.copied.digests)} source files were copied into the table before.",
                table=self.table,
                rule="duplicate-files",
                hint="Name only new files or partitions. To copy the rows again, pass "
                "check_duplicate_files => false.",
            )
        new = sorted(self.copied.digests - known.keys())
        if new:
            shared = {"table_id": self.table_id, "write_id": self.write_id, "committed_ms": now_ms}
            connection.execute(insert(lw_copied_file), [{"digest": each, **shared} for each in new])

    def _known(self, connection: Connection) -> Iterator[tuple[str, str]]:
        """The files that were copied before, and the write that did."""
        columns = lw_copied_file.c
        named = sorted(self.copied.digests)
        for at in range(0, len(named), _AT_ONCE):
            statement = select(columns.digest, columns.write_id).where(
                columns.table_id == self.table_id, columns.digest.in_(named[at : at + _AT_ONCE])
            )
            yield from ((row.digest, row.write_id) for row in connection.execute(statement))
