"""The command `lakewarden`: its groups, and the one place where errors become exit codes.

Exit codes: 0 done; 1 refused or failed, with one sentence on standard error; 2 wrong usage; 3 a check of
`policy` says no, or `policy report` finds something. Results go to standard output, everything said beside
them to standard error.
"""

from __future__ import annotations

import errno
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from catalog.cli import (
    audit,
    db,
    init,
    key,
    kms_endpoint,
    output,
    policy,
    policy_check,
    policy_lint,
    policy_report,
    policy_store,
    policy_test,
    serve,
    table,
    token,
)
from catalog.cli.session import Session
from policy.errors import LakewardenError

#: Why what a command prints may not be written; the error of a file has its name.
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class _Commands(TyperGroup):
    """Shows expected errors as a sentence; anything else is a defect and keeps its traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except LakewardenError as error:
            output.error(error)
            raise typer.Exit(1) from None
        except OSError as error:
            if error.errno not in _NO_ROOM or error.filename is not None:
                raise
            output.unwritten(error)
            raise typer.Exit(1) from None
        return result


app = typer.Typer(
    cls=_Commands,
    help="A catalog that decides which locations and keys an Iceberg table may be read with.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        output.line(f"lakewarden {metadata.version('lakewarden')}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(help="The settings file; by default $LAKEWARDEN_CONFIG, else lakewarden.toml here."),
    ] = None,
) -> None:
    ctx.obj = Session(config, os.environ)


app.command("init")(init.init)
app.command("serve")(serve.serve)
app.add_typer(db.app, name="db")
app.add_typer(table.app, name="table")
app.add_typer(key.app, name="key")
app.add_typer(kms_endpoint.app, name="kms-endpoint")
app.add_typer(audit.app, name="audit")
policy.app.command("check")(policy_check.check)
policy.app.command("test")(policy_test.test)
policy.app.command("report")(policy_report.report)
policy.app.command("lint")(policy_lint.lint_file)
policy.app.command("list")(policy_store.list_)
policy.app.command("get")(policy_store.get)
policy.app.command("put")(policy_store.put)
policy.app.command("remove")(policy_store.remove)
policy.app.command("history")(policy_store.history)
app.add_typer(policy.app, name="policy")
app.add_typer(token.app, name="token")
