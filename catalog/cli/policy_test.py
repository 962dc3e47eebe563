"""`lakewarden policy test`: runs test cases against policies, before the policies are in force.

It reads only files: no settings, no database. Exit codes: 0 if every case passed; 1 if one failed, or the
cases cover too little of the policies; 2 if a file could not be run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from catalog.base.progress import counted
from catalog.cli import output
from catalog.cli.arguments import AsJson
from catalog.cli.session import on_the_host, remote_of
from policy.errors import LakewardenError

if TYPE_CHECKING:
    from catalog.base.progress import Tell
    from catalog.cli.policy_test_reports import FileRun, WholeRun
    from catalog.policy_cases.files import Loader
    from policy.testing import Coverage

FAILED: Final = 1
"""Exit code of cases that were answered in another way, or reach too little."""

BROKEN: Final = 2
"""Exit code where something could not be run."""

_MOST_MISSED: Final = 30


def test(
    ctx: typer.Context,
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="Files named *.policy-test.yaml, or directories that hold such files at any depth.",
            show_default=False,
        ),
    ],
    policies: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", help="Policies to test instead of those that the test files name."),
    ] = None,
    encryption_rules: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH", help="Encryption rules to test instead of those that the test files name."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print a line for each case.")] = False,
    min_coverage: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT", min=0, max=100, help="Fail if the cases cover less of the policies than this."
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a JUnit XML report to this file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run policy tests. Exits with 0 if every case passes, with 1 if one fails, with 2 if one cannot run."""
    from catalog.cli.policy_test_reports import WholeRun, as_document, as_junit
    from catalog.policy_cases.files import Loader
    from policy.testing import Coverage

    if remote_of(ctx) is not None:
        raise on_the_host()
    started = time.perf_counter()
    loader = Loader(policies or (), encryption_rules or ())
    files = []
    with output.progress("Running policy tests") as tell:
        for file in _runs(paths, loader, tell):
            files.append(file)
            if not as_json:
                _show_file(file, verbose=verbose)
    run = WholeRun(
        files,
        Coverage.of(file.coverage for file in files if file.coverage is not None),
        time.perf_counter() - started,
    )
    if as_json:
        output.document(as_document(run))
    else:
        _show_summary(run)
    if junit is not None:
        _write(junit, as_junit(run))
    _exit(run, min_coverage)


def _runs(paths: list[Path], loader: Loader, tell: Tell) -> Iterator[FileRun]:
    """Run each file at these paths once, in order; files that cannot be run are included."""
    from catalog.cli.policy_test_reports import FileRun
    from catalog.policy_cases.files import case_files

    seen: set[Path] = set()
    for path in paths:
        try:
            found = case_files(path)
        except LakewardenError as error:
            yield FileRun(str(path), error=str(error))
            continue
        for file in found:
            if file.resolve() not in seen:
                seen.add(file.resolve())
                yield _run(file, loader, tell)


def _run(path: Path, loader: Loader, tell: Tell) -> FileRun:
    from catalog.cli.policy_test_reports import FileRun

    try:
        suite = loader.load(path)
    except LakewardenError as error:
        return FileRun(str(path), error=str(error))
    run = FileRun(suite.file.name)
    cases = suite.file.cases
    for case in counted(cases, tell, f"{run.name}: cases", len(cases)):
        began = time.perf_counter()
        outcome = suite.run(case)
        run.timed.append((outcome, time.perf_counter() - began))
    run.coverage = suite.tested.coverage(run.outcomes)
    return run


def _show_file(file: FileRun, *, verbose: bool) -> None:
    if file.error is not None:
        output.line(f"{file.name} cannot be run", style="red")
        return
    failed = not all(outcome.passed for outcome in file.outcomes)
    marks = "".join("." if outcome.passed else "F" for outcome in file.outcomes)
    shown = "" if verbose else f" {marks}"
    output.line(f"{file.name}{shown}  {_took(file.seconds)}", style="red" if failed else "green")
    for outcome, seconds in file.timed if verbose else ():
        word, style = ("passed", "green") if outcome.passed else ("FAILED", "red")
        output.line(f"  {word}  {outcome.case.name}  {_took(seconds)}", style=style)


def _show_summary(run: WholeRun) -> None:
    from policy.testing.report import failure_lines

    for outcome in (outcome for file in run.files for outcome in file.outcomes if not outcome.passed):
        case = outcome.case
        output.line("")
        output.line(f"FAILED {case.file}:{case.line} {case.name}", style="red")
        for line in failure_lines(outcome):
            output.line(f"    {line}")
    for file in run.broken:
        output.line("")
        output.line(f"{file.error}", style="red")
    _show_missed(run.coverage)
    counts = f"{run.count(passed=True)} passed, {run.count(passed=False)} failed"
    broken = f", {len(run.broken)} not run" if run.broken else ""
    output.line(f"{counts}{broken} in {_took(run.seconds)}", style="bold")


def _show_missed(coverage: Coverage) -> None:
    missed = coverage.missed
    if missed:
        output.line("")
        output.line("No case reaches:")
    for part in missed[:_MOST_MISSED]:
        output.line(f"    {part}")
    if len(missed) > _MOST_MISSED:
        output.line(f"    and {len(missed) - _MOST_MISSED} more; --json lists all")
    reached = f"{len(coverage.reached)} of {len(coverage.parts)} parts of the policies"
    if coverage.parts:
        output.line("")
        output.line(f"reached: {reached}, {coverage.percent:.1f} %")


def _exit(run: WholeRun, min_coverage: float | None) -> None:
    if run.broken:
        raise typer.Exit(BROKEN)
    if run.count(passed=False):
        raise typer.Exit(FAILED)
    if min_coverage is not None and run.coverage.percent < min_coverage:
        output.note(
            f"The cases cover {run.coverage.percent:.1f} % of the policies, less than "
            f"{min_coverage:g} %. Add cases for the parts listed above."
        )
        raise typer.Exit(FAILED)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise typer.BadParameter(f"--junit: {path} cannot be written: {error.strerror}") from error


def _took(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
