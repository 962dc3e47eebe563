"""Decodes the records of a container into columns, one chunk of blocks at a time.

Own code is needed because any user who can write the table's directory can write a manifest. Measured on
manifests of ten columns with all statistics (one core, 20,000 entries, as pyiceberg writes them / with blocks
of 64 kB as Java does): fastavro decodes 10,000 / 15,000 entries a second, 26,000 / 29,000 without statistics;
pyiceberg 25,000 / 32,000; polars 8,000 / 121,000; DataFusion 100,000 / 410,000. pyiceberg's compiled decoder
does not check lengths against its buffer, polars panics on them, DataFusion never returns from some damaged
blocks. This package decodes 65,000 / 60,000 entries a second, and 110,000 if nothing is compressed and each
entry has its own block. Of large blocks it decodes twice as many if their entries begin alike
(`record_starts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from catalog.base.gathering import gathered
from catalog.iceberg.avro.arrow import ArrowMaker
from catalog.iceberg.avro.columns import Column, Parts
from catalog.iceberg.avro.container import Block, Header, read_header
from catalog.iceberg.avro.limits import DecodeLimits
from catalog.iceberg.avro.malformed import Malformed
from catalog.iceberg.avro.schema import Record, parse_schema
from catalog.iceberg.avro.vectorized import Chunk, decode_records

#: Blocks are decoded together up to this number of bytes: enough cursors to be fast, few enough for the
#: processor's cache.
_CHUNK_BYTES: Final = 2 << 20


@dataclass(frozen=True, slots=True)
class DecodedRecord:
    """Records of one type, decoded into columns by field id.

    Attributes:
        arrow: makes Arrow arrays of the columns.
        schema: the type of the records.
        parts: their columns.
        count: number of records.
    """

    arrow: ArrowMaker
    schema: Record
    parts: Parts
    count: int

    def column(self, field_id: int) -> Column | None:
        """Return the column of a field, if the writer's schema has it."""
        index = self.schema.find(field_id)
        return None if index is None else self.parts.columns[index]

    def record(self, field_id: int) -> DecodedRecord:
        """Return the columns of a field that is itself a record and never null."""
        index = self.schema.find(field_id)
        node = None if index is None else self.schema.fields[index].node
        column = self.column(field_id)
        if not isinstance(node, Record) or not isinstance(column, Parts):
            raise Malformed("schema", f"its Avro schema lacks the record with field id {field_id}")
        return DecodedRecord(self.arrow, node, column, self.count)


def open_container(data: bytes, limits: DecodeLimits) -> tuple[Header, Record]:
    """Read the header of a container and the schema of its records.

    Raises:
        Malformed: the bytes break a rule or a limit.
    """
    header = read_header(data, limits)
    return header, parse_schema(header.metadata.get("avro.schema"), limits)


def read_records(blocks: Iterable[Block], schema: Record) -> Iterator[DecodedRecord]:
    """Decode the records of blocks, several blocks at a time.

    Args:
        blocks: from one container or several (`read_blocks`).
        schema: the type of the records in all of them.

    Raises:
        Malformed: the bytes break a rule or a limit.
    """
    for some in gathered(blocks, lambda block: len(block.payload), _CHUNK_BYTES):
        payload, places = _joined(some)
        parts, count = decode_records(Chunk(payload), places, schema)
        if not isinstance(parts, Parts):
            raise TypeError("a record must decode to parts")
        yield DecodedRecord(ArrowMaker(payload), schema, parts, count)


def _joined(blocks: list[Block]) -> tuple[bytes, list[tuple[int, int, int]]]:
    places = []
    position = 0
    for block in blocks:
        places.append((position, position + len(block.payload), block.entries))
        position += len(block.payload)
    return b"".join(block.payload for block in blocks), places
