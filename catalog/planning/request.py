"""What a caller asks to read of a table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

READ_RESTRICTIONS: Final = "read-restrictions"
"""A reader that applies the row filter and the masks of a plan."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """A request to read a table.

    Attributes:
        snapshot_id: the snapshot, or
        ref: the branch or tag, or
        as_of_ms: the time, in milliseconds since 1970, as of which to read; by default the current snapshot.
        start_snapshot_id: reads what was appended after this snapshot (`increments`), up to
        end_snapshot_id: this one; by default the current snapshot.
        start_inclusive: whether what the start appended is read, too.
        changes: reads the rows that snapshots added and removed (`changes`): those after the start, or all up
            to the end.
        use_snapshot_schema: whether an earlier snapshot is read by its own schema, not the current one.
        columns: columns to read, nested ones dotted; None for all.
        filter: rows to read; files without any can be skipped.
        case_sensitive: whether names in `columns` and `filter` are.
        column_statistics: whether the plan sums up the statistics of its columns.
        files: paths of the only data files to read, or of position delete files, in order to rewrite their
            rows; None for all.
        enforces: what the caller's reader applies, if the plan says so: `READ_RESTRICTIONS`.
        every_file: whether files are planned that have no row for the row filter of a policy: streams count
            files, whatever the policies are.
    """

    snapshot_id: int | None = None
    ref: str | None = None
    as_of_ms: int | None = None
    columns: tuple[str, ...] | None = None
    filter: BooleanExpression = field(default_factory=AlwaysTrue)
    case_sensitive: bool = True
    files: frozenset[str] | None = None
    start_snapshot_id: int | None = None
    end_snapshot_id: int | None = None
    start_inclusive: bool = False
    changes: bool = False
    use_snapshot_schema: bool = True
    column_statistics: bool = False
    enforces: frozenset[str] = frozenset()
    every_file: bool = False

    @property
    def is_incremental(self) -> bool:
        """Return whether it asks for appends or changes between two snapshots."""
        bounds = (self.start_snapshot_id, self.end_snapshot_id)
        return any(each is not None for each in bounds) or self.start_inclusive or self.changes
