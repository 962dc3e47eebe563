"""metadata.json: bytes to pyiceberg's model and back.

Storage is not trusted, so a metadata file is read once, bounded, and parsed strictly from those bytes; what
pyiceberg's model refuses is refused with one typed error. A file is gzip by its name, as for Iceberg's own
readers; it is sealed as the bytes that are stored, and bounded by those that it unpacks to.
"""

from __future__ import annotations

import gzip
import uuid
import zlib
from functools import lru_cache
from typing import Final

from pydantic import ValidationError
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from policy.errors import MetadataInvalid, RequestInvalid, UnsupportedFormatVersion
from policy.location.location import Location
from policy.strict_json import parse

#: Written by Lakewarden (Iceberg table specification, "Format Versioning").
WRITTEN_FORMAT_VERSION: Final = 2
#: The first format version whose files and snapshots have row ids.
ROW_IDS_VERSION: Final = 3
MAX_READ_FORMAT_VERSION: Final = 3

#: The largest metadata.json that is kept parsed.
_KEPT_BYTES: Final = 1 << 16

_GZIP_SUFFIXES: Final = (".gz.metadata.json", ".metadata.json.gz")
_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS
_GZIP_LEVEL: Final = 6
_COMPRESSION: Final = "write.metadata.compression-codec"
#: Most bytes of a metadata.json, unpacked, where no other limit is given.
MAX_BYTES: Final = 256 << 20
#: Metadata repeats itself a lot; that of 10,000 snapshots is 15 times smaller when packed.
_MAX_RATIO: Final = 200

#: The first sequence number of a snapshot; metadata without snapshots is at 0.
INITIAL_SEQUENCE_NUMBER: Final = 0


def parse_metadata(data: bytes, *, path: str, table: str, max_bytes: int = MAX_BYTES) -> TableMetadata:
    """Parse the bytes of a metadata.json.

    Args:
        data: as it is stored.
        path: where it is stored; a name that ends as Iceberg's gzip files do says that it is one.
        table: dotted name, for errors.
        max_bytes: most bytes that it may unpack to.

    Raises:
        MetadataInvalid: not JSON, ambiguous JSON, or not Iceberg table metadata.
        UnsupportedFormatVersion: a format version that cannot be read.
    """
    plain = _unpacked(data, path, table, max_bytes) if path.endswith(_GZIP_SUFFIXES) else data
    return (_parse_once if len(plain) <= _KEPT_BYTES else _parse)(plain, path, table)


def _unpacked(data: bytes, path: str, table: str, max_bytes: int) -> bytes:
    """The JSON of a metadata file that is gzip.

    Source: Apache Iceberg, `TableMetadataParser.Codec`.
    """
    unpacker = zlib.decompressobj(_GZIP_FORMAT)
    try:
        plain = unpacker.decompress(data, min(max_bytes, _MAX_RATIO * len(data)))
    except zlib.error as error:
        raise _not_gzip(path, table) from error
    if unpacker.unconsumed_tail:
        raise MetadataInvalid(
            f"The table metadata unpacks to more than {max_bytes:,} bytes, or {_MAX_RATIO} times "
            "its own size.",
            path=path,
            table=table,
            rule="metadata-size",
            hint="Write it without compression.",
        )
    if not unpacker.eof or unpacker.unused_data:
        raise _not_gzip(path, table)
    return plain


def _not_gzip(path: str, table: str) -> MetadataInvalid:
    return MetadataInvalid(
        "The table metadata has the name of a gzip file, and is not one.",
        path=path,
        table=table,
        rule="metadata-compression",
        hint="Write it again, or without compression.",
    )


def _parse(data: bytes, path: str, table: str) -> TableMetadata:
    document = parse(data, what="The table metadata", error=MetadataInvalid)
    if not isinstance(document, dict):
        raise MetadataInvalid(
            "The table metadata is not a JSON object.", path=path, table=table, rule="metadata"
        )
    version = document.get("format-version")
    if isinstance(version, int) and version > MAX_READ_FORMAT_VERSION:
        raise UnsupportedFormatVersion(
            f"Format version {version} cannot be read; 1 to {MAX_READ_FORMAT_VERSION} can.",
            path=path,
            table=table,
        )
    try:
        return TableMetadataUtil.parse_obj(document)
    except ValidationError as error:
        raise MetadataInvalid(
            f"The table metadata is not valid: {first_problem(error)}.",
            path=path,
            table=table,
            rule="metadata",
        ) from error
    except (
        IcebergValidationError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        StopIteration,
    ) as error:
        # pyiceberg's validators run on raw dictionaries and stumble over what they do not expect.
        raise MetadataInvalid(
            f"The table metadata is not valid: {type(error).__name__}.",
            path=path,
            table=table,
            rule="metadata",
        ) from error


#: The same bytes are the same metadata, which nobody changes in place; so small files are parsed once.
_parse_once: Final = lru_cache(maxsize=128)(_parse)


def dump_metadata(metadata: TableMetadata) -> bytes:
    """The bytes of a metadata.json, as pyiceberg writes them."""
    return metadata.model_dump_json().encode("utf-8")


def stored_metadata(metadata: TableMetadata, path: str, *, table: str, max_bytes: int) -> bytes:
    """The bytes of a metadata.json as they are stored, which `parse_metadata` reads back.

    Args:
        metadata: what is stored.
        path: where; see `new_metadata_location`.
        table: dotted name, for errors.
        max_bytes: most bytes that are read, unpacked.

    Raises:
        RequestInvalid: it would not be read back.
    """
    plain = dump_metadata(metadata)
    is_gzip = path.endswith(_GZIP_SUFFIXES)
    data = gzip.compress(plain, _GZIP_LEVEL, mtime=0) if is_gzip else plain
    if max(len(plain), len(data)) > max_bytes:
        raise RequestInvalid(
            f"The table metadata would have {len(plain):,} bytes; {max_bytes:,} are read.",
            table=table,
            rule="metadata-size",
            hint="Expire snapshots first.",
        )
    if len(plain) > _MAX_RATIO * len(data):
        raise RequestInvalid(
            f"The table metadata would unpack to more than {_MAX_RATIO} times its size, which is not read.",
            table=table,
            rule="metadata-size",
            hint=f"Set {_COMPRESSION} to none.",
        )
    return data


def last_sequence_number(metadata: TableMetadata) -> int:
    """The highest sequence number that was given out; version 1 gives none out."""
    number: int = getattr(metadata, "last_sequence_number", INITIAL_SEQUENCE_NUMBER)
    return number


def require_written_version(metadata: TableMetadata, table: str) -> None:
    """Refuse to write any format version but the one that is written here.

    Raises:
        UnsupportedFormatVersion: another version.
    """
    if metadata.format_version != WRITTEN_FORMAT_VERSION:
        raise UnsupportedFormatVersion(
            f"Tables of format version {metadata.format_version} are not written here.",
            table=table,
            rule="format-version",
            hint=f"Use format version {WRITTEN_FORMAT_VERSION}; a commit may upgrade an older table to it.",
        )


def metadata_directory(metadata: TableMetadata) -> Location:
    """Where a table's metadata files go."""
    given = metadata.properties.get("write.metadata.path")
    return Location.parse(given) if given else Location.parse(metadata.location).child("metadata")


def new_metadata_location(metadata: TableMetadata, previous: str | None) -> Location:
    """Where the next metadata.json goes: `<location>/metadata/<version>-<uuid>[.gz].metadata.json`."""
    codec = metadata.properties.get(_COMPRESSION, "none").lower()
    suffix = ".gz.metadata.json" if codec == "gzip" else ".metadata.json"
    return metadata_directory(metadata).child(f"{_next_version(previous):05d}-{uuid.uuid4()}{suffix}")


def first_problem(error: ValidationError) -> str:
    """The first of pydantic's complaints, as a clause without the offending input."""
    problem = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where or 'the document'}: {problem['msg']}"


def _next_version(previous: str | None) -> int:
    if previous is None:
        return 0
    head = previous.rsplit("/", 1)[-1].split("-", 1)[0]
    return int(head) + 1 if head.isascii() and head.isdigit() and len(head) < 10 else 0
