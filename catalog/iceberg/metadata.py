"""Parses and writes metadata.json as pyiceberg's model.

Storage is not trusted, so a metadata file is read once, with a size limit, and parsed strictly from those
bytes. Errors of pyiceberg's model become one typed error. The name says whether a file is gzip, as for
Iceberg's own readers. Seals cover the stored bytes; the size limit applies to the decompressed bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import uuid
import zlib
from typing import Final

from pydantic import ValidationError
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from catalog.base.recent import Recent
from catalog.iceberg.updating import parsed_again
from policy.errors import MetadataInvalid, RequestInvalid, UnsupportedFormatVersion
from policy.location.location import Location
from policy.strict_json import parse
from policy.write_properties import COMMITTED_FORMAT_VERSIONS
from policy.write_properties import WRITTEN_FORMAT_VERSION as WRITTEN_FORMAT_VERSION

#: The first format version whose files and snapshots have sequence numbers.
SEQUENCE_NUMBERS_VERSION: Final = 2
#: The first format version whose files and snapshots have row ids.
ROW_IDS_VERSION: Final = 3
MAX_READ_FORMAT_VERSION: Final = 3

#: The maximum number of snapshots in parsed metadata that is remembered. A table counts as some.
_MAX_SNAPSHOTS: Final = 20_000
_A_TABLE: Final = 100

#: An escaped half of a surrogate pair, of which most have the other half.
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_GZIP_SUFFIXES: Final = (".gz.metadata.json", ".metadata.json.gz")
_GZIP_FORMAT: Final = 16 + zlib.MAX_WBITS
_GZIP_LEVEL: Final = 6
_COMPRESSION: Final = "write.metadata.compression-codec"
#: Default for the maximum decompressed size of a metadata.json, in bytes.
MAX_BYTES: Final = 256 << 20
#: Metadata is repetitive: that of 10,000 snapshots is 15 times smaller when compressed.
_MAX_RATIO: Final = 200

#: The sequence number of the first snapshot; metadata without snapshots has 0.
INITIAL_SEQUENCE_NUMBER: Final = 0


def parse_metadata(
    data: bytes, *, path: str, table: str, max_bytes: int = MAX_BYTES, sha256: str | None = None
) -> TableMetadata:
    """Parse the bytes of a metadata.json, once for the same bytes: what is parsed is never changed in place.

    Args:
        data: the stored bytes.
        path: its location; the name says whether it is gzip, as in Iceberg.
        table: dotted name, for errors.
        max_bytes: maximum decompressed size in bytes.
        sha256: the SHA-256 of the stored bytes in hexadecimal, where the caller has just computed it.

    Raises:
        MetadataInvalid: not JSON, ambiguous JSON, or not Iceberg table metadata.
        UnsupportedFormatVersion: a format version that cannot be read.
    """
    key = _key(sha256 or hashlib.sha256(data).hexdigest(), path, max_bytes)
    return _parsed.get(key, lambda: _parse(unpacked(data, path, table, max_bytes), path, table))


def _key(sha256: str, path: str, max_bytes: int) -> tuple[str, bool, int]:
    """Return what parsed metadata follows from: the stored bytes, and how they are unpacked."""
    return sha256, path.endswith(_GZIP_SUFFIXES), max_bytes


def unpacked(data: bytes, path: str, table: str, max_bytes: int) -> bytes:
    """Return the JSON of a metadata file, decompressed if its name says that it is gzip.

    Raises:
        MetadataInvalid: it is no gzip file, or too large when decompressed.

    Source: Apache Iceberg, `TableMetadataParser.Codec`.
    """
    if not path.endswith(_GZIP_SUFFIXES):
        return data
    unpacker = zlib.decompressobj(_GZIP_FORMAT)
    try:
        plain = unpacker.decompress(data, min(max_bytes, _MAX_RATIO * len(data)))
    except zlib.error as error:
        raise _not_gzip(path, table) from error
    if unpacker.unconsumed_tail:
        raise MetadataInvalid(
            f"The metadata decompresses to more than {max_bytes:,} bytes, or to more than "
            f"{_MAX_RATIO} times its size.",
            path=path,
            table=table,
            rule="metadata-size",
            hint="Write the metadata without compression.",
        )
    if not unpacker.eof or unpacker.unused_data:
        raise _not_gzip(path, table)
    return plain


def _not_gzip(path: str, table: str) -> MetadataInvalid:
    return MetadataInvalid(
        "The metadata has the file name of a gzip file, but is not one.",
        path=path,
        table=table,
        rule="metadata-compression",
        hint="Write the metadata again, with gzip compression or under a name without .gz.",
    )


def _parse(data: bytes, path: str, table: str) -> TableMetadata:
    document = parse(data, what="The table metadata", error=MetadataInvalid)
    if not isinstance(document, dict):
        raise MetadataInvalid(
            "The table metadata is not a JSON object.", path=path, table=table, rule="metadata"
        )
    if _SURROGATE.search(data) is not None and not _is_unicode(document):
        raise MetadataInvalid(
            "The table metadata has half of a surrogate pair in a text, which UTF-8 cannot have.",
            path=path,
            table=table,
            rule="metadata",
        )
    version = document.get("format-version")
    if isinstance(version, int) and version > MAX_READ_FORMAT_VERSION:
        raise UnsupportedFormatVersion(
            f"Format version {version} is not supported. Supported versions: 1 to {MAX_READ_FORMAT_VERSION}.",
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
        # pyiceberg's validators run on raw dictionaries and fail on unexpected types.
        raise MetadataInvalid(
            f"The table metadata is not valid: {type(error).__name__}.",
            path=path,
            table=table,
            rule="metadata",
        ) from error


def _is_unicode(document: object) -> bool:
    """Return whether all texts can be written. JSON decoders accept an escaped half of a surrogate pair."""
    try:
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


_parsed: Final = Recent[TableMetadata](_MAX_SNAPSHOTS, lambda each: len(each.snapshots) + _A_TABLE)


def dump_metadata(metadata: TableMetadata) -> bytes:
    """Return the bytes of a metadata.json, as pyiceberg writes them."""
    return metadata.model_dump_json().encode("utf-8")


def stored_metadata(metadata: TableMetadata, path: str, *, table: str, max_bytes: int) -> bytes:
    """Return the bytes of a metadata.json as stored, which `parse_metadata` reads back.

    Args:
        metadata: the metadata to store.
        path: its location; see `new_metadata_location`.
        table: dotted name, for errors.
        max_bytes: maximum decompressed size in bytes.

    Raises:
        RequestInvalid: `parse_metadata` could not read it.
    """
    plain = dump_metadata(metadata)
    is_gzip = path.endswith(_GZIP_SUFFIXES)
    data = gzip.compress(plain, _GZIP_LEVEL, mtime=0) if is_gzip else plain
    if max(len(plain), len(data)) > max_bytes:
        raise RequestInvalid(
            f"The table metadata would have {len(plain):,} bytes; the limit is {max_bytes:,}.",
            table=table,
            rule="metadata-size",
            hint="Expire snapshots first, then try again.",
        )
    if len(plain) > _MAX_RATIO * len(data):
        raise RequestInvalid(
            f"The table metadata would decompress to more than {_MAX_RATIO} times its size, which "
            "exceeds the limit for reading.",
            table=table,
            rule="metadata-size",
            hint=f"Set the table property {_COMPRESSION} to none.",
        )
    return data


def remember_written(
    data: bytes, path: str, metadata: TableMetadata, base: TableMetadata, *, table: str, max_bytes: int
) -> None:
    """Remember stored bytes as `parse_metadata` parses them; only what `base` does not have is parsed.

    Args:
        data: the bytes, from `stored_metadata`.
        path: their location.
        metadata: what was stored.
        base: the metadata before, as parsed.
        table: dotted name, for errors.
        max_bytes: maximum decompressed size in bytes.

    Raises:
        MetadataInvalid: `parse_metadata` could not read what is new.
    """
    key = _key(hashlib.sha256(data).hexdigest(), path, max_bytes)
    _parsed.get(
        key, lambda: parsed_again(metadata, base, lambda new: _parse(dump_metadata(new), path, table))
    )


def last_sequence_number(metadata: TableMetadata) -> int:
    """Return the highest assigned sequence number; format version 1 assigns none."""
    number: int = getattr(metadata, "last_sequence_number", INITIAL_SEQUENCE_NUMBER)
    return number


def require_committed_version(metadata: TableMetadata, table: str) -> None:
    """Refuse a table of a format version that clients cannot commit to.

    Raises:
        UnsupportedFormatVersion: as it says.
    """
    if metadata.format_version not in COMMITTED_FORMAT_VERSIONS:
        raise unsupported_version("Committing to", metadata, table)


def require_written_version(metadata: TableMetadata, table: str) -> None:
    """Refuse to write files of a format version other than the one that Lakewarden writes.

    Raises:
        UnsupportedFormatVersion: another version.
    """
    if metadata.format_version != WRITTEN_FORMAT_VERSION:
        raise unsupported_version("Writing", metadata, table)


def unsupported_version(what: str, metadata: TableMetadata, table: str) -> UnsupportedFormatVersion:
    """The refusal of something that the table's format version does not permit."""
    return UnsupportedFormatVersion(
        f"{what} tables of format version {metadata.format_version} is not supported.",
        table=table,
        rule="format-version",
        hint=f"Use format version {WRITTEN_FORMAT_VERSION}. To upgrade an older table, set its property "
        f"format-version to {WRITTEN_FORMAT_VERSION}.",
    )


def names_every_field(metadata: TableMetadata) -> bool:
    """Return whether the schemas still name each field that the table ever had.

    Clients can remove schemas. Then nothing says any more which columns older files have.
    """
    known = frozenset().union(*(schema.field_ids for schema in metadata.schemas))
    return known.issuperset(range(1, metadata.last_column_id + 1))


def metadata_directory(metadata: TableMetadata) -> Location:
    """Return the directory of a table's metadata files."""
    given = metadata.properties.get("write.metadata.path")
    return Location.parse(given) if given else Location.parse(metadata.location).child("metadata")


def new_metadata_location(metadata: TableMetadata, previous: str | None) -> Location:
    """Return the next metadata path: `<location>/metadata/<version>-<uuid>[.gz].metadata.json`."""
    codec = metadata.properties.get(_COMPRESSION, "none").lower()
    suffix = ".gz.metadata.json" if codec == "gzip" else ".metadata.json"
    return metadata_directory(metadata).child(f"{_next_version(previous):05d}-{uuid.uuid4()}{suffix}")


def first_problem(error: ValidationError) -> str:
    """Return pydantic's first error as a clause without the input."""
    problem = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    return f"{where or 'the document'}: {problem['msg']}"


def _next_version(previous: str | None) -> int:
    if previous is None:
        return 0
    head = previous.rsplit("/", 1)[-1].split("-", 1)[0]
    return int(head) + 1 if head.isascii() and head.isdigit() and len(head) < 10 else 0
