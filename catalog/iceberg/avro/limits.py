"""Limits for decoding untrusted metadata.

Every limit is checked before the memory that it bounds is allocated. A manifest of a busy table has about 8
MiB and 20,000 entries. The defaults are two orders of magnitude above that.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """Limits for one manifest list or manifest.

    Attributes:
        max_file_bytes: size of the file as stored.
        max_decompressed_bytes: sum of its blocks after decompression.
        max_block_bytes: one block after decompression; decoding temporarily needs about 60 times that.
        max_decoded_bytes: the decoded Arrow columns.
        max_entries: entries of the file.
        max_header_bytes: the container's header, table schema included.
        max_schema_bytes: the Avro schema in the header.
        max_schema_nodes: types in the Avro schema, a named type counted where it is used.
        max_nesting: depth of types in the Avro schema.
    """

    max_file_bytes: int = 256 * _MIB
    max_decompressed_bytes: int = 1024 * _MIB
    max_block_bytes: int = 32 * _MIB
    max_decoded_bytes: int = 2048 * _MIB
    max_entries: int = 2_000_000
    max_header_bytes: int = 32 * _MIB
    max_schema_bytes: int = 4 * _MIB
    max_schema_nodes: int = 20_000
    max_nesting: int = 16

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"the limit {field.name} must be positive")


DEFAULT_LIMITS = DecodeLimits()
