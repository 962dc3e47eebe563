"""Write settings from the table properties of Iceberg's writers.

Source: Iceberg documentation, "Configuration", "Write properties".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from policy.errors import NotSupportedYet, PropertyInvalid

_MEGABYTE: Final = 1 << 20
#: Most rows of a row group, as PyArrow has it.
ROW_GROUP_ROWS: Final = 1 << 20
_CODECS: Final = {
    "zstd": "zstd",
    "snappy": "snappy",
    "gzip": "gzip",
    "lz4_raw": "lz4",
    "uncompressed": "none",
}
_LEVELLED: Final = frozenset({"zstd", "gzip"})


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Sizes are in bytes.

    Attributes:
        target_file_size: where a file is ended and another begun.
        row_group_size: of row groups, in memory.
        row_group_rows: most rows of a row group.
        page_size: of data pages.
        page_rows: most rows of a data page.
        dictionary_size: of dictionary pages.
        codec: as PyArrow names it.
        codec_level: of compression; None for the codec's own.
    """

    target_file_size: int
    row_group_size: int
    row_group_rows: int
    page_size: int
    page_rows: int
    dictionary_size: int
    codec: str
    codec_level: int | None

    @classmethod
    def of(cls, properties: Mapping[str, str], table: str) -> WriteSettings:
        """The settings in a table's properties.

        Raises:
            PropertyInvalid: a value without a meaning.
            NotSupportedYet: the table is not to be written in Parquet.
        """
        found = properties.get("write.format.default", "parquet")
        if found.lower() != "parquet":
            raise NotSupportedYet(
                f"Files in the format {found} cannot be written without Spark.",
                table=table,
                rule="file-format",
                hint="Write to the table with Spark, or set its property write.format.default to parquet.",
            )
        codec = properties.get("write.parquet.compression-codec", "zstd").lower()
        if codec not in _CODECS:
            raise _invalid("write.parquet.compression-codec", codec, f"one of {', '.join(_CODECS)}", table)
        level = "write.parquet.compression-level"
        return cls(
            target_file_size=_number(properties, "write.target-file-size-bytes", 512 * _MEGABYTE, table),
            row_group_size=_number(properties, "write.parquet.row-group-size-bytes", 128 * _MEGABYTE, table),
            row_group_rows=ROW_GROUP_ROWS,
            page_size=_number(properties, "write.parquet.page-size-bytes", _MEGABYTE, table),
            page_rows=_number(properties, "write.parquet.page-row-limit", 50_000, table),
            dictionary_size=_number(properties, "write.parquet.dict-size-bytes", 2 * _MEGABYTE, table),
            codec=_CODECS[codec],
            codec_level=_number(properties, level, 3, table)
            if codec in _LEVELLED and level in properties
            else None,
        )

    def parquet(self) -> dict[str, Any]:
        """As PyArrow's writer takes them."""
        return {
            "compression": self.codec,
            "compression_level": self.codec_level,
            "data_page_size": self.page_size,
            "max_rows_per_page": self.page_rows,
            "dictionary_pagesize_limit": self.dictionary_size,
        }


def _number(properties: Mapping[str, str], name: str, default: int, table: str) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if not (text.strip().isascii() and text.strip().isdigit()) or not 0 < int(text) < 2**31:
        raise _invalid(name, text, "a whole number above 0", table)
    return int(text)


def _invalid(name: str, value: str, expected: str, table: str) -> PropertyInvalid:
    return PropertyInvalid(
        f"The table property {name} is {value!r}. It must be {expected}.",
        table=table,
        rule="write-settings",
        hint=f"Run ALTER TABLE … SET TBLPROPERTIES ('{name}' = …).",
    )
