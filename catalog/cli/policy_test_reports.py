"""Results of policy tests, and reports of them for programs: as JSON, and in JUnit's XML."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final
from xml.etree import ElementTree

from catalog.base.clean_text import clean
from policy.testing import Coverage, Outcome
from policy.testing.report import failure_lines

_LONGEST: Final = 8_000


@dataclass
class FileRun:
    """The result of a file of cases.

    Attributes:
        name: the file.
        timed: the outcome of each case, and its duration in seconds.
        coverage: the parts of the policies that its cases cover; None if it could not be run.
        error: the reason why it could not be run.
    """

    name: str
    timed: list[tuple[Outcome, float]] = field(default_factory=list)
    coverage: Coverage | None = None
    error: str | None = None

    @property
    def outcomes(self) -> list[Outcome]:
        """Return the outcome of each case."""
        return [outcome for outcome, _ in self.timed]

    @property
    def seconds(self) -> float:
        """Return the duration of its cases."""
        return sum(seconds for _, seconds in self.timed)


@dataclass(frozen=True)
class WholeRun:
    """The results of all files.

    Attributes:
        files: the files.
        coverage: the parts of the policies that all cases cover together.
        seconds: the duration, including reading.
    """

    files: list[FileRun]
    coverage: Coverage
    seconds: float

    def count(self, *, passed: bool) -> int:
        """Return how many cases passed, or failed."""
        return sum(outcome.passed is passed for each in self.files for outcome in each.outcomes)

    @property
    def broken(self) -> list[FileRun]:
        """Return the files that could not be run."""
        return [each for each in self.files if each.error is not None]


def as_document(run: WholeRun) -> dict[str, Any]:
    """Return the whole run as a document, for `--json`."""
    return {
        "passed": run.count(passed=True),
        "failed": run.count(passed=False),
        "not-run": len(run.broken),
        "seconds": run.seconds,
        "files": [_file(each) for each in run.files],
        "coverage": _coverage(run.coverage),
    }


def as_junit(run: WholeRun) -> bytes:
    """Return the run in JUnit's format: one suite per file, one case per case."""
    top = ElementTree.Element("testsuites")
    for file in run.files:
        failed = sum(not outcome.passed for outcome in file.outcomes)
        suite = ElementTree.SubElement(
            top,
            "testsuite",
            name=_shown(file.name),
            tests=str(len(file.timed)),
            failures=str(failed),
            errors=str(int(file.error is not None)),
            time=f"{file.seconds:.6f}",
        )
        for outcome, seconds in file.timed:
            _junit_case(suite, file, outcome, seconds)
        if file.error is not None:
            case = ElementTree.SubElement(suite, "testcase", classname=_shown(file.name), name="file")
            ElementTree.SubElement(case, "error", message=_shown(file.error))
    written: bytes = ElementTree.tostring(top, encoding="utf-8", xml_declaration=True)
    return written


def _junit_case(suite: ElementTree.Element, file: FileRun, outcome: Outcome, seconds: float) -> None:
    case = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_shown(file.name),
        name=_shown(outcome.case.name),
        file=_shown(outcome.case.file),
        line=str(outcome.case.line),
        time=f"{seconds:.6f}",
    )
    if not outcome.passed:
        failure = ElementTree.SubElement(case, "failure", message=_shown(" ".join(outcome.problems)))
        failure.text = "\n".join(map(_shown, failure_lines(outcome)))


def _file(file: FileRun) -> dict[str, Any]:
    return {
        "file": file.name,
        "error": file.error,
        "seconds": file.seconds,
        "cases": [_case(outcome, seconds) for outcome, seconds in file.timed],
    }


def _case(outcome: Outcome, seconds: float) -> dict[str, Any]:
    decision, explanation = outcome.decision, outcome.explanation
    return {
        "name": outcome.case.name,
        "line": outcome.case.line,
        "passed": outcome.passed,
        "problems": outcome.problems,
        "allowed": None if decision is None else decision.allowed,
        "reasons": [] if decision is None else [asdict(each) for each in decision.reasons],
        "mask": None if outcome.mask is None else asdict(outcome.mask),
        "changes": [] if explanation is None else [asdict(each) for each in explanation.changes],
        "seconds": seconds,
    }


def _coverage(coverage: Coverage) -> dict[str, Any]:
    return {
        "percent": coverage.percent,
        "reached": len(coverage.reached),
        "parts": len(coverage.parts),
        "missed": [
            {"document": part.document, "policy": part.policy, "item": part.item or None}
            for part in coverage.missed
        ],
    }


def _shown(text: str) -> str:
    """Return a text without characters that XML does not allow, and without secrets."""
    return clean(text, _LONGEST)
