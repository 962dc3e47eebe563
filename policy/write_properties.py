"""Checks the values of table properties when they are set, rather than at the next INSERT.

A codec or a distribution mode that no writer knows makes every later INSERT fail, also for users who did not
set it. `iceberg_properties` says which names can be set at all.

Source: Apache Iceberg documentation, "Configuration", "Write properties".
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from policy.errors import PropertyInvalid, UnsupportedFormatVersion

#: The table format version that Lakewarden writes (Iceberg table specification, "Format Versioning").
WRITTEN_FORMAT_VERSION: Final = 2
#: The versions of tables that clients can create and commit to. A table of version 1 is not encrypted.
COMMITTED_FORMAT_VERSIONS: Final = (1, WRITTEN_FORMAT_VERSION)
#: The property that sets it.
FORMAT_VERSION: Final = "format-version"

#: Who plans the scans of standard clients: the clients, or the catalog.
SCAN_PLANNING_MODE: Final = "read.scan-planning-mode"

#: Whether a commit deletes the metadata files that leave the metadata log. The log's length is
#: `write.metadata.previous-versions-max`.
DELETE_AFTER_COMMIT: Final = "write.metadata.delete-after-commit.enabled"

_PARQUET: Final = ("zstd", "snappy", "gzip", "lz4_raw", "uncompressed")
_ORC: Final = ("zstd", "snappy", "zlib", "lz4", "none")
_MODES: Final = ("none", "hash", "range")
_OPERATIONS: Final = ("delete", "update", "merge")
_INT: Final = 2**31 - 1
LONG: Final = 2**63 - 1
_MEGABYTE: Final = 1 << 20

#: Allowed values, in small letters; writers take them in any case.
CHOICES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "write.parquet.compression-codec": _PARQUET,
        "write.orc.compression-codec": _ORC,
        "write.metadata.compression-codec": ("none", "gzip"),
        "write.delete.format.default": ("parquet", "orc", "avro"),
        "write.delete.granularity": ("file", "partition"),
        "write.wap.enabled": ("true", "false"),
        "write.spark.fanout.enabled": ("true", "false"),
        "write.distribution-mode": _MODES,
        **{f"write.{each}.distribution-mode": _MODES for each in _OPERATIONS},
        **{f"write.{each}.mode": ("copy-on-write", "merge-on-read") for each in _OPERATIONS},
        **{f"write.{each}.isolation-level": ("serializable", "snapshot") for each in _OPERATIONS},
        "gc.enabled": ("true", "false"),
        DELETE_AFTER_COMMIT: ("true", "false"),
        SCAN_PLANNING_MODE: ("client", "server"),
        # What is always so, and can be said.
        "identifier-fields.rely": ("false",),
        "read.orc.vectorization.enabled": ("true",),
        "read.parquet.vectorization.enabled": ("true",),
        "write.manifest-lists.enabled": ("true",),
        "write.object-storage.enabled": ("false",),
        "write.parquet.page-version": ("v1",),
        "write.parquet.shred-variants": ("false",),
        "write.spark.accept-any-schema": ("true", "false"),
        "write.spark.auto-schema-evolution.enabled": ("false",),
    }
)
#: Largest allowed values of whole numbers above 0.
NUMBERS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "write.target-file-size-bytes": LONG,
        "write.metadata.previous-versions-max": _INT,
        "commit.manifest.target-size-bytes": LONG,
        "history.expire.max-ref-age-ms": LONG,
        "history.expire.max-snapshot-age-ms": LONG,
        "history.expire.min-snapshots-to-keep": LONG,
        "write.parquet.row-group-size-bytes": LONG,
        "write.parquet.page-size-bytes": _INT,
        "write.parquet.page-row-limit": _INT,
        "write.parquet.dict-size-bytes": _INT,
        "write.parquet.compression-level": 22,
        "write.orc.stripe-size-bytes": LONG,
        "write.parquet.bloom-filter-max-bytes": 128 * _MEGABYTE,
        "write.spark.advisory-partition-size-bytes": LONG,
        "read.split.target-size": LONG,
        "read.split.open-file-cost": LONG,
        "read.parquet.vectorization.batch-size": _INT,
        "read.orc.vectorization.batch-size": _INT,
    }
)
_DIGITS: Final = 20


def check_write_properties(properties: Mapping[str, str], table: str) -> None:
    """Check the properties that a user sets.

    Raises:
        PropertyInvalid: a value that no writer could follow.
    """
    for name, value in properties.items():
        choices, largest = CHOICES.get(name), NUMBERS.get(name)
        if choices is not None and value.lower() not in choices:
            raise invalid(name, value, f"one of {', '.join(choices)}", table)
        if largest is not None and not is_number(value, largest):
            raise invalid(name, value, f"a whole number from 1 to {largest}", table)


def check_format_version(properties: Mapping[str, str], table: str, *, with_rows: bool = False) -> int:
    """Return the format version that properties name, or else the one that Lakewarden writes.

    Args:
        properties: of the table.
        table: dotted name, for errors.
        with_rows: whether Lakewarden writes the table's rows, rather than a client.

    Raises:
        UnsupportedFormatVersion: tables of this version cannot be written.
    """
    version = properties.get(FORMAT_VERSION, str(WRITTEN_FORMAT_VERSION))
    permitted = (WRITTEN_FORMAT_VERSION,) if with_rows else COMMITTED_FORMAT_VERSIONS
    if version not in map(str, permitted):
        raise UnsupportedFormatVersion(
            f"Format version {version[:20]!r} is not supported.",
            table=table,
            rule="format-version",
            hint=f"Use format version {WRITTEN_FORMAT_VERSION}.",
        )
    return int(version)


def is_number(value: str, largest: int) -> bool:
    """Whether the text is a whole number from 1 to `largest`."""
    text = value.strip()
    return len(text) <= _DIGITS and text.isascii() and text.isdigit() and 0 < int(text) <= largest


def invalid(name: str, value: str, expected: str, table: str) -> PropertyInvalid:
    """The refusal of a value."""
    return PropertyInvalid(
        f"{value[:80]!r} is not an allowed value of the table property {name}.",
        table=table,
        rule="write-property",
        hint=f"Use {expected}.",
    )
