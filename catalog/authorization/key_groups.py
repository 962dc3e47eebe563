"""Reports column keys whose columns the policies grant to different users.

It is told in the audit trail, under the request that made the change, and in the log. Nothing is refused: a
split key goes to nobody whom it is split for (`catalog.planning.releases`), and policies change without the
table.
"""

from __future__ import annotations

import logging
from typing import Final

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.reading.loading import LoadedTable
from policy.decision import Decision, Reason
from policy.errors import StateUnavailable
from policy.key_groups import Splits, splits

logger = logging.getLogger(__name__)

_LOGGED: Final = 20
RULE: Final = "key-group-split"


def split_groups(authorizer: Authorizer, table: LoadedTable) -> Splits:
    """Return the column keys of a table's current epoch whose columns have different readers.

    The group of all columns that no property names is left out: an engine gets its key, also for users who
    can read only some of these columns.
    """
    epoch, schema = table.governed.epochs.current, table.metadata.schema()
    named = {
        group.key_id: [schema.find_column_name(field_id) or "" for field_id in group.field_ids]
        for group in epoch.columns[: len(epoch.spec.columns)]
    }
    where = (table.record.name.database, table.record.name.name)
    return splits(authorizer.policies(), where, named, authorizer.now(), owner=table.record.owner)


def report(authorizer: Authorizer, caller: Caller, action: str, table: LoadedTable) -> None:
    """Record such keys; the change is published, so a failing record is only logged."""
    notes = split_groups(authorizer, table).notes
    if not notes:
        return
    for each in notes[:_LOGGED]:
        logger.warning("%s: %s", table.name, each)
    reasons = (Reason(RULE, each) for each in notes)
    try:
        authorizer.record(caller, action, table.name, Decision.allow(*reasons))
    except StateUnavailable as problem:
        logger.warning("keys with different readers could not be recorded: %s", type(problem).__name__)
