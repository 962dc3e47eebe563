"""Rows as DataFrames: every value is the one that the table has.

pandas by itself makes floating-point numbers of whole numbers where one of them is null, within lists too,
and then 2**53 + 1 is another number. It also has types in which they stay what they are.
"""

from __future__ import annotations

import importlib
from typing import Any

import pyarrow as pa

from policy.errors import NotSupportedYet


def to_pandas(rows: pa.Table) -> Any:
    """A DataFrame of pandas.

    Raises:
        NotSupportedYet: pandas is not installed.
    """
    pandas = _installed("pandas")
    own = {
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
        pa.bool_(): pandas.BooleanDtype(),
    }
    return rows.to_pandas(
        types_mapper=lambda kind: pandas.ArrowDtype(kind) if pa.types.is_nested(kind) else own.get(kind)
    )


def to_polars(rows: pa.Table) -> Any:
    """A DataFrame of Polars.

    Raises:
        NotSupportedYet: Polars is not installed.
    """
    return _installed("polars").from_arrow(rows)


def _installed(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NotSupportedYet(
            f"{name} is not installed.",
            rule="extra",
            hint=f"pip install {name}; to_arrow() needs nothing more.",
        ) from error
