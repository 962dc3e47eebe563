"""The command `lakewarden`: assembles its groups, and turns errors into exit codes.

Exit codes: 0 done; 1 refused or failed, with one sentence on standard error; 2 wrong usage; 3 a check of
`policy` says no, or `policy report` finds something. Results are printed to standard output, all other
messages to standard error.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from catalog.cli import (
    access,
    access_diff,
    access_matrix,
    access_who_can,
    audit,
    db,
    doctor,
    init,
    key,
    kms_endpoint,
    master_keys,
    output,
    policy,
    policy_apply,
    policy_check,
    policy_import,
    policy_lint,
    policy_report,
    policy_sources,
    policy_store,
    policy_test,
    serve,
    table,
    table_list,
    tag,
    token,
    user,
)
from catalog.cli.session import Remote, Session, on_the_host
from policy.errors import LakewardenError

#: Groups with commands that can administer a service with `--url`; each other command refuses it.
_ADMINISTRATION: Final = frozenset({"key", "kms-endpoint", "lake", "policy", "table", "tag", "token", "user"})
#: Errors of writing a command's output; the error of a file has the file's name.
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class _Commands(TyperGroup):
    """Shows expected errors as a sentence; other exceptions are defects and keep their traceback."""

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
    help="Run and manage a Lakewarden catalog: allowed locations, keys and policies of Iceberg tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

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
        typer.Option(help="Settings file. Default: $LAKEWARDEN_CONFIG, else ./lakewarden.toml."),
    ] = None,
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Address of a service to administer, https for another host; its authorities are in "
            "$LAKEWARDEN_CA_FILE, if they are not the system's. Default: the catalog on this host.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --url: a private file (mode 0600) that holds your token."),
    ] = None,
) -> None:
    if url is None or token_file is None:
        if url is not None or token_file is not None:
            raise typer.BadParameter("Give --url and --token-file together.")
        ctx.obj = Session(config, os.environ)
        return
    if config is not None:
        raise typer.BadParameter("Give --config for the catalog on this host, or --url for a service.")
    if ctx.invoked_subcommand not in _ADMINISTRATION:
        raise on_the_host()
    ctx.obj = Session(None, os.environ, Remote(url, token_file))


app.command("init", epilog="Example: lakewarden init --admin ann")(init.init)
app.command("serve", epilog="Example: lakewarden --config /etc/lakewarden.toml serve")(serve.serve)
app.command("doctor", epilog="Example: lakewarden doctor")(doctor.doctor)
app.add_typer(db.app, name="db")
table.app.command("list", epilog="Example: lakewarden table list --encryption --as ann")(table_list.list_)
app.add_typer(table.app, name="table")
key.app.command("kms-keys", epilog="Example: lakewarden key kms-keys --as ann")(master_keys.kms_keys)
key.app.command(
    "assign-master",
    epilog="Example: lakewarden key assign-master pii --kms aws --kms-key alias/pii --as ann",
)(master_keys.assign_master)
key.app.command("move-master", epilog="Example: lakewarden key move-master pii --as ann")(
    master_keys.move_master
)
key.app.command("needs", epilog="Example: lakewarden key needs local --kms-key pii --as ann")(
    master_keys.needs
)
app.add_typer(key.app, name="key")
app.add_typer(kms_endpoint.app, name="kms-endpoint")
app.add_typer(audit.app, name="audit")
policy.app.command("check", epilog="Example: lakewarden policy check table:sales.orders select --as bob")(
    policy_check.check
)
policy.app.command("test", epilog="Example: lakewarden policy test policies/ --min-coverage 80")(
    policy_test.test
)
policy.app.command("report", epilog="Example: lakewarden policy report --as ann")(policy_report.report)
policy.app.command("lint", epilog="Example: lakewarden policy lint job.sql --dialect spark --as bob")(
    policy_lint.lint_file
)
policy.app.command("list", epilog="Example: lakewarden policy list")(policy_store.list_)
policy.app.command("get", epilog="Example: lakewarden policy get sales")(policy_store.get)
policy.app.command("put", epilog="Example: lakewarden policy put sales sales.json --revision 7")(
    policy_store.put
)
policy.app.command("apply", epilog="Example: lakewarden policy apply policies/ --watch")(policy_apply.apply)
policy.app.command("import", epilog="Example: lakewarden policy import ranger.json roles.json --report")(
    policy_import.import_
)
policy.app.command("remove", epilog="Example: lakewarden policy remove sales --revision 7")(
    policy_store.remove
)
policy.app.command("history", epilog="Example: lakewarden policy history sales")(policy_store.history)
policy.app.command("sync", epilog="Example: lakewarden policy sync prod")(policy_sources.sync)
policy.app.command("sources", epilog="Example: lakewarden policy sources")(policy_sources.sources)
app.add_typer(policy.app, name="policy")
access.app.command("who-can", epilog="Example: lakewarden access who-can read sales.orders.card")(
    access_who_can.who_can
)
access.app.command("matrix", epilog="Example: lakewarden access matrix --user bob")(access_matrix.matrix)
access.app.command("diff", epilog="Example: lakewarden access diff catalog policies/")(access_diff.diff)
app.add_typer(access.app, name="access")
app.add_typer(tag.app, name="tag")
app.add_typer(token.app, name="token")
app.add_typer(user.app, name="user")
