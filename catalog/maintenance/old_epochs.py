"""What is left of a table's earlier encryption epochs, and their end.

- A report counts, by branch and epoch, the files there are and those that are not as the current epoch
  says, and names the retained snapshots, with their branches and tags, that still have such files.
- Once no retained snapshot has any, the old epochs can be forbidden: by a governed version whose only epoch
  is the current one, from sequence number 0 on. A file of an old epoch is refused from then on, whatever
  sequence number it has. Files of any age that are as the current epoch says stay readable.
- The new version is published on the very metadata that was checked, or not at all.
- A table whose current epoch is plaintext has nothing to forbid: its old epochs are the stricter ones.

Source: docs/migration.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from catalog.authorization import privileges
from catalog.authorization import table_access as access_rules
from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.commits.conflicts import made_anew
from catalog.commits.publish import Publication, Publisher
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.iceberg.metadata import require_written_version
from catalog.maintenance.census import Census, EpochFiles, OldSnapshot
from catalog.reading.loading import LoadedTable
from catalog.rules import table_changes as change_rules
from catalog.state import table_state
from policy.decision import Decision, Reason
from policy.encryption.epochs import migrated
from policy.errors import RequestInvalid

_SHOWN: Final = 10
_FORBID: Final = "table.forbid-old-epochs"


@dataclass(frozen=True, slots=True)
class EpochReport:
    """What is left of old epochs.

    Attributes:
        table: dotted name.
        governed_version: the governed version in force.
        branches: files at the heads of branches, by epoch.
        snapshots: retained snapshots with files that are not as the current epoch says.
        forbidden: whether the table has no other epoch than the current one, and no file but as it says.
    """

    table: str
    governed_version: int
    branches: tuple[EpochFiles, ...]
    snapshots: tuple[OldSnapshot, ...]
    forbidden: bool


class OldEpochs:
    """Reports on old epochs, and forbids them.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._publisher = Publisher(context)

    def report(self, caller: Caller, name: TableName) -> EpochReport:
        """Count what is left of old epochs.

        Raises:
            NotAuthorized: UPDATE or ALTER on the table is needed.
            MetadataUnsealed, MetadataTampered, LocationNotAllowed, DecryptionRefused: the table cannot be
                trusted, so that it is not known what is left.
        """
        owner = self._context.loader.owner(name)
        ways = [
            privileges.table_request(caller.principal, name.database, name.name, access, owner)
            for access in ("alter", "update")
        ]
        access_rules.require_any(self._context.authorizer, caller, "table.epochs", str(name), ways)
        with self._context.authorizer.recorded(caller, "table.epochs", str(name), show_path=False):
            return self._report(self._context.loader.load_sealed(name))

    def forbid(self, caller: Caller, name: TableName) -> EpochReport:
        """Let no file be read any more that is not as the current epoch says; twice is once.

        Raises:
            NotAuthorized: ALTER on the table is needed.
            RequestInvalid: the table is in plaintext, or files of old epochs are left; nothing was changed.
            CommitConflict: commits came first again and again.
            as `report` otherwise.
        """
        access_rules.require(self._context.authorizer, self._context.loader, caller, _FORBID, name, "alter")
        with self._context.authorizer.recorded(caller, _FORBID, str(name)):
            return made_anew(
                lambda: self._context.loader.load_sealed(name), lambda table: self._forbidden(caller, table)
            )

    def _forbidden(self, caller: Caller, table: LoadedTable) -> EpochReport:
        report = self._report(table)
        if report.forbidden:
            return report
        _require_gone(table, report.snapshots)
        return self._report(self._publish(caller, table))

    def _report(self, table: LoadedTable) -> EpochReport:
        census, epochs = Census(self._context.reader, table), table.governed.epochs
        snapshots = tuple(census.snapshots())
        alone = epochs.current.spec.encrypts and migrated(epochs) == epochs
        return EpochReport(
            table.name,
            table.governed.version,
            tuple(census.branches()),
            snapshots,
            forbidden=alone and not snapshots,
        )

    def _publish(self, caller: Caller, table: LoadedTable) -> LoadedTable:
        with read(self._context.engine) as connection:
            version = table_state.next_governed_version(connection, table.record.id)
        epochs = migrated(table.governed.epochs)
        published = self._publisher.publish(
            Publication(
                record=table.record,
                base=table,
                metadata=change_rules.apply(table.metadata, (), table.metadata_location, table.name),
                governed=replace(table.governed, version=version, epochs=epochs),
                governs=True,
                files=(),
                peks=(),
                author=caller.principal.name,
                relies=self._context.keyring.active(table.record, table.governed),
            )
        )
        gone = len(table.governed.epochs.entries) - len(epochs.entries)
        self._record(caller, table, f"{gone} old epochs ended with governed version {version}.")
        return published

    def _record(self, caller: Caller, table: LoadedTable, what: str) -> None:
        decision = Decision.allow(Reason("old-epochs-forbidden", what))
        self._context.authorizer.record(caller, "table.old-epochs-forbidden", table.name, decision)


def _require_gone(table: LoadedTable, left: Sequence[OldSnapshot]) -> None:
    require_written_version(table.metadata, table.name)
    if not table.governed.epochs.current.spec.encrypts:
        raise RequestInvalid(
            "The table is in plaintext, so it has no weaker encryption epoch to forbid.",
            table=table.name,
            rule="plaintext",
            hint="Set its encryption properties first.",
        )
    if left:
        shown = ", ".join(f"{each.use} with {each.files}" for each in left[:_SHOWN])
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        raise RequestInvalid(
            f"{len(left)} retained snapshots still have files of earlier epochs: {shown}{more}.",
            table=table.name,
            rule="old-epoch-in-use",
            hint="Rewrite the branches, then expire these snapshots and remove their tags.",
        )
