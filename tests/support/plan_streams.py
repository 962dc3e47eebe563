"""Scan plans as they are sent: read with whole paths, and written again."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from catalog.client.plan_paths import whole_paths
from catalog.planning.rows import empty_rows, with_keys

#: The columns of planned files, each with its type.
ROWS_OF_PLANS: Final = with_keys(empty_rows(), [], None).schema

_ALLOWED: Final = "file:///lake/warehouse"
#: By what is wrong: the directories of a plan of two files, and the index of each file's.
FORGED_DIRECTORIES: Final[dict[str, tuple[list[str | None], list[int | None]]]] = {
    "an index behind the last": ([_ALLOWED], [0, 1]),
    "an index before the first": ([_ALLOWED], [0, -1]),
    "no index": ([_ALLOWED], [0, None]),
    "a directory twice": ([_ALLOWED, _ALLOWED], [0, 1]),
    "an empty directory": ([_ALLOWED, ""], [0, 0]),
    "no directory": ([_ALLOWED, None], [0, 0]),
}


def planned_files(stream: bytes) -> pa.Table:
    """The files of a plan, `file_path` among the columns; the schema's metadata stays."""
    files = pa.ipc.open_stream(stream).read_all()
    paths = whole_paths(files["directory"], files["file_name"])
    return files.drop_columns(["directory", "file_name"]).append_column("file_path", paths)


def with_directories(stream: bytes, known: list[str | None], indexes: list[int | None]) -> bytes:
    """A plan with other directories; nothing is checked."""
    files = pa.ipc.open_stream(stream).read_all()
    forged = pa.DictionaryArray.from_arrays(
        pa.array(indexes, pa.int32()), pa.array(known, pa.string()), safe=False
    )
    place = files.schema.get_field_index("directory")
    files = files.set_column(place, files.schema.field(place), forged)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, files.schema) as writer:
        writer.write_table(files)
    return bytes(sink.getvalue())
