"""Parses the table properties that writers read, with Iceberg's defaults.

Source: Apache Iceberg documentation, "Configuration", "Write properties".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from policy.write_properties import CHOICES, LONG, NUMBERS, invalid, is_number

_FORMAT: Final = "write.format.default"
_BLOOM: Final = "write.parquet.bloom-filter"
_MEGABYTE: Final = 1 << 20
_LEVELLED: Final = ("zstd", "gzip")
_SHARE: Final = re.compile(r"[0-9]*\.?[0-9]+(?:[eE]-?[0-9]+)?")


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A bloom filter that each Parquet file has for one column.

    Attributes:
        column: dotted name.
        false_positives: share of absent values that pass, between 0 and 1.
        distinct: number of distinct values that it is made for; None if unknown.
    """

    column: str
    false_positives: float
    distinct: int | None


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """How the files of a table are written. Sizes are in bytes.

    Attributes:
        format: ``parquet`` or ``orc``.
        target_file_size: where a file is ended and another begun.
        distribution: how rows are brought together by partition: ``none``, ``hash`` or ``range``.
        fan_out: whether files of many partitions are open at a time, instead of sorting rows by partition.
        row_group_size: of Parquet's row groups, in memory.
        page_size: of data pages.
        page_rows: most rows of a data page.
        dictionary_size: of dictionary pages.
        codec: of Parquet, by Iceberg's names.
        codec_level: of compression; None for the codec's own.
        bloom_filters: of Parquet files.
        bloom_filter_size: largest bloom filter.
        orc_stripe_size: of ORC's stripes.
        orc_codec: of ORC, by Iceberg's names.
    """

    format: str
    target_file_size: int
    distribution: str
    fan_out: bool
    row_group_size: int
    page_size: int
    page_rows: int
    dictionary_size: int
    codec: str
    codec_level: int | None
    bloom_filters: tuple[BloomFilter, ...]
    bloom_filter_size: int
    orc_stripe_size: int
    orc_codec: str

    @classmethod
    def of(cls, properties: Mapping[str, str], table: str) -> Self:
        """The settings in a table's properties.

        Raises:
            PropertyInvalid: a value that no writer could follow.
        """
        read = _Reader(properties, table)
        codec = read.choice("write.parquet.compression-codec", "zstd")
        level = read.number("write.parquet.compression-level", 0)
        return cls(
            format=read.choice(_FORMAT, "parquet", among=("parquet", "orc")),
            target_file_size=read.number("write.target-file-size-bytes", 512 * _MEGABYTE),
            distribution=read.choice("write.distribution-mode", "hash"),
            fan_out=read.choice("write.spark.fanout.enabled", "false") == "true",
            row_group_size=read.number("write.parquet.row-group-size-bytes", 128 * _MEGABYTE),
            page_size=read.number("write.parquet.page-size-bytes", _MEGABYTE),
            page_rows=read.number("write.parquet.page-row-limit", 50_000),
            dictionary_size=read.number("write.parquet.dict-size-bytes", 2 * _MEGABYTE),
            codec=codec,
            codec_level=level if level and codec in _LEVELLED else None,
            bloom_filters=tuple(read.bloom_filters()),
            bloom_filter_size=read.number(f"{_BLOOM}-max-bytes", _MEGABYTE),
            orc_stripe_size=read.number("write.orc.stripe-size-bytes", 64 * _MEGABYTE),
            orc_codec=read.choice("write.orc.compression-codec", "zstd"),
        )

    def to_json(self) -> dict[str, Any]:
        """As engines get them; names have dashes (docs/plan-format.md)."""
        return asdict(self, dict_factory=_dashed)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Out of an answer of the catalog.

        Raises:
            KeyError, TypeError: not what `to_json` gives.
        """
        given = {name.replace("-", "_"): value for name, value in document.items()}
        filters = [
            BloomFilter(each["column"], each["false-positives"], each["distinct"])
            for each in given.pop("bloom_filters")
        ]
        return cls(**given, bloom_filters=tuple(filters))


class _Reader:
    """Reads the properties of one table."""

    def __init__(self, properties: Mapping[str, str], table: str) -> None:
        self._properties = properties
        self._table = table

    def choice(self, name: str, default: str, among: tuple[str, ...] | None = None) -> str:
        """One of the allowed values, in small letters."""
        value, allowed = self._properties.get(name, default), among or CHOICES[name]
        if value.lower() not in allowed:
            raise invalid(name, value, f"one of {', '.join(allowed)}", self._table)
        return value.lower()

    def number(self, name: str, default: int, largest: int = 0) -> int:
        """A whole number above 0."""
        value, largest = self._properties.get(name), largest or NUMBERS[name]
        if value is None:
            return default
        if not is_number(value, largest):
            raise invalid(name, value, f"a whole number from 1 to {largest}", self._table)
        return int(value)

    def bloom_filters(self) -> Iterator[BloomFilter]:
        """Those that are enabled."""
        enabled = f"{_BLOOM}-enabled.column."
        for name in sorted(each for each in self._properties if each.startswith(enabled)):
            column = name.removeprefix(enabled)
            if self.choice(name, "false", among=("true", "false")) == "true":
                distinct = self.number(f"{_BLOOM}-ndv.column.{column}", 0, LONG)
                yield BloomFilter(
                    column, self._share(f"{_BLOOM}-fpp.column.{column}", 0.01), distinct or None
                )

    def _share(self, name: str, default: float) -> float:
        value = self._properties.get(name)
        if value is None:
            return default
        if _SHARE.fullmatch(value.strip()) is None or not 0 < float(value) < 1:
            raise invalid(name, value, "a number between 0 and 1", self._table)
        return float(value)


def _dashed(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name.replace("_", "-"): value for name, value in fields}
