"""Bodies and answers about rewriting files, and about files of old epochs."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from catalog.http.base_models import Answer, OwnBody
from catalog.maintenance.old_epochs import EpochReport
from catalog.maintenance.rewrites import Rewrites

_LONG: Final = 2**63 - 1
_GIBIBYTE: Final = 2**30


class RewritesBody(OwnBody):
    """Limits for the groups of files to rewrite, the branch (all by default), and files to leave out."""

    max_group_bytes: Annotated[int, Field(ge=1, le=_LONG)] = _GIBIBYTE
    max_groups: Annotated[int, Field(ge=0, le=1000)] = 100
    branch: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    without: list[str] = Field([], max_length=1000)


class GroupAnswer(Answer):
    """Files to rewrite together. They are live on a branch whose head is the snapshot."""

    branch: str
    snapshot_id: int
    paths: list[str]
    sizes: list[int]
    records: int


class RewritesAnswer(Answer):
    """The next groups, and all files at branch heads whose encryption differs from the current epoch.

    `held` names some of the files that cannot be rewritten.
    """

    groups: list[GroupAnswer]
    left_files: int
    left_bytes: int
    held_files: int
    held: list[str]

    @classmethod
    def of(cls, found: Rewrites) -> RewritesAnswer:
        """Convert groups to an answer."""
        return cls(
            groups=[GroupAnswer.model_validate(each) for each in found.groups],
            left_files=found.files,
            left_bytes=found.bytes,
            held_files=found.held_files,
            held=list(found.held),
        )


class EpochFilesAnswer(Answer):
    """Files of one epoch at the head of a branch; `old-` counts files that differ from the current epoch."""

    branch: str
    from_sequence_number: int
    properties: dict[str, str]
    files: int
    bytes: int
    old_files: int
    old_bytes: int


class OldSnapshotAnswer(Answer):
    """A retained snapshot with files of old epochs, and the branches and tags that point to it."""

    snapshot_id: int
    names: list[str]
    old_files: int


class EpochsAnswer(Answer):
    """Files of a table's old epochs; `old-forbidden` if only the current epoch can be read."""

    table: str
    governed_version: int
    branches: list[EpochFilesAnswer]
    snapshots: list[OldSnapshotAnswer]
    old_forbidden: bool

    @classmethod
    def of(cls, report: EpochReport) -> EpochsAnswer:
        """Convert a report to an answer."""
        branches = [
            EpochFilesAnswer(
                branch=each.branch,
                from_sequence_number=each.epoch.from_sequence_number,
                properties=each.epoch.spec.to_properties(),
                files=each.files,
                bytes=each.bytes,
                old_files=each.old_files,
                old_bytes=each.old_bytes,
            )
            for each in report.branches
        ]
        snapshots = [
            OldSnapshotAnswer(
                snapshot_id=each.use.snapshot_id, names=list(each.use.names), old_files=each.files
            )
            for each in report.snapshots
        ]
        return cls(
            table=report.table,
            governed_version=report.governed_version,
            branches=branches,
            snapshots=snapshots,
            old_forbidden=report.forbidden,
        )
