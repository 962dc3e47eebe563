"""Reads plaintext ORC files. PyArrow cannot decrypt ORC: it would show masks in the place of values.

- A file that is encrypted is refused, whether the table says so or not.
- PyArrow reads each file in a process of its own (`orc_child`), and what comes out of that is validated: its
  reader of ORC does not stand up to damaged files.
- A wait for that process ends. It is no sandbox, and what is read is still the table's writers' to choose.
- Ids stand in the attributes of the file's types; whether a field may be null, too. A null where they and the
  table have none refuses the file.
- Whole columns at the top are read, stripe by stripe. Each stripe has the rows that the tail says, all of
  them together those that the table says.

Source: Apache ORC specification v1, "File Tail"; Iceberg table specification, "Appendix A", ORC.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
from pyiceberg.io import InputStream
from pyiceberg.types import FixedType, NestedField, TimeType, UUIDType

from catalog.client.columns import FileColumns, field_id
from catalog.client.errors import damaged, miscounted
from catalog.client.nested import inner_fields, null_where_none
from catalog.client.orc_tail import Tail
from catalog.client.plan import PlannedFile
from catalog.client.private_copy import copied
from policy.errors import NotSupportedYet, StorageUnavailable

_REQUIRED: Final = b"iceberg.required"
_CHILD: Final = Path(__file__).with_name("orc_child.py")
#: What a process needs to find Python and PyArrow; tokens and keys may stand in the rest.
_ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "TZDIR", "LANG", "LC_ALL")
_HELLO: Final = struct.pack("<Q", 7) + b"running"
_LARGEST: Final = 256 << 20
_MOST_SECONDS: Final = 600
_MOST_ENDING: Final = 5
#: The child's exit where a file has such instants.
_NO_ROOM: Final = 3


def undecipherable(table: str) -> NotSupportedYet:
    """The refusal of ORC that is encrypted."""
    return NotSupportedYet(
        "Encrypted ORC files are not read without Spark: PyArrow cannot decrypt them.",
        table=table,
        rule="orc-encryption",
        hint="Read the table with Spark, or have it rewritten with write.format.default=parquet.",
    )


@contextmanager
def opened(stream: InputStream, file: PlannedFile, masked: frozenset[int]) -> Iterator[OrcRows]:
    """A planned file in plaintext, open until the end of the block.

    Args:
        stream: the file, at its first byte.
        file: what the plan says of it.
        masked: ids of columns at the top that are shown as null.

    Raises:
        DataFileDamaged: not a file that the table can have.
        StorageUnavailable: there is no room for a copy, or no process to read it.
        NotSupportedYet: when it is read: values that PyArrow has no room for.
    """
    with copied(stream, file.size) as copy:
        if copy.seek(0, os.SEEK_END) != file.size:
            raise damaged("The file has another size than the table says.", "file-size")
        copy.seek(0)
        with _child(copy) as process:
            with _patience(process):
                rows, tail, schema = (_answer(process.stdout) for _ in range(3))
            found = pa.ipc.read_schema(pa.py_buffer(schema))
            stripes = _stripes(int(rows), Tail.of(tail), file.records)
            columns = FileColumns(_nullable_as_said(found), file.without_like, masked)
            yield OrcRows(process, found, columns, stripes)


@contextmanager
def _child(copy: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """The process that reads a file, from its first word on."""
    command = [sys.executable, "-P", str(_CHILD), str(copy.fileno())]
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            pass_fds=(copy.fileno(),),
            env=environment,
        )
    except OSError as error:
        raise _not_running() from error
    with process:
        try:
            assert process.stdout is not None
            with _patience(process):
                if process.stdout.read(len(_HELLO)) != _HELLO:
                    raise _not_running()
            yield process
        finally:
            process.kill()


@contextmanager
def _patience(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A wait for the process, which is ended if it takes too long; then it says nothing more."""
    timer = threading.Timer(_MOST_SECONDS, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@dataclass(frozen=True, slots=True)
class OrcRows:
    """A file that has passed; its rows are read once.

    Attributes:
        process: which reads it.
        schema: the file's own.
        columns: its columns by field id.
        stripes: the rows of each stripe.
    """

    process: subprocess.Popen[bytes]
    schema: pa.Schema
    columns: FileColumns
    stripes: tuple[int, ...]

    def row_groups(
        self, wanted: Sequence[NestedField], keep: object = None
    ) -> Iterator[tuple[int, pa.Table]]:
        """The wanted columns, stripe by stripe, each with the number of its first row.

        Args:
            wanted: the columns.
            keep: not looked at: PyArrow does not show what the file says of its stripes.
        """
        _require_readable(wanted)
        names = self._names(wanted)
        starts = accumulate(self.stripes, initial=0)
        for start, rows in zip(starts, self._stripes(names) if names else self._bare(), strict=False):
            shown = self.columns.project(rows, wanted)
            _require_values(shown, wanted)
            yield start, shown

    def _names(self, wanted: Sequence[NestedField]) -> list[str]:
        """The file's names of the columns that have to be read."""
        self.columns.leaves(wanted, lambda _: True)
        ids = {each.field_id for each in wanted} - self.columns.masked
        return [each.name for each in self.columns.schema if field_id(each) in ids]

    def _bare(self) -> Iterator[pa.Table]:
        return (pa.table({"_rows": pa.nulls(rows)}) for rows in self.stripes)

    def _stripes(self, names: Sequence[str]) -> Iterator[pa.Table]:
        # A name with a dot in it may be a column's inside of another: then all are read.
        dotted = any("." in each for each in names)
        self._tell(None if dotted else names)
        types = [self.schema.field(each).type for each in names]
        for rows, batch in zip(self.stripes, self._batches(), strict=True):
            batch.validate(full=True)
            read = pa.Table.from_batches([batch]).select(names)
            if read.num_rows != rows:
                raise miscounted()
            if read.schema.types != types:
                raise damaged("A stripe of the file has other columns.", "column-type")
            yield read

    def _tell(self, names: Sequence[str] | None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(names).encode() + b"\n")
        self.process.stdin.flush()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """What the process sends; one more than there are stripes would be seen."""
        if not self.stripes:
            return
        try:
            with _patience(self.process):
                stream = pa.ipc.open_stream(self.process.stdout)
            while True:
                with _patience(self.process):
                    batch = next(stream, None)
                if batch is None:
                    return
                yield batch
        except (pa.ArrowException, OSError) as error:
            with suppress(subprocess.TimeoutExpired):
                if self.process.wait(_MOST_ENDING) == _NO_ROOM:
                    raise _no_room() from error
            raise


def _require_readable(wanted: Sequence[NestedField]) -> None:
    """Iceberg's other writers make ORC's numbers and bytes of some types, with attributes that say how."""
    for field in wanted:
        if isinstance(field.field_type, TimeType | UUIDType | FixedType):
            raise NotSupportedYet(
                f"Columns of the type {field.field_type} ({field.name}) are not read from ORC.",
                rule="column-type",
                hint="Read other columns, or have the table rewritten with write.format.default=parquet.",
            )
        _require_readable(inner_fields(field.field_type))


def _answer(answers: IO[bytes] | None) -> bytes:
    """What the process says next."""
    assert answers is not None
    head = answers.read(8)
    length = struct.unpack("<Q", head)[0] if len(head) == 8 else _LARGEST + 1
    said = answers.read(length) if length <= _LARGEST else b""
    if len(said) != length:
        raise damaged("The file cannot be read.", "data-file")
    return said


def _stripes(rows: int, tail: Tail, records: int) -> tuple[int, ...]:
    """The rows of each stripe, checked against the table's word."""
    if tail.encrypted:
        raise damaged("The file is encrypted, and the table says that it is not.", "encrypted-file")
    if not records == rows == sum(tail.stripes):
        raise miscounted()
    return tail.stripes


def _require_values(rows: pa.Table, wanted: Sequence[NestedField]) -> None:
    """Hold the file's word that nothing is null in a column against what is there."""
    for column, field in zip(rows.columns, wanted, strict=True):
        if any(null_where_none(chunk, field) for chunk in column.chunks):
            raise damaged(f"There is null in {field.name}, where the table has none.", "required-column")


def _nullable_as_said(schema: pa.Schema) -> pa.Schema:
    """A file's schema as its attributes have it: to ORC itself every value may be null."""
    return pa.schema([_field_as_said(each) for each in schema])


def _field_as_said(field: pa.Field) -> pa.Field:
    kind = field.type
    if pa.types.is_struct(kind):
        kind = pa.struct([_field_as_said(each) for each in kind])
    elif pa.types.is_map(kind):
        key = _field_as_said(kind.key_field).with_nullable(False)
        kind = pa.map_(key, _field_as_said(kind.item_field))
    elif pa.types.is_list(kind):
        kind = pa.list_(_field_as_said(kind.value_field))
    said = (field.metadata or {}).get(_REQUIRED)
    return pa.field(field.name, kind, said != b"true", field.metadata)


def _not_running() -> StorageUnavailable:
    return StorageUnavailable(
        "The process that reads ORC files does not start.",
        rule="orc-process",
        hint="It takes the same Python and PyArrow as this one, and the time zone database (or TZDIR).",
    )


def _no_room() -> NotSupportedYet:
    return NotSupportedYet(
        "The file has instants before 1677 or after 2262, for which PyArrow's reader of ORC has no room.",
        rule="orc-timestamp",
        hint="Read the column with Spark, or have the table rewritten with write.format.default=parquet.",
    )
