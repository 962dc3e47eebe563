"""Bodies and answers of `/engine/v1/tables/{namespace}/{table}/snapshots/…`."""

from __future__ import annotations

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from catalog.http.base_models import Answer, OwnBody
from catalog.maintenance.snapshot_moves import FastForward, Pick, Rollback, SetCurrent

_LONG: Final = 2**63 - 1

SnapshotId = Annotated[int, Field(ge=-_LONG, le=_LONG)]
Name = Annotated[str, Field(min_length=1, max_length=255)]


class _EitherBody(OwnBody):
    """A body with exactly one of its fields."""

    @model_validator(mode="after")
    def _require_one(self) -> Self:
        if sum(getattr(self, name) is not None for name in type(self).model_fields) != 1:
            raise ValueError(f"give exactly one of {', '.join(type(self).model_fields)}")
        return self


class RollbackBody(_EitherBody):
    """Take main back to an ancestor of its head, or to the last one before a time."""

    snapshot_id: SnapshotId | None = None
    timestamp_ms: Annotated[int, Field(ge=-_LONG, le=_LONG)] | None = None

    def to_change(self) -> Rollback:
        """Convert the body to a change."""
        return Rollback(self.snapshot_id, self.timestamp_ms)


class SetCurrentBody(_EitherBody):
    """Move main to a snapshot, or to that of a branch or tag."""

    snapshot_id: SnapshotId | None = None
    ref: Name | None = None

    def to_change(self) -> SetCurrent:
        """Convert the body to a change."""
        return SetCurrent(self.snapshot_id, self.ref)


class CherryPickBody(_EitherBody):
    """Apply a snapshot to main again, or the one that is staged under an id."""

    snapshot_id: SnapshotId | None = None
    wap_id: Name | None = None

    def to_change(self) -> Pick:
        """Convert the body to a change."""
        return Pick(self.snapshot_id, self.wap_id)


class FastForwardBody(OwnBody):
    """Move a branch to the snapshot of another branch or tag, which descends from its head."""

    branch: Name
    to: Name

    def to_change(self) -> FastForward:
        """Convert the body to a change."""
        return FastForward(self.branch, self.to)


class AncestorsBody(OwnBody):
    """The snapshot; by default the current one."""

    snapshot_id: SnapshotId | None = None


class CurrentSnapshotAnswer(Answer):
    """The head of main before and after."""

    previous_snapshot_id: int | None
    current_snapshot_id: int


class PickedAnswer(Answer):
    """The snapshot that was picked, and the head of main."""

    source_snapshot_id: int
    current_snapshot_id: int


class FastForwardAnswer(Answer):
    """The head of a branch before and after."""

    branch_updated: str
    previous_ref: int | None
    updated_ref: int


class AncestorAnswer(Answer):
    """A snapshot, and when it was made, in milliseconds since 1970."""

    snapshot_id: int
    timestamp: int


class AncestorsAnswer(Answer):
    """A snapshot and its ancestors, newest first."""

    ancestors: list[AncestorAnswer]
