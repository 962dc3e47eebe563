"""`lakewarden policy report`: lists the tables that break the encryption rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from catalog.base.progress import counted
from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser
from catalog.cli.session import acting, open_services

if TYPE_CHECKING:
    from catalog.maintenance.encryption_report import TableStanding
    from policy.encryption_rules import EncryptionRules

BROKEN: Final = 3
"""Exit code where a table breaks a rule, or cannot be loaded."""

_Rules = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules",
        metavar="FILE",
        help="File or directory of rules to use instead of those in force. Can be repeated.",
    ),
]
_All = Annotated[bool, typer.Option("--all", help="Also show the tables that follow the rules.")]


def report(
    ctx: typer.Context,
    rules: _Rules = None,
    show_all: _All = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """List the tables that break the encryption rules. Exits with 0 if none does, with 3 otherwise."""
    from catalog.http.report_models import TableReport
    from catalog.maintenance.encryption_report import Standing

    with (
        output.progress("Checking tables") as tell,
        open_services(ctx) as services,
        acting(services, as_user, changes=False) as caller,
    ):
        judged_by = services.policies.encryption() if rules is None else _rules_in(rules)
        names = services.encryption_report.tables(caller)
        checked = services.encryption_report.report(judged_by, names)
        found = list(counted(checked, tell, "Checking tables", len(names)))
    wanted = [each for each in found if show_all or each.standing is not Standing.FITS]
    counts = {str(one): sum(each.standing is one for each in found) for one in Standing}
    if as_json:
        tables = [TableReport.of(each).model_dump() for each in wanted]
        output.document({"rules-version": judged_by.version, "counts": counts, "tables": tables})
    else:
        _show(wanted)
        output.line(", ".join(f"{count} {standing}" for standing, count in counts.items()))
    if counts[Standing.FITS] < len(found):
        raise typer.Exit(BROKEN)


def _rules_in(paths: Sequence[Path]) -> EncryptionRules:
    from catalog.policy_store.files import read_documents
    from policy.encryption_rules import EncryptionRules

    return EncryptionRules.parse(read_documents(paths))


def _show(found: Sequence[TableStanding]) -> None:
    if found:
        lines = (line for each in found for line in _lines(each))
        output.rows(("table", "standing", "rule", "column", "why"), lines)


def _lines(each: TableStanding) -> Iterator[tuple[object, ...]]:
    if not each.violations:
        remark = (
            "files from before the encryption are in plaintext" if each.earlier_files_in_plaintext else None
        )
        yield each.table, each.standing, None, None, each.problem or remark
    for broken in each.violations:
        yield each.table, each.standing, broken.rule, broken.column, broken.reason.detail
