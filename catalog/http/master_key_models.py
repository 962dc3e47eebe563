"""Bodies and answers about the keys under master keys. None of them contains key bytes, wrapped or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from pydantic import Field

from catalog.http.base_models import Answer, OwnBody
from catalog.http.key_models import NotRewrappedAnswer

if TYPE_CHECKING:
    from catalog.key_management.key_list import ListedKey
    from catalog.key_management.kms_moves import MovedKeys
    from catalog.key_management.kms_needs import KmsNeed
    from catalog.kms.clients import KmsKey
    from policy.encryption.epochs import PekRef

_Id = Annotated[str, Field(min_length=1, max_length=255)]


class KmsKeyAnswer(Answer):
    """A master key id, and the KMS key that it stands for."""

    id: str
    kms: str
    kms_key_id: str


class KmsKeyList(Answer):
    """The master key ids in use, by id."""

    master_keys: list[KmsKeyAnswer]

    @classmethod
    def of(cls, found: Mapping[str, KmsKey]) -> KmsKeyList:
        """Convert assignments to an answer."""
        return cls(
            master_keys=[
                KmsKeyAnswer(id=name, kms=key.kms, kms_key_id=key.key_id) for name, key in found.items()
            ]
        )


class WrappedKeyAnswer(Answer):
    """A version of a key.

    `table` is null if its table has no name, and for a key of the KMS endpoint, whose name is `endpoint-key`.
    """

    id: UUID
    version: int
    table: str | None
    table_uuid: UUID | None
    endpoint_key: str | None
    master_key_id: str
    kms: str
    kms_key_id: str
    state: str
    in_force: bool
    created_ms: int


class WrappedKeyList(Answer):
    """A page of keys; `next-page-token` is null if there are no more."""

    keys: list[WrappedKeyAnswer]
    next_page_token: str | None

    @classmethod
    def of(cls, found: Sequence[ListedKey], limit: int) -> WrappedKeyList:
        """Build a page of at most `limit` keys."""
        last = found[-1].stored.pek.ref if len(found) == limit else None
        return cls(keys=[_key(each) for each in found], next_page_token=_token(last))


class KmsNeedAnswer(Answer):
    """Something that needs a KMS, and how many of its keys do.

    `by` is table, unnamed-table, endpoint-key, master-key-id, setting or encryption-rule.
    """

    by: str
    name: str
    master_key_id: str | None
    keys: int


class KmsNeedList(Answer):
    """What needs a KMS."""

    needs: list[KmsNeedAnswer]

    @classmethod
    def of(cls, found: Sequence[KmsNeed]) -> KmsNeedList:
        """Convert needs to an answer."""
        return cls(needs=[KmsNeedAnswer.model_validate(each) for each in found])


class AssignMasterKey(OwnBody):
    """A master key id, and the KMS key that it is to stand for; by default the key of the same id."""

    id: _Id
    kms: Annotated[str, Field(min_length=1, max_length=64)]
    kms_key_id: _Id | None = None


class AssignedAnswer(KmsKeyAnswer):
    """The KMS key that a master key id stands for now, and the one before."""

    previous_kms: str
    previous_kms_key_id: str

    @classmethod
    def of(cls, name: str, before: KmsKey, now: KmsKey) -> AssignedAnswer:
        """Convert an assignment to an answer."""
        return cls(
            id=name,
            kms=now.kms,
            kms_key_id=now.key_id,
            previous_kms=before.kms,
            previous_kms_key_id=before.key_id,
        )


class MoveKeys(OwnBody):
    """The keys to move: those of a master key id, or of these only those of one table."""

    id: _Id
    table_uuid: UUID | None = None
    page_token: str | None = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class MovedAnswer(Answer):
    """The result of moving a batch; the next one begins at `next-page-token`, null if there is none."""

    moved: int
    failed: list[NotRewrappedAnswer]
    next_page_token: str | None

    @classmethod
    def of(cls, done: MovedKeys) -> MovedAnswer:
        """Convert the result to an answer."""
        failed = [
            NotRewrappedAnswer(id=each.ref.pek_id, version=each.ref.version, reason=each.reason)
            for each in done.failed
        ]
        return cls(moved=done.moved, failed=failed, next_page_token=_token(done.last))


def _token(last: PekRef | None) -> str | None:
    return None if last is None else f"{last.pek_id}.{last.version}"


def _key(listed: ListedKey) -> WrappedKeyAnswer:
    stored, pek = listed.stored, listed.stored.pek
    return WrappedKeyAnswer(
        id=pek.id,
        version=pek.version,
        table=None if stored.table is None else str(stored.table),
        table_uuid=pek.table_uuid if pek.table_id else None,
        endpoint_key=stored.endpoint_key,
        master_key_id=pek.master_key_id,
        kms=pek.kms,
        kms_key_id=pek.kms_key.key_id,
        state=pek.state,
        in_force=listed.in_force,
        created_ms=stored.created_ms,
    )
