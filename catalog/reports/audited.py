"""Counts audit records by user, table, rule and other fields, with a time line.

- Records of the archive are counted, too, if the period reaches back to them.
- A record that counts many refusals has their number (`catalog.audit.tallies`). If it can count refusals of
  several resources, actions or rules, these are shown as `SEVERAL`, since it names one of them alone.
- Refusals of all users together are counted by action and rule, for the user `SEVERAL`.
- A record that moves to the archive meanwhile is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from catalog.audit.history import History
from catalog.audit.reading import ends
from catalog.audit.records import AuditRecord, Row, from_columns, is_refusal
from catalog.audit.tallies import counted_together, one_of_several
from catalog.base.times import from_ms, to_ms
from catalog.reports.report import Chart, Report

SEVERAL: Final = "(several)"
"""Stands for what differs among refusals that were counted together."""

#: A time line has bars of hours up to this period, else of days.
_HOURS: Final = timedelta(days=2)
#: Counts in the chart of the largest ones.
_BARS: Final = 20


def _answer(record: AuditRecord) -> str:
    return "begun" if record.begun else "allowed" if record.allowed else "refused"


FIELDS: Final[Mapping[str, Callable[[AuditRecord], str]]] = {
    "user": lambda record: record.principal,
    "engine": lambda record: record.engine or "",
    "action": lambda record: record.action,
    "table": lambda record: record.resource,
    "rule": lambda record: record.reasons[0].rule,
    "policy": lambda record: record.reasons[0].policy or "",
    "answer": _answer,
}
"""The fields of a record by which can be counted. `table` is the resource, for most actions a table."""


@dataclass(frozen=True, slots=True)
class Counting:
    """What is counted.

    Attributes:
        since: the start of the period, with a zone.
        until: its end.
        by: names of `FIELDS`.
        refused: whether only refusals count.
        top: how many rows are shown, the largest counts first.
    """

    since: datetime
    until: datetime
    by: tuple[str, ...]
    refused: bool
    top: int


@dataclass(slots=True)
class _Count:
    """How often something was decided, and when first and last."""

    decisions: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, record: AuditRecord) -> None:
        self.first_ms = min(self.first_ms, record.at_ms) if self.decisions else record.at_ms
        self.last_ms = max(self.last_ms, record.at_ms)
        self.decisions += record.decisions


@dataclass(slots=True)
class _Counts:
    """All counts of a report."""

    by_fields: dict[tuple[str, ...], _Count] = field(default_factory=dict)
    by_bar: Counter[int] = field(default_factory=Counter)


def audited_report(history: History, counting: Counting) -> Report:
    """Count the records of a period.

    Args:
        history: the audit log with its archive.
        counting: what is counted.

    Raises:
        RequestInvalid: the period reaches back to an archive that is not configured.
        MetadataTampered: the archive was changed.
        StateUnavailable, StorageUnavailable: database or storage do not answer.
    """
    counts, bar_ms = _Counts(), _barto_ms(counting)
    for record in _records(history, counting):
        key = tuple(FIELDS[name](record) for name in counting.by)
        counts.by_fields.setdefault(key, _Count()).add(record)
        counts.by_bar[record.at_ms // bar_ms] += record.decisions
    return _report(counts, counting)


def _records(history: History, counting: Counting) -> Iterator[AuditRecord]:
    since_ms, until_ms = to_ms(counting.since), to_ms(counting.until)
    seen = set[tuple[str, int]]()
    for row in history.rows_up_to(ends(history.engine), since_ms):
        if counting.refused and not is_refusal(row):
            continue
        place = str(row["writer"]), int(str(row["sequence"]))
        if place in seen or int(str(row["at_ms"])) >= until_ms:
            continue
        seen.add(place)
        yield from _split(row)


def _split(row: Row) -> Iterator[AuditRecord]:
    """The record, or what it counts of several users, each action and rule by itself."""
    record = from_columns(row)
    together = counted_together(record)
    if not together:
        yield one_of_several(record, SEVERAL)
    for each in together:
        yield replace(each, principal=SEVERAL, resource=SEVERAL)


def _report(counts: _Counts, counting: Counting) -> Report:
    ordered = sorted(counts.by_fields.items(), key=lambda each: (-each[1].decisions, each[0]))
    shown, rest = ordered[: counting.top], ordered[counting.top :]
    total = sum(count.decisions for _, count in ordered)
    rows = [(*key, count.decisions, _moment(count.first_ms), _moment(count.last_ms)) for key, count in shown]
    columns = (*counting.by, "decisions", "first", "last")
    line = _time_line(counts.by_bar, counting)
    left = {"rows": len(rest), "decisions": sum(count.decisions for _, count in rest)}
    document = {
        "since": counting.since.isoformat(),
        "until": counting.until.isoformat(),
        "refused": counting.refused,
        "decisions": total,
        "counts": [dict(zip(columns, row, strict=True)) for row in rows],
        "not-shown": left,
        "time-line": line,
    }
    what = "Refusals" if counting.refused else "Decisions"
    title = f"{what} by {', '.join(counting.by)}"
    notes = [f"{what} from {counting.since.isoformat(timespec='minutes')}: {total:,}."]
    if rest:
        notes.append(f"Not shown: {left['rows']:,} rows with {left['decisions']:,} decisions. Raise --top.")
    charts = [
        Chart(f"{what} over time (UTC)", line, over_time=True),
        Chart(title, {_label(key): count.decisions for key, count in shown[:_BARS]}),
    ]
    return Report(title, columns, rows, document, charts if total else [], notes)


def _time_line(by_bar: Mapping[int, int], counting: Counting) -> dict[str, int]:
    """The decisions of each hour or day from the first record on, also of those without any."""
    bar_ms = _barto_ms(counting)
    last = (to_ms(counting.until) - 1) // bar_ms
    first = min(by_bar, default=last)
    return {_bar_name(bar, bar_ms): by_bar.get(bar, 0) for bar in range(first, last + 1)}


def _barto_ms(counting: Counting) -> int:
    hourly = counting.until - counting.since <= _HOURS
    return int(timedelta(hours=1 if hourly else 24).total_seconds() * 1000)


def _bar_name(bar: int, bar_ms: int) -> str:
    form = "%Y-%m-%d %H:00" if bar_ms < 86_400_000 else "%Y-%m-%d"
    return from_ms(bar * bar_ms).strftime(form)


def _label(key: Sequence[str]) -> str:
    return ", ".join(each or "-" for each in key)


def _moment(at_ms: int) -> str:
    return from_ms(at_ms).isoformat(timespec="seconds")
