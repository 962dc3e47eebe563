"""Bodies and answers of `/engine/v1`."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import Field

from catalog.envelope.parquet_key_tools import StockKey
from catalog.envelope.transport import KeyLabel, TransportKey
from catalog.envelope.write_keys import WrittenKey
from catalog.http.base_models import Answer, Base64, OwnBody
from catalog.http.iceberg_models import LoadedTableAnswer
from catalog.iceberg.expressions import filter_of
from catalog.planning.request import ScanRequest
from catalog.reading.loading import LoadedTable
from catalog.rules.governance import column_ids
from catalog.state.copied_files import CopiedFiles
from catalog.state.stream_epochs import StreamEpoch
from catalog.writes import delete_files
from catalog.writes.new_files import FileCommit, Isolation, NewFile
from catalog.writes.sessions import WriteSession

_LONG: Final = 2**63 - 1

Long = Annotated[int, Field(ge=0, le=_LONG)]
FieldId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Counts = dict[FieldId, Long]
Bounds = dict[FieldId, Base64]
Branch = Annotated[str, Field(min_length=1, max_length=255)]
Filter = Annotated[Any, Field(description="An expression of the Iceberg REST specification.")]


class RegisterKey(OwnBody):
    """The Ed25519 key that an engine signs with: its 32 bytes (RFC 8032), in base64."""

    public_key: Base64


class KeyRegistered(Answer):
    """The id that signatures use for the key, and when the key expires if it is not used."""

    key_id: UUID
    expires_at: datetime


class StageWrite(OwnBody):
    """The table that a write creates: `CreateTableRequest` without `stage-create`."""

    name: str
    location: str | None = None
    table_schema: Annotated[dict[str, Any], Field(alias="schema")]
    partition_spec: dict[str, Any] | None = None
    write_order: dict[str, Any] | None = None
    properties: dict[str, str] | None = None


class ReplaceTable(OwnBody):
    """What a table becomes; see `NewTable`."""

    location: str | None = None
    table_schema: Annotated[dict[str, Any], Field(alias="schema")]
    partition_spec: dict[str, Any] | None = None
    write_order: dict[str, Any] | None = None
    properties: dict[str, str] | None = None


class PlanBody(OwnBody):
    """The scan to plan; at most one of `snapshot-id`, `ref` and `as-of-ms`, else the current snapshot."""

    snapshot_id: Annotated[int, Field(ge=-_LONG, le=_LONG)] | None = None
    ref: str | None = None
    as_of_ms: Long | None = None
    columns: Annotated[list[str], Field(max_length=100_000)] | None = None
    filter: Annotated[Any, Field(description="An expression of the Iceberg REST specification.")] = None
    case_sensitive: bool = True
    files: Annotated[
        list[str] | None, Field(description="Paths of the files to read, in order to rewrite them.")
    ] = None
    position_deletes: Annotated[
        bool, Field(description="Whether position delete files are read, in place of the table's rows.")
    ] = False
    start_snapshot_id: Annotated[int, Field(ge=-_LONG, le=_LONG)] | None = None
    end_snapshot_id: Annotated[int, Field(ge=-_LONG, le=_LONG)] | None = None
    start_inclusive: bool = False
    changes: Annotated[
        bool, Field(description="Whether the rows that snapshots added and removed are read.")
    ] = False
    use_snapshot_schema: bool = True
    column_statistics: Annotated[
        bool, Field(description="Whether the plan sums up the statistics of its columns.")
    ] = False
    every_file: Annotated[
        bool, Field(description="Whether files are planned that have no row for the row filter of a policy.")
    ] = False
    enforces: Annotated[
        list[Literal["read-restrictions"]],
        Field(max_length=1, description="What the reader applies, if the plan's header says so."),
    ] = Field(default_factory=list)

    def to_request(self) -> ScanRequest:
        """Convert the body to the planner's request.

        Raises:
            RequestInvalid, NotSupportedYet: the filter cannot be evaluated.
        """
        return ScanRequest(
            snapshot_id=self.snapshot_id,
            ref=self.ref,
            as_of_ms=self.as_of_ms,
            columns=None if self.columns is None else tuple(self.columns),
            filter=filter_of(self.filter),
            case_sensitive=self.case_sensitive,
            files=None if self.files is None else frozenset(self.files),
            start_snapshot_id=self.start_snapshot_id,
            end_snapshot_id=self.end_snapshot_id,
            start_inclusive=self.start_inclusive,
            changes=self.changes,
            use_snapshot_schema=self.use_snapshot_schema,
            column_statistics=self.column_statistics,
            enforces=frozenset(self.enforces),
            every_file=self.every_file,
        )


class FileKey(OwnBody):
    """A data key of a file, wrapped under the write's key (`docs/key-metadata.md`)."""

    key_name: str
    field_ids: Annotated[list[FieldId], Field(max_length=65_535)] = Field(default_factory=list)
    wrapped: Base64

    def to_key(self) -> WrittenKey:
        """Convert the key to the keyring's form."""
        return WrittenKey(KeyLabel(self.key_name, tuple(self.field_ids)), self.wrapped)


class AddedFile(OwnBody):
    """A new data file or position delete file.

    Statistics are by field id, bounds in Iceberg's single-value bytes.
    """

    path: str
    file_format: str
    content: Annotated[int, Field(ge=0, le=2, description="0: data, 1: position deletes")] = 0
    referenced_data_files: list[str] = Field(default_factory=list)
    record_count: Long
    file_size_in_bytes: Long
    partition: dict[str, Any] = Field(default_factory=dict)
    spec_id: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    column_sizes: Counts = Field(default_factory=dict)
    value_counts: Counts = Field(default_factory=dict)
    null_value_counts: Counts = Field(default_factory=dict)
    nan_value_counts: Counts = Field(default_factory=dict)
    lower_bounds: Bounds = Field(default_factory=dict)
    upper_bounds: Bounds = Field(default_factory=dict)
    split_offsets: list[Long] | None = None
    sort_order_id: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    keys: Annotated[list[FileKey], Field(max_length=255)] = Field(default_factory=list)
    sha256: Base64 | None = None
    footer_bytes: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    footer_sha256: Base64 | None = None

    def to_file(self) -> NewFile:
        """Convert the file to a write's form."""
        return NewFile(
            path=self.path,
            file_format=self.file_format,
            content=self.content,
            referenced_data_files=tuple(self.referenced_data_files),
            record_count=self.record_count,
            file_size_in_bytes=self.file_size_in_bytes,
            partition=self.partition,
            spec_id=self.spec_id,
            column_sizes=self.column_sizes,
            value_counts=self.value_counts,
            null_value_counts=self.null_value_counts,
            nan_value_counts=self.nan_value_counts,
            lower_bounds=self.lower_bounds,
            upper_bounds=self.upper_bounds,
            split_offsets=self.split_offsets,
            sort_order_id=self.sort_order_id,
            keys=tuple(key.to_key() for key in self.keys),
            sha256=self.sha256,
            footer_bytes=self.footer_bytes,
            footer_sha256=self.footer_sha256,
        )


class Epoch(OwnBody):
    """What a streaming query commits once: the id of the query, and the number of the epoch."""

    query_id: UUID
    number: Long

    def to_epoch(self) -> StreamEpoch:
        """Convert the epoch to a write's form."""
        return StreamEpoch(str(self.query_id), self.number)


class Copied(OwnBody):
    """The files outside of the table that the rows were copied from, by the SHA-256 of their names."""

    files: list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]]
    once: Annotated[bool, Field(description="Refuse files that were copied into the table before.")] = True

    def to_files(self) -> CopiedFiles:
        """Convert the files to a write's form."""
        return CopiedFiles(frozenset(self.files), self.once)


class CommitWrite(OwnBody):
    """The files of a write to commit, and what to remove; see `FileCommit`."""

    operation: Literal["append", "delete", "overwrite", "replace", "none"]
    added: list[AddedFile] = Field(default_factory=list)
    deleted_paths: list[str] = Field(default_factory=list)
    delete_filter: Filter = None
    replace_partitions: bool = False
    base_snapshot_id: Annotated[int, Field(ge=-_LONG, le=_LONG)] | None = None
    branch: Branch = "main"
    summary: dict[str, str] = Field(default_factory=dict)
    schema_id: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    command: Literal["delete", "update", "merge"] | None = None
    isolation_level: Isolation | None = None
    conflict_filter: Filter = None
    case_sensitive: bool = True
    wap_id: Annotated[str, Field(max_length=255)] | None = None
    epoch: Epoch | None = None
    copied: Copied | None = None

    def to_commit(self) -> FileCommit:
        """Convert the body to a commit.

        Raises:
            RequestInvalid, NotSupportedYet: a filter cannot be evaluated.
        """
        return FileCommit(
            operation=self.operation,
            added=tuple(file.to_file() for file in self.added),
            deleted_paths=tuple(self.deleted_paths),
            base_snapshot_id=self.base_snapshot_id,
            branch=self.branch,
            summary=self.summary,
            schema_id=self.schema_id,
            delete_filter=None if self.delete_filter is None else filter_of(self.delete_filter),
            replace_partitions=self.replace_partitions,
            command=self.command,
            isolation=self.isolation_level,
            conflict_filter=None if self.conflict_filter is None else filter_of(self.conflict_filter),
            case_sensitive=self.case_sensitive,
            wap_id=self.wap_id,
            epoch=None if self.epoch is None else self.epoch.to_epoch(),
            copied=None if self.copied is None else self.copied.to_files(),
        )


class WholeFilesBody(OwnBody):
    """The rows to delete, if it can be done by removing whole files."""

    filter: Annotated[Any, Field(description="An expression of the Iceberg REST specification.")]
    branch: Branch = "main"
    case_sensitive: bool = True


class WholeFilesAnswer(Answer):
    """Whether in each file all rows match, or none."""

    whole_files: bool


class TransportKeyAnswer(Answer):
    """A transport key; `key` is a secret: keep it in memory, and send it only encrypted."""

    id: str
    key: Annotated[str, Field(repr=False)]

    @classmethod
    def of(cls, transport: TransportKey) -> TransportKeyAnswer:
        """Encode id and key in base64."""
        return cls(
            id=base64.b64encode(transport.id).decode("ascii"),
            key=base64.b64encode(transport.key.reveal()).decode("ascii"),
        )


class ColumnKeyAnswer(Answer):
    """The columns with a column key in each file, by field id, and the master key of the column key."""

    key_name: str
    field_ids: list[int]


class StockKeyAnswer(Answer):
    """A key for standard readers: `kek` under the transport key, `wrapped` as the files store it.

    Without field ids it is the key of the footer.
    """

    key_name: str
    field_ids: list[int]
    kek_id: str
    kek: str
    wrapped: str

    @classmethod
    def of(cls, key: StockKey) -> StockKeyAnswer:
        """Encode a key in base64."""
        return cls(
            key_name=key.label.key_name,
            field_ids=list(key.label.field_ids),
            kek_id=base64.b64encode(key.kek_id).decode("ascii"),
            kek=base64.b64encode(key.kek).decode("ascii"),
            wrapped=key.wrapped,
        )


class StockReadersAnswer(Answer):
    """The key material that the files of a write store for standard readers, one entry per key."""

    keys: list[StockKeyAnswer]


class MaskAnswer(Answer):
    """The mask that ORC files show for some columns, by field id, to users without the columns' keys."""

    mask: str
    field_ids: list[int]


class EncryptionAnswer(Answer):
    """The encryption of a write's files: without column keys, each file is encrypted with one key.

    With `digest` the commit gives the SHA-256 of each file.
    """

    algorithm: str
    data_key_length: int
    footer: str
    footer_key_name: str
    column_keys: list[ColumnKeyAnswer]
    stock_readers: StockReadersAnswer | None = None
    digest: bool = False
    masks: list[MaskAnswer] = Field(default_factory=list)


class PositionDeletesAnswer(Answer):
    """How the position delete files of a write are written."""

    format: str
    granularity: str
    encryption: EncryptionAnswer | None = None


class WriteBegun(Answer):
    """A write that has begun."""

    write_id: str
    table_uuid: str
    location: str
    expires_ms: int
    encryption: EncryptionAnswer | None = None
    position_deletes: PositionDeletesAnswer
    transport_key: TransportKeyAnswer | None = None

    @classmethod
    def of(cls, session: WriteSession) -> WriteBegun:
        """Build the answer from a write session."""
        table = session.table
        groups = [
            ColumnKeyAnswer(key_name=group.key_id, field_ids=list(group.field_ids))
            for group in table.governed.epochs.current.columns
        ]
        # A delete file has no column of the table. It is under one key, and has no mask.
        of_deletes = _encryption(session, [key for key in session.stock_keys if not key.label.field_ids])
        return cls(
            write_id=session.id,
            table_uuid=str(table.record.table_uuid),
            location=session.prefix.canonical,
            expires_ms=session.expires_ms,
            encryption=_encryption(session, session.stock_keys, groups, _masks(table)),
            position_deletes=PositionDeletesAnswer(**delete_files.settings_of(table), encryption=of_deletes),
            transport_key=None if session.transport is None else TransportKeyAnswer.of(session.transport),
        )


def _encryption(
    session: WriteSession,
    stock_keys: Sequence[StockKey],
    column_keys: Sequence[ColumnKeyAnswer] = (),
    masks: Sequence[MaskAnswer] = (),
) -> EncryptionAnswer | None:
    """Return how files of a write are encrypted; None in a plaintext table."""
    spec = session.table.governed.spec
    if not spec.encrypts:
        return None
    stock = [StockKeyAnswer.of(key) for key in stock_keys]
    return EncryptionAnswer(
        algorithm=spec.algorithm,
        data_key_length=spec.data_key_length,
        footer=spec.footer,
        footer_key_name=spec.key_ids()[0],
        column_keys=list(column_keys),
        stock_readers=StockReadersAnswer(keys=stock) if stock else None,
        digest=spec.keeps_digests,
        masks=list(masks),
    )


def _masks(table: LoadedTable) -> list[MaskAnswer]:
    names = column_ids(table.metadata.schema())
    return [
        MaskAnswer(mask=group.mask, field_ids=[names[column] for column in group.columns])
        for group in table.governed.spec.masks
    ]


class EngineTableAnswer(LoadedTableAnswer):
    """A table for an engine, with write settings, or with the `error` that refuses writes."""

    write_settings: dict[str, Any]
    masked_sources: list[int] = Field(default_factory=list)


class WriteStagedAnswer(EngineTableAnswer):
    """A staged write, with the table that its commit creates."""

    write: WriteBegun
