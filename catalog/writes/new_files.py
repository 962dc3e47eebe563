"""Defines what an engine sends to commit a write: new files, and what to remove."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from pyiceberg.expressions import BooleanExpression

from catalog.envelope.write_keys import WrittenKey
from catalog.iceberg.filter_values import filtered_columns
from catalog.state.copied_files import CopiedFiles
from catalog.state.stream_epochs import StreamEpoch


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file or delete file that an engine wrote, with the statistics of Iceberg's manifests.

    Attributes:
        path: its location.
        file_format: ``parquet``, ``orc`` or ``avro``.
        record_count: rows.
        file_size_in_bytes: as stored.
        partition: value by partition field name, in Iceberg's JSON single-value form.
        spec_id: the partition spec it was written with.
        content: 0 for a data file, 1 for a position delete file.
        referenced_data_files: paths of the data files that a delete file deletes rows of.
        keys: its data keys under the write's transport key; none for plaintext.
        sha256: of all its bytes; required if the table keeps digests.
        footer_bytes: length of its footer, including the length field and the magic at the end; required for
            a Parquet file with column keys.
        footer_sha256: of the footer's bytes.
    """

    path: str
    file_format: str
    record_count: int
    file_size_in_bytes: int
    partition: Mapping[str, object] = field(default_factory=dict)
    spec_id: int = 0
    content: int = 0
    referenced_data_files: tuple[str, ...] = ()
    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)
    split_offsets: Sequence[int] | None = None
    sort_order_id: int | None = None
    keys: tuple[WrittenKey, ...] = ()
    sha256: bytes | None = None
    footer_bytes: int | None = None
    footer_sha256: bytes | None = None


class Isolation(StrEnum):
    """The isolation level of a commit; see docs/rest-api.md, "Conflicts".

    Attributes:
        SERIALIZABLE: rows that came into the scope since the base are conflicts.
        SNAPSHOT: they are none.
        NONE: the commit is not based on a snapshot.
    """

    SERIALIZABLE = "serializable"
    SNAPSHOT = "snapshot"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class FileCommit:
    """The files and options of a commit.

    Attributes:
        operation: ``append`` adds data files; ``delete`` removes rows; ``overwrite`` removes and adds;
            ``replace`` removes and adds without changing rows; ``none`` has no snapshot, and creates or
            replaces the table of a staged write.
        added: new data files and delete files.
        deleted_paths: data files and delete files to remove, as the plan named them.
        base_snapshot_id: the head that the rows were read from; None if the branch was empty.
        branch: the branch to commit to.
        summary: entries for the snapshot's summary.
        schema_id: the schema that the rows were read and written with. It must still be current if rows were
            read; None if it is not known.
        delete_filter: removes the files whose rows all match.
        replace_partitions: removes the files of the partitions of the added data files.
        command: the row-level command whose table property is the isolation level.
        isolation: the isolation level; None for that of `command`, or the default.
        conflict_filter: the rows that were read; None for the default.
        case_sensitive: how names in the filters are compared.
        wap_id: stages the snapshot under this id instead of moving the branch.
        epoch: the epoch of a streaming query, which is committed once; None outside of streams.
        copied: the files outside of the table that the rows were copied from; None if they were not.
    """

    operation: Literal["append", "delete", "overwrite", "replace", "none"]
    added: tuple[NewFile, ...]
    deleted_paths: tuple[str, ...] = ()
    base_snapshot_id: int | None = None
    branch: str = "main"
    summary: Mapping[str, str] = field(default_factory=dict)
    schema_id: int | None = None
    delete_filter: BooleanExpression | None = None
    replace_partitions: bool = False
    command: Literal["delete", "update", "merge"] | None = None
    isolation: Isolation | None = None
    conflict_filter: BooleanExpression | None = None
    case_sensitive: bool = True
    wap_id: str | None = None
    epoch: StreamEpoch | None = None
    copied: CopiedFiles | None = None

    @property
    def filtered_names(self) -> frozenset[str]:
        """Return the names of columns in the filters."""
        given = [each for each in (self.delete_filter, self.conflict_filter) if each is not None]
        return frozenset(name for each in given for name in filtered_columns(each))

    @property
    def reads_by_schema(self) -> bool:
        """Return whether the commit depends on rows that were read, or on names of columns."""
        named = self.operation == "replace" or bool(self.deleted_paths) or self.command is not None
        return named or bool(self.filtered_names)

    @property
    def removes_rows_by_condition(self) -> bool:
        """Return whether the catalog finds the files to remove."""
        return self.delete_filter is not None or self.replace_partitions

    @property
    def removes_rows(self) -> bool:
        """Return whether rows that are in the table are removed, or deleted by delete files."""
        deletes = any(each.content != 0 for each in self.added)
        return deletes or bool(self.deleted_paths) or self.removes_rows_by_condition

    @property
    def named_paths(self) -> frozenset[str]:
        """Return the paths that the engine names."""
        referenced = (path for each in self.added for path in each.referenced_data_files)
        return frozenset((*self.deleted_paths, *(each.path for each in self.added), *referenced))
