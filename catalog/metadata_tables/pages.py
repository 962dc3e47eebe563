"""What a user asks of a metadata table, and one page of the answer.

A page that is not the last has a token for the next one. Pages of one snapshot stay what they are. Pages of
`all_…` tables go on only as long as the table is as it was at the first of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyiceberg.types import StructType

from catalog.base.errors import ConcurrentModification
from catalog.metadata_tables.kinds import MetadataTable
from catalog.reading.loading import LoadedTable
from policy.errors import RequestInvalid

_TOKEN: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.([0-9a-f]{16})", re.ASCII)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for rows of a metadata table.

    Attributes:
        kind: the metadata table.
        snapshot_id: the snapshot, or
        ref: the branch or tag, or
        as_of_ms: the time as of which to read; by default the current snapshot.
        columns: names of the columns, each with those of structs around it first; None for all.
        token: of the page; None for the first one.
        rows: whether rows are asked for, and not only what they look like.
    """

    kind: MetadataTable
    snapshot_id: int | None = None
    ref: str | None = None
    as_of_ms: int | None = None
    columns: Sequence[Sequence[str]] | None = None
    token: str | None = None
    rows: bool = True

    @property
    def chooses_snapshot(self) -> bool:
        """Whether the request names a snapshot."""
        return any(each is not None for each in (self.snapshot_id, self.ref, self.as_of_ms))


@dataclass(frozen=True, slots=True)
class Position:
    """Where a page begins.

    Attributes:
        outer: the number of the manifest, or of the snapshot in `all_manifests`.
        row: the number of the first entry in it.
        state: the state of the table that the numbers are of.
    """

    outer: int
    row: int
    state: str

    @classmethod
    def parse(cls, token: str | None, state: str, table: str) -> Position:
        """Return where a page begins.

        Raises:
            RequestInvalid: the token is none.
            ConcurrentModification: it is of another state of the table.
        """
        if token is None:
            return cls(0, 0, state)
        found = _TOKEN.fullmatch(token)
        if found is None:
            raise no_page_token(table)
        if found[3] != state:
            raise ConcurrentModification(
                "The table was changed while its metadata was read.",
                table=table,
                rule="page-token",
                hint="Begin with the first page.",
            )
        return cls(int(found[1]), int(found[2]), state)

    def at(self, outer: int, row: int = 0) -> Position:
        """Return another position in the same state."""
        return Position(outer, row, self.state)

    @property
    def token(self) -> str:
        """The token of a page that begins here."""
        return f"{self.outer}.{self.row}.{self.state}"


def no_page_token(table: str) -> RequestInvalid:
    """Return the error for a page token that no page has given."""
    return RequestInvalid(
        "The page token is not valid.",
        table=table,
        rule="page-token",
        hint="Begin with the first page.",
    )


def state_of(table: LoadedTable, snapshot_id: int | None) -> str:
    """Name what pages are of: a snapshot, or the whole metadata if there is none."""
    what = table.metadata_location if snapshot_id is None else f"{table.record.table_uuid}/{snapshot_id}"
    return hashlib.sha256(what.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows of a metadata table.

    Attributes:
        table: the table.
        kind: the metadata table.
        columns: its columns, or those that were asked for.
        snapshot_id: the snapshot; None for a table without rows, or a metadata table that is of no snapshot.
        principal: name of the user for whom.
        policy_version: the policies by which it was decided.
        valid_ms: milliseconds for which the rows can be shown without asking again.
        hidden: names of what is null because the user does not see it.
        batches: the rows.
        next_token: of the next page; None if there is none.
    """

    table: LoadedTable
    kind: MetadataTable
    columns: StructType
    snapshot_id: int | None
    principal: str
    policy_version: str
    valid_ms: int
    hidden: tuple[str, ...] = ()
    batches: tuple[pa.RecordBatch, ...] = ()
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    next_token: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what is said once, as JSON."""
        return {
            "table": self.table.name,
            "table-uuid": str(self.table.record.table_uuid),
            "metadata-table": self.kind.value,
            "snapshot-id": self.snapshot_id,
            "schema": self.columns.model_dump(mode="json", by_alias=True),
            "hidden": list(self.hidden),
            "principal": self.principal,
            "policy-version": self.policy_version,
            "valid-ms": self.valid_ms,
            "row-count": sum(each.num_rows for each in self.batches),
            "next-page-token": self.next_token,
        }
