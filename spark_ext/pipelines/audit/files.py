"""Opens data and delete files as far as that is possible without their keys (`footers`).

A share of the files is read whole, and compared with the digest in its key metadata, where there is one. What
is inside of encrypted footers and pages needs keys: `verified` reads it through the guarded reader.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pyarrow as pa

from catalog.storage.errors import ObjectMissing
from policy.errors import DecryptionRefused, LocationNotAllowed, StorageUnavailable
from policy.location.location import Location
from spark_ext.pipelines.audit import rules
from spark_ext.pipelines.audit.file_ends import FileEnd, ListedFile, Problem
from spark_ext.pipelines.audit.footers import (
    FILE_COLUMNS,
    STATISTICS_COLUMNS,
    check_digest,
    check_footer,
    listed_file,
)
from spark_ext.pipelines.audit.options import Looking, chosen
from spark_ext.pipelines.audit.parquet_schemas import TableColumns
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.slices import Slice

_THREADS: Final = 16
_AT_ONCE: Final = 1_000
#: The rule of an error that concerns one object, and not the storage as a whole (`catalog.storage.errors`).
_DENIED: Final = "storage-access"


class FileCheck:
    """Checks the files of a slice.

    Args:
        looking: which files.
        part: the slice.
    """

    def __init__(self, looking: Looking, part: Slice) -> None:
        self._looking = looking
        self._uuid = part.facts.uuid
        self._columns = TableColumns.of(part.schemas[::-1])

    def check(self, files: pa.Table, statistics: pa.Table, found: Partial) -> None:
        """Open the chosen ones of these files, and add what is wrong with them.

        Raises:
            StorageUnavailable: the storage does not answer.
        """
        share = max(self._looking.footers, self._looking.verify)
        if share <= 0:
            return
        mine = [chosen(path, share) for path in files["file_path"].to_pylist()]
        keep = pa.array(mine, pa.bool_())
        files = files.select(FILE_COLUMNS).filter(keep)
        statistics = statistics.select(STATISTICS_COLUMNS).filter(keep)
        for start in range(0, files.num_rows, _AT_ONCE):
            rows = [
                {**file, **told}
                for file, told in zip(
                    files.slice(start, _AT_ONCE).to_pylist(),
                    statistics.slice(start, _AT_ONCE).to_pylist(),
                    strict=True,
                )
            ]
            self._check(rows, found)

    def _check(self, rows: list[dict[str, Any]], found: Partial) -> None:
        with ThreadPoolExecutor(_THREADS) as pool:
            for row, problems in zip(rows, pool.map(self._problems, rows), strict=True):
                found.counts["opened"] += 1
                for rule, text, column in problems:
                    found.add(rule, text, path=row["file_path"], column=column)

    def _problems(self, row: dict[str, Any]) -> list[Problem]:
        """Open one file. What is missing, or of another size, is found by the listing.

        Raises:
            StorageUnavailable: the storage does not answer.
        """
        try:
            file = listed_file(row)
            with self._looking.storage.open_input(Location.parse(file.path)) as stream:
                return self._opened(file, FileEnd(stream))
        except StorageUnavailable as error:
            if error.rule != _DENIED:
                raise
            return [Problem(rules.UNOPENED_FILE, error.message)]
        except (ObjectMissing, LocationNotAllowed, DecryptionRefused):
            # Malformed key metadata is found with the entries.
            return []

    def _opened(self, file: ListedFile, end: FileEnd) -> list[Problem]:
        if end.size != file.size:
            return []
        problems: list[Problem] = []
        if chosen(file.path, self._looking.footers):
            problems += check_footer(file, end, self._columns, self._uuid)
        if chosen(file.path, self._looking.verify):
            problems += check_digest(file, end)
        return problems
