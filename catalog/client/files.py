"""Opens the files of a scan. Nothing in a file is used before it is checked.

The order is fixed: the path is checked against the allowed list, then the data keys are opened, then the
file, by the very descriptor that is read from then on; then its size and its footer are checked against what
its epoch says. Then PyArrow reads the columns that are wanted, and no others: what belongs to a column whose
key is not at hand is never asked for.

PyArrow takes a footer's key and the prefix directly. For columns with keys of their own it takes keys by the
names that a file gives them, and the prefix from the file: such a file is shown to it with a footer made in
memory (`footers.rewritten`), whose names stand for the keys of the plan.
"""

from __future__ import annotations

import io
import json
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import InputStream
from pyiceberg.types import NestedField

from catalog.client import footers, pruning
from catalog.client.columns import FileColumns
from catalog.client.errors import RESTORE, DataFileDamaged, DataFileMissing, damaged, miscounted, missized
from catalog.client.footers import FileKeys
from catalog.client.plan import Plan, PlannedFile
from catalog.client.private_copy import verified
from catalog.client.restricted import without_keys
from catalog.client.stored_types import require_stored
from catalog.iceberg.selection import all_ids
from catalog.storage.base import Storage
from catalog.storage.errors import ObjectMissing
from policy.errors import DecryptionRefused, LakewardenError, NotSupportedYet

_ENCRYPTED_MAGIC: Final = b"PARE"


class RowGroup(NamedTuple):
    """A row group of a file: its number, that of its first row, and how many rows it says that it has."""

    number: int
    start: int
    rows: int


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that has passed.

    Attributes:
        parquet: PyArrow's reader of it.
        columns: its columns by field id.
        readable: places of the columns that may be read; None for all.
        passed: is told how many rows are done: of row groups that were left out, or taken.
    """

    parquet: pq.ParquetFile
    columns: FileColumns
    readable: frozenset[int] | None
    passed: Callable[[int], None]

    def row_groups(
        self,
        wanted: Sequence[NestedField],
        keep: BooleanExpression | None = None,
        most: int | None = None,
    ) -> Iterator[tuple[int, pa.Table]]:
        """The wanted columns, row group by row group, each with the number of its first row.

        Args:
            wanted: the columns.
            keep: a bound filter over them; row groups in which no row can match it are left out.
            most: the number of rows of a row group that is enough; None for all.
        """
        for group in self.matching(wanted, keep):
            yield group.start, self.read(group, wanted, group.rows if most is None else min(most, group.rows))

    def matching(
        self, wanted: Sequence[NestedField], keep: BooleanExpression | None = None
    ) -> Iterator[RowGroup]:
        """The row groups in which a row may match a bound filter over the wanted columns; None for all."""
        metadata = self.parquet.metadata
        rows = [metadata.row_group(each).num_rows for each in range(metadata.num_row_groups)]
        starts = list(accumulate(rows, initial=0))
        numbers: Sequence[int] = range(len(rows))
        if keep is not None:
            numbers = pruning.matching(self.parquet, self.columns, self._may_read, wanted, keep)
        self.passed(sum(rows) - sum(rows[each] for each in numbers))
        for each in numbers:
            yield RowGroup(each, starts[each], rows[each])
            self.passed(rows[each])

    def read(self, group: RowGroup, wanted: Sequence[NestedField], count: int) -> pa.Table:
        """The first rows of a row group, of the wanted columns.

        Raises:
            DataFileDamaged: it has not as many as it says.
        """
        # By place, since a name with a dot in it may be two columns'.
        leaves = self.columns.leaves(wanted, self._may_read)
        if not leaves:
            read = pa.table({"_rows": pa.nulls(count)}).select([])
        elif count < group.rows:
            read = self._beginning(group, leaves, count)
        else:
            read = self.parquet.reader.read_row_group(group.number, column_indices=leaves, use_threads=True)
        if read.num_rows != count:
            raise miscounted(read.num_rows, count)
        return self.columns.project(read, wanted)

    def _beginning(self, group: RowGroup, leaves: Sequence[int], count: int) -> pa.Table:
        """The first rows of a row group; pages behind them are not decoded."""
        batches = self.parquet.reader.iter_batches(
            count, [group.number], column_indices=leaves, use_threads=True
        )
        held: list[pa.RecordBatch] = []
        missing = count
        while missing > 0:
            following = next(batches, None)
            if following is None:
                raise miscounted(count - missing, count)
            held.append(following.slice(0, missing))
            missing -= following.num_rows
        return pa.Table.from_batches(held)

    def _may_read(self, place: int) -> bool:
        return self.readable is None or place in self.readable


@contextmanager
def opened(
    plan: Plan,
    file: PlannedFile,
    storage: Storage,
    wanted: Sequence[NestedField],
    passed: Callable[[int], None] = lambda rows: None,
) -> Iterator[Opened]:
    """A planned file, open until the end of the block.

    Args:
        plan: the plan.
        file: one of its files.
        storage: where it lies.
        wanted: the columns to read.
        passed: see `Opened`.

    Raises:
        LocationNotAllowed: outside the allowed list, or behind a link.
        DecryptionRefused: not encrypted as its epoch says, another file, or changed.
        DataFileDamaged, DataFileMissing: not a file that the table can have, or none.
        NotSupportedYet: a format other than Parquet.
    """
    location = plan.location(file)
    _require_parquet(plan, file)
    with translated(plan, file):
        keys = plan.keys(file, location)
        with closing(storage.open_input(location)) as stream, _held(stream, file) as held:
            seen = [each for each in wanted if each.field_id not in plan.masked]
            sealed = without_keys(plan.schema, plan.restriction)
            parquet, readable = _judged(held, file, keys, seen, sealed)
            _count(parquet.metadata, file)
            columns = FileColumns(parquet.schema_arrow, file.without_like, plan.masked)
            yield Opened(parquet, columns, readable, passed)


def _require_parquet(plan: Plan, file: PlannedFile) -> None:
    """PyArrow's reader of ORC crashes on damaged files, and shows masks in the place of encrypted values."""
    if file.file_format != "parquet":
        raise NotSupportedYet(
            f"The Python client does not read files in the format {file.file_format}.",
            table=plan.table,
            path=file.path,
            rule="file-format",
            hint="Read the table with Spark, or rewrite it with write.format.default=parquet.",
        )


def _count(metadata: pq.FileMetaData, file: PlannedFile) -> None:
    """Detect row groups that were removed or repeated."""
    groups = (metadata.row_group(each).num_rows for each in range(metadata.num_row_groups))
    for found in (metadata.num_rows, sum(groups)):
        if found != file.records:
            raise miscounted(found, file.records)


@contextmanager
def _held(stream: InputStream, file: PlannedFile) -> Iterator[InputStream]:
    """The file, or the copy of it that was checked against its digest."""
    if file.sha256 is None:
        yield stream
    else:
        with verified(stream, file.size, file.sha256) as copy:
            yield copy


def _judged(
    stream: InputStream,
    file: PlannedFile,
    keys: FileKeys | None,
    wanted: Sequence[NestedField],
    sealed: frozenset[int],
) -> tuple[pq.ParquetFile, frozenset[int] | None]:
    size = stream.seek(0, os.SEEK_END)
    if size != file.size:
        raise missized(size, file.size)
    if keys is None:
        _refuse_encrypted(stream, file.size)
        return _parquet(_Shown(stream, file.size), None), None
    footer = footers.read(
        lambda start, length: _piece(stream, start, length), file.size, keys, file.footer_digest
    )
    footers.check(footer, keys, frozenset(all_ids(wanted)) - sealed)
    if keys.columns is None:
        properties = pe.create_decryption_properties(keys.footer.reveal(), aad_prefix=keys.aad_prefix)
        return _parquet(_Shown(stream, file.size), properties), footer.open_columns
    names = _Names(keys)
    tail = footers.rewritten(footer, keys, names.of)
    parquet = _parquet(_Shown(stream, footer.start, tail), names.properties())
    if file.footer_digest is None:
        require_stored(parquet, footer, wanted)
    return parquet, footer.open_columns


def _parquet(shown: _Shown, properties: Any) -> pq.ParquetFile:
    return pq.ParquetFile(shown, decryption_properties=properties, pre_buffer=True)


def _refuse_encrypted(stream: InputStream, size: int) -> None:
    if size >= len(_ENCRYPTED_MAGIC) and _piece(stream, size - 4, 4) == _ENCRYPTED_MAGIC:
        raise damaged("The file is encrypted, but the table lists it as plaintext.", "encrypted-file")


def _piece(stream: InputStream, start: int, length: int) -> bytes:
    stream.seek(start)
    data = stream.read(length)
    if len(data) != length:
        raise damaged("The file is truncated.", "data-file")
    return data


class _Shown(io.RawIOBase):
    """A file as PyArrow is shown it: so many of its bytes, then others in place of the rest."""

    def __init__(self, stream: InputStream, length: int, tail: bytes = b"") -> None:
        super().__init__()
        self._stream = stream
        self._length = length
        self._tail = tail
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length + len(self._tail)}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._length + len(self._tail)
        if size is not None and size >= 0:
            end = min(end, self._at + size)
        start, self._at = self._at, max(self._at, end)
        data = b""
        if start < self._length:
            data = _piece(self._stream, start, min(end, self._length) - start)
        if end > self._length:
            data += self._tail[max(0, start - self._length) : end - self._length]
        return data


class _Names(pe.KmsClient):  # type: ignore[misc]
    """Names that stand for the keys of one file; it knows no KMS, and a file can name none.

    Args:
        keys: the file's.
    """

    def __init__(self, keys: FileKeys) -> None:
        super().__init__()
        assert keys.columns is not None
        self._names = {field_id: secrets.token_hex(16) for field_id in (None, *keys.columns)}
        self._keys = {self._names[field_id]: key for field_id, key in keys.columns.items()}
        self._keys[self._names[None]] = keys.footer

    def of(self, field_id: int | None) -> bytes:
        """Key metadata, as PyArrow takes it, with the name of a key; None for the footer's."""
        material = {
            "keyMaterialType": "PKMT1",
            "internalStorage": True,
            "isFooterKey": field_id is None,
            "doubleWrapping": False,
            "masterKeyID": "plan",
            "wrappedDEK": self._names[field_id],
        }
        if field_id is None:
            material |= {"kmsInstanceID": "plan", "kmsInstanceURL": "plan"}
        return json.dumps(material).encode()

    def properties(self) -> Any:
        """What PyArrow decrypts with."""
        factory = pe.CryptoFactory(lambda _: self)
        configuration = pe.DecryptionConfiguration(cache_lifetime=timedelta(minutes=10))
        return factory.file_decryption_properties(pe.KmsConnectionConfig(), configuration)

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """Nothing is written by this."""
        raise NotImplementedError

    def unwrap_key(self, wrapped_key: str | bytes, master_key_identifier: str) -> bytes:
        """The key that a name stands for."""
        name = wrapped_key if isinstance(wrapped_key, str) else wrapped_key.decode("ascii")
        return self._keys[name].reveal()


@contextmanager
def translated(plan: Plan, file: PlannedFile) -> Iterator[None]:
    """The one place where what goes wrong with a data file becomes an error that users understand.

    Of an encrypted file everything but a missing file or an unreachable storage counts as refused decryption:
    an attacker who changed it can choose how it fails.
    """
    try:
        yield
    except ObjectMissing as error:
        raise DataFileMissing(
            "A data file of the table does not exist.",
            table=plan.table,
            path=file.path,
            rule="data-file",
            hint=RESTORE,
        ) from error
    except LakewardenError as error:
        raise _told(error, plan, file) from error
    except (pa.ArrowException, OSError, ValueError, KeyError, OverflowError) as error:
        # What PyArrow says of the file is foreign text; it stays with the cause.
        rule = "data-file" if file.algorithm is None else "file-authentic"
        message = f"A file of the table is damaged, or not the one that was written ({type(error).__name__})."
        raise _told(damaged(message, rule), plan, file) from error


def _told(error: LakewardenError, plan: Plan, file: PlannedFile) -> LakewardenError:
    """The same error with table and path; of an encrypted file a damage is a refusal."""
    encrypted = file.algorithm is not None
    kind: Any = DecryptionRefused if encrypted and isinstance(error, DataFileDamaged) else type(error)
    return cast(
        LakewardenError,
        kind(error.message, table=plan.table, path=file.path, rule=error.rule, hint=error.hint),
    )
