"""What a caller asks to read of a table."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyiceberg.expressions import AlwaysTrue, BooleanExpression


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What somebody wants to read.

    Attributes:
        snapshot_id: the snapshot, or
        ref: the branch or tag, or
        as_of_ms: the time, in milliseconds since 1970, as of which to read; by default the current snapshot.
        columns: columns to read, nested ones dotted; None for all.
        filter: rows that are wanted; files without any may be left out.
        case_sensitive: whether names in `columns` and `filter` are.
        files: paths of the data files to read and no others, in order to write their rows anew; None for all.
    """

    snapshot_id: int | None = None
    ref: str | None = None
    as_of_ms: int | None = None
    columns: tuple[str, ...] | None = None
    filter: BooleanExpression = field(default_factory=AlwaysTrue)
    case_sensitive: bool = True
    files: frozenset[str] | None = None
