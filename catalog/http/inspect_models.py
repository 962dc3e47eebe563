"""The body and the answer of `inspect`: pages of metadata tables."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

import pyarrow as pa
from pydantic import Field

from catalog.http.base_models import OwnBody
from catalog.http.engine_models import Long
from catalog.metadata_tables.kinds import MetadataTable
from catalog.metadata_tables.pages import Page, PageRequest

HEADER: Final = "lakewarden.metadata-table"
_MAX_LONG: Final = 2**63 - 1
_MAX_COLUMNS: Final = 100_000
_MAX_DEPTH: Final = 8

ColumnPath = Annotated[list[str], Field(min_length=1, max_length=_MAX_DEPTH)]


class InspectBody(OwnBody):
    """The metadata table to read, and which page of it.

    Each of `columns` is a list of names: those of structs around a column come first. Without `rows`, the
    answer says only what rows look like.
    """

    metadata_table: MetadataTable
    snapshot_id: Annotated[int, Field(ge=-_MAX_LONG, le=_MAX_LONG)] | None = None
    ref: str | None = None
    as_of_ms: Long | None = None
    columns: Annotated[list[ColumnPath], Field(max_length=_MAX_COLUMNS)] | None = None
    page_token: Annotated[str, Field(max_length=64)] | None = None
    rows: bool = True

    def to_request(self) -> PageRequest:
        """Convert the body to a request."""
        return PageRequest(
            kind=self.metadata_table,
            snapshot_id=self.snapshot_id,
            ref=self.ref,
            as_of_ms=self.as_of_ms,
            columns=self.columns,
            token=self.page_token,
            rows=self.rows,
        )


def arrow_of(page: Page) -> bytes:
    """Return a page as an Arrow IPC stream; the schema's metadata says what it is of."""
    header: dict[str, Any] = page.to_json()
    schema = page.schema.with_metadata({HEADER: json.dumps(header)})
    rows = pa.Table.from_batches(page.batches, page.schema).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(rows.replace_schema_metadata(schema.metadata))
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]
