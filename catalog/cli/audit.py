"""`lakewarden audit`: reads, verifies, copies, archives and prunes the audit log."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from catalog.audit.formats import LineFormat, formatter
from catalog.base.identifiers import TableName
from catalog.base.progress import counted
from catalog.cli import output, reports
from catalog.cli.arguments import AsJson, AsUser, moment_of, table_of
from catalog.cli.reports import AsCsv, HtmlFile, one_form
from catalog.cli.session import acting, open_services, open_state, settings_of
from policy.errors import RequestInvalid

if TYPE_CHECKING:
    from catalog.audit.checkpoints import Signer
    from catalog.audit.history import History
    from catalog.audit.trail import StoredRecord
    from catalog.audit.verdict import Verdict
    from catalog.base.progress import Tell
    from catalog.settings.catalog import Settings

app = typer.Typer(help="Read, verify, copy, archive and prune the audit log.", no_args_is_help=True)

_FOLLOW_S: Final = 1.0
_WHEN: Final = "ISO 8601, or a time span before now, such as 12h."


@app.command(epilog="Example: lakewarden audit show --since 12h --table sales.orders")
def show(
    ctx: typer.Context,
    since: Annotated[
        datetime | None,
        typer.Option(parser=moment_of, metavar="TIME", help=f"Start of the time range. {_WHEN}"),
    ] = None,
    user: Annotated[str | None, typer.Option(help="Show only records of this user.")] = None,
    table: Annotated[
        TableName | None,
        typer.Option(parser=table_of, metavar="TABLE", help="Show only records of this table."),
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Show only refusals.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of records.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show audit records, newest first. Those of the archive are shown if `--since` reaches back to them."""
    from catalog.audit import trail

    named = None if table is None else str(table)
    with output.progress("Reading the audit log") as tell, _history(settings_of(ctx), tell) as history:
        if since is None:
            found = trail.read(history.engine, principal=user, table=named, refusals=refused, limit=limit)
        else:
            found = history.latest(_ms(since), user, named, limit, refusals=refused)
    if as_json:
        output.document([_full(stored) for stored in found])
    else:
        output.rows(("time", "user", "engine", "action", "resource", "answer", "why"), map(_line, found))


@app.command(epilog="Example: lakewarden audit report --since 7d --refused --by user,table,rule")
def report(
    ctx: typer.Context,
    by: Annotated[
        str,
        typer.Option(
            metavar="FIELDS",
            help="Fields to count by, with commas: user, engine, action, table, rule, policy, answer.",
        ),
    ],
    since: Annotated[
        datetime,
        typer.Option(parser=moment_of, metavar="TIME", help=f"Start of the time range. {_WHEN}"),
    ],
    refused: Annotated[bool, typer.Option("--refused", help="Count only refusals.")] = False,
    top: Annotated[int, typer.Option(min=1, help="Maximum number of rows, the largest counts first.")] = 50,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    html: HtmlFile = None,
) -> None:
    """Count audit records by some fields, with those of the archive and with counted refusals."""
    from catalog.reports.audited import Counting, audited_report

    form = one_form(as_json=as_json, as_csv=as_csv, html=html)
    counting = Counting(since, datetime.now(UTC), _fields(by), refused, top)
    with output.progress("Reading the audit log") as tell, _history(settings_of(ctx), tell) as history:
        found = audited_report(history, counting)
    reports.show(found, form)


@app.command(epilog="Example: lakewarden audit verify --checkpoint checkpoints.jsonl")
def verify(
    ctx: typer.Context,
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A file of checkpoints or records that was kept elsewhere. Every record that it names "
            "must be in the audit log. Can be repeated.",
        ),
    ] = None,
    public_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEX",
            help="A public key that signs checkpoints, in addition to the key in `audit.key_file`. "
            "Can be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Verify that no record was edited, removed or reverted, in the archive too. Exits with 1 if one was."""
    from catalog.audit.verify import examine
    from catalog.service.audit_archive import archive_of
    from catalog.service.context import open_storage

    settings = settings_of(ctx)
    keys = {_public_key(each) for each in public_key or ()}
    signer = _signer(settings)
    if signer is not None:
        keys.add(signer.public_key)
    archive = archive_of(settings, open_storage(settings))
    with output.progress("Verifying the audit log") as tell, open_state(settings) as engine:
        lines = _lines(checkpoint or [])
        verdict = examine(engine, public_keys=frozenset(keys), evidence=lines, archive=archive, tell=tell)
    if as_json:
        output.document(asdict(verdict))
    else:
        _show_verdict(verdict)
    if verdict.problems:
        raise typer.Exit(1)


def _public_key(text: str) -> str:
    if re.fullmatch("[0-9a-fA-F]{64}", text) is None:
        raise typer.BadParameter(
            "--public-key: give the 64 hexadecimal digits that `audit checkpoint` prints"
        )
    return text.lower()


@app.command(epilog="Example: lakewarden audit checkpoint")
def checkpoint(ctx: typer.Context) -> None:
    """Create a checkpoint and print it as a line of JSON, to keep outside of the database."""
    from catalog.audit.checkpoints import Checkpointer
    from catalog.audit.stream import checkpoint_line, last_checkpoint_row

    settings = settings_of(ctx)
    with open_state(settings) as engine:
        Checkpointer(engine, _signer(settings), _now_ms, settings.audit.checkpoint_s).make("cli")
        row = last_checkpoint_row(engine)
    output.results().write(f"{checkpoint_line(row)}\n")


@app.command(epilog="Example: lakewarden audit export --since 1d --follow")
def export(
    ctx: typer.Context,
    since: Annotated[
        datetime | None,
        typer.Option(parser=moment_of, metavar="TIME", help=f"Start of the time range. {_WHEN}"),
    ] = None,
    follow: Annotated[bool, typer.Option(help="Keep printing new records until interrupted.")] = False,
    form: Annotated[
        LineFormat, typer.Option("--format", help="The form of lines. `audit verify` compares `json` alone.")
    ] = LineFormat.JSON,
) -> None:
    """Export audit records as lines of JSON, oldest first; those of the archive segment by segment."""
    from catalog.audit.reading import ends

    line, settings = formatter(form), settings_of(ctx)
    with _until_interrupted():
        with output.progress("Exporting the audit log") as tell, _history(settings, tell) as history:
            numbers = ends(history.engine)
            rows = history.rows_up_to(numbers, 0 if since is None else _ms(since))
            for row in counted(rows, tell, "Exporting records"):
                output.results().write(f"{line(row)}\n")
            sys.stdout.flush()
        if follow:
            _follow(settings, numbers, form)


def _follow(settings: Settings, numbers: Mapping[str, int], form: LineFormat) -> None:
    """Print records after these numbers as they come, until interrupted."""
    from catalog.audit.stream import NewRecords

    with open_state(settings) as engine:
        coming = NewRecords(engine, numbers, form)
        while True:
            while lines := coming.lines():
                sys.stdout.write("".join(f"{each}\n" for each in lines))
                coming.taken()
            sys.stdout.flush()
            time.sleep(_FOLLOW_S)


@app.command(epilog="Example: lakewarden audit archive --as ann")
def archive(
    ctx: typer.Context,
    public_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HEX",
            help="A public key that signed checkpoints before the key in `audit.key_file`. Can be repeated.",
        ),
    ] = None,
    as_user: AsUser = None,
) -> None:
    """Move records older than `audit.archive_after_days` to the archive. Needs `admin` on the service.

    The service does this by itself, every `audit.archive_every_s` seconds.
    """
    from catalog.service.audit_archive import archive_as

    keys = [_public_key(each) for each in public_key or ()]
    with (
        output.progress("Archiving audit records") as tell,
        open_services(ctx) as services,
        acting(services, as_user) as caller,
    ):
        moved = archive_as(services, caller, keys, tell)
    output.note(f"Records archived: {moved.records}, in {moved.segments} segments.")


@app.command(epilog="Example: lakewarden audit prune --before 90d --as ann")
def prune(
    ctx: typer.Context,
    before: Annotated[
        datetime,
        typer.Option(parser=moment_of, metavar="TIME", help=f"Remove records older than this. {_WHEN}"),
    ],
    force: Annotated[bool, typer.Option(help="Prune even if `audit verify` finds problems.")] = False,
    as_user: AsUser = None,
) -> None:
    """Remove old audit records; the rest can still be verified. Needs `admin` on the service.

    With an archive, its old segments are removed.
    """
    from catalog.service.audit_retention import prune_as

    with (
        output.progress("Pruning the audit log") as tell,
        open_services(ctx) as services,
        acting(services, as_user) as caller,
    ):
        gone = prune_as(services, caller, _ms(before), force=force, tell=tell)
    output.note(f"Records removed: {gone}.")


def _fields(text: str) -> tuple[str, ...]:
    """Parse names of fields, separated by commas.

    Raises:
        typer.BadParameter: one is not a field, or is given twice.
    """
    from catalog.reports.audited import FIELDS

    names = tuple(text.split(","))
    unknown = [each for each in names if each not in FIELDS]
    if unknown or len(set(names)) < len(names):
        wrong = f"{unknown[0]!r} is not a field." if unknown else "A field is given twice."
        raise typer.BadParameter(f"--by: {wrong} Give each at most once: {', '.join(FIELDS)}.")
    return names


@contextmanager
def _history(settings: Settings, tell: Tell) -> Iterator[History]:
    """Open the audit log with its archive, whose segments are told of."""
    from catalog.audit.history import History
    from catalog.service.audit_archive import archive_of
    from catalog.service.context import open_storage

    archive = None if settings.audit.archive is None else archive_of(settings, open_storage(settings))
    with open_state(settings) as engine:

        def read(done: int, total: int) -> None:
            tell("Reading the archive: segments", done, total)

        yield History(engine, archive, read)


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Treat an interrupt, or a closed standard output, as the normal end."""
    with suppress(KeyboardInterrupt, BrokenPipeError):
        yield


def _signer(settings: Settings) -> Signer | None:
    from catalog.audit.checkpoints import Signer

    return None if settings.audit.key_file is None else Signer(settings.audit.key_file)


def _lines(files: list[Path]) -> Iterator[str]:
    for file in files:
        try:
            with file.open(encoding="ascii", errors="replace") as lines:
                yield from (line for line in lines if line.strip())
        except OSError as error:
            raise RequestInvalid(
                f"The copy {file} cannot be read: {error.strerror}.",
                rule="audit-copy",
                hint="Give a file of JSON lines that `audit checkpoint` or `audit export` wrote.",
            ) from error


def _show_verdict(verdict: Verdict) -> None:
    if verdict.problems:
        lines = [(each.writer, each.sequence, each.kind, each.detail) for each in verdict.problems]
        output.rows(("writer", "number", "kind", "what"), lines)
    else:
        output.note("The audit log is intact: no record was edited, removed or moved.")
    covered = None if verdict.checkpointed_ms is None else _time(verdict.checkpointed_ms)
    signed = "none of them signed" if verdict.signed_from is None else f"signed from {verdict.signed_from} on"
    output.note(f"Checked: {verdict.records} records of {verdict.chains} chains.")
    output.note(f"Checkpoints: {verdict.checkpoints}, {signed}, the last one at {covered or 'no time'}.")
    if verdict.archived is not None:
        output.note(f"Segments of the archive: {verdict.segments}, up to number {verdict.archived}.")
    if verdict.evidence or verdict.unreadable:
        output.note(
            f"Lines of --checkpoint files: {verdict.evidence} compared, {verdict.unreadable} not readable."
        )


def _line(stored: StoredRecord) -> tuple[object, ...]:
    record = stored.record
    answer = "begun" if record.begun else "allowed" if record.allowed else "refused"
    answer = answer if record.decisions == 1 else f"{answer} {record.decisions} times"
    why = record.reasons[0].detail
    return _time(record.at_ms), record.principal, record.engine, record.action, record.resource, answer, why


def _full(stored: StoredRecord) -> dict[str, object]:
    return {
        **asdict(stored.record),
        "at": _time(stored.record.at_ms),
        "writer": stored.writer,
        "sequence": stored.sequence,
    }


def _time(at_ms: int) -> str | None:
    """Return a time as text; None for an edited value that is not a time."""
    try:
        return output.moment(datetime.fromtimestamp(at_ms / 1000, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _now_ms() -> int:
    return _ms(datetime.now(UTC))
