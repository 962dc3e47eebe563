"""Writes a plan as an Arrow IPC stream.

The schema's metadata has the header as JSON (`lakewarden.plan`) and, if files are encrypted, the transport
key of this scan (`lakewarden.transport-key`). It is a secret that is never logged, stored or sent twice.

A path is sent as its directory, which most files of a batch share, and its name. A column of nulls has no
bytes. The columns of a long plan are compressed, one by one. The schema is not, which has the secret.

Source: docs/plan-format.md, "Files"; Apache Arrow columnar format, "IPC Streaming Format".
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from fastapi import Response
from fastapi.responses import StreamingResponse

from catalog.http.engine_models import TransportKeyAnswer
from catalog.planning.plan import Plan

MEDIA_TYPE: Final = "application/vnd.apache.arrow.stream"
HEADER: Final = "lakewarden.plan"
TRANSPORT_KEY: Final = "lakewarden.transport-key"
BATCH_ROWS: Final = 65_536
#: Longer plans are compressed. Of shorter ones, compressing the columns takes longer than sending them.
COMPRESSED_FROM: Final = 1024
_PATH: Final = "file_path"
#: A path as it is sent.
SPLIT_PATH: Final = (
    pa.field("directory", pa.dictionary(pa.int32(), pa.string())),
    pa.field("file_name", pa.string()),
)
_ZSTD_LEVEL: Final = 1


PLAN_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The files to read, as an Arrow IPC stream.",
        "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}


def plan_answer(plan: Plan) -> Response:
    """Return the answer with a plan."""
    if plan.files.num_rows <= BATCH_ROWS:
        return Response(b"".join(stream(plan)), media_type=MEDIA_TYPE)
    return StreamingResponse(stream(plan), media_type=MEDIA_TYPE)


def stream(plan: Plan) -> Iterator[bytes]:
    """Yield the bytes of the stream, batch by batch."""
    return stream_of(plan.files, _metadata(plan))


def stream_of(files: pa.Table, metadata: Mapping[str, str]) -> Iterator[bytes]:
    """Yield the bytes of a stream of planned files.

    Args:
        files: the rows of the plan, with whole paths.
        metadata: of the schema.
    """
    buffer = io.BytesIO()
    carried = _carried(files)
    schema = pa.schema([*SPLIT_PATH, *carried], metadata)
    with pa.ipc.new_stream(buffer, schema, options=_options(files.num_rows)) as writer:
        for start in range(0, files.num_rows, BATCH_ROWS):
            # Rows of many small chunks would be many small batches.
            rows = files.slice(start, BATCH_ROWS).combine_chunks()
            columns = [*_split(_array(rows, _PATH)), *(_sent(rows, field) for field in carried)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
            yield _drained(buffer)
    yield _drained(buffer)


def _carried(files: pa.Table) -> list[pa.Field]:
    """Return the other columns. One of nulls alone has the type null, which takes no bytes."""
    return [
        pa.field(field.name, pa.null()) if files[field.name].null_count == files.num_rows else field
        for field in files.schema
        if field.name != _PATH
    ]


def _sent(rows: pa.Table, field: pa.Field) -> pa.Array:
    return pa.nulls(rows.num_rows) if pa.types.is_null(field.type) else _array(rows, field.name)


def _split(paths: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the directories of paths, each once, and the names in them."""
    halves = pc.split_pattern(paths, "/", max_splits=1, reverse=True)
    return pc.list_element(halves, 0).dictionary_encode(), pc.list_element(halves, 1)


def _array(rows: pa.Table, name: str) -> pa.Array:
    [chunk] = rows[name].chunks
    return chunk


def _options(rows: int) -> pa.ipc.IpcWriteOptions:
    codec = pa.Codec("zstd", compression_level=_ZSTD_LEVEL) if rows > COMPRESSED_FROM else None
    return pa.ipc.IpcWriteOptions(compression=codec)


def _metadata(plan: Plan) -> dict[str, str]:
    metadata = {HEADER: json.dumps(plan.header.to_json())}
    if plan.header.transport is not None:
        metadata[TRANSPORT_KEY] = TransportKeyAnswer.of(plan.header.transport).model_dump_json()
    return metadata


def _drained(buffer: io.BytesIO) -> bytes:
    data = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return data
