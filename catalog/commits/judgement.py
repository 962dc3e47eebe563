"""Authorizes a change of a table as one decision, from the metadata before and after it.

What a commit requires follows from what it changes: operations, locations, keys, branches that go back, the
encryption rules, and columns that get another name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import refuse_masks, selects
from catalog.authorization.restrictions import require_fitting
from catalog.authorization.table_access import overlap_requests
from catalog.commits.renaming import former_names
from catalog.commits.rollbacks import Rollbacks
from catalog.context import ServiceContext
from catalog.reading.loading import LoadedTable
from catalog.rules import governance
from catalog.rules.encryption_policy import Verdict
from catalog.rules.governance import Requested
from catalog.snapshot_checks.branches import Rollback, rollbacks, sets_retention
from catalog.snapshot_checks.inspection import require_parents
from catalog.state.table_state import TableRecord
from policy.location.location import Location
from policy.privileges.operations import changing, required
from policy.privileges.requests import AccessRequest
from policy.privileges.tables import check_table_location


@dataclass(frozen=True, slots=True)
class Judged:
    """An authorized change.

    Attributes:
        overlaps: ids of the tables that its locations are permitted to overlap.
        verdict: by the encryption rules; not enforced yet.
    """

    overlaps: frozenset[str]
    verdict: Verdict


class Judge:
    """Authorizes changes of tables.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._rollbacks = Rollbacks(context.reader, context.keyring)

    def require(
        self,
        caller: Caller,
        table: LoadedTable,
        metadata: TableMetadata,
        wanted: Requested,
        operations: Collection[str],
        moved: Sequence[Location],
    ) -> Judged:
        """Authorize a change.

        Args:
            caller: who makes it.
            table: the table before the change.
            metadata: its metadata after it.
            wanted: its governed properties after it.
            operations: what the change is, by the names of `policy.privileges.operations`.
            moved: new locations of the table and of its files.

        Raises:
            NotAuthorized: a part is not granted.
            CommitConflict: the parent of a new snapshot is gone.
            as `Rollbacks.drop_protection` otherwise.
        """
        verdict = self._context.encryption.of_change(table, metadata, wanted.spec)
        others, former = self._context.overlapping(table.record, moved), former_names(table, metadata)
        require_parents(table, metadata)
        taken_back = rollbacks(table.metadata, metadata)
        if any(each.head is not None for each in taken_back) or sets_retention(table.metadata, metadata):
            operations = {*operations, "table.alter"}
        back = self._drops_protection(caller, table, taken_back)
        shows = governance.shows_more(table.governed, table.metadata, wanted.spec, metadata)
        requests = _requests(
            caller,
            table.record,
            wanted,
            sorted(operations),
            moved,
            unprotects=wanted.unprotects or verdict.downgrades or back or shows,
        )
        self._context.authorizer.require(
            caller,
            "table.commit",
            table.name,
            requests + selects(self._context.authorizer, caller, table, former),
            hidden=overlap_requests(caller, others),
        )
        if former.columns:
            refuse_masks(self._context.authorizer, caller, table, former, action="table.commit")
        require_fitting(self._context.authorizer.policies(), table, metadata)
        return Judged(frozenset(other.id for other in others), verdict)

    def _drops_protection(self, caller: Caller, table: LoadedTable, taken_back: list[Rollback]) -> bool:
        """Return whether rollbacks drop protection. Callers need ALTER before the snapshots are examined."""
        if any(each.head is not None for each in taken_back):
            alter = required("table.alter", caller.on(table.record.name, table.record.owner))
            self._context.authorizer.screen(caller, "table.commit", table.name, *alter)
        return self._rollbacks.drop_protection(table, taken_back)


def _requests(
    caller: Caller,
    record: TableRecord,
    wanted: Requested,
    operations: Sequence[str],
    moved: Sequence[Location],
    *,
    unprotects: bool,
) -> list[AccessRequest]:
    on = caller.on(record.name, record.owner)
    for location in moved:
        check_table_location(location, str(record.name))
    own = record.location if record.default_location else None
    requests = [each for operation in operations for each in required(operation, on)]
    return requests + changing(on, wanted, moved, own, unprotects=unprotects)
