"""Checks what an open file shows without its keys: its footer, and its digest.

What is wrong becomes problems: a file that cannot be parsed never stops the others. What only a key can
check, such as whether an encrypted footer opens, is left to the guarded reader (`verified`).

Source: Iceberg table specification, "Manifests"; docs/key-metadata.md; docs/parquet-encryption.md;
    docs/orc.md.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from catalog.envelope.key_metadata import KeyMetadata
from policy.encryption.file_formats import FileFormat
from policy.errors import DecryptionRefused
from spark_ext.pipelines.audit.file_ends import Broken, ColumnStatistics, FileEnd, ListedFile, Problem
from spark_ext.pipelines.audit.orc_footers import check_orc
from spark_ext.pipelines.audit.parquet_footers import check_parquet
from spark_ext.pipelines.audit.parquet_schemas import TableColumns
from spark_ext.pipelines.audit.rules import WRONG_DIGEST, WRONG_FOOTER

_NONE: Final = UUID(int=0)
FILE_COLUMNS: Final = (
    "file_path",
    "content",
    "file_format",
    "record_count",
    "file_size_in_bytes",
    "key_metadata",
)
STATISTICS_COLUMNS: Final = ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds")


def listed_file(row: Mapping[str, Any]) -> ListedFile:
    """Return a file as a manifest entry lists it.

    Args:
        row: `FILE_COLUMNS` and `STATISTICS_COLUMNS` of the entry.

    Raises:
        DecryptionRefused: its key metadata is malformed.
    """
    data = row["key_metadata"]
    return ListedFile(
        row["file_path"],
        row["content"],
        row["file_format"].upper(),
        row["record_count"],
        row["file_size_in_bytes"],
        None if data is None else KeyMetadata.parse(data),
        ColumnStatistics(*(dict(row[name] or ()) for name in STATISTICS_COLUMNS)),
    )


def check_footer(
    file: ListedFile, end: FileEnd, columns: TableColumns, uuid: UUID | None
) -> Iterator[Problem]:
    """Check the footer of a file against its entry, its key metadata and its table.

    Args:
        file: as its manifest lists it.
        end: of the open file.
        columns: of the table.
        uuid: the table's; None for a table without keys, of which no encrypted file is checked.
    """
    if file.keys is not None and uuid is None:
        return
    try:
        if file.file_format == FileFormat.PARQUET.name:
            yield from check_parquet(file, end, columns, uuid or _NONE)
        elif file.file_format == FileFormat.ORC.name:
            yield from check_orc(file, end, columns)
    except Broken as broken:
        yield broken.problem
    except DecryptionRefused as error:
        yield Problem(WRONG_FOOTER, error.message)


def check_digest(file: ListedFile, end: FileEnd) -> Iterator[Problem]:
    """Read a whole file, and compare it with the digest in its key metadata, if that has one."""
    digest = None if file.keys is None else file.keys.digest
    if digest is None:
        return
    if digest.length != end.size or not hmac.compare_digest(end.sha256(), digest.sha256):
        yield Problem(WRONG_DIGEST, "The SHA-256 digest of the file differs from its key metadata.")
