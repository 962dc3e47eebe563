"""`lakewarden policy import`: takes over policies, roles, tags and users that Ranger exported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser
from catalog.cli.policy_store import DryRun, Force, change_all, edit_of, listed, show, unusable
from catalog.policy_store.kinds import Kind
from policy.errors import RequestInvalid

if TYPE_CHECKING:
    from policy.ranger.importing import Imported, Line

#: Largest file, in bytes; more than that is no policy document.
_MAX_SIZE: Final = 64 * 1024 * 1024
_COLUMNS: Final = ("outcome", "what", "name", "where", "reasons")


def import_(
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Exports or downloads of one Ranger service: policies, roles, tags, users.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str, typer.Option("--name", help="Name of the documents to create or replace.")
    ] = "ranger",
    report: Annotated[bool, typer.Option("--report", help="Only report what would be taken over.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Leave out what is refused. It only grants.")
    ] = False,
    dry_run: DryRun = False,
    force: Force = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Take over policies from Apache Ranger, and report what became of each."""
    from policy.ranger.importing import import_ranger

    if report and (dry_run or force or as_user is not None):
        raise typer.BadParameter("--report changes nothing: leave out --dry-run, --force and --as.")
    contents = {str(file): _content(file) for file in files}
    with output.progress("Reading Ranger's documents"):
        imported = import_ranger(contents)
    answer = None
    problem = _problem(imported, partial=partial)
    if problem is None and not report:
        answer = change_all(ctx, _edits(ctx, imported, name, as_user), dry_run, force, as_user)
    if as_json:
        output.document({"report": [asdict(line) for line in imported.report], "change": answer})
    else:
        _show(imported)
        if answer is not None:
            show(answer, as_json=False)
    if problem is not None:
        raise problem


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_SIZE + 1)
    except OSError as error:
        problem = f"The file {file} cannot be read: {error.strerror}."
        raise unusable(problem, "Give files that you can read.") from error
    if len(data) > _MAX_SIZE:
        raise unusable(f"The file {file} has more than {_MAX_SIZE} bytes.", "Export fewer policies at once.")
    return data


def _problem(imported: Imported, *, partial: bool) -> RequestInvalid | None:
    """Return why nothing is changed; None if the import can be made."""
    if imported.blocked:
        return RequestInvalid(
            f"{_counted(imported.blocked)} can neither be taken over nor be left out.",
            rule="policy-import",
            hint="Change them in Ranger, or add what is missing, as the report says.",
        )
    if imported.refused and not partial:
        return RequestInvalid(
            f"{_counted(imported.refused)} would be left out.",
            rule="policy-import",
            hint="Change them in Ranger as the report says, or leave them out with --partial.",
        )
    return None


def _counted(lines: Sequence[Line]) -> str:
    return f"{len(lines)} part" + ("s" if len(lines) > 1 else "")


def _edits(
    ctx: typer.Context, imported: Imported, name: str, as_user: str | None
) -> Sequence[dict[str, Any]]:
    """Build the change that creates the documents, or replaces those that are there."""
    there = {
        each["kind"]: each["revision"] for each in listed(ctx, as_user)["documents"] if each["name"] == name
    }
    return [
        edit_of(Kind(kind), name, content.decode("utf-8"), there.get(kind))
        for kind, content in imported.documents.items()
    ]


def _show(imported: Imported) -> None:
    """Print a row for each part that is not taken as it is, and how many are."""
    from policy.ranger.importing import Outcome

    told = [line for line in imported.report if line.outcome is not Outcome.TAKEN]
    if told:
        output.rows(_COLUMNS, (row for line in told for row in _rows(line)))
    counts = (f"{len(imported.of(outcome))} {outcome}" for outcome in Outcome)
    output.note(f"{', '.join(counts)}.".capitalize())


def _rows(line: Line) -> Iterator[tuple[str, ...]]:
    """Return a row for each reason; the first one names the part."""
    named = (line.outcome, line.what, line.name, f"{line.document} {line.place}".strip())
    for number, reason in enumerate(line.reasons):
        yield (*(named if number == 0 else ("",) * len(named)), reason)
