"""Bodies and answers of `/admin/v1`. None of them contains key bytes, wrapped or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias
from uuid import UUID

from pydantic import Field, model_validator

from catalog.http.base_models import Answer, OwnBody
from catalog.http.user_models import Names
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource

if TYPE_CHECKING:
    from catalog.audit.reading import StoredRecord
    from catalog.audit.verdict import Verdict
    from catalog.maintenance.garbage import Garbage
    from catalog.policy_store.in_force import InForce
    from catalog.policy_store.source_states import SourceState
    from catalog.settings.ranger import RangerSettings


class GovernedAnswer(Answer):
    """The governed state of a table, and whether its metadata is sealed.

    `properties` are the governed ones. `standard-clients` says whether standard clients can `load` the table.
    """

    name: str
    table_uuid: UUID
    owner: str
    location: str
    default_location: bool
    governed_version: int
    properties: dict[str, str]
    standard_clients: str
    sealed: bool
    metadata_location: str
    metadata_sha256: str | None
    format_version: int
    current_snapshot_id: int | None
    governed_copies: list[str]


class GovernedChange(OwnBody):
    """Properties to set and to remove, governed ones and others."""

    set: dict[str, str] = Field(default_factory=dict)
    unset: list[str] = Field(default_factory=list)
    force: bool = False


class RegisterBody(OwnBody):
    """The location of the metadata.json to register."""

    metadata_location: str


class CleanUpBody(OwnBody):
    """Whether garbage is removed, and how many files are listed."""

    remove: bool = False
    max_files: Annotated[int, Field(ge=0, le=10_000)] = 1_000


class GarbageFile(Answer):
    """A file that nothing references; its time is by the storage's clock."""

    path: str
    bytes: int
    modified: datetime


class CleanUpAnswer(Answer):
    """The result of a garbage collection; `files` has the first garbage files by path."""

    found: int
    bytes: int
    removed: int
    files: list[GarbageFile]

    @classmethod
    def of(cls, garbage: Garbage, max_files: int) -> CleanUpAnswer:
        """Build the answer, with at most `max_files` files."""
        files = [
            GarbageFile(path=each.location.canonical, bytes=each.size, modified=each.modified)
            for each in garbage.files[:max_files]
        ]
        return cls(found=len(garbage.files), bytes=garbage.bytes, removed=garbage.removed, files=files)


SourceHealth: TypeAlias = Literal["current", "failing", "too-old", "never"]


class SourceAnswer(Answer):
    """A service of a Ranger Admin that policies come from.

    `state` is `never` before Ranger confirmed any policies, or if the clock went back since; `too-old` if
    nothing is decided because of it; `failing` if the last attempt failed. `versions` are Ranger's.
    `left_out` counts policies that were refused.
    """

    name: str
    service: str
    state: SourceHealth
    versions: dict[str, int]
    policies: int
    left_out: int
    confirmed_at: datetime | None
    age_s: float | None
    max_age_s: float
    problem: str | None

    @classmethod
    def of(cls, found: SourceState, settings: RangerSettings, age_s: float | None) -> SourceAnswer:
        """Convert the state of a source to an answer."""
        download, confirmed_ms = found.download, found.confirmed_ms
        return cls(
            name=found.name,
            service=settings.service,
            state=_state_of(found, settings, age_s),
            versions={} if download is None else dict(download.versions),
            policies=0 if download is None else download.policies,
            left_out=0 if download is None else download.left_out,
            confirmed_at=(None if confirmed_ms is None else datetime.fromtimestamp(confirmed_ms / 1000, UTC)),
            age_s=None if age_s is None else round(age_s, 1),
            max_age_s=settings.max_age_s,
            problem=found.problem,
        )


def _state_of(found: SourceState, settings: RangerSettings, age_s: float | None) -> SourceHealth:
    if age_s is None:
        return "never"
    if age_s >= settings.max_age_s:
        return "too-old"
    return "current" if found.problem is None else "failing"


class PolicyState(Answer):
    """The policies and encryption rules in force, and why newer ones are not in force.

    `revision` is the number of the last change of the catalog's own documents. `ranger` has the services of
    Ranger Admins that policies come from.
    """

    version: str
    encryption_version: str
    revision: int
    sources: list[str]
    ranger: list[SourceAnswer]
    problem: str | None

    @classmethod
    def of(cls, found: InForce, problem: str | None, ranger: list[SourceAnswer]) -> PolicyState:
        """Convert policies to an answer."""
        return cls(
            version=found.policies.version,
            encryption_version=found.encryption.version,
            revision=found.stored.version.revision,
            sources=list(map(str, found.stored.documents)),
            ranger=ranger,
            problem=problem,
        )


class ResourceBody(OwnBody):
    """A resource: `database`, with `table`, with `column`; or one of the others alone."""

    database: str | None = None
    table: str | None = None
    column: str | None = None
    url: str | None = None
    storage_url: str | None = None
    key: str | None = None
    engine: str | None = None
    service: str | None = None

    @model_validator(mode="after")
    def _one(self) -> ResourceBody:
        if frozenset(self._given()) not in _RESOURCES:
            raise ValueError(
                "name one resource: database, table and column from the top, or one of the others"
            )
        return self

    def to_resource(self) -> Resource:
        """Convert the body to a resource.

        Raises:
            RequestInvalid, LocationInvalid: a name or location is not valid.
        """
        given = self._given()
        return _RESOURCES[frozenset(given)](*given.values())

    def _given(self) -> dict[str, str]:
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {name: value for name, value in values.items() if value is not None}


_RESOURCES: Final[dict[frozenset[str], Callable[..., Resource]]] = {
    frozenset({"database"}): Resource.database,
    frozenset({"database", "table"}): Resource.table,
    frozenset({"database", "table", "column"}): Resource.column,
    frozenset({"url"}): Resource.url,
    frozenset({"storage_url"}): Resource.storage,
    frozenset({"key"}): Resource.key,
    frozenset({"engine"}): Resource.engine,
    frozenset({"service"}): Resource.service,
}


class PolicyQuestion(OwnBody):
    """A request to check by the policies in force."""

    user: str
    groups: Names = Field(default_factory=list)
    roles: Names = Field(default_factory=list)
    resource: ResourceBody
    access: str
    owner: str | None = None

    def to_request(self) -> AccessRequest:
        """Convert the body to an access request.

        Raises:
            RequestInvalid, LocationInvalid: the question has no meaning.
        """
        principal = Principal(self.user, frozenset(self.groups), frozenset(self.roles))
        return AccessRequest(principal, self.resource.to_resource(), self.access, owner=self.owner)


class ReasonAnswer(Answer):
    """A reason of a decision."""

    rule: str
    detail: str
    policy: str | None
    item: str | None


class DecisionAnswer(Answer):
    """A decision with its reasons, the decisive one first."""

    allowed: bool
    reasons: list[ReasonAnswer]


class AuditEntry(Answer):
    """A record of the audit log, and its position."""

    writer: str
    sequence: int
    at_ms: int
    principal: str
    engine: str | None
    action: str
    resource: str
    allowed: bool
    reasons: list[ReasonAnswer]
    request_id: str
    decisions: int
    begun: bool


class AuditEntries(Answer):
    """Records, newest first; `next-page-token` asks for older ones, and is null if there are none."""

    records: list[AuditEntry]
    next_page_token: str | None

    @classmethod
    def of(cls, found: Sequence[StoredRecord], limit: int) -> AuditEntries:
        """Build a page of at most `limit` records."""
        records = [
            AuditEntry.model_validate(
                asdict(each.record) | {"writer": each.writer, "sequence": each.sequence}
            )
            for each in found
        ]
        following = found[-1].position.text() if len(found) == limit else None
        return cls(records=records, next_page_token=following)


class AuditFault(Answer):
    """A position where verification of a chain fails."""

    writer: str
    sequence: int
    kind: str
    detail: str


class AuditVerdict(Answer):
    """The result of verifying every chain and checkpoint, and the extent of the verification.

    `archived` is the number of the last segment of the archive, or null. `intact` is about the archive too.
    """

    intact: bool
    problems: list[AuditFault]
    chains: int
    records: int
    checkpoints: int
    checkpointed_ms: int | None
    signed_from: int | None
    archived: int | None

    @classmethod
    def of(cls, verdict: Verdict) -> AuditVerdict:
        """Convert a verdict to an answer."""
        return cls.model_validate(asdict(verdict) | {"intact": not verdict.problems})


class MasterKeyBody(OwnBody):
    """The id of a master key."""

    id: str


class CleanUpDone(Answer):
    """The number of expired writes that were cleaned up, and of keys that were destroyed."""

    swept: int
    keys_destroyed: int
