"""Bodies and answers about all tables of a catalog, for audits."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from catalog.http.base_models import Answer, OwnBody
from catalog.maintenance.lake import KeyStanding, StatesPage, TableInLake
from catalog.state.seals import SealedFile
from policy.encryption.epoch_documents import epoch_document
from policy.location.overlaps import Claim

#: Tables whose state is asked for at a time.
MOST_TABLES: Final = 1_000


class ListedTable(Answer):
    """A table, and how the catalog knows it: `governed`, `pointerless` or `ungoverned`."""

    table: str
    standing: str


class ListedTables(Answer):
    """Tables sorted by name; `next` is the value of `after` for the next page, if there is one."""

    tables: list[ListedTable]
    next: str | None


class StatesRequest(OwnBody):
    """The tables whose state is wanted; `after` is `next` of the page before, for further seals."""

    tables: Annotated[
        list[Annotated[str, Field(max_length=400)]], Field(min_length=1, max_length=MOST_TABLES)
    ]
    after: Annotated[str | None, Field(max_length=2_000)] = None


class SealAnswer(Answer):
    """SHA-256 in hexadecimal, and length in bytes."""

    sha256: str
    length: int


class SealedFileAnswer(Answer):
    """The seal of a manifest list or manifest, with its record in the parent."""

    table_uuid: str
    path: str
    kind: str
    sha256: str
    length: int
    snapshot_id: int
    sequence_number: int
    partition_spec_id: int
    content: int

    @classmethod
    def of(cls, table_uuid: str, file: SealedFile) -> SealedFileAnswer:
        """Convert a sealed file to an answer."""
        return cls(
            table_uuid=table_uuid,
            path=file.path,
            kind=file.kind,
            sha256=file.digest.sha256,
            length=file.digest.length,
            snapshot_id=file.snapshot_id,
            sequence_number=file.sequence_number,
            partition_spec_id=file.partition_spec_id,
            content=file.content,
        )


class KeyAnswer(Answer):
    """A version of a PEK, without the key."""

    pek_id: str
    version: int
    master_key_id: str
    kms: str
    state: str
    in_force: bool
    destroy_after_ms: int | None
    invocations: int

    @classmethod
    def of(cls, key: KeyStanding) -> KeyAnswer:
        """Convert a version of a PEK to an answer."""
        record = key.record
        return cls(
            pek_id=str(record.id),
            version=record.version,
            master_key_id=record.master_key_id,
            kms=record.kms,
            state=record.state,
            in_force=key.in_force,
            destroy_after_ms=record.destroy_after_ms,
            invocations=key.invocations,
        )


class ClaimAnswer(Answer):
    """The location of another table; `dropped` if that can be registered again."""

    table: str
    location: str
    dropped: bool

    @classmethod
    def of(cls, claim: Claim) -> ClaimAnswer:
        """Convert a claim to an answer."""
        return cls(table=claim.name, location=claim.location, dropped=claim.dropped)


class GovernedAnswer(Answer):
    """What governs a table: allowed locations in canonical form, and encryption epochs."""

    allowed: list[str]
    epochs: list[dict[str, Any]]


class TableState(Answer):
    """A table with the state that the database has of it; nulls where the catalog does not govern it."""

    table: str
    standing: str
    metadata_location: str | None
    table_uuid: str | None
    owner: str | None
    location: str | None
    governed: GovernedAnswer | None
    sealed_location: str | None
    seal: SealAnswer | None
    keys: list[KeyAnswer]
    writes: list[str]
    others: list[ClaimAnswer]
    shared: bool
    violations: list[str]
    problem: str | None

    @classmethod
    def of(cls, table: TableInLake) -> TableState:
        """Convert a table to an answer."""
        record, governed = table.record, table.governed
        return cls(
            table=str(table.name),
            standing=table.standing,
            metadata_location=table.pointer,
            table_uuid=None if record is None else str(record.table_uuid),
            owner=None if record is None else record.owner,
            location=None if record is None else record.location.canonical,
            governed=None
            if governed is None
            else GovernedAnswer(
                allowed=[each.canonical for each in governed.allowed.entries],
                epochs=[epoch_document(each) for each in governed.epochs.entries],
            ),
            sealed_location=table.sealed_pointer,
            seal=None
            if table.seal is None
            else SealAnswer(sha256=table.seal.sha256, length=table.seal.length),
            keys=[KeyAnswer.of(each) for each in table.keys],
            writes=list(table.writes),
            others=[ClaimAnswer.of(each) for each in table.others],
            shared=table.shared,
            violations=list(table.violations),
            problem=table.problem,
        )


class TableStates(Answer):
    """States of tables, and seals of their files; `next` is the value of `after` for further seals."""

    tables: list[TableState]
    seals: list[SealedFileAnswer]
    next: str | None
    garbage_before_ms: int

    @classmethod
    def of(cls, page: StatesPage) -> TableStates:
        """Convert a page to an answer."""
        return cls(
            tables=[TableState.of(each) for each in page.tables],
            seals=[SealedFileAnswer.of(*each) for each in page.seals],
            next=page.after,
            garbage_before_ms=page.garbage_before_ms,
        )
