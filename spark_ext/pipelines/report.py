"""The report of a run: for people as a table and a page with charts, for programs as JSON and SARIF."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

from catalog.cli import output
from policy.errors import RequestInvalid
from spark_ext.pipelines.items import Finding, Item, Outcome, Rule, Severity, Status
from spark_ext.pipelines.page import page
from spark_ext.pipelines.sarif import sarif

#: Lines of a summary for people, of items and of findings.
_MOST_LINES: Final = 50
#: Ends of names of files.
_FORMS: Final = (".html", ".sarif", ".json")
_WORST_FIRST: Final = tuple(Severity)


class RunState(StrEnum):
    """How a run stands.

    - COMPLETE: all items are done.
    - INCOMPLETE: some are left or failed. Another run with the same parameters goes on with them.
    - PLANNED: a dry run.
    """

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did, found and left.

    Attributes:
        pipeline: its name.
        rules: the rules that it knows.
        state: how the run stands.
        run_id: names the run in `lakewarden_ops.runs`; None for a dry run, and where nothing is recorded.
        reason: why the run ended before the last group; None if it did not.
        continued: whether an earlier process began the run.
        seconds: how long this process took.
        outcomes: one for each item. Findings are in `findings` alone.
        findings: what was found by the whole run, the worst first; at most 20,000.
        found: the number of all findings by rule.
        planned: the items of a dry run.
    """

    pipeline: str
    rules: tuple[Rule, ...]
    state: RunState
    run_id: str | None = None
    reason: str | None = None
    continued: bool = False
    seconds: float = 0.0
    outcomes: tuple[Outcome, ...] = ()
    findings: tuple[Finding, ...] = ()
    found: Mapping[str, int] = field(default_factory=dict)
    planned: tuple[Item, ...] = ()

    @classmethod
    def of_plan(cls, pipeline: str, rules: Iterable[Rule], items: Iterable[Item]) -> Self:
        """Report the items of a dry run."""
        return cls(pipeline, tuple(rules), RunState.PLANNED, planned=tuple(items))

    @property
    def items(self) -> dict[str, int]:
        """Items by what became of them."""
        if self.state is RunState.PLANNED:
            return {"planned": len(self.planned)}
        counted = Counter(each.status for each in self.outcomes)
        return {str(each): counted[each] for each in Status}

    @property
    def counts(self) -> dict[str, int]:
        """Amounts by name, summed over the items."""
        summed: Counter[str] = Counter()
        for each in self.outcomes:
            summed.update(each.counts)
        if self.state is RunState.PLANNED:
            summed.update(files=sum(each.files for each in self.planned))
            summed.update(bytes=sum(each.bytes for each in self.planned))
        return dict(sorted(summed.items()))

    @property
    def severities(self) -> dict[str, int]:
        """Findings by severity, the worst first."""
        of_rule = {rule.id: rule.severity for rule in self.rules}
        counted: Counter[Severity] = Counter()
        for rule, number in self.found.items():
            counted[of_rule.get(rule, Severity.ERROR)] += number
        return {str(each): counted[each] for each in _WORST_FIRST}

    @property
    def not_done(self) -> list[Outcome]:
        """The items that failed or are left, with the reasons."""
        return [each for each in self.outcomes if each.status is not Status.DONE]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "pipeline": self.pipeline,
            "run-id": self.run_id,
            "state": str(self.state),
            "reason": self.reason,
            "continued": self.continued,
            "seconds": round(self.seconds, 3),
            "items": self.items,
            "counts": self.counts,
            "findings-by-rule": dict(self.found),
            "findings": [asdict(each) for each in self.findings],
            "findings-left-out": self.left_out,
            "not-done": [_not_done(each) for each in self.not_done],
            "planned": [_planned(each) for each in self.planned],
        }

    @property
    def left_out(self) -> int:
        """Findings that are in the tables and not in this report."""
        return sum(self.found.values()) - len(self.findings)

    def to_json(self) -> str:
        """Return the report as a JSON document."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def to_sarif(self) -> str:
        """Return the findings as a SARIF 2.1.0 log."""
        return json.dumps(sarif(self.pipeline, self.rules, self.findings), indent=2, ensure_ascii=False)

    def to_html(self) -> str:
        """Return the report as one page, which loads nothing."""
        rules = {
            each.id: {"severity": str(each.severity), "title": each.title, "hint": each.hint}
            for each in self.rules
        }
        return page(self.to_dict(), rules)

    def write(self, path: str | Path) -> Path:
        """Write the report to a file: as HTML, SARIF or JSON, by the end of its name.

        A file that is there is replaced as a whole, or stays as it is.

        Raises:
            RequestInvalid: the name ends otherwise, or the file cannot be written.
        """
        path = require_writable(path)
        text = {".html": self.to_html, ".sarif": self.to_sarif, ".json": self.to_json}[path.suffix]()
        beside = path.with_name(f".{path.name}.{uuid4().hex}")
        try:
            # Names that are not Unicode are written as the escapes of JSON.
            beside.write_bytes(text.encode("utf-8", "backslashreplace"))
            beside.replace(path)
        except OSError as error:
            raise _not_writable(path, f"cannot be written: {error.strerror}") from error
        finally:
            beside.unlink(missing_ok=True)
        return path

    def show(self) -> None:
        """Print a summary."""
        if self.state is RunState.PLANNED:
            planned = self.planned[:_MOST_LINES]
            shown = [(each.table, each.key, each.files, each.bytes, each.why) for each in planned]
            output.rows(("table", "item", "files", "bytes", "why"), shown)
        if self.findings:
            output.rows(
                ("severity", "rule", "table", "place", "message"), _lines(self.findings[:_MOST_LINES])
            )
        if self.not_done:
            rows = [(each.table, each.item, each.status, each.reason) for each in self.not_done[:_MOST_LINES]]
            output.rows(("table", "item", "status", "reason"), rows)
        output.line(self.summary)

    @property
    def summary(self) -> str:
        """One paragraph about the run."""
        items = ", ".join(f"{number:,} {name}" for name, number in self.items.items())
        counts = ", ".join(f"{number:,} {name}" for name, number in self.counts.items() if number)
        found = ", ".join(f"{number:,} {name}s" for name, number in self.severities.items() if number)
        sentences = [f"{self.pipeline}: {self.state}. Items: {items}."]
        if counts:
            sentences.append(f"Counted: {counts}.")
        if self.state is not RunState.PLANNED:
            sentences.append(f"Findings: {found or 'none'}.")
        if self.reason:
            sentences.append(f"The run ended early: {self.reason}")
        if self.state is RunState.INCOMPLETE:
            sentences.append("Run it again with the same parameters to continue.")
        return " ".join(sentences)


def require_writable(path: str | Path) -> Path:
    """Check that a report can be written to a file, before a long run.

    Raises:
        RequestInvalid: its name does not say which form the report has, or it cannot be written there.
    """
    path = Path(path)
    if path.suffix not in _FORMS:
        raise _not_writable(path, "does not say which form the report has")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK) or path.is_dir():
        raise _not_writable(path, "cannot be written")
    return path


def _not_writable(path: Path, problem: str) -> RequestInvalid:
    return RequestInvalid(
        f"{str(path)!r:.200} {problem}.",
        rule="report-file",
        hint="Name a file in a directory that exists, and let the name end in .html, .sarif or .json.",
    )


def _lines(findings: Sequence[Finding]) -> list[tuple[object, ...]]:
    return [(each.severity, each.rule, each.table, place(each), each.message) for each in findings]


def place(each: Finding) -> str:
    """Return where something was found, in its table."""
    parts = (each.ref, each.snapshot, each.column, each.path)
    return " ".join(str(part) for part in parts if part is not None)


def _not_done(each: Outcome) -> dict[str, Any]:
    return {"item": each.item, "table": each.table, "status": str(each.status), "reason": each.reason}


def _planned(each: Item) -> dict[str, Any]:
    return {"item": each.key, "table": each.table, "files": each.files, "bytes": each.bytes, "why": each.why}
