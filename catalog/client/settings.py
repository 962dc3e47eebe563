"""How the catalog wants Parquet files, as PyArrow's writer takes it.

Source: docs/plan-format.md, "Write settings".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from catalog.client.errors import not_the_catalog, refusal
from policy.errors import NotSupportedYet

#: Most rows of a row group, as PyArrow has it.
ROW_GROUP_ROWS: Final = 1 << 20
#: PyArrow's names of codecs, where they are not Iceberg's.
_CODECS: Final = {"lz4_raw": "lz4", "uncompressed": "none"}


@dataclass(frozen=True, slots=True)
class ParquetSettings:
    """Sizes are in bytes.

    Attributes:
        target_file_size: where a file is ended and another begun.
        row_group_size: of row groups, in memory.
        row_group_rows: most rows of a row group.
        options: of PyArrow's writer.
    """

    target_file_size: int
    row_group_size: int
    row_group_rows: int
    options: Mapping[str, Any]

    @classmethod
    def of(cls, document: Mapping[str, Any], table: str) -> Self:
        """Out of the catalog's answer.

        Raises:
            PropertyInvalid: the table has a property that no writer could follow.
            NotSupportedYet: the table is not to be written in Parquet.
            CatalogUnavailable: what answers is not a catalog of this version.
        """
        if "error" in document:
            raise refusal(400, document)
        try:
            codec = document["codec"]
            options = {
                "compression": _CODECS.get(codec, codec),
                "compression_level": document["codec-level"],
                "data_page_size": document["page-size"],
                "max_rows_per_page": document["page-rows"],
                "dictionary_pagesize_limit": document["dictionary-size"],
            }
            found = cls(document["target-file-size"], document["row-group-size"], ROW_GROUP_ROWS, options)
            written = document["format"]
        except KeyError as error:
            raise not_the_catalog("not the write settings of a table") from error
        if written != "parquet":
            raise NotSupportedYet(
                f"Files in the format {written} cannot be written without Spark.",
                table=table,
                rule="file-format",
                hint="Write to the table with Spark, or set its property write.format.default to parquet.",
            )
        return found
