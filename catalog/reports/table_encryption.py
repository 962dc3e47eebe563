"""Reports how each table is encrypted: epoch, keys, files of earlier epochs, and the encryption rules.

- Files of earlier epochs are counted as by `table epochs`, at the heads of all branches and in retained
  snapshots. The manifests of a table that was never encrypted are not read.
- An epoch began when the oldest of the governed versions was made that encrypt new files as the present one
  does, without a version in between that does not. Versions of keys do not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from catalog.base.identifiers import TableName
from catalog.db.engine import read
from catalog.maintenance.lake import KeyStanding, TableInLake
from catalog.maintenance.old_epochs import EpochReport, epochs_of
from catalog.reports.many_tables import Advance, of_each, silently
from catalog.reports.report import Chart, Report
from catalog.reports.tables import format_of
from catalog.service.services import Services
from catalog.state import lake_rows
from catalog.state.table_state import Governed
from policy.encryption.epochs import kind
from policy.errors import LakewardenError

_COLUMNS: Final = (
    *("table", "owner", "format", "encryption", "since", "keys"),
    *("old files", "of them plaintext", "snapshots with old files", "old epochs", "rules", "problem"),
)
#: Tables whose state is read at a time.
_PAGE: Final = 250
#: Tables in the chart of old files.
_BARS: Final = 20


@dataclass(frozen=True, slots=True)
class _Files:
    """What the files of a table say.

    Attributes:
        format: the format of new files.
        epochs: the files by epoch; None for a table that was never encrypted.
    """

    format: str | None
    epochs: EpochReport | None


def encryption_report(services: Services, advance: Advance = silently) -> Report:
    """Report how each table is encrypted, sorted by name.

    Args:
        services: the open catalog.
        advance: is told how many tables are done.

    Raises:
        StateUnavailable: the database does not answer.
    """
    names = [name for name, _ in services.lake.names()]
    judged = bool(services.policies.encryption().rules)
    tables: list[dict[str, Any]] = []
    for start in range(0, len(names), _PAGE):
        states = services.lake.states(names[start : start + _PAGE]).tables
        began = _began(services, states)
        done = start

        def shown(count: int, _total: int, done: int = done) -> None:
            advance(done + count, len(names))

        for state, found in of_each(states, lambda each: _files(services, each.name), shown):
            since = None if state.record is None else began.get(state.record.id)
            tables.append(_table(state, found, since, judged=judged))
    return _report(tables)


def _files(services: Services, name: TableName) -> _Files:
    table = services.loader.load_sealed(name)
    encrypted = table.governed.ever_encrypted
    return _Files(format_of(table), epochs_of(services.reader, table) if encrypted else None)


def _began(services: Services, states: Sequence[TableInLake]) -> dict[str, int]:
    """Return when the present epochs of tables began, in milliseconds since 1970, by internal id."""
    ids = [each.record.id for each in states if each.record is not None]
    with read(services.engine) as connection:
        versions = lake_rows.governed_versions(connection, ids)
    return {table_id: began(each) for table_id, each in versions.items()}


def began(versions: Sequence[tuple[int, Governed]]) -> int:
    """Return since when new files are encrypted as the last version says.

    Args:
        versions: what governed a table, oldest first, with times in milliseconds since 1970.
    """
    since, last = versions[-1]
    present = kind(last.epochs.current)
    for made, governed in reversed(versions):
        if kind(governed.epochs.current) != present:
            break
        since = made
    return since


def _table(
    state: TableInLake, found: _Files | LakewardenError, since: int | None, *, judged: bool
) -> dict[str, Any]:
    record, governed = state.record, state.governed
    files = None if isinstance(found, LakewardenError) else found
    problem = str(found) if isinstance(found, LakewardenError) else state.problem
    return {
        "table": str(state.name),
        "standing": state.standing.value,
        "owner": None if record is None else record.owner,
        "format": None if files is None else files.format,
        "encryption": None if governed is None else governed.spec.mechanism.value,
        "epochs": None if governed is None else len(governed.epochs.entries),
        "from-sequence-number": None if governed is None else governed.epochs.current.from_sequence_number,
        "since": _moment(since),
        "keys": [_key(each) for each in state.keys],
        **_old(files),
        "rules": _rules(state, judged=judged),
        "violations": state.violations,
        "problem": problem,
    }


def _key(key: KeyStanding) -> dict[str, Any]:
    return {
        "id": str(key.record.id),
        "version": key.record.version,
        "master-key-id": key.record.master_key_id,
        "state": key.record.state.value,
        "in-force": key.in_force,
    }


def _old(files: _Files | None) -> dict[str, Any]:
    """Count files of earlier epochs; nulls if that is not known, or the table was never encrypted."""
    epochs = None if files is None else files.epochs
    if epochs is None:
        names = ("old-files", "old-plaintext-files", "snapshots-with-old-files", "old-epochs-forbidden")
        return dict.fromkeys(names)
    return {
        "old-files": sum(each.old_files for each in epochs.branches),
        "old-plaintext-files": sum(
            each.old_files for each in epochs.branches if not each.epoch.spec.encrypts
        ),
        "snapshots-with-old-files": len(epochs.snapshots),
        "old-epochs-forbidden": epochs.forbidden,
    }


def _rules(state: TableInLake, *, judged: bool) -> str | None:
    """Return whether the encryption rules in force are satisfied; None if there are none."""
    if not judged or state.governed is None:
        return None
    if state.problem is not None:
        return "unknown"
    return "broken" if state.violations else "satisfied"


def _report(tables: list[dict[str, Any]]) -> Report:
    notes = [
        "Old files are those whose encryption differs from the current epoch, at the heads of all branches. "
        "A file on two branches counts twice."
    ]
    if not any(each["rules"] for each in tables):
        notes.append("There are no encryption rules in force, so no table breaks one.")
    left = sorted((each for each in tables if each["old-files"]), key=lambda each: -each["old-files"])
    old = {each["table"]: each["old-files"] for each in left[:_BARS]}
    charts = [
        Chart("Tables by encryption", Counter(each["encryption"] or "unknown" for each in tables)),
        Chart("Tables with the most old files", old),
        Chart("Tables by encryption rules", Counter(each["rules"] for each in tables if each["rules"])),
    ]
    return Report(
        "Encryption of tables",
        _COLUMNS,
        [_row(each) for each in tables],
        {"tables": tables},
        [each for each in charts if each.amounts],
        notes,
    )


def _row(table: dict[str, Any]) -> tuple[Any, ...]:
    forbidden = table["old-epochs-forbidden"]
    return (
        table["table"],
        table["owner"],
        table["format"],
        table["encryption"],
        table["since"],
        [
            f"{each['master-key-id']}: {each['id']} version {each['version']} {each['state']}"
            for each in table["keys"]
            if each["in-force"]
        ],
        table["old-files"],
        table["old-plaintext-files"],
        table["snapshots-with-old-files"],
        None if forbidden is None else "forbidden" if forbidden else "permitted",
        ", ".join([table["rules"], *table["violations"]]) if table["rules"] else None,
        table["problem"],
    )


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
