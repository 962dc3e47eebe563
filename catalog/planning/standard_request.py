"""Describes a scan as standard clients ask for it, and keeps it in JSON.

Source: Iceberg REST specification, "PlanTableScanRequest".
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from pyiceberg.expressions import AlwaysTrue, BooleanExpression

from catalog.iceberg.expressions import filter_json, filter_of
from catalog.planning.request import ScanRequest
from policy.errors import RequestInvalid

_FILTER: Final = "filter"
_LISTS: Final = frozenset({"columns", "stats_fields"})


@dataclass(frozen=True, slots=True)
class StandardScan:
    """A scan as a standard client asks for it.

    Attributes:
        snapshot_id: the snapshot to read; by default the current one.
        columns: the columns that the client reads, nested ones dotted; None for all.
        filter: rows to read, not bound.
        case_sensitive: whether names in `columns`, `filter` and `stats_fields` are.
        use_snapshot_schema: whether names are those of the snapshot's schema, not the current one.
        start_snapshot_id: reads what was appended after this snapshot, up to
        end_snapshot_id: this one; both or none.
        stats_fields: columns whose statistics the client gets.
        min_rows: the number of rows that is enough for the client; None for all.
        schema_id: the schema that the names are of, once it is known.
    """

    snapshot_id: int | None = None
    columns: tuple[str, ...] | None = None
    filter: BooleanExpression = field(default_factory=AlwaysTrue)
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    start_snapshot_id: int | None = None
    end_snapshot_id: int | None = None
    stats_fields: tuple[str, ...] = ()
    min_rows: int | None = None
    schema_id: int | None = None

    @property
    def is_incremental(self) -> bool:
        """Return whether it asks for appends between two snapshots."""
        return self.start_snapshot_id is not None

    def require_valid(self, table: str) -> None:
        """Check what the specification says of snapshots.

        Args:
            table: dotted name, for the error.

        Raises:
            RequestInvalid: one end of an increment alone, or both kinds of scans at once.
        """
        ends = (self.start_snapshot_id, self.end_snapshot_id)
        if (None in ends and ends != (None, None)) or (self.snapshot_id is not None and ends[0] is not None):
            raise RequestInvalid(
                "The scan gives start-snapshot-id or end-snapshot-id alone, or together with snapshot-id.",
                table=table,
                rule="increment",
                hint="Give snapshot-id, or both start-snapshot-id and end-snapshot-id.",
            )

    def to_request(self) -> ScanRequest:
        """Convert it to the planner's request."""
        return ScanRequest(
            snapshot_id=self.snapshot_id,
            columns=self.columns,
            filter=self.filter,
            case_sensitive=self.case_sensitive,
            start_snapshot_id=self.start_snapshot_id,
            end_snapshot_id=self.end_snapshot_id,
            use_snapshot_schema=self.use_snapshot_schema,
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return values | {_FILTER: filter_json(self.filter)}

    @classmethod
    def from_json(cls, kept: dict[str, Any]) -> Self:
        """Return the scan that `to_json` wrote."""
        values: dict[str, Any] = {
            name: tuple(value) if name in _LISTS and value is not None else value
            for name, value in kept.items()
        }
        values[_FILTER] = filter_of(kept[_FILTER], transforms=True)
        return cls(**values)
