"""Segments of the audit log's archive, as bytes: old records in a Parquet file, and a note that describes it.

- A segment has adjacent records of each chain in it, in the order of writer and number, with all fields of
  `lw_audit`. Any reader of Parquet can search it.
- Its note is a line of canonical JSON: number, time, SHA-256 and length of the Parquet file, the records of
  each chain by number and hash, the hash of the note before, a hash of all that, and a signature (Ed25519).
- So the notes are one chain. A checkpoint in the database names its last note (`Content.archived`). To change
  a segment, an attacker has to make all later notes and that checkpoint again, for which the key is needed.
- Names contain hashes, and each Parquet file has a random number in it. So two attempts never write the same
  object, and one that was interrupted leaves nothing in the way of the next.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.audit.checkpoints import SEGMENT, Head, Signer, is_signed
from catalog.audit.records import Row, canonical, digest

#: The maximum number of records in a segment.
MAX_RECORDS: Final = 50_000
#: The largest note and file that are read, in bytes. Chains of one record each make a note of 12 MB, and
#: records of the greatest length a file of 1 GB without compression.
MAX_NOTE_BYTES: Final = 32 << 20
MAX_FILE_BYTES: Final = 2 << 30

_VERSION: Final = 1
_ATTEMPT: Final = "lakewarden.attempt"
_TIME: Final = pa.timestamp("ms", tz="UTC")
_SCHEMA: Final = pa.schema(
    [
        pa.field("writer", pa.string(), nullable=False),
        pa.field("sequence", pa.int64(), nullable=False),
        pa.field("at", _TIME, nullable=False),
        pa.field("principal", pa.string(), nullable=False),
        pa.field("engine", pa.string()),
        pa.field("action", pa.string(), nullable=False),
        pa.field("resource", pa.string(), nullable=False),
        pa.field("allowed", pa.bool_(), nullable=False),
        pa.field("begun", pa.bool_(), nullable=False),
        pa.field("reasons", pa.string(), nullable=False),
        pa.field("request_id", pa.string(), nullable=False),
        pa.field("decisions", pa.int64(), nullable=False),
        pa.field("previous_hash", pa.string(), nullable=False),
        pa.field("hash", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Part:
    """Adjacent records of one chain in a segment.

    Attributes:
        before: the record before the first one; number 0 and `GENESIS` at the beginning of the chain.
        last: the last record, with the latest time.
    """

    before: Head
    last: Head


@dataclass(frozen=True, slots=True)
class Note:
    """The description of a segment.

    Attributes:
        number: 1, 2, 3, …
        at_ms: when it was made, in milliseconds since 1970 UTC.
        records: how many records it has.
        parts: its records, by writer.
        file: SHA-256 of the Parquet file in hexadecimal digits.
        length: length of the Parquet file in bytes.
        previous: hash of the note before; `GENESIS` for the first one.
        public_key: of the signature, in hexadecimal digits; None without one.
        signature: of the hash, in hexadecimal digits; None without one.
    """

    number: int
    at_ms: int
    records: int
    parts: Mapping[str, Part]
    file: str
    length: int
    previous: str
    public_key: str | None
    signature: str | None = None

    @property
    def hash(self) -> str:
        """Return the hash of everything but the signature."""
        return digest(self._hashed())

    @property
    def latest_ms(self) -> int:
        """Return the latest time of its records, in milliseconds since 1970 UTC."""
        return max(part.last.at_ms for part in self.parts.values())

    @property
    def name(self) -> str:
        """Return the name of the note in the archive."""
        return note_name(self.number, self.hash)

    @property
    def file_name(self) -> str:
        """Return the name of the Parquet file in the archive."""
        return f"{self.number:09d}-{self.file}.parquet"

    def signed(self, signer: Signer) -> Note:
        """Return the note with a signature."""
        return replace(self, signature=signer.sign(self.hash, SEGMENT))

    def is_signed_by(self, public_keys: frozenset[str]) -> bool:
        """Return whether one of the keys signed it."""
        row: Row = {"public_key": self.public_key, "signature": self.signature, "hash": self.hash}
        return self.public_key in public_keys and is_signed(row, SEGMENT)

    def to_bytes(self) -> bytes:
        """Return what is stored."""
        return canonical({**self._hashed(), "hash": self.hash, "signature": self.signature}).encode("ascii")

    @classmethod
    def parse(cls, data: bytes) -> Note:
        """Parse what `to_bytes` returned.

        Raises:
            ValueError: it is something else.
        """
        try:
            found = json.loads(data)
            note = cls(
                number=_number(found["number"]),
                at_ms=_number(found["at_ms"]),
                records=_number(found["records"]),
                parts={str(each): _part(value) for each, value in found["parts"].items()},
                file=str(found["file"]),
                length=_number(found["length"]),
                previous=str(found["previous"]),
                public_key=_optional_text(found["public_key"]),
                signature=_optional_text(found["signature"]),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError("not the note of a segment") from error
        if not note.parts or note.to_bytes() != data:
            raise ValueError("not the canonical form of a note")
        return note

    def _hashed(self) -> dict[str, object]:
        return {
            "version": _VERSION,
            "number": self.number,
            "at_ms": self.at_ms,
            "records": self.records,
            "parts": {
                writer: [part.before.sequence, part.before.hash, *part.last.fields]
                for writer, part in self.parts.items()
            },
            "file": self.file,
            "length": self.length,
            "previous": self.previous,
            "public_key": self.public_key,
        }


def make_segment(
    number: int, previous: str, at_ms: int, rows: Sequence[Row], signer: Signer | None
) -> tuple[Note, bytes]:
    """Make a segment.

    Args:
        number: its number.
        previous: hash of the note before.
        at_ms: the time, in milliseconds since 1970 UTC.
        rows: records as `lw_audit` has them, in the order of writer and number.
        signer: signs the note; None for no signature.

    Returns:
        the note, and the Parquet file.
    """
    data = _encode(rows)
    note = Note(
        number=number,
        at_ms=at_ms,
        records=len(rows),
        parts=_parts(rows),
        file=hashlib.sha256(data).hexdigest(),
        length=len(data),
        previous=previous,
        public_key=None if signer is None else signer.public_key,
    )
    return note if signer is None else note.signed(signer), data


def rows_of(data: bytes, records: int) -> list[Row]:
    """Return the records of a segment's Parquet file, as `lw_audit` had them.

    Args:
        data: the file.
        records: how many it has.

    Raises:
        ValueError: it has another form, or another number of records.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data))
        if file.metadata.num_rows != records:
            raise ValueError("the number of records is not that of the note")
        table = file.read()
        if not table.schema.remove_metadata().equals(_SCHEMA):
            raise ValueError("the columns are not those of a segment")
    except (pa.ArrowException, OSError) as error:
        raise ValueError("not a Parquet file") from error
    place = table.schema.get_field_index("at")
    table = table.set_column(place, "at_ms", table["at"].cast(pa.int64()))
    rows: list[Row] = table.to_pylist()
    return rows


def note_name(number: int, hashed: str) -> str:
    """Return the name of a note in the archive."""
    return f"{number:09d}-{hashed}.json"


def _encode(rows: Sequence[Row]) -> bytes:
    fields = {field.name: [row[_stored_name(field.name)] for row in rows] for field in _SCHEMA}
    sink = pa.BufferOutputStream()
    schema = _SCHEMA.with_metadata({_ATTEMPT: secrets.token_hex(16)})
    pq.write_table(pa.table(fields, schema), sink, compression="zstd")
    return bytes(sink.getvalue())


def _stored_name(name: str) -> str:
    return "at_ms" if name == "at" else name


def _parts(rows: Sequence[Row]) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    for row in rows:
        writer, number, at_ms = str(row["writer"]), int(str(row["sequence"])), int(str(row["at_ms"]))
        known = parts.get(writer)
        before = Head(number - 1, str(row["previous_hash"])) if known is None else known.before
        latest = at_ms if known is None else max(at_ms, known.last.at_ms)
        parts[writer] = Part(before, Head(number, str(row["hash"]), latest))
    return parts


def _part(value: Any) -> Part:
    first, first_hash, last, last_hash, at_ms = value
    return Part(Head(_number(first), str(first_hash)), Head(_number(last), str(last_hash), _number(at_ms)))


def _optional_text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError("not a number")
    return value
