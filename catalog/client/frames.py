"""Converts rows to DataFrames without changing a value.

pandas by itself makes floating-point numbers of whole numbers where one of them is null, within lists too,
and then 2**53 + 1 is another number; and it does not tell null from NaN. It also has types in which all
stay what they are.

Text that is none is refused first: a file's writer chose its bytes, and Polars may end the process where they
are no UTF-8.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from catalog.client.errors import RESTORE, DataFileDamaged
from policy.errors import NotSupportedYet

#: What PyArrow says where pandas has no room for a value.
_NO_ROOM: Final = (ValueError, OverflowError)


def to_pandas(rows: pa.Table, table: str) -> Any:
    """A DataFrame of pandas.

    Args:
        rows: its rows.
        table: whose they are, for messages.

    Raises:
        NotSupportedYet: pandas is not installed, or has no room for a value, as for days after the year 9999;
            the columns are named.
        DataFileDamaged: values that are none of their types.
    """
    pandas = installed("pandas")
    validate(rows, table)
    own = {
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
        pa.bool_(): pandas.BooleanDtype(),
    }

    def types(kind: pa.DataType) -> Any:
        return own[kind] if kind in own else _arrow(pandas, kind)

    try:
        return rows.to_pandas(types_mapper=types)
    except _NO_ROOM as error:
        columns = [repr(name) for name in rows.column_names if _lacks_room(rows.select([name]), types)]
        raise NotSupportedYet(
            f"pandas cannot hold a value of {', '.join(columns)}: {error}.",
            table=table,
            rule="pandas-values",
            hint="Leave these columns out with scan(columns=[...]), filter out such rows, or use to_arrow().",
        ) from error


def _lacks_room(column: pa.Table, types: Callable[[pa.DataType], Any]) -> bool:
    try:
        column.to_pandas(types_mapper=types)
    except _NO_ROOM:
        return True
    return False


def _arrow(pandas: Any, kind: pa.DataType) -> Any:
    """Arrow's own type in pandas, where that has none that keeps every value; else None."""
    return pandas.ArrowDtype(kind) if pa.types.is_nested(kind) or pa.types.is_floating(kind) else None


def to_polars(rows: pa.Table, table: str) -> Any:
    """A DataFrame of Polars; see `to_pandas`.

    Raises:
        NotSupportedYet: Polars is not installed.
        DataFileDamaged: values that are none of their types.
    """
    polars = installed("polars")
    validate(rows, table)
    return polars.from_arrow(rows)


def validate(rows: pa.Table, table: str) -> None:
    """Check every value of rows.

    Raises:
        DataFileDamaged: values that are none of their types.
    """
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DataFileDamaged(
            "A data file contains values that are invalid for their column's type.",
            table=table,
            rule="column-values",
            hint=RESTORE,
        ) from error


def installed(name: str) -> Any:
    """An optional module.

    Raises:
        NotSupportedYet: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise NotSupportedYet(
            f"{package} is not installed.",
            rule="extra",
            hint=f"pip install {package}, or use to_arrow(), which needs no other package.",
        ) from error
