"""Bodies and answers about expiring snapshots and removing orphan files."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Self

from pydantic import Field

from catalog.http.base_models import Answer, OwnBody
from catalog.maintenance.expiry import Deleted, ExpiryRequest
from catalog.maintenance.garbage import Garbage, Scope
from policy.location.location import Location

_LONG: Final = 2**63 - 1
#: The last moment that Python's calendar has.
_LATEST: Final = 253_402_300_799_999
_SPACE: Final = 1_000


class DistinctCountsBody(OwnBody):
    """How many distinct values top-level columns have in a snapshot."""

    snapshot_id: Annotated[int, Field(ge=-_LONG, le=_LONG)]
    distinct_counts: Annotated[dict[str, Annotated[int, Field(ge=0, le=_LONG)]], Field(max_length=10_000)]


class DistinctCountsAnswer(Answer):
    """Where the numbers are: null, since no file has them."""

    statistics_file: str | None = None


class ExpiryBody(OwnBody):
    """What expires; `after` is `next` of the answer before."""

    older_than_ms: Annotated[int, Field(ge=0, le=_LONG)] | None = None
    retain_last: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    snapshot_ids: list[int] = Field([], max_length=10_000)
    after: Annotated[str, Field(pattern="^[0-9]{1,18}$")] | None = None

    def to_request(self) -> ExpiryRequest:
        """Convert the body to a request."""
        after = -1 if self.after is None else int(self.after)
        return ExpiryRequest(self.older_than_ms, self.retain_last, self.snapshot_ids, after)


class ExpiryAnswer(Answer):
    """How many files were deleted, and why others were kept; `next` is null if nothing is left."""

    deleted_data_files_count: int
    deleted_position_delete_files_count: int
    deleted_equality_delete_files_count: int
    deleted_manifest_files_count: int
    deleted_manifest_lists_count: int
    deleted_statistics_files_count: int
    problem: str | None
    next: str | None

    @classmethod
    def of(cls, done: Deleted) -> Self:
        """Convert the result of a request."""
        return cls(
            deleted_data_files_count=done.files["data"],
            deleted_position_delete_files_count=done.files["position-delete"],
            deleted_equality_delete_files_count=done.files["equality-delete"],
            deleted_manifest_files_count=done.files["manifest"],
            deleted_manifest_lists_count=done.files["manifest-list"],
            deleted_statistics_files_count=done.files["statistics"],
            problem=done.kept,
            next=None if done.next is None else str(done.next),
        )


class OrphansBody(OwnBody):
    """Which orphan files are listed or removed; `after` is `next` of the answer before."""

    older_than_ms: Annotated[int, Field(ge=0, le=_LATEST)] | None = None
    location: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None
    dry_run: bool = False
    after: Annotated[str, Field(max_length=1_000)] | None = None

    def to_scope(self) -> Scope:
        """Convert the body to a scope.

        Raises:
            LocationInvalid: the location is not canonical.
        """
        older = self.older_than_ms
        return Scope(
            location=None if self.location is None else Location.parse(self.location),
            older_than=None if older is None else datetime.fromtimestamp(older / 1000, UTC),
            after=self.after,
            most=_SPACE,
        )


class OrphanFile(Answer):
    """An orphan file."""

    orphan_file_location: str


class OrphansAnswer(Answer):
    """Orphan files, by path; `next` is null if there are no more."""

    files: list[OrphanFile]
    next: str | None

    @classmethod
    def of(cls, garbage: Garbage) -> Self:
        """Convert the result of a garbage collection."""
        paths = [each.location.canonical for each in garbage.files]
        files = [OrphanFile(orphan_file_location=each) for each in paths]
        return cls(files=files, next=paths[-1] if len(paths) == _SPACE else None)
