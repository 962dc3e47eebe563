"""Refuses masks and row filters in scans for the definer of a view.

A column that a mask or a row filter hides from the definer or from the reader is not read with the
permissions of the definer, not even to compare it with equality deletes. Masks of `encryption.masks` count
for the definer alone: they stand for a missing SELECT, which the reader does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import ACTION, every_name, refuse_altered, view_of
from catalog.authorization.definers import refused
from catalog.reading.loading import LoadedTable
from policy.decision import Reason
from policy.view import ColumnNames


def require_plain(
    authorizer: Authorizer,
    caller: Caller,
    table: LoadedTable,
    names: ColumnNames,
    field_ids: frozenset[int],
    masked: Sequence[Reason],
) -> None:
    """Refuse a scan for the definer of a view in which something is masked or filtered.

    Args:
        authorizer: decides and records.
        caller: who scans; nothing is refused here without a view.
        table: the table.
        names: of the columns that are read.
        field_ids: of the same.
        masked: why columns would be shown masked to the definer.

    Raises:
        NotAuthorized: something is.
    """
    if caller.reader is None:
        return
    if masked:
        reason = Reason("mask", f"A mask hides a column from {caller.principal.name}: {masked[0].detail}")
        hint = "Ask the definer to leave the column out of the view."
        raise refused(authorizer, caller, ACTION, table.name, reason, hint)
    reader = replace(caller, principal=caller.reader, reader=None, view=None)
    had = names | every_name(table, field_ids)
    for each in (caller, reader):
        refuse_altered(authorizer, each, table, view_of(authorizer, each, table).altered(had))
