"""Decides whether a user can read a snapshot with equality deletes.

An equality delete compares columns of each row with the rows of a delete file. The reader reads these
columns, whether the scan asks for them or not, and shows them only if the scan does. Which rows are left
tells of their values, so the user needs `select` on them, unmasked.

The answer depends on the snapshot alone: every equality delete counts, whether it applies to a planned file
or not. Otherwise the refusal would tell of the values of files.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from catalog.authorization import columns as scans
from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import ACTION, ScanColumns, every_name, refuse_altered, view_of
from catalog.planning.definers import require_plain
from catalog.planning.equality_deletes import EqualityColumns
from catalog.reading.loading import LoadedTable
from policy.decision import Decision, Reason
from policy.errors import NotAuthorized
from policy.view import Scan, visible


@dataclass(frozen=True, slots=True)
class Comparing:
    """The columns that the equality deletes of a snapshot compare.

    Attributes:
        table: the table.
        schema: the schema of the scan.
        field_ids: the columns.
        filtered: whether the reader enforces the row filters of policies, if there are any: then only masks
            refuse.
    """

    table: LoadedTable
    schema: Schema
    field_ids: frozenset[int]
    filtered: bool = False

    def authorize(self, authorizer: Authorizer, caller: Caller) -> None:
        """Check that the caller can select all of them, under every name that they ever had.

        Raises:
            NotAuthorized: one is not granted, or is masked.
        """
        if not self.field_ids:
            return
        names = every_name(self.table, self.field_ids)
        reading = visible(view_of(authorizer, caller, self.table), Scan(names, {})).reading
        if reading.refused is None:
            authorizer.require(caller, ACTION, self.table.name, reading.required)
            masked = view_of(authorizer, caller, self.table).masked(names)
            refuse_altered(authorizer, caller, self.table, masked if self.filtered else reading.altered)
            require_plain(authorizer, caller, self.table, names, self.field_ids, [])
            return
        request, decision = reading.refused
        column = request.resource.values[-1]
        detail = (
            f"Rows of the table are deleted by the values of the column {column!r}: {decision.explanation}"
        )
        authorizer.record(
            caller, ACTION, self.table.name, Decision.deny(Reason("deletes", detail), *decision.reasons)
        )
        raise NotAuthorized(
            f"{caller.principal.name} is not authorized ({ACTION}): {detail}",
            table=self.table.name,
            rule=decision.reasons[0].rule,
            hint="Ask for the select permission on that column, or have the table compacted.",
        )

    def columns_of(self, planned: pa.Table) -> Schema | None:
        """Return the columns that the equality deletes of a plan compare; None if it has none.

        Args:
            planned: the rows of the plan.
        """
        compared = pc.unique(planned["equality_ids"].combine_chunks().flatten()).to_pylist()
        return EqualityColumns(self.table, self.schema).schema(compared) if compared else None

    def added_to(self, columns: ScanColumns, compared: Schema | None) -> ScanColumns:
        """Return the columns of a scan with those that are compared, whose keys it needs."""
        return columns if compared is None else scans.comparing(columns, compared)
