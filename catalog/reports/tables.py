"""Reports the tables of the catalog: owner, format and whether new files are encrypted."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from catalog.base.identifiers import TableName
from catalog.maintenance.lake import Standing
from catalog.reading.loading import LoadedTable
from catalog.reports.many_tables import Advance, of_each, silently
from catalog.reports.report import Chart, Report
from catalog.service.services import Services
from policy.encryption.file_formats import written_format
from policy.errors import LakewardenError

_COLUMNS: Final = ("table", "owner", "format", "encryption", "standing", "problem")


def tables_report(services: Services, advance: Advance = silently) -> Report:
    """Report all tables, sorted by name, also those that only the pointer store knows.

    Args:
        services: the open catalog.
        advance: is told how many tables are done.

    Raises:
        StateUnavailable: the database does not answer.
    """
    listed = dict(services.lake.names())
    tables = [
        _table(name, listed[name], found)
        for name, found in of_each(list(listed), services.loader.load, advance)
    ]
    amounts = Counter(str(each["encryption"] or "unknown") for each in tables)
    rows = [tuple(each[name] for name in _COLUMNS) for each in tables]
    return Report("Tables", _COLUMNS, rows, {"tables": tables}, [Chart("Tables by encryption", amounts)])


def format_of(table: LoadedTable) -> str | None:
    """Return the format of a table's new files; None for one that nobody here knows."""
    spec = table.governed.spec
    found = spec.file_format if spec.encrypts else written_format(table.metadata.properties)
    return None if found is None else found.value


def _table(name: TableName, standing: Standing, found: LoadedTable | LakewardenError) -> dict[str, Any]:
    table = None if isinstance(found, LakewardenError) else found
    return {
        "table": str(name),
        "owner": None if table is None else table.record.owner,
        "format": None if table is None else format_of(table),
        "encryption": None if table is None else table.governed.spec.mechanism.value,
        "standing": standing.value,
        "problem": str(found) if table is None else None,
    }
