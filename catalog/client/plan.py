"""Parses a scan plan of the catalog: the files to read, and the encryption that each must have.

- Every path is checked against the allowed list as soon as the plan is there.
- A plan that asks for something unknown here is refused: what is not understood cannot be obeyed.
- The transport key and the data keys are held as secrets.

Source: docs/plan-format.md, "Scan plan"; tests/vectors/plans.json.
"""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from catalog.client.errors import not_the_catalog
from catalog.client.footers import FileKeys, refused
from catalog.client.plan_paths import whole_paths
from catalog.client.restricted import require_applicable, types_of
from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_digests import FileDigest, FooterDigest
from catalog.envelope.file_ids import FileIdentity, parquet_aad_prefix
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, open_transported
from policy.decision import Decision, Reason
from policy.encryption.specification import Algorithm, Footer, VerifyDigest
from policy.errors import DecryptionRefused, LocationInvalid, LocationNotAllowed, NotSupportedYet
from policy.location.allow_list import AllowList
from policy.location.location import Location, shown
from policy.restrictions.model import Restriction
from policy.restrictions.wire_reading import restriction_of

_DATA, _POSITIONS, _EQUALITY = 0, 1, 2
_HEADER: Final = b"lakewarden.plan"
_TRANSPORT: Final = b"lakewarden.transport-key"
_NOT_CANONICAL: Final = Decision.deny(Reason("location-invalid", "The location is not canonical."))
_NO_PLAN: Final = (
    *(pa.ArrowException, OSError, struct.error),
    *(LookupError, TypeError, ValueError, AttributeError, RecursionError),
)
#: Bytes that are taken of the answer at once; Arrow asks for few at a time.
_BUFFER: Final = 1 << 16
_COLUMNS: Final = frozenset(
    {
        "content", "directory", "file_name", "location", "file_format", "spec_id", "partition",
        "record_count", "file_size_in_bytes", "sequence_number", "file_sequence_number", "split_offsets",
        "sort_order_id", "deletes", "equality_ids", "algorithm", "footer", "column_keys", "keys", "digest",
        "footer_digest",
    }
)  # fmt: skip


class WrappedKey(NamedTuple):
    """A data key under the scan's key."""

    label: KeyLabel
    wrapped: bytes


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file of a plan.

    Attributes:
        path: its name in the table's metadata.
        location: where it lies, canonically spelled.
        file_format: ``parquet``, ``orc``, …, in lower case.
        size: bytes.
        records: rows.
        algorithm: how it is encrypted; None for plaintext.
        footer: whether its footer is encrypted or signed; None for plaintext.
        column_keys: whether groups of columns have keys of their own, and the others are in plaintext.
        keys: its data keys: the footer's, then those of columns.
        sha256: of all its bytes, where it is to be checked against that; else None.
        footer_digest: how it has to end, where its key metadata says so; else None.
        deletes: the files that delete rows from it.
        without_like: ids of columns whose values stand in the metadata, so that their absence is not null.
        equality_ids: of an equality delete, the ids of the columns that it compares; else none.
    """

    path: str
    location: str
    file_format: str
    size: int
    records: int
    algorithm: Algorithm | None
    footer: Footer | None
    column_keys: bool
    keys: tuple[WrappedKey, ...] = field(repr=False)
    sha256: bytes | None
    footer_digest: FooterDigest | None
    deletes: tuple[PlannedFile, ...]
    without_like: frozenset[int]
    equality_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What the catalog answered to one scan.

    Attributes:
        table: dotted name.
        table_uuid: the table's.
        snapshot_id: the snapshot that is read; None for a table without rows.
        schema: what it is read with.
        masked: ids of the columns that are shown as null.
        valid_ms: for so many milliseconds a scan may be begun by it.
        files: the data files.
        allowed: below which locations every file has to lie.
        compared: the columns that equality deletes of the plan compare; the schema may lack them.
        restriction: which rows and values are shown.
    """

    table: str
    table_uuid: UUID
    snapshot_id: int | None
    schema: Schema
    masked: frozenset[int]
    valid_ms: int
    files: tuple[PlannedFile, ...]
    allowed: AllowList
    compared: tuple[NestedField, ...]
    restriction: Restriction
    _transport: TransportKey | None = field(repr=False)

    def location(self, file: PlannedFile) -> Location:
        """Where a file lies.

        Raises:
            LocationNotAllowed: outside of what the table may be read from, or not canonically spelled.
        """
        decision = self.allowed.decide(file.location)
        if decision and Location.parse(file.location).canonical != file.location:
            decision = _NOT_CANONICAL
        if not decision:
            raise LocationNotAllowed(
                f"A data file is outside the table's allowed locations: {decision.explanation}",
                table=self.table,
                path=shown(file.location),
                rule=decision.reasons[0].rule,
                hint="Ask the owner to add the location to read.allowed.data.paths, or to remove the file.",
            )
        return Location.parse(file.location)

    def keys(self, file: PlannedFile, location: Location) -> FileKeys | None:
        """How a file has to be encrypted, its keys opened; None for plaintext.

        Raises:
            DecryptionRefused: keys of another file, table or scan, or that do not agree with the rest of the
                plan.
        """
        if (file.algorithm, file.footer, file.footer_digest, file.keys) == (None, None, None, ()):
            return None
        footer, *columns = file.keys or (None,)
        whole = footer is not None and not footer.label.field_ids
        if (
            not whole
            or footer is None
            or file.algorithm is None
            or file.footer is None
            or self._transport is None
            or not are_apart([each.label for each in columns])
            or (not file.column_keys and (columns or file.footer_digest is not None))
        ):
            raise refused("The keys in the scan plan do not match the file's encryption.", "data-key")
        identity = FileIdentity.of(self.table_uuid, location.canonical)
        try:
            opened = {
                each.label: open_transported(self._transport, each.wrapped, identity, each.label)
                for each in file.keys
            }
        except DecryptionRefused as error:
            raise refused("The data key in the scan plan belongs to another file.", "data-key") from error
        own = {field_id: opened[each.label] for each in columns for field_id in each.label.field_ids}
        return FileKeys(
            algorithm=file.algorithm,
            footer_form=file.footer,
            footer=opened[footer.label],
            columns=own if file.column_keys else None,
            aad_prefix=parquet_aad_prefix(identity),
        )


def parse(stream: Any) -> Plan:
    """A plan out of the catalog's Arrow stream.

    Raises:
        NotSupportedYet: the plan asks for something that is unknown here.
        LocationNotAllowed: a file lies outside the allowed list.
        CatalogUnavailable: what answers is not the catalog, or broke off.
    """
    try:
        plan = _parsed(stream)
    except _NO_PLAN as error:
        raise not_the_catalog("not a complete scan plan") from error
    for each in plan.files:
        for file in (each, *each.deletes):
            plan.location(file)
    return plan


def _parsed(stream: Any) -> Plan:
    with pa.ipc.open_stream(io.BufferedReader(stream, _BUFFER)) as reader:
        said = reader.schema.metadata
        rows = reader.read_all()
    header = json.loads(said[_HEADER])
    _refuse_unknown(rows, header)
    paths = whole_paths(rows["directory"], rows["file_name"])
    rows = rows.drop_columns(["directory", "file_name"]).append_column("file_path", paths)
    schema = _schema(json.dumps(header["schema"]))
    without_like = {int(spec): frozenset(ids) for spec, ids in header["absent-with-values"].items()}
    compared = _compared(header["equality-columns"])
    restriction = restriction_of(header["read-restrictions"], types_of(schema))
    require_applicable(schema, restriction)
    verified = _known(VerifyDigest, header["verify-digest"], "verify-digest") is not VerifyDigest.NEVER
    return Plan(
        table=header["table"],
        table_uuid=UUID(header["table-uuid"]),
        snapshot_id=header["snapshot-id"],
        schema=_shown(schema, header["masked"]),
        masked=frozenset(header["masked"]),
        valid_ms=header["valid-ms"],
        files=_files(rows.to_pylist(), without_like, _primitives(compared), verified=verified),
        allowed=_allowed(header["allowed-paths"]),
        compared=compared,
        restriction=restriction,
        _transport=transport_key(json.loads(said[_TRANSPORT]), Purpose.SCAN) if _TRANSPORT in said else None,
    )


def _compared(said: Mapping[str, Any] | None) -> tuple[NestedField, ...]:
    return () if said is None else _schema(json.dumps(said)).fields


def _primitives(fields: Sequence[NestedField]) -> frozenset[int]:
    """The ids of primitive fields, nested or not."""
    return frozenset(
        found
        for each in fields
        for found in (
            _primitives(each.field_type.fields)
            if isinstance(each.field_type, StructType)
            else {each.field_id}
        )
    )


def are_apart(labels: Sequence[KeyLabel]) -> bool:
    """Whether each key is for some columns, and no column has two."""
    ids = [each for label in labels for each in label.field_ids]
    return all(label.field_ids for label in labels) and len(set(ids)) == len(ids)


def _allowed(entries: Sequence[str]) -> AllowList:
    """The allow-list, whose entries the catalog spells canonically."""
    allowed = AllowList.of(entries)
    if [each.canonical for each in allowed.entries] != list(entries):
        raise LocationInvalid(
            "An allowed location of the scan plan is not canonical.",
            rule="location-invalid",
            hint="Install the client of the catalog's release.",
        )
    return allowed


def transport_key(document: Mapping[str, str], purpose: Purpose) -> TransportKey:
    """A transport key as the catalog answers it."""
    bare = {name: base64.b64decode(document[name], validate=True) for name in ("id", "key")}
    return TransportKey(bare["id"], purpose, SecretBytes(bare["key"]))


@lru_cache(maxsize=64)
def _schema(text: str) -> Schema:
    """A schema by its whole text, which the plans of one table repeat."""
    return Schema.model_validate_json(text)


def _shown(schema: Schema, masked: Collection[int]) -> Schema:
    """What is read with; a masked column may be null, whatever the table says."""
    if not masked:
        return schema
    fields = [
        each.model_copy(update={"required": False}) if each.field_id in masked else each
        for each in schema.as_struct().fields
    ]
    return Schema(*fields, schema_id=schema.schema_id)


def _refuse_unknown(rows: pa.Table, header: Mapping[str, Any]) -> None:
    unknown = [
        each for each in rows.column_names if each not in _COLUMNS and rows[each].null_count < len(rows)
    ]
    if unknown:
        raise NotSupportedYet(
            f"The scan plan needs a feature that this client does not support ({', '.join(unknown)}).",
            table=header["table"],
            rule="plan",
            hint="Install the client of the catalog's release, or read the table with Spark.",
        )


def _files(
    rows: list[dict[str, Any]],
    without_like: Mapping[int, frozenset[int]],
    comparable: frozenset[int],
    *,
    verified: bool,
) -> tuple[PlannedFile, ...]:
    deletes: dict[int, PlannedFile] = {}

    def file(row: Mapping[str, Any]) -> PlannedFile:
        return PlannedFile(
            path=row["file_path"],
            location=row["location"] or row["file_path"],
            file_format=row["file_format"].lower(),
            size=row["file_size_in_bytes"],
            records=row["record_count"],
            algorithm=_known(Algorithm, row["algorithm"], "algorithm"),
            footer=_known(Footer, row["footer"], "footer"),
            column_keys=bool(row["column_keys"]),
            keys=tuple(_key(each) for each in row["keys"] or ()),
            sha256=FileDigest.of_bytes(row["digest"]).sha256 if verified and row["digest"] else None,
            footer_digest=FooterDigest.of_bytes(row["footer_digest"]) if row["footer_digest"] else None,
            deletes=tuple(deletes[each] for each in row["deletes"] or ()),
            without_like=without_like.get(row["spec_id"], frozenset()),
        )

    for number, row in enumerate(rows):
        if row["content"] != _DATA:
            compared = _equality_ids(row, comparable)
            # A delete file without a column that it compares would delete rows without a value.
            deletes[number] = replace(
                file({**row, "deletes": None}), equality_ids=compared, without_like=frozenset(compared)
            )
    data = [row for row in rows if row["content"] == _DATA]
    if deletes.keys() - {each for row in data for each in row["deletes"] or ()}:
        raise ValueError("a delete file that applies to nothing")
    return tuple(map(file, data))


def _equality_ids(row: Mapping[str, Any], comparable: frozenset[int]) -> tuple[int, ...]:
    """What a delete file compares; nothing for position deletes."""
    found = tuple(row["equality_ids"] or ())
    if row["content"] not in (_POSITIONS, _EQUALITY):
        raise NotSupportedYet(
            f"The scan plan has a file with content {row['content']}, which this client does not support.",
            rule="deletes",
            hint="Install the client of the catalog's release.",
        )
    if (row["content"] == _EQUALITY) is not bool(found) or not comparable.issuperset(found):
        raise ValueError("the columns of an equality delete")
    return found


def _key(row: Mapping[str, Any]) -> WrappedKey:
    return WrappedKey(KeyLabel(row["key_name"], tuple(row["field_ids"] or ())), row["wrapped"])


def _known(kind: Any, value: str | None, rule: str) -> Any:
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError as error:
        raise NotSupportedYet(
            f"The scan plan asks for {value}, which this client does not support.",
            rule=rule,
            hint="Install the client of the catalog's release.",
        ) from error
