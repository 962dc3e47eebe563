"""Reports the files of a table's earlier encryption epochs, and forbids these epochs.

- A report counts, by branch and epoch, all files and the old ones, whose encryption differs from the current
  epoch. It names the retained snapshots with old files, and their branches and tags.
- When no retained snapshot has old files, the old epochs can be forbidden. The new governed version then has
  the current epoch alone, from sequence number 0 on. From then on, an old file is refused, whatever its
  sequence number is. Files of any age whose encryption is as the current epoch requires stay readable.
- The new version is published on the metadata that was checked, or not at all.
- If the current epoch is plaintext, there is nothing to forbid: the old epochs are stricter.

Source: docs/migration.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.base.progress import Tell, silent
from catalog.commits.conflicts import made_anew
from catalog.commits.publish import Publication, Publisher
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.iceberg.metadata import require_written_version
from catalog.maintenance.census import Census, EpochFiles, OldSnapshot
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from catalog.rules import table_changes as change_rules
from catalog.state import table_state
from catalog.writes.filters import require_every_row
from policy.decision import Decision, Reason
from policy.encryption.epochs import migrated
from policy.errors import RequestInvalid

_SHOWN: Final = 10
_FORBID: Final = "table.forbid-old-epochs"


@dataclass(frozen=True, slots=True)
class EpochReport:
    """The files of old epochs.

    Attributes:
        table: dotted name.
        governed_version: the governed version in force.
        branches: files at the heads of branches, by epoch.
        snapshots: retained snapshots with old files.
        forbidden: whether the current epoch is the only one, and there is no old file.
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

    def report(self, caller: Caller, name: TableName, tell: Tell = silent) -> EpochReport:
        """Count the files of old epochs.

        Args:
            caller: the caller.
            name: the table.
            tell: is told how many snapshots are read.

        Raises:
            NotAuthorized: UPDATE or ALTER on the table is needed, and no row filter of a policy applies.
            MetadataUnsealed, MetadataTampered, LocationNotAllowed, DecryptionRefused: the table cannot be
                trusted, so that it is not known what is left.
        """
        self._context.require(caller, "table.epochs", name)
        with self._context.authorizer.recorded(caller, "table.epochs", str(name), show_path=False):
            return epochs_of(self._context.reader, self._loaded(caller, name, "table.epochs"), tell)

    def forbid(self, caller: Caller, name: TableName, tell: Tell = silent) -> EpochReport:
        """Refuse all old files from now on. Repeating this has no further effect.

        Args:
            caller: the caller.
            name: the table.
            tell: is told how many snapshots are read.

        Raises:
            NotAuthorized: ALTER on the table is needed, and no row filter of a policy applies.
            RequestInvalid: the table is in plaintext, or files of old epochs are left; nothing was changed.
            CommitConflict: commits came first again and again.
            as `report` otherwise.
        """
        self._context.require(caller, _FORBID, name)
        with self._context.authorizer.recorded(caller, _FORBID, str(name)):
            return made_anew(
                lambda: self._loaded(caller, name, _FORBID),
                lambda table: self._forbidden(caller, table, tell),
            )

    def _loaded(self, caller: Caller, name: TableName, action: str) -> LoadedTable:
        """Load the table for a caller who sees every row: the report counts files and bytes."""
        table = self._context.loader.load_sealed(name)
        require_every_row(self._context, table, caller, action)
        return table

    def _forbidden(self, caller: Caller, table: LoadedTable, tell: Tell) -> EpochReport:
        report = epochs_of(self._context.reader, table, tell)
        if report.forbidden:
            return report
        _require_gone(table, report.snapshots)
        return epochs_of(self._context.reader, self._publish(caller, table), tell)

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


def epochs_of(reader: SnapshotReader, table: LoadedTable, tell: Tell = silent) -> EpochReport:
    """Count the files of old epochs of a table; callers authorize.

    Args:
        reader: reads manifests.
        table: the table, sealed.
        tell: is told how many snapshots are read.

    Raises:
        MetadataTampered, MetadataInvalid, LocationNotAllowed, DecryptionRefused: a snapshot cannot be
            trusted, so that it is not known what is left.
    """
    census, epochs = Census(reader, table, tell), table.governed.epochs
    snapshots = tuple(census.snapshots())
    alone = epochs.current.spec.encrypts and migrated(epochs) == epochs
    return EpochReport(
        table.name,
        table.governed.version,
        tuple(census.branches()),
        snapshots,
        forbidden=alone and not snapshots,
    )


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
