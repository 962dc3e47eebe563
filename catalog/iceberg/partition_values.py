"""Converts partition values between Iceberg's JSON single-value form and the form in manifests.

- Dates, times and timestamps are numbers; decimals are rescaled to their type.
- A value that does not have its type, or is out of its range, is refused: a reader would prune by another
  value.

Source: Iceberg table specification, "Appendix D: Single-value serialization".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Context, Decimal
from typing import Any, Final, cast
from uuid import UUID

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
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
    NestedField,
    PrimitiveType,
    StringType,
    UUIDType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from catalog.iceberg.avro.arrow import FIELD_ID
from catalog.iceberg.manifests import ManifestListEntry
from catalog.iceberg.manifests.rows import partition_rows
from catalog.iceberg.single_values import value_from_json, value_to_json
from policy.errors import MetadataInvalid

_BITS: Final = {IntegerType: 32, LongType: 64}
#: Types that engines read as 32 bits; they fail on larger values.
_NARROW: Final = (IntegerType, DateType, FloatType)
_NARROW_BITS: Final = 32
#: Python's default context would round values to 28 digits.
_EXACT: Final = Context(prec=100)
_PLAIN: Final[dict[type[PrimitiveType], tuple[type, ...]]] = {
    StringType: (str,),
    FloatType: (int, float),
    DoubleType: (int, float),
    DecimalType: (str,),
}
#: The Arrow type of decoded partition values, by the type of their field; integers for all others.
_HELD_AS: Final[Mapping[type[IcebergType], type]] = {
    BooleanType: bool,
    FloatType: float,
    DoubleType: float,
    DecimalType: Decimal,
    StringType: str,
    UUIDType: bytes,
    FixedType: bytes,
    BinaryType: bytes,
}


def stored_value(kind: PrimitiveType, value: object) -> object:
    """Return a partition value as manifests store it.

    Args:
        kind: the type of the partition field.
        value: the value in JSON form; None for null.

    Raises:
        ValueError: the value does not have that type, or is out of its range.
    """
    if value is None:
        return None
    _check_plain(kind, value)
    parsed: object
    try:
        parsed = value_from_json(kind, value)
    except (ArithmeticError, TypeError, AttributeError) as error:
        raise ValueError("not a value of the field's type") from error
    if isinstance(parsed, datetime):
        return datetime_to_micros(parsed)
    if isinstance(parsed, date):
        return date_to_days(parsed)
    if isinstance(parsed, time):
        return time_to_micros(parsed)
    if isinstance(kind, DecimalType) and isinstance(parsed, Decimal):
        return _scaled(kind, parsed)
    return parsed


def _check_plain(kind: PrimitiveType, value: object) -> None:
    """Check a value that pyiceberg does not convert."""
    bits = _BITS.get(type(kind))
    whole = bits is None or (isinstance(value, int) and -(1 << bits - 1) <= value < 1 << bits - 1)
    plain = isinstance(value, _PLAIN.get(type(kind), object))
    if not whole or not plain or isinstance(value, bool) is not isinstance(kind, BooleanType):
        raise ValueError("not a value of the field's type")


def _scaled(kind: DecimalType, value: Decimal) -> Decimal:
    """Rescale the number to its type: manifests store only its digits."""
    if not value.is_finite():
        raise ValueError("not a number")
    if value and value.adjusted() + kind.scale >= kind.precision:
        raise ValueError("too many digits")
    scaled = Decimal(int(value.scaleb(kind.scale, _EXACT))).scaleb(-kind.scale, _EXACT)
    if scaled != value:
        raise ValueError("too many digits")
    return scaled


class ShownPartitions:
    """The partition values that a plan shows.

    Args:
        specs: the table's partition specs by id.
        schema: the schema of the scan; partition values have its types.
        field_ids: the fields that the scan can read.
    """

    def __init__(self, specs: Mapping[int, PartitionSpec], schema: Schema, field_ids: frozenset[int]) -> None:
        self._specs = specs
        self._schema = schema
        self._field_ids = field_ids

    def texts(self, partitions: pa.StructArray, listed: ManifestListEntry) -> pa.Array:
        """Return each row's partition as JSON; equal tuples are encoded once.

        Args:
            partitions: the partition column of a manifest.
            listed: the manifest.

        Raises:
            MetadataInvalid: the values do not match the manifest's spec.
        """
        fields = self._fields(listed)
        if len(partitions):
            _check_order(partitions.type, self._specs, listed)
        if not fields or not len(partitions):
            return pa.array(["{}"] * len(partitions), pa.string())
        with _naming(listed):
            kept = _picked(partitions, fields)
            return pa.array(_texts(fields, partition_rows(kept, uuid_as_bytes=True)), pa.string())

    def _fields(self, listed: ManifestListEntry) -> list[NestedField]:
        """Return the partition fields of the manifest's spec whose source columns the user can read."""
        spec = _spec_of(self._specs, listed)
        sources = {each.field_id for each in spec.fields if each.source_id in self._field_ids}
        return [each for each in spec.partition_type(self._schema).fields if each.field_id in sources]


class ListedPartitions:
    """The partition values of files as lists, with all fields in the order of their spec.

    This is the form of standard clients, which place values by position. A field is null if the table's
    current schema does not have its source column: clients have no type for it.

    Args:
        specs: the table's partition specs by id.
        schema: the current schema; clients read partition values by its types.
    """

    def __init__(self, specs: Mapping[int, PartitionSpec], schema: Schema) -> None:
        self._specs = specs
        self._schema = schema
        #: The values of each tuple, by spec id and text, with None for fields that are not shown.
        self.values: dict[tuple[int, str], tuple[Any, ...]] = {}

    def texts(self, partitions: pa.StructArray, listed: ManifestListEntry) -> pa.Array:
        """Return each row's partition as a JSON list; arguments and errors are those of `ShownPartitions`."""
        spec = _spec_of(self._specs, listed)
        if len(partitions):
            _check_order(partitions.type, self._specs, listed)
        if not spec.fields or not len(partitions):
            return pa.array(["[]"] * len(partitions), pa.string())
        fields = spec.partition_type(self._schema).fields
        known = [place for place, each in enumerate(spec.fields) if each.source_id in self._schema.field_ids]
        with _naming(listed):
            kept = _picked(partitions, [fields[place] for place in known])
            rows = partition_rows(kept, uuid_as_bytes=True) if known else [()] * len(partitions)
            return pa.array(self._listed(spec.spec_id, fields, known, rows), pa.string())

    def _listed(
        self,
        spec_id: int,
        fields: Sequence[NestedField],
        known: Sequence[int],
        rows: Iterable[tuple[Any, ...]],
    ) -> list[str]:
        texts: dict[tuple[Any, ...], str] = {}
        found = []
        for row in rows:
            # Different numbers can be equal, such as 0.0 and -0.0.
            key = tuple(repr(value) for value in row)
            if key not in texts:
                values, shown = [None] * len(fields), [None] * len(fields)
                for place, value in zip(known, row, strict=True):
                    values[place], shown[place] = value, _json(fields[place].field_type, value)
                texts[key] = json.dumps(shown, ensure_ascii=False, allow_nan=False)
                self.values[spec_id, texts[key]] = tuple(values)
            found.append(texts[key])
        return found


def _spec_of(specs: Mapping[int, PartitionSpec], listed: ManifestListEntry) -> PartitionSpec:
    spec = specs.get(listed.partition_spec_id)
    if spec is None:
        raise MetadataInvalid(
            f"The manifest uses the partition spec {listed.partition_spec_id}, which the "
            "table does not have.",
            path=listed.manifest_path,
            rule="partition-spec",
        )
    return spec


def _check_order(kind: pa.StructType, specs: Mapping[int, PartitionSpec], listed: ManifestListEntry) -> None:
    """Check the order of partition fields: some readers use field ids and others positions."""
    stored = [int(each.metadata[FIELD_ID.encode()]) for each in kind]
    if stored != [each.field_id for each in specs[listed.partition_spec_id].fields]:
        raise MetadataInvalid(
            "The partition fields of the manifest differ from its spec, or are in another order.",
            path=listed.manifest_path,
            rule="partition-spec",
        )


@contextmanager
def _naming(listed: ManifestListEntry) -> Iterator[None]:
    """Convert the errors of values that are not of their spec."""
    try:
        yield
    except (KeyError, TypeError, ValueError, ArithmeticError, NotImplementedError) as problem:
        raise MetadataInvalid(
            "The manifest lacks a partition field of its spec, or has a value of another type.",
            path=listed.manifest_path,
            rule="partition-spec",
        ) from problem


def _picked(partitions: pa.StructArray, fields: Sequence[NestedField]) -> pa.StructArray:
    """Return some fields of a partition column, in this order."""
    places = {int(kind.metadata[FIELD_ID.encode()]): place for place, kind in enumerate(partitions.type)}
    arrays = [partitions.field(places[each.field_id]) for each in fields]
    for each, array in zip(fields, arrays, strict=True):
        if isinstance(each.field_type, _NARROW) and array.type.bit_width > _NARROW_BITS:
            raise TypeError("a partition field is wider than its type")
    return pa.StructArray.from_arrays(arrays, [str(each.field_id) for each in fields])


def _texts(fields: Sequence[NestedField], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    known: dict[tuple[Any, ...], str] = {}
    texts = []
    for row in rows:
        if row not in known:
            values = {
                each.name: _json(each.field_type, value) for each, value in zip(fields, row, strict=True)
            }
            known[row] = json.dumps(values, ensure_ascii=False, allow_nan=False)
        texts.append(known[row])
    return texts


def _json(kind: IcebergType, value: object) -> Any:
    """Encode a partition value in single-value form ("Appendix D, JSON single-value serialization")."""
    if value is None:
        return None
    if type(value) is not _HELD_AS.get(type(kind), int):
        raise TypeError("a partition value is not of its field's type")
    if isinstance(value, float) and not math.isfinite(value):
        # JSON cannot represent these numbers; Iceberg's own writers use a string.
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    held = UUID(bytes=cast(bytes, value)) if isinstance(kind, UUIDType) else value
    return value_to_json(cast(PrimitiveType, kind), held)
