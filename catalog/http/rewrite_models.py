"""Bodies and answers about rewriting files, and about files of old epochs."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field
from pyiceberg.table.refs import MAIN_BRANCH

from catalog.http.base_models import Answer, OwnBody
from catalog.iceberg.expressions import filter_of
from catalog.maintenance.compaction import Pace
from catalog.maintenance.delete_rewrites import DeleteRewriteRequest, DeleteRewrites
from catalog.maintenance.old_epochs import EpochReport
from catalog.maintenance.rewrites import RewriteRequest, Rewrites

_LONG: Final = 2**63 - 1


class RewritesBody(OwnBody):
    """What to rewrite: options of `rewrite_data_files`, the branch, a filter, and files to leave out."""

    max_groups: Annotated[int, Field(ge=0, le=1000)] = 100
    options: dict[str, str] = Field({}, max_length=100)
    branch: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    filter: Annotated[Any, Field(description="An expression of the Iceberg REST specification.")] = None
    case_sensitive: bool = True
    sort_columns: list[list[str]] = Field([], max_length=100)
    without: list[str] = Field([], max_length=1000)
    sequence_number: Annotated[int, Field(ge=0, le=_LONG)] | None = None

    def to_request(self) -> RewriteRequest:
        """Convert the body to a request.

        Raises:
            RequestInvalid, NotSupportedYet: the filter cannot be evaluated.
        """
        return RewriteRequest(
            max_groups=self.max_groups,
            options=self.options,
            branch=self.branch,
            row_filter=filter_of(self.filter),
            case_sensitive=self.case_sensitive,
            sort_columns=self.sort_columns,
            without=self.without,
            sequence_number=self.sequence_number,
        )


class PaceAnswer(Answer):
    """How groups are to be rewritten and committed, as the options say."""

    partial_progress: bool
    max_commits: int | None
    concurrent: int

    @classmethod
    def of(cls, pace: Pace) -> PaceAnswer:
        """Convert it to an answer."""
        return cls(partial_progress=pace.partial, max_commits=pace.commits, concurrent=pace.concurrent)


class GroupAnswer(Answer):
    """Files to rewrite together. They are live on a branch whose head is the snapshot."""

    branch: str
    snapshot_id: int
    paths: list[str]
    sizes: list[int]
    records: int
    outputs: int
    file_size: int


class RewritesAnswer(Answer):
    """The next groups, and all files at branch heads whose encryption or format differs from the table's."""

    groups: list[GroupAnswer]
    left_files: int
    left_bytes: int
    sequence_number: int
    dangling: bool
    total_groups: int
    pace: PaceAnswer

    @classmethod
    def of(cls, found: Rewrites) -> RewritesAnswer:
        """Convert groups to an answer."""
        return cls(
            groups=[GroupAnswer.model_validate(each) for each in found.groups],
            left_files=found.files,
            left_bytes=found.bytes,
            sequence_number=found.sequence_number,
            dangling=found.dangling,
            total_groups=found.total,
            pace=PaceAnswer.of(found.pace),
        )


class DeleteRewritesBody(OwnBody):
    """Which position delete files to rewrite: options of the procedure, the branch, and a filter."""

    max_groups: Annotated[int, Field(ge=0, le=1000)] = 10
    options: dict[str, str] = Field({}, max_length=100)
    branch: Annotated[str, Field(min_length=1, max_length=255)] = MAIN_BRANCH
    filter: Annotated[Any, Field(description="An expression of the Iceberg REST specification.")] = None
    case_sensitive: bool = True
    without: list[str] = Field([], max_length=1000)
    sequence_number: Annotated[int, Field(ge=0, le=_LONG)] | None = None

    def to_request(self) -> DeleteRewriteRequest:
        """Convert the body to a request.

        Raises:
            RequestInvalid, NotSupportedYet: the filter cannot be evaluated.
        """
        return DeleteRewriteRequest(
            max_groups=self.max_groups,
            options=self.options,
            branch=self.branch,
            row_filter=filter_of(self.filter),
            case_sensitive=self.case_sensitive,
            without=self.without,
            sequence_number=self.sequence_number,
        )


class PartitionAnswer(Answer):
    """Live data files of a partition that delete files of a group can apply to."""

    spec_id: int
    partition: str
    paths: list[str]
    sequence_numbers: list[int]


class DeleteGroupAnswer(Answer):
    """Position delete files to rewrite together. They are live on a branch whose head is the snapshot."""

    branch: str
    snapshot_id: int
    paths: list[str]
    sizes: list[int]
    sequence_numbers: list[int]
    outputs: int
    partitions: list[PartitionAnswer]


class DeleteRewritesAnswer(Answer):
    """The next groups of position delete files."""

    groups: list[DeleteGroupAnswer]
    sequence_number: int
    total_groups: int
    pace: PaceAnswer

    @classmethod
    def of(cls, found: DeleteRewrites) -> DeleteRewritesAnswer:
        """Convert groups to an answer."""
        groups = [DeleteGroupAnswer.model_validate(each) for each in found.groups]
        return cls(
            groups=groups,
            sequence_number=found.sequence_number,
            total_groups=found.total,
            pace=PaceAnswer.of(found.pace),
        )


class DanglingBody(OwnBody):
    """The branch whose delete files are removed that apply to no data file; all branches by default."""

    branch: Annotated[str, Field(min_length=1, max_length=255)] | None = None


class DanglingAnswer(Answer):
    """How many delete files were removed."""

    removed_delete_files_count: int


class ManifestsBody(OwnBody):
    """The partition spec whose manifests are rewritten (the current one by default), and the branch."""

    spec_id: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    branch: Annotated[str, Field(min_length=1, max_length=255)] = MAIN_BRANCH


class ManifestsAnswer(Answer):
    """How many manifests were replaced, and by how many."""

    rewritten_manifests_count: int
    added_manifests_count: int


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
