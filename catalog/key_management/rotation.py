"""Rotates a table's keys: new files use a later version of each, and earlier versions are kept for reading.

- The later versions are created first, and come into force with a new governed version. After an interrupted
  rotation, the next rotation uses the versions that exist already.
- Open writes continue. They commit under the later versions, because their data keys are wrapped at commit
  time.
- Existing files do not change and stay readable. `rewrap` moves their data keys.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.identifiers import TableName
from catalog.commits.conflicts import made_anew
from catalog.commits.publish import Publication, Publisher
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.iceberg.metadata import require_written_version
from catalog.reading.loading import LoadedTable
from catalog.rules import governance
from catalog.rules import table_changes as change_rules
from catalog.state import table_state
from policy.encryption.epochs import PekRef
from policy.errors import RequestInvalid
from policy.privileges.operations import required


@dataclass(frozen=True, slots=True)
class Rotated:
    """The result of a rotation.

    Attributes:
        governed_version: the new governed version.
        versions: for each PEK in force, the version before and the version now.
    """

    governed_version: int
    versions: tuple[tuple[PekRef, PekRef], ...]


class KeyRotation:
    """Rotates the keys of tables.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._publisher = Publisher(context)

    def rotate(self, caller: Caller, name: TableName) -> Rotated:
        """Create later versions of a table's keys, and use them for new files.

        Raises:
            NotAuthorized: ALTER on the table and `rotate` on its master keys are needed.
            RequestInvalid: the table is not encrypted.
            KeyNotUsable, KmsUnavailable: a key is disabled, or its master key cannot be used.
            CommitConflict: other commits came first in every attempt.
        """
        on = self._context.on(caller, name)
        self._context.authorizer.screen(caller, "key.rotate", str(name), *required("key.rotate", on))
        with self._context.authorizer.recorded(caller, "key.rotate", str(name)):
            granted = set[tuple[str, ...]]()

            def look() -> LoadedTable:
                table = self._context.loader.load_sealed(name)
                masters = table.governed.spec.key_ids()
                if masters not in granted:
                    requests = required("key.rotate", on, masters)
                    self._context.authorizer.require(caller, "key.rotate", table.name, requests)
                    granted.add(masters)
                return table

            return made_anew(look, lambda table: self._rotate(caller, table))

    def _rotate(self, caller: Caller, table: LoadedTable) -> Rotated:
        require_written_version(table.metadata, table.name)
        before = table.governed.epochs.current.peks
        if not before:
            raise RequestInvalid(
                "The table is not encrypted, so it has no key to rotate.", table=table.name, rule="plaintext"
            )
        crash_points.point("rotate:seen")
        active = self._context.keyring.active(table.record, table.governed)
        refs, made = self._context.keyring.next_versions(table.record, table.governed)
        crash_points.point("rotate:made")
        with read(self._context.engine) as connection:
            version = table_state.next_governed_version(connection, table.record.id)
        governed = governance.rotated(table.governed, table.metadata, refs, version)
        self._publisher.publish(
            Publication(
                record=table.record,
                base=table,
                metadata=change_rules.apply(table.metadata, (), table.metadata_location, table.name),
                governed=governed,
                governs=True,
                files=(),
                peks=made,
                author=caller.principal.name,
                relies=frozenset(refs) | active,
            )
        )
        return Rotated(version, tuple(zip(before, refs, strict=True)))
