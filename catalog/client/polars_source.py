"""Reads a scan lazily with Polars: an IO source that gets the columns, conditions and row limit of a query.

- Each `collect` asks the catalog for a plan of its own, with the columns that the query needs.
- Conditions are pushed down where a column of integers, text, dates or booleans is compared with a value of
  its type. They leave out files and row groups, and rows; Polars' whole condition is applied to the rest. A
  condition that is not understood here is not pushed down.

Source: docs.pola.rs, "IO plugins".
"""

from __future__ import annotations

import datetime
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa
from pyiceberg import expressions as iceberg
from pyiceberg.expressions import BooleanExpression

from catalog.base.identifiers import TableName
from catalog.client import frames

_EPOCH: Final = datetime.date(1970, 1, 1)
_FIRST_DAY: Final = (datetime.date.min - _EPOCH).days
_LAST_DAY: Final = (datetime.date.max - _EPOCH).days
_COMPARED: Final[Mapping[str, type[Any]]] = {
    "Eq": iceberg.EqualTo,
    "NotEq": iceberg.NotEqualTo,
    "Lt": iceberg.LessThan,
    "LtEq": iceberg.LessThanOrEqual,
    "Gt": iceberg.GreaterThan,
    "GtEq": iceberg.GreaterThanOrEqual,
}
_TESTED: Final[Mapping[str, type[Any]]] = {"IsNull": iceberg.IsNull, "IsNotNull": iceberg.NotNull}
_TURNED: Final[Mapping[str, str]] = {"Lt": "Gt", "LtEq": "GtEq", "Gt": "Lt", "GtEq": "LtEq"}


class Narrowable(Protocol):
    """A scan of a table, as the source needs it."""

    @property
    def table(self) -> TableName:
        """The table."""

    def narrowed(
        self, columns: tuple[str, ...] | None = None, condition: BooleanExpression | None = None
    ) -> Narrowable:
        """The same scan of some columns of its result, and of rows that also match a condition."""

    def limited(self, rows: int) -> Narrowable:
        """The same scan with at most this number of rows."""

    def to_reader(self) -> pa.RecordBatchReader:
        """A reader of the wanted rows."""


def lazy(scan: Narrowable, schema: pa.Schema) -> Any:
    """A LazyFrame of a scan.

    Args:
        scan: the scan.
        schema: the columns of its result.

    Raises:
        NotSupportedYet: Polars is not installed.
    """
    polars = frames.installed("polars")
    shown = polars.from_arrow(schema.empty_table()).schema
    source = partial(_read, scan, schema)
    return frames.installed("polars.io.plugins").register_io_source(
        source, schema=shown, explain_name="lakewarden", explain_detail=str(scan.table)
    )


def _read(
    scan: Narrowable,
    schema: pa.Schema,
    columns: list[str] | None,
    predicate: Any,
    rows: int | None,
    batch_size: int | None,
) -> Iterator[Any]:
    """Read what a query needs; the size of batches is only a hint."""
    asked = schema.names if columns is None else columns
    # The limit comes before the condition, which then leaves out rows alone.
    condition = None if predicate is None or rows is not None else pushed(predicate, schema)
    # Rows without columns have no number that a DataFrame keeps.
    scan = scan.narrowed(tuple(asked or schema.names[:1]), condition)
    scan = scan if rows is None else scan.limited(rows)
    with scan.to_reader() as reader:
        for batch in reader:
            frame = frames.to_polars(pa.Table.from_batches([batch]), str(scan.table))
            yield frame if predicate is None else frame.filter(predicate)


def pushed(predicate: Any, schema: pa.Schema) -> BooleanExpression | None:
    """A filter that keeps at least the rows for which an expression of Polars is true; None for all rows.

    Args:
        predicate: the expression.
        schema: the columns that it is about.
    """
    polars = frames.installed("polars")
    try:
        with warnings.catch_warnings():
            # The form in JSON may change; what is not known here is not pushed down.
            warnings.simplefilter("ignore")
            tree = json.loads(predicate.meta.serialize(format="json"))
    except (polars.exceptions.PolarsError, ValueError):
        return None
    return _filter(tree, schema)


def _filter(tree: Any, schema: pa.Schema) -> BooleanExpression | None:
    match tree:
        case {"BinaryExpr": {"left": left, "op": "And" | "LogicalAnd", "right": right}}:
            parts = [each for each in (_filter(left, schema), _filter(right, schema)) if each is not None]
            return iceberg.And(*parts) if len(parts) == 2 else next(iter(parts), None)
        case {"BinaryExpr": {"left": left, "op": "Or" | "LogicalOr", "right": right}}:
            first, second = _filter(left, schema), _filter(right, schema)
            return None if first is None or second is None else iceberg.Or(first, second)
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": str(op), "right": {"Literal": literal}}}:
            return _compared(name, op, literal, schema)
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": str(op), "right": {"Column": str(name)}}}:
            return _compared(name, _TURNED.get(op, op), literal, schema)
        case {"Function": {"input": [{"Column": str(name)}], "function": {"Boolean": str(test)}}}:
            known = test in _TESTED and _values(schema, name) is not None
            return _TESTED[test](name) if known else None
    return None


def _compared(name: str, op: str, literal: Any, schema: pa.Schema) -> BooleanExpression | None:
    value_of = _values(schema, name)
    value = None if value_of is None else value_of(literal)
    return _COMPARED[op](name, value) if value is not None and op in _COMPARED else None


def _values(schema: pa.Schema, name: str) -> Callable[[Any], Any] | None:
    """What takes a literal of Polars as a value of a column; None if the column is not compared.

    Floating-point numbers are left out: NaN is greater than every number in Polars, and in Iceberg not.
    """
    kind = schema.field(name).type if name in schema.names else None
    if kind is None or "." in name:
        return None
    if pa.types.is_int32(kind) or pa.types.is_int64(kind):
        return partial(_whole, bits=kind.bit_width)
    if pa.types.is_string(kind):
        return _text
    return _day if pa.types.is_date32(kind) else None


def _whole(literal: Any, bits: int) -> int | None:
    """An integer that a column of this number of bits can hold."""
    match literal:
        case {"Dyn": {"Int": int(value)}} | {"Scalar": {"Int32": int(value)} | {"Int64": int(value)}}:
            return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None
    return None


def _text(literal: Any) -> str | None:
    match literal:
        case {"Scalar": {"String": str(value)}} | {"Dyn": {"Str": str(value)}}:
            return value
    return None


def _day(literal: Any) -> str | None:
    match literal:
        case {"Scalar": {"Date": int(value)}} if _FIRST_DAY <= value <= _LAST_DAY:
            return (_EPOCH + datetime.timedelta(days=value)).isoformat()
    return None
