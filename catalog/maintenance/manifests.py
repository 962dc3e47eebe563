"""Rewrites manifests, and removes delete files that apply to no data file any more.

The catalog makes these snapshots by itself: no file is written but manifests, and no row changes. They are
committed and checked like every other commit, and made again if another commit comes first. The answers
count manifests and files, so that users under a row filter are refused.

- `rewrite` distributes the live files of a partition spec over manifests of
  `commit.manifest.target-size-bytes`, ordered by partition. Entries of removed files go, and with them the
  bounds of deleted values.
- Which delete files are dangling, `catalog.writes.dangling` decides.

Source: Apache Iceberg's `RewriteManifestsSparkAction` and `RemoveDanglingDeletesSparkAction`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot

from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.commits.committer import Committer
from catalog.commits.conflicts import made_anew
from catalog.commits.snapshot_producer import MadeSnapshot, SnapshotProducer
from catalog.context import ServiceContext
from catalog.iceberg.manifests import ManifestContent
from catalog.maintenance.census import heads
from catalog.reading.loading import LoadedTable
from catalog.snapshot_checks.inspection import Origin
from catalog.writes.dangling import dangling
from catalog.writes.filters import require_every_row
from policy.errors import CommitStateUnknown, LakewardenError, RequestInvalid
from policy.write_properties import NUMBERS, is_number

_ACTION: Final = "table.rewrite"
_TARGET: Final = "commit.manifest.target-size-bytes"
_TARGET_DEFAULT: Final = 8 * 2**20

_Done = TypeVar("_Done")


@dataclass(frozen=True, slots=True)
class RewrittenManifests:
    """How many manifests were replaced, and by how many."""

    rewritten: int = 0
    added: int = 0


class ManifestMaintenance:
    """Makes snapshots that change manifests alone.

    Args:
        context: the parts that services share.
        committer: makes the commits.
    """

    def __init__(self, context: ServiceContext, committer: Committer) -> None:
        self._context = context
        self._committer = committer

    def rewrite(
        self, caller: Caller, name: TableName, *, spec_id: int | None = None, branch: str = MAIN_BRANCH
    ) -> RewrittenManifests:
        """Rewrite the manifests of one partition spec at the head of a branch.

        Args:
            caller: who asks.
            name: the table.
            spec_id: the partition spec; None for the table's current one.
            branch: the branch.

        Raises:
            NotAuthorized: UPDATE on the table is needed, and no row filter of a policy applies.
            RequestInvalid: the table has no such partition spec or branch.
            MetadataUnsealed, MetadataTampered: the table failed verification.
        """

        def build(table: LoadedTable, head: Snapshot) -> tuple[MadeSnapshot | None, RewrittenManifests]:
            return self._regrouped(table, head, branch, _spec_of(table, spec_id))

        return self._changed(caller, name, branch, build, RewrittenManifests())

    def remove_dangling(self, caller: Caller, name: TableName, branch: str | None = None) -> int:
        """Remove the delete files that apply to no data file; return how many.

        Args:
            caller: who asks.
            name: the table.
            branch: the branch; None for all.

        Raises:
            as `rewrite`.
        """
        self._context.require(caller, _ACTION, name)
        if branch is None:
            with self._context.authorizer.recorded(caller, _ACTION, str(name)):
                branches = [each for each, _ in heads(self._context.loader.load_sealed(name).metadata)]
            return sum(self.remove_dangling(caller, name, each) for each in branches)
        on = branch

        def build(table: LoadedTable, head: Snapshot) -> tuple[MadeSnapshot | None, int]:
            listed = self._context.reader.manifests(table, head)
            paths = list(dangling(self._context.reader, table, listed))
            if not paths:
                return None, 0
            producer = SnapshotProducer(self._context, table, on, head)
            producer.remove(paths)
            return producer.make(Operation.REPLACE, (), {}), len(paths)

        return self._changed(caller, name, on, build, 0)

    def _changed(
        self,
        caller: Caller,
        name: TableName,
        branch: str,
        build: Callable[[LoadedTable, Snapshot], tuple[MadeSnapshot | None, _Done]],
        nothing: _Done,
    ) -> _Done:
        """Build a snapshot on the head of a branch, and commit it; build it again after other commits."""
        self._context.require(caller, _ACTION, name)

        def look() -> tuple[LoadedTable, MadeSnapshot | None, _Done]:
            table = self._context.loader.load_sealed(name)
            require_every_row(self._context, table, caller, _ACTION)
            head = dict(heads(table.metadata)).get(branch)
            if head is None and branch != MAIN_BRANCH:
                raise RequestInvalid(
                    f"The table has no branch {branch[:80]!r}.", table=table.name, rule="branch"
                )
            return table, *((None, nothing) if head is None else build(table, head))

        def act(seen: tuple[LoadedTable, MadeSnapshot | None, _Done]) -> _Done:
            table, made, done = seen
            if made is not None:
                self._commit(caller, table, made)
            return done

        with self._context.authorizer.recorded(caller, _ACTION, str(name)):
            return made_anew(look, act)

    def _commit(self, caller: Caller, table: LoadedTable, made: MadeSnapshot) -> None:
        try:
            self._committer.commit(
                caller,
                table.record.name,
                made.requirements,
                made.updates,
                origin=Origin.WRITE,
                written=made.written,
                under=table.governed.version,
            )
        except CommitStateUnknown:
            raise
        except LakewardenError:
            made.discard(self._context.storage)
            raise

    def _regrouped(
        self, table: LoadedTable, head: Snapshot, branch: str, spec_id: int
    ) -> tuple[MadeSnapshot | None, RewrittenManifests]:
        listed = self._context.reader.manifests(table, head)
        producer = SnapshotProducer(self._context, table, branch, head)
        target, rewritten, added = _target(table), 0, 0
        for content in ManifestContent:
            some = [each for each in listed if each.content is content and each.partition_spec_id == spec_id]
            wanted = -(-sum(each.manifest_length for each in some) // target)
            if len(some) > 1 or wanted > 1 or any(each.deleted_files_count != 0 for each in some):
                added += producer.regroup(some, wanted)
                rewritten += len(some)
        if not rewritten:
            return None, RewrittenManifests()
        summary = {
            "manifests-created": str(added),
            "manifests-replaced": str(rewritten),
            "manifests-kept": str(len(listed) - rewritten),
        }
        return producer.make(Operation.REPLACE, (), summary), RewrittenManifests(rewritten, added)


def _spec_of(table: LoadedTable, spec_id: int | None) -> int:
    found = table.metadata.default_spec_id if spec_id is None else spec_id
    if found not in table.metadata.specs():
        raise RequestInvalid(
            f"The table has no partition spec {found}.",
            table=table.name,
            rule="partition-spec-id",
            hint=f"Partition specs: {', '.join(map(str, sorted(table.metadata.specs())))}.",
        )
    return found


def _target(table: LoadedTable) -> int:
    value = table.metadata.properties.get(_TARGET, "")
    return int(value) if is_number(value, NUMBERS["write.target-file-size-bytes"]) else _TARGET_DEFAULT
