"""The id of a data file, which is part of its name.

Rules:
- A file id is 128 random bits. It is in the file's base name, and is read from the checked path, never from
  key metadata: the keys of a file are bound to its location.
- Table UUID and file id are part of the AAD of wrapped data keys, and of the Parquet AAD prefix.

Source: docs/key-metadata.md, "File ids" and "Parquet AAD prefix".
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from policy.errors import DecryptionRefused

FILE_ID_LENGTH: Final = 16
_BASE_NAME: Final = re.compile(r"(?:.*-)?([0-9a-f]{32})(?:\.[A-Za-z0-9]+)*", re.DOTALL)
#: The same for RE2, anywhere in a location: the text after the id has neither `-` nor `/`.
_AT_THE_END: Final = r"(?:\A|[-/])(?P<id>[0-9a-f]{32})(?:\.[A-Za-z0-9]+)*\z"
_PREFIX: Final = re.compile(r"[A-Za-z0-9_=.-]*")
_EXTENSION: Final = re.compile(r"[A-Za-z0-9]+(?:\.[A-Za-z0-9]+)*")
_PARQUET_PREFIX: Final = b"lakewarden/file/1\0"


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """Identifies a file of a table.

    Attributes:
        table_uuid: the table's immutable UUID.
        file_id: 16 bytes.
    """

    table_uuid: UUID
    file_id: bytes

    @classmethod
    def of(cls, table_uuid: UUID, location: str) -> FileIdentity:
        """Return the identity of the file at a checked location.

        Raises:
            DecryptionRefused: the name has no file id.
        """
        return cls(table_uuid, file_id_of(location))


def file_id_of(location: str) -> bytes:
    """Parse the 16 bytes of the file id in a location or base name.

    Raises:
        DecryptionRefused: the base name is not ``[prefix-]<32 lower-case hexadecimal digits>[.extension…]``.
    """
    match = _BASE_NAME.fullmatch(location[location.rfind("/") + 1 :])
    if match is None:
        raise _nameless(location)
    return bytes.fromhex(match[1])


def file_ids_of(locations: pa.Array) -> npt.NDArray[np.uint8]:
    """Return the file ids of many locations, as `file_id_of`: one row of 16 bytes each.

    Raises:
        DecryptionRefused: a location has none; the error names it.
    """
    found = shown_file_ids(locations)
    if found.null_count:
        raise _nameless(locations.filter(found.is_null())[0].as_py())
    ids = bytes.fromhex("".join(found.to_pylist()))
    return np.frombuffer(ids, np.uint8).reshape(-1, FILE_ID_LENGTH)


def shown_file_ids(locations: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the file ids of many locations in hexadecimal digits; null if a location has none."""
    return pc.struct_field(pc.extract_regex(locations, _AT_THE_END), "id")


def new_file_name(prefix: str, extension: str) -> str:
    """Return a base name with a new file id.

    Args:
        prefix: text before the id, without the dash that follows it; can be empty.
        extension: such as ``parquet`` or ``zstd.parquet``.

    Raises:
        ValueError: a prefix or extension that would break the name.
    """
    if _PREFIX.fullmatch(prefix) is None or _EXTENSION.fullmatch(extension) is None:
        raise ValueError("the prefix or extension has characters that a data file name cannot have")
    lead = f"{prefix}-" if prefix else ""
    return f"{lead}{secrets.token_hex(FILE_ID_LENGTH)}.{extension}"


def parquet_aad_prefix(file: FileIdentity) -> bytes:
    """Return the AAD prefix that every reader and writer of a Parquet file must supply."""
    return _PARQUET_PREFIX + file.table_uuid.bytes + file.file_id


def _nameless(location: str) -> DecryptionRefused:
    return DecryptionRefused(
        "The file name contains no file id, so no key can be bound to it.",
        path=location,
        rule="file-id",
        hint="Write encrypted files under the names that the catalog's write session gives.",
    )
