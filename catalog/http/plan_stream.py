"""Writes a plan as an Arrow IPC stream.

The schema's metadata has the header as JSON (`lakewarden.plan`) and, if files are encrypted, the transport
key of this scan (`lakewarden.transport-key`). It is a secret that is never logged, stored or sent twice.

Source: Apache Arrow columnar format, "IPC Streaming Format".
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from fastapi import Response
from fastapi.responses import StreamingResponse

from catalog.http.engine_models import TransportKeyAnswer
from catalog.planning.plan import Plan

MEDIA_TYPE: Final = "application/vnd.apache.arrow.stream"
HEADER: Final = "lakewarden.plan"
TRANSPORT_KEY: Final = "lakewarden.transport-key"
BATCH_ROWS: Final = 65_536


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
    files = plan.files.replace_schema_metadata(_metadata(plan))
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, files.schema) as writer:
        for start in range(0, files.num_rows, BATCH_ROWS):
            # Rows of many small chunks would be many small batches.
            for batch in files.slice(start, BATCH_ROWS).combine_chunks().to_batches():
                writer.write_batch(batch)
            yield _drained(buffer)
    yield _drained(buffer)


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
