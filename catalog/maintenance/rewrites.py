"""Plans which files an engine has to rewrite: badly sized ones, and those whose encryption is an earlier one.

- The caller can write, and can read every column and row unmasked: a column or row that is hidden from the
  reader would be lost. The scan plans of the rewrite check this again.
- Which files are rewritten, and in what groups, `compaction` decides. A file has to be rewritten if its
  encryption or format differs from the table's, or that of a delete file that applies to it. On all branches
  these are listed; other files on the given branch, or on `main`.
- A caller who finds unreadable files requests groups without them, so that they do not block other files.
- Nothing is stored between requests. The table alone decides what is left, so that a rewrite continues where
  the previous one stopped. The sequence number of the first answer keeps new files out of later groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import authorize, reading_of, resolve
from catalog.authorization.table_access import require_on
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.iceberg.bounds import Mask
from catalog.iceberg.manifests import ManifestContent, data_files
from catalog.iceberg.metadata import require_written_version
from catalog.iceberg.partition_values import ShownPartitions
from catalog.maintenance.census import Census, heads, open_head
from catalog.maintenance.compaction import Candidate, Compaction, Pace
from catalog.planning.deletes import Deletes
from catalog.planning.rows import planned_rows
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest, SnapshotReader
from catalog.rules.governance import check_sorted, column_ids
from catalog.snapshot_checks.entries import DELETED, alive
from catalog.writes.applying import only_file
from catalog.writes.scopes import Files, RowsOfFilter
from policy.encryption.file_formats import WRITE_FORMAT
from policy.errors import RequestInvalid
from policy.write_settings import write_settings

ACTION: Final = "table.rewrite"


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Files to rewrite in one commit.

    Attributes:
        branch: the branch they are live on.
        snapshot_id: its head, from which they are to be read.
        paths: the files.
        sizes: of each, its bytes.
        records: their rows, deleted ones included.
        outputs: how many files to write in their place.
        file_size: the size at which a file is ended, in bytes.
    """

    branch: str
    snapshot_id: int
    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    records: int
    outputs: int
    file_size: int


@dataclass(frozen=True, slots=True)
class Rewrites:
    """The files of a table to rewrite.

    Attributes:
        groups: the next groups.
        files, bytes: all at the heads of the branches looked at that have to be rewritten, in groups or not,
            delete files included.
        sequence_number: the table's last one, for the next request.
        dangling: whether delete files are to be removed that apply to no file.
        total: the number of all groups.
        pace: how they are to be committed.
    """

    groups: tuple[RewriteGroup, ...] = ()
    files: int = 0
    bytes: int = 0
    sequence_number: int = 0
    dangling: bool = True
    total: int = 0
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True, slots=True)
class RewriteRequest:
    """What to rewrite.

    Attributes:
        max_groups: how many groups are answered.
        options: those of `rewrite_data_files` (`Compaction`).
        branch: the branch to look at; None for all that have files of an earlier encryption, and `main`.
        row_filter: only files that can have matching rows.
        case_sensitive: how its names are compared.
        sort_columns: the columns that the rows are going to be sorted by, if not by the table's sort order.
        without: files that are to be in no group.
        sequence_number: files that were added later are in no group, unless they have to be rewritten.
    """

    max_groups: int
    options: Mapping[str, str] = field(default_factory=dict)
    branch: str | None = None
    row_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    case_sensitive: bool = True
    sort_columns: Sequence[Sequence[str]] = ()
    without: Collection[str] = ()
    sequence_number: int | None = None


class Rewriter:
    """Plans rewrites.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def groups(self, caller: Caller, name: TableName, request: RewriteRequest) -> Rewrites:
        """Return the next groups of files to rewrite, and the number and size of all that have to be.

        Args:
            caller: who is going to rewrite.
            name: the table.
            request: what to rewrite.

        Raises:
            NotAuthorized: UPDATE on the table and unmasked SELECT on all of its columns are needed; `release`
                on its keys too, unless an engine asks.
            RequestInvalid: there is no such branch, or a value of an option is not valid.
            NotSupportedYet: a branch has deletion vectors, or an option is not supported.
            MetadataUnsealed, MetadataTampered, LocationNotAllowed, DecryptionRefused: the table cannot be
                trusted.
        """
        with opened(
            self._context, caller, name, request.row_filter, case_sensitive=request.case_sensitive
        ) as table:
            compaction = _compaction(table, request.options)
            _check_sort(table, request.sort_columns)
            looked = [
                _Branch(self._context, table, *each, compaction, request)
                for each in heads_of(table, request.branch)
            ]
        groups = [group for each in looked for group in each.groups()]
        return Rewrites(
            tuple(groups[: request.max_groups]),
            sum(each.count for each in looked),
            sum(each.bytes for each in looked),
            table.metadata.next_sequence_number() - 1,
            compaction.dangling,
            len(groups),
            compaction.pace,
        )


@contextmanager
def opened(
    context: ServiceContext,
    caller: Caller,
    name: TableName,
    row_filter: BooleanExpression,
    *,
    case_sensitive: bool,
) -> Iterator[LoadedTable]:
    """Load a table for a caller who is going to rewrite files of it.

    Raises:
        as `Rewriter.groups`.
    """
    authorizer = context.authorizer.settled()
    require_on(authorizer, caller, ACTION, str(name), context.on(caller, name))
    with authorizer.recorded(caller, ACTION, str(name), show_path=False):
        table = context.loader.load_sealed(name)
        require_written_version(table.metadata, table.name)
        columns = resolve(table, table.metadata.schema(), None, row_filter, case_sensitive=case_sensitive)
        authorize(authorizer, caller, table, reading_of(authorizer, caller, table, columns))
        yield table


def _compaction(table: LoadedTable, options: Mapping[str, str]) -> Compaction:
    target = write_settings(table.metadata.properties, table.name)["target-file-size"]
    return Compaction.parse(options, target, table.metadata.default_spec_id, table.name)


def _check_sort(table: LoadedTable, columns: Sequence[Sequence[str]]) -> None:
    """Refuse to sort by columns that the table's sort order could not have.

    Raises:
        RequestInvalid: the table has no such column.
        EncryptionPolicyViolation: plaintext columns would show the order of an encrypted one.
    """
    known = column_ids(table.metadata.schema())
    names = [".".join(each) for each in columns]
    absent = [name for name in names if name not in known]
    if absent:
        raise RequestInvalid(
            f"Column {absent[0][:80]!r} does not exist. Columns: {', '.join(known)}.",
            table=table.name,
            rule="sort-order",
        )
    check_sorted(table.governed.spec, table.metadata, [known[name] for name in names], table.name)


def heads_of(table: LoadedTable, branch: str | None) -> list[tuple[str, Snapshot]]:
    """Return the requested branches with their heads."""
    found = heads(table.metadata)
    if branch is None:
        return found
    return [each for each in found if each[0] == branch] or _no_such(branch, table)


def _no_such(branch: str, table: LoadedTable) -> NoReturn:
    raise RequestInvalid(
        f"The table has no branch {branch[:80]!r}.",
        table=table.name,
        rule="branch",
        hint="Leave the branch out to rewrite all branches.",
    )


class _Branch:
    """The files at the head of a branch that can be rewritten.

    Attributes:
        count, bytes: of those that have to be, delete files included.
    """

    def __init__(
        self,
        context: ServiceContext,
        table: LoadedTable,
        branch: str,
        head: Snapshot,
        compaction: Compaction,
        request: RewriteRequest,
    ) -> None:
        schema = table.metadata.schema()
        self._table, self._branch, self._head = table, branch, head
        self._compaction, self._without = compaction, frozenset(request.without)
        self._compacts = branch == (request.branch or MAIN_BRANCH)
        self._latest = request.sequence_number
        self._census = Census(context.reader, table)
        self._format = table.metadata.properties.get(WRITE_FORMAT)
        self._shown = ShownPartitions(table.metadata.specs(), schema, frozenset(schema.field_ids))
        self._scope = RowsOfFilter(
            context.keyring, table, request.row_filter, case_sensitive=request.case_sensitive
        )
        data, deletes = by_content(context.reader, table, head)
        beside = [alive(each.entries).filter(self._census.old(alive(each.entries))) for each in deletes]
        self._outdated = frozenset(path for each in beside for path in each["file_path"].to_pylist())
        self._deletes = Deletes(deletes, table, schema, self._shown) if deletes else None
        self._rows = _deleted_rows(deletes)
        self._files = [file for each in data for file in self._candidates(each)]
        must = [file.size for file in self._files if file.must]
        self.count = len(must) + len(self._outdated)
        self.bytes: int = sum(must) + sum(pc.sum(each["file_size_in_bytes"]).as_py() or 0 for each in beside)

    def groups(self) -> Iterator[RewriteGroup]:
        """Return the groups of files to rewrite."""
        found = self._compaction.groups(file for file in self._files if file.path not in self._without)
        for files in found:
            size = sum(file.size for file in files)
            yield RewriteGroup(
                self._branch,
                self._head.snapshot_id,
                tuple(file.path for file in files),
                tuple(file.size for file in files),
                sum(file.records for file in files),
                self._compaction.outputs(size),
                self._compaction.file_size,
            )

    def _candidates(self, manifest: OpenManifest) -> Iterator[Candidate]:
        chosen = self._scope.touches(Files.live(manifest))
        must = np.asarray(pc.or_(self._census.old(manifest.entries), self._otherwise(manifest.entries)))
        chosen = chosen & (must | self._can_compact(manifest.entries) | bool(self._outdated))
        entries = manifest.entries.filter(pa.array(chosen))
        spec_id = manifest.listed.partition_spec_id
        current = spec_id == self._table.metadata.default_spec_id
        rows = planned_rows(entries, manifest.listed, self._shown)
        applied = self._applied(rows, manifest, chosen)
        columns = (rows[name].to_pylist() for name in _READ)
        for old, deletes, path, size, records, partition, number in zip(
            must[chosen], applied, *columns, strict=True
        ):
            forced = bool(old) or not self._outdated.isdisjoint(deletes)
            if forced or (self._compacts and (self._latest is None or number <= self._latest)):
                deleted = sum(self._rows.get((path, each), 0) for each in deletes)
                own = partition if current else None
                yield Candidate(path, size, records, own, forced, len(deletes), deleted)

    def _can_compact(self, entries: pa.Table) -> Mask:
        """Return one flag per file: whether its size or its deletes can make it a candidate."""
        if not self._compacts:
            return np.zeros(entries.num_rows, np.bool_)
        sizes, wanted = entries["file_size_in_bytes"].to_numpy(), self._compaction
        wrong: Mask = (sizes < wanted.smallest) | (sizes > wanted.largest)
        return wrong | wanted.rewrite_all | (self._deletes is not None)

    def _applied(self, rows: pa.Table, manifest: OpenManifest, chosen: Mask) -> list[list[str]]:
        """Return the delete files that apply to each file, whatever statistics say."""
        if self._deletes is None:
            return [[] for _ in range(rows.num_rows)]
        spec_id, numbers = manifest.listed.partition_spec_id, np.flatnonzero(chosen).tolist()
        return self._deletes.paths_of(
            self._deletes.attach(rows, manifest.decoded, spec_id, numbers, by_statistics=False)
        )

    def _otherwise(self, entries: pa.Table) -> pa.Array | pa.ChunkedArray:
        """Return one flag per file: whether its format differs from the table's."""
        if self._format is None:
            return pa.repeat(False, entries.num_rows)
        return pc.not_equal(pc.utf8_lower(entries["file_format"]), self._format.lower())


#: What candidates are made of.
_READ: Final = ("file_path", "file_size_in_bytes", "record_count", "partition", "file_sequence_number")


def by_content(
    reader: SnapshotReader, table: LoadedTable, head: Snapshot
) -> tuple[list[OpenManifest], list[OpenManifest]]:
    """Open the manifests of a snapshot: those of data files, and those of delete files."""
    data: list[OpenManifest] = []
    deletes: list[OpenManifest] = []
    for each in open_head(reader, table, head):
        (data if each.listed.content is ManifestContent.DATA else deletes).append(each)
    return data, deletes


def _deleted_rows(deletes: Sequence[OpenManifest]) -> dict[tuple[str, str], int]:
    """Return the rows of position delete files for one data file, by data file and delete file."""
    found: dict[tuple[str, str], int] = {}
    for manifest in deletes:
        numbers = pc.indices_nonzero(pc.not_equal(manifest.entries["status"], DELETED)).to_pylist()
        for file in data_files(manifest.decoded, numbers, manifest.listed.partition_spec_id):
            only = only_file(file) if file.content == DataFileContent.POSITION_DELETES else None
            if only is not None:
                found[only, file.file_path] = file.record_count
    return found
