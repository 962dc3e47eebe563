"""Parses the table properties that writers read, with Iceberg's defaults.

Source: Apache Iceberg documentation, "Configuration", "Write properties".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from policy.write_properties import CHOICES, LONG, NUMBERS, invalid, is_number

_BLOOM: Final = "write.parquet.bloom-filter"
_MEGABYTE: Final = 1 << 20
_LEVELLED: Final = ("zstd", "gzip")
_FLAG: Final = ("true", "false")
_SHARE: Final = re.compile(r"[0-9]*\.?[0-9]+(?:[eE]-?[0-9]+)?")


def write_settings(properties: Mapping[str, str], table: str, *, ordered: bool = False) -> dict[str, Any]:
    """How the files of a table are written, as engines get it (docs/plan-format.md, "Write settings").

    Args:
        properties: the table's.
        table: dotted name, for errors.
        ordered: whether the table has a sort order.

    Raises:
        PropertyInvalid: a value that no writer could follow.
    """
    read = _Reader(properties, table)
    codec = read.choice("write.parquet.compression-codec", "zstd")
    level = read.number("write.parquet.compression-level", None)
    return {
        "format": read.choice("write.format.default", "parquet", ("parquet", "orc")),
        "target-file-size": read.number("write.target-file-size-bytes", 512 * _MEGABYTE),
        "distribution": read.choice("write.distribution-mode", "range" if ordered else "hash"),
        "fan-out": read.choice("write.spark.fanout.enabled", "false") == "true",
        "row-group-size": read.number("write.parquet.row-group-size-bytes", 128 * _MEGABYTE),
        "page-size": read.number("write.parquet.page-size-bytes", _MEGABYTE),
        "page-rows": read.number("write.parquet.page-row-limit", 50_000),
        "dictionary-size": read.number("write.parquet.dict-size-bytes", 2 * _MEGABYTE),
        "codec": codec,
        "codec-level": level if codec in _LEVELLED else None,
        "bloom-filters": list(read.bloom_filters()),
        "bloom-filter-size": read.number(f"{_BLOOM}-max-bytes", _MEGABYTE),
        "orc-stripe-size": read.number("write.orc.stripe-size-bytes", 64 * _MEGABYTE),
        "orc-codec": read.choice("write.orc.compression-codec", "zstd"),
    }


def delete_settings(properties: Mapping[str, str], table: str) -> dict[str, str]:
    """How position delete files are written: `format` and `granularity`.

    Raises:
        PropertyInvalid: a value that no writer could follow.
    """
    read = _Reader(properties, table)
    data = read.choice("write.format.default", "parquet", ("parquet", "orc", "avro"))
    return {
        "format": read.choice("write.delete.format.default", data),
        "granularity": read.choice("write.delete.granularity", "file"),
    }


class _Reader:
    """Reads the properties of one table."""

    def __init__(self, properties: Mapping[str, str], table: str) -> None:
        self._properties = properties
        self._table = table

    def choice(self, name: str, default: str, among: tuple[str, ...] = ()) -> str:
        """One of the allowed values, in small letters."""
        value, allowed = self._properties.get(name, default), among or CHOICES[name]
        if value.lower() not in allowed:
            raise invalid(name, value, f"one of {', '.join(allowed)}", self._table)
        return value.lower()

    def number(self, name: str, default: int | None, largest: int = 0) -> int | None:
        """A whole number above 0."""
        value, largest = self._properties.get(name), largest or NUMBERS[name]
        if value is None:
            return default
        if not is_number(value, largest):
            raise invalid(name, value, f"a whole number from 1 to {largest}", self._table)
        return int(value)

    def bloom_filters(self) -> Iterator[dict[str, Any]]:
        """Those that are enabled."""
        enabled = f"{_BLOOM}-enabled.column."
        for name in sorted(each for each in self._properties if each.startswith(enabled)):
            column = name.removeprefix(enabled)
            if self.choice(name, "false", _FLAG) == "true":
                share = self._share(f"{_BLOOM}-fpp.column.{column}", "0.01")
                distinct = self.number(f"{_BLOOM}-ndv.column.{column}", None, LONG)
                yield {"column": column, "false-positives": share, "distinct": distinct}

    def _share(self, name: str, default: str) -> float:
        value = self._properties.get(name, default)
        if _SHARE.fullmatch(value.strip()) is None or not 0 < float(value) < 1:
            raise invalid(name, value, "a number between 0 and 1", self._table)
        return float(value)
