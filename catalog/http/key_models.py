"""Bodies and answers about the keys of tables. None of them contains key bytes, wrapped or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from pydantic import Field

from catalog.http.base_models import Answer, OwnBody

if TYPE_CHECKING:
    from catalog.key_management.master_keys import RewrappedKeys
    from catalog.key_management.rewrap import RewrappedBranch
    from catalog.key_management.rotation import Rotated
    from catalog.key_management.states import ShownKey
    from catalog.key_management.uses import SnapshotUse
    from catalog.kms.keystore import MasterKey
    from policy.encryption.epochs import PekRef

Version = Annotated[int, Field(ge=1, lt=2**31)]


class PekAnswer(Answer):
    """One version of a PEK, without its bytes; `in-force` if new files use it.

    `invocations` is the maximum number of encryptions so far; rotate the key when `needs-rotation` is true.
    """

    id: UUID
    version: int
    master_key_id: str
    kms: str
    state: str
    in_force: bool
    destroy_after_ms: int | None
    invocations: int
    needs_rotation: bool


class PekList(Answer):
    """A table's PEKs in every version."""

    keys: list[PekAnswer]

    @classmethod
    def of(cls, keys: Iterable[ShownKey]) -> PekList:
        """Convert keys to an answer."""
        return cls(keys=[_pek(each) for each in keys])


class UseAnswer(Answer):
    """A retained snapshot that needs a key, with the branches and tags that point to it."""

    snapshot_id: int
    names: list[str]


class PekUses(PekAnswer):
    """One version of a PEK, and the snapshots that need it."""

    needed_by: list[UseAnswer]


class PekUsesList(Answer):
    """The versions of one PEK, and the snapshots that need each."""

    keys: list[PekUses]

    @classmethod
    def of(cls, keys: Iterable[ShownKey], uses: Mapping[PekRef, Sequence[SnapshotUse]]) -> PekUsesList:
        """Convert keys and uses to an answer."""
        return cls(
            keys=[
                PekUses(
                    **_pek(each).model_dump(by_alias=False),
                    needed_by=[UseAnswer.model_validate(use) for use in uses.get(each.pek.ref, ())],
                )
                for each in keys
            ]
        )


class NewPek(OwnBody):
    """The master key of a new table key."""

    master_key_id: str


class NoOptions(OwnBody):
    """An empty object."""


class WhichPek(OwnBody):
    """Keys of a table: all of them, all versions of one key, or one version."""

    id: UUID | None = None
    version: Version | None = None


class DestroyPek(WhichPek):
    """The keys to destroy; `confirm` is the table's dotted name."""

    confirm: str


class DestroyDroppedPek(OwnBody):
    """The keys of a dropped table to destroy: all of them, or all versions of one key.

    `confirm` is the table's UUID.
    """

    id: UUID | None = None
    confirm: str


class RotatedPek(Answer):
    """A PEK with its version for new files, and the version before."""

    id: UUID
    master_key_id: str
    version: int
    previous_version: int


class RotatedAnswer(Answer):
    """The result of a rotation."""

    governed_version: int
    keys: list[RotatedPek]

    @classmethod
    def of(cls, rotated: Rotated) -> RotatedAnswer:
        """Convert a rotation to an answer."""
        keys = [
            RotatedPek(
                id=now.pek_id,
                master_key_id=now.master_key_id,
                version=now.version,
                previous_version=before.version,
            )
            for before, now in rotated.versions
        ]
        return cls(governed_version=rotated.governed_version, keys=keys)


class BranchAnswer(Answer):
    """The result of rewrapping a branch; `snapshot-id` is null if there was nothing to do.

    `lost` is the number of manifests that stay as they are, because they list files under a destroyed key.
    """

    branch: str
    snapshot_id: int | None
    manifests: int
    files: int
    lost: int


class RewrappedAnswer(Answer):
    """The result of rewrapping a table."""

    branches: list[BranchAnswer]

    @classmethod
    def of(cls, branches: Iterable[RewrappedBranch]) -> RewrappedAnswer:
        """Convert branches to an answer."""
        return cls(branches=[BranchAnswer.model_validate(each) for each in branches])


class MasterKeyAnswer(Answer):
    """A master key, without its bytes."""

    id: str
    version: int
    enabled: bool


class MasterKeyList(Answer):
    """All master keys, in order of creation."""

    master_keys: list[MasterKeyAnswer]

    @classmethod
    def of(cls, found: Iterable[MasterKey]) -> MasterKeyList:
        """Convert master keys to an answer."""
        return cls(master_keys=[MasterKeyAnswer.model_validate(each) for each in found])


class NotRewrappedAnswer(Answer):
    """A key whose stored form did not change, and the reason."""

    id: UUID
    version: int
    reason: str


class MasterRewrapped(Answer):
    """The result of rewrapping under a master key."""

    rewrapped: int
    failed: list[NotRewrappedAnswer]

    @classmethod
    def of(cls, done: RewrappedKeys) -> MasterRewrapped:
        """Convert the result to an answer."""
        failed = [
            NotRewrappedAnswer(id=each.ref.pek_id, version=each.ref.version, reason=each.reason)
            for each in done.failed
        ]
        return cls(rewrapped=done.rewrapped, failed=failed)


def _pek(shown: ShownKey) -> PekAnswer:
    pek = shown.pek
    return PekAnswer(
        id=pek.id,
        version=pek.version,
        master_key_id=pek.master_key_id,
        kms=pek.kms,
        state=pek.state,
        in_force=shown.in_force,
        destroy_after_ms=pek.destroy_after_ms,
        invocations=shown.invocations,
        needs_rotation=shown.needs_rotation,
    )
