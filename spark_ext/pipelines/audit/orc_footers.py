"""Checks the footer of an ORC file without a data key.

The footer of an ORC file is always in plaintext and not authenticated: columns and their types, rows, which
columns are encrypted and under which keys. What is checked here is what readers check before they open a key.
Whether a key opens, and what is in the stripes, is left to readers. The file's digest, which key metadata of
ORC always has, covers each byte of it.

Source: Apache ORC specification v1, "File Footer", "Column Encryption"; docs/orc.md; Iceberg table
    specification, "Appendix A: Format-specific Requirements", ORC.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from catalog.client.thrift import Malformed
from catalog.crypto.aead import OVERHEAD
from catalog.envelope.key_metadata import KeyMetadata
from catalog.iceberg.avro.malformed import Malformed as Undecoded
from spark_ext.pipelines.audit.file_ends import PARSING, Broken, FileEnd, ListedFile, Problem
from spark_ext.pipelines.audit.orc_tails import Tail, read_tail
from spark_ext.pipelines.audit.parquet_schemas import TableColumns
from spark_ext.pipelines.audit.parquet_statistics import listed_value
from spark_ext.pipelines.audit.protobuf import Message, double, signed
from spark_ext.pipelines.audit.rules import (
    DAMAGED_FILE,
    PLAINTEXT_FILE,
    PLAINTEXT_STATISTICS,
    UNKNOWN_COLUMNS,
    WRONG_COLUMNS,
    WRONG_FOOTER,
    WRONG_STATISTICS,
)

# Of Footer, StripeInformation, Type, StringPair.
_STRIPES, _TYPES, _ROWS, _STATISTICS, _ENCRYPTION = 3, 4, 6, 7, 10
_OFFSET, _INDEX, _DATA, _STRIPE_FOOTER, _STRIPE_ROWS = 1, 2, 3, 4, 5
_KIND, _CHILDREN, _NAMES, _PRECISION, _SCALE, _ATTRIBUTES = 1, 2, 3, 5, 6, 7
_KEY, _VALUE = 1, 2
#: Digits of a field id, which is a number of 32 bits. Python does not convert texts of thousands of digits.
_ID_DIGITS: Final = 10
# Of Encryption, DataMask, EncryptionKey, EncryptionVariant.
_MASKS, _KEYS, _VARIANTS = 1, 2, 3
_MASK_NAME, _MASK_COLUMNS = 1, 3
_KEY_NAME, _KEY_ALGORITHM = 1, 3
_ROOT, _VARIANT_KEY, _WRAPPED = 1, 2, 3
_ALGORITHMS: Final = {1: 16, 2: 32}
# Of ColumnStatistics: numbers, doubles, texts, dates, and their minimum and maximum.
_VALUES, _OF_NUMBERS, _OF_DOUBLES, _OF_TEXTS, _OF_DATES = 1, 2, 3, 4, 7
_OF_EXTREMES: Final = (2, 3, 4, 6, 7, 9)
_MINIMUM, _MAXIMUM = 1, 2
_NULLIFY: Final = "nullify"
_STRUCT: Final = 12
_NESTED: Final = frozenset({10, 11, 12, 13})
#: The first day on which the calendars of old and new writers agree, 1582-10-15.
_GREGORIAN: Final = -141427
_STORED: Final[Mapping[type[IcebergType], frozenset[int]]] = {
    BooleanType: frozenset({0}),
    IntegerType: frozenset({1, 2, 3}),
    LongType: frozenset({1, 2, 3, 4}),
    FloatType: frozenset({5}),
    DoubleType: frozenset({5, 6}),
    DateType: frozenset({15}),
    TimeType: frozenset({4}),
    TimestampType: frozenset({9}),
    TimestamptzType: frozenset({18}),
    StringType: frozenset({7, 16, 17}),
    BinaryType: frozenset({8}),
    FixedType: frozenset({8}),
    UUIDType: frozenset({8}),
    DecimalType: frozenset({14}),
}


@dataclass(frozen=True, slots=True)
class _Column:
    """A top-level column: its number among all types of the file, name, type and field id."""

    number: int
    name: str
    type: Message
    field_id: int | None

    @property
    def kind(self) -> int:
        return self.type.number(_KIND)


def check_orc(file: ListedFile, end: FileEnd, table: TableColumns) -> Iterator[Problem]:
    """Check the footer of a file.

    Args:
        file: as its manifest lists it.
        end: of the open file.
        table: the columns of its table.

    Raises:
        Broken: no more of it can be checked.
    """
    end.last(1)  # Most tails are read by this, so that others do not wait for storage.
    try:
        with PARSING:
            yield from _checked(file, end, table)
    except (Malformed, Undecoded, RecursionError) as error:
        raise Broken(DAMAGED_FILE, f"The file's footer is damaged: {error}.") from error


def _checked(file: ListedFile, end: FileEnd, table: TableColumns) -> Iterator[Problem]:
    tail = read_tail(end)
    columns = _columns(tail.footer)
    yield from _check_rows(file, tail)
    yield from _check_types(file, columns, table)
    hidden = yield from _check_encryption(file, tail.footer, columns)
    yield from _check_statistics(file, tail.footer, columns, hidden, table)


def _columns(footer: Message) -> tuple[_Column, ...]:
    types = footer.messages(_TYPES)
    if not types or types[0].number(_KIND) != _STRUCT:
        raise Malformed("a file whose columns are not those of a struct")
    numbers = types[0].numbers(_CHILDREN)
    names = [each.decode("utf-8", "replace")[:200] for each in types[0].parts(_NAMES)]
    if len(numbers) != len(names) or any(not 0 < each < len(types) for each in numbers):
        raise Malformed("a schema with missing or extra columns")
    return tuple(
        _Column(number, name, types[number], _field_id(types[number]))
        for number, name in zip(numbers, names, strict=True)
    )


def _field_id(said: Message) -> int | None:
    for pair in said.messages(_ATTRIBUTES):
        text = pair.text(_VALUE)
        if pair.text(_KEY) == "iceberg.id" and text.isdecimal() and len(text) <= _ID_DIGITS:
            return int(text)
    return None


def _check_rows(file: ListedFile, tail: Tail) -> Iterator[Problem]:
    stripes = tail.footer.messages(_STRIPES)
    rows = tail.footer.number(_ROWS), sum(each.number(_STRIPE_ROWS) for each in stripes)
    for found in dict.fromkeys(rows):
        if found != file.records:
            yield Problem(
                WRONG_STATISTICS, f"The file has {found} rows, but its manifest lists {file.records}."
            )
    ranges = [(each.number(_OFFSET), _length(each)) for each in stripes]
    ranges.append((tail.start, 0))
    if any(later < start + length for (start, length), (later, _) in pairwise(ranges)):
        yield Problem(DAMAGED_FILE, "A stripe is outside of the file, or where another one is.")


def _length(stripe: Message) -> int:
    return sum(stripe.number(each) for each in (_INDEX, _DATA, _STRIPE_FOOTER))


def _check_types(file: ListedFile, columns: Sequence[_Column], table: TableColumns) -> Iterator[Problem]:
    ids = [each.field_id for each in columns]
    if len(set(ids)) < len(ids) or len({each.name for each in columns}) < len(columns):
        yield Problem(UNKNOWN_COLUMNS, "Two columns have one name or field id.")
    for missing in sorted(table.required - set(ids)) if file.content == 0 else ():
        yield Problem(WRONG_COLUMNS, f"The required column with the field id {missing} is missing.")
    for each in columns:
        kinds = table.types.get(-1 if each.field_id is None else each.field_id)
        if each.field_id is None:
            yield Problem(UNKNOWN_COLUMNS, "The column has no field id.", each.name)
        elif kinds is None:
            yield Problem(
                UNKNOWN_COLUMNS, f"No schema of the table has the field id {each.field_id}.", each.name
            )
        elif not any(_is_stored(kind, each) for kind in kinds):
            shown = " or ".join(str(kind)[:80] for kind in kinds)
            yield Problem(WRONG_COLUMNS, f"The column has another type than {shown}.", each.name)


def _is_stored(kind: IcebergType, column: _Column) -> bool:
    stored = _STORED.get(type(kind))
    if stored is None:
        return kind.is_primitive or column.kind in _NESTED
    fits = column.kind in stored
    if isinstance(kind, DecimalType):
        precision, scale = column.type.number(_PRECISION), column.type.number(_SCALE)
        return fits and scale == kind.scale and precision <= kind.precision
    return fits


def _check_encryption(
    file: ListedFile, footer: Message, columns: Sequence[_Column]
) -> Generator[Problem, None, frozenset[int]]:
    """Check which columns are encrypted, and under keys of which names; return those that are."""
    encryption = (footer.messages(_ENCRYPTION) or [Message(b"")])[-1]
    variants = encryption.messages(_VARIANTS)
    roots = {each.number(_ROOT): each for each in variants}
    if file.keys is None:
        if variants:
            yield Problem(WRONG_FOOTER, "The file is encrypted, but the table lists it as plaintext.")
        return frozenset(roots)
    required = _required_keys(file.keys, columns)
    if required and not variants:
        raise Broken(PLAINTEXT_FILE, "The file is in plaintext, but the table requires encryption.")
    if len(roots) < len(variants) or not roots.keys() <= {each.number for each in columns}:
        yield Problem(
            WRONG_FOOTER, "The file's footer does not name one encryption key for each encrypted column."
        )
    keys = encryption.messages(_KEYS)
    masks = _masks(encryption)
    statistics = footer.messages(_STATISTICS)
    for column in columns:
        variant, length = roots.get(column.number), required.get(column.number)
        if (variant is None) is not (length is None):
            found = "not encrypted with the key that the table requires" if length else "encrypted"
            yield Problem(WRONG_FOOTER, f"The column is {found}.", column.name)
        elif variant is not None and length is not None:
            yield from _check_variant(column, variant, keys, length)
            if masks.get(column.number, _NULLIFY) == _NULLIFY and _shows(statistics, column):
                yield Problem(
                    PLAINTEXT_STATISTICS, "The footer shows statistics of an encrypted column.", column.name
                )
    return frozenset(roots)


def _required_keys(keys: KeyMetadata, columns: Sequence[_Column]) -> dict[int, int]:
    """The lengths of the data keys of columns, by the column's number."""
    if len(keys.entries) == 1:
        return {each.number: keys.entries[0].data_key_length for each in columns}
    lengths = {each: entry.data_key_length for entry in keys.entries for each in entry.bound.field_ids}
    return {
        each.number: lengths[each.field_id]
        for each in columns
        if each.field_id is not None and each.field_id in lengths
    }


def _masks(encryption: Message) -> dict[int, str]:
    return {
        number: mask.text(_MASK_NAME)
        for mask in encryption.messages(_MASKS)
        for number in mask.numbers(_MASK_COLUMNS)
    }


def _check_variant(
    column: _Column, variant: Message, keys: Sequence[Message], length: int
) -> Iterator[Problem]:
    place = variant.number(_VARIANT_KEY)
    named = keys[place] if place < len(keys) else Message(b"")
    if named.text(_KEY_NAME) != f"c{column.field_id}":
        yield Problem(WRONG_FOOTER, "The column is under the key of another column.", column.name)
    if _ALGORITHMS.get(named.number(_KEY_ALGORITHM)) != length:
        yield Problem(
            WRONG_FOOTER, "The column is encrypted otherwise than its key metadata says.", column.name
        )
    if [len(each) for each in variant.parts(_WRAPPED)] != [length + OVERHEAD]:
        yield Problem(
            WRONG_FOOTER, "The wrapped key of the column has another length than its key.", column.name
        )


def _shows(statistics: Sequence[Message], column: _Column) -> bool:
    if column.number >= len(statistics):
        return False
    said = statistics[column.number]
    return said.number(_VALUES) > 0 or any(
        inner.has(_MINIMUM) or inner.has(_MAXIMUM) for each in _OF_EXTREMES for inner in said.messages(each)
    )


def _check_statistics(
    file: ListedFile, footer: Message, columns: Sequence[_Column], hidden: frozenset[int], table: TableColumns
) -> Iterator[Problem]:
    """Compare the statistics in the manifest with those of the plaintext columns."""
    statistics = footer.messages(_STATISTICS)
    listed = file.statistics
    for column in columns:
        number = column.field_id
        if column.number in hidden or column.kind in _NESTED or number is None:
            continue
        if column.number >= len(statistics):
            continue
        said = statistics[column.number]
        values, nulls = listed.value_counts.get(number), listed.null_value_counts.get(number)
        found = said.number(_VALUES)
        if values is not None and values != file.records:
            yield Problem(
                WRONG_STATISTICS,
                f"The manifest counts {values} values in a file of {file.records} rows.",
                column.name,
            )
        if nulls is not None and file.records - nulls != found:
            yield Problem(
                WRONG_STATISTICS,
                f"The manifest counts {nulls} nulls, the footer {file.records - found}.",
                column.name,
            )
        kind = table.types.get(number, (None,))[-1]
        low, high = _bound(said, kind, _MINIMUM), _bound(said, kind, _MAXIMUM)
        least, most = (
            listed_value(kind, each.get(number)) for each in (listed.lower_bounds, listed.upper_bounds)
        )
        if low is not None and least is not None and least > low:
            yield Problem(
                WRONG_STATISTICS, "The manifest's lower bound is above the footer's minimum.", column.name
            )
        if high is not None and most is not None and most < high:
            yield Problem(
                WRONG_STATISTICS, "The manifest's upper bound is below the footer's maximum.", column.name
            )


def _bound(said: Message, kind: IcebergType | None, which: int) -> Any:
    """A minimum or maximum of the footer, to compare; None if it is not known exactly."""
    found: list[Any] = []
    match kind:
        case IntegerType() | LongType():
            found = [signed(each.number(which)) for each in said.messages(_OF_NUMBERS) if each.has(which)]
        case StringType():
            found = [part for each in said.messages(_OF_TEXTS) for part in each.parts(which)]
        case DateType():
            days = (signed(each.number(which)) for each in said.messages(_OF_DATES) if each.has(which))
            found = [each for each in days if each >= _GREGORIAN]
        case FloatType() | DoubleType():
            numbers = (double(part) for each in said.messages(_OF_DOUBLES) for part in each.parts(which))
            found = [each for each in numbers if not math.isnan(each)]
    return found[-1] if found else None
