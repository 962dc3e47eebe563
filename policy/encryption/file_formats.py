"""The formats of data files, how a table says which its new files have, and what each can encrypt.

Rules:
- `write.format.default` is an ordinary property, Iceberg's own. Where a table is encrypted, the algorithm
  says the format too: Parquet's algorithms are Parquet's alone, and ORC has one of its own.
- So another format is another algorithm, and begins a new epoch. What was the default of the old format
  becomes the default of the new.
- ORC encrypts whole top-level columns, with keys of 16 or 32 bytes. Its footer, with the names and types of
  columns, is always in plaintext.

Source: Apache ORC specification, "Column Encryption"; Iceberg documentation, "Write properties".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

#: The table property that says the format of new files.
WRITE_FORMAT: Final = "write.format.default"


class FileFormat(StrEnum):
    """A format of data files."""

    PARQUET = "parquet"
    ORC = "orc"
    AVRO = "avro"


def written_format(properties: Mapping[str, str]) -> FileFormat | None:
    """The format of a table's new files; None if it says one that nobody here knows."""
    said = properties.get(WRITE_FORMAT, FileFormat.PARQUET).lower()
    return FileFormat(said) if said in set(FileFormat) else None
