"""Decides what a user sees of the columns of a scan: which are read, masked or restricted.

It is decided at the beginning of a plan, and required again if the policies changed while files were listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import ScanColumns, counting_former, require_granted, view_of
from catalog.planning.definers import require_plain
from catalog.planning.masks import record_masked, refuse_masked, scan_of, without_masked
from catalog.planning.request import ScanRequest
from catalog.planning.restricting import require_same, restrict
from catalog.planning.rewriting import require_whole
from catalog.reading.loading import LoadedTable
from policy.restrictions.model import Restriction
from policy.view import Reading, Scan, visible

_FILTERED: Final = "A row filter of a policy needs its values."


@dataclass(frozen=True, slots=True)
class ScanSight:
    """What a user sees of the columns of a scan, by the policies at its beginning.

    Attributes:
        columns: those that are read, without those that the table's masks stand for.
        fields: ids of these, and of the columns whose values metadata columns show.
        every: by id the names of all top-level columns.
        masked: ids of the columns that the table's masks stand for.
        reading: whether the rest can be read.
        restriction: what the reader enforces.
    """

    columns: ScanColumns
    fields: frozenset[int]
    every: Mapping[int, str]
    masked: frozenset[int]
    reading: Reading
    restriction: Restriction

    def again(
        self,
        authorizer: Authorizer,
        caller: Caller,
        table: LoadedTable,
        schema: Schema,
        columns: ScanColumns,
        request: ScanRequest,
    ) -> Reading:
        """Require the same by later policies, of the columns that are left. The table masks none of them."""
        view = view_of(authorizer, caller, table)
        seen = visible(view, Scan(columns.names, self.every))
        reading = counting_former(view, table, self.fields, seen.reading)
        require_granted(authorizer, caller, table, reading)
        require_plain(authorizer, caller, table, seen.names, self.fields, [])
        still = restrict(authorizer, caller, table, schema, self.columns, reading, request)
        require_same(table, self.restriction, still)
        return reading


def sight_of(
    authorizer: Authorizer,
    caller: Caller,
    table: LoadedTable,
    schema: Schema,
    columns: ScanColumns,
    request: ScanRequest,
) -> ScanSight:
    """Decide, on record, what the caller sees of the columns.

    Raises:
        NotAuthorized: a column is not granted, or a restriction applies that the reader does not enforce.
        RequestInvalid: rows are rewritten, and not all of every column is read.
    """
    # Rows that are rewritten are never masked.
    scan = scan_of(table, schema, columns, masks=request.files is None)
    view = view_of(authorizer, caller, table)
    seen = visible(view, scan)
    masked = frozenset(seen.masked)
    shown_masked = [seen.masked[each] for each in columns.top_level if each in masked]
    columns = without_masked(table, schema, columns, seen)
    fields = columns.field_ids | columns.sources
    reading = counting_former(view, table, fields, seen.reading)
    require_granted(authorizer, caller, table, reading)
    require_plain(authorizer, caller, table, seen.names, fields, shown_masked)
    restriction = restrict(authorizer, caller, table, schema, columns, reading, request)
    record_masked(authorizer, caller, table, shown_masked)
    refuse_masked(table, schema, masked, restriction.filters_by, _FILTERED)
    require_whole(table, schema, columns, request)
    return ScanSight(columns, fields, scan.every, masked, reading, restriction)
