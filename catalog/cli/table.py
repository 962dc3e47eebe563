"""`lakewarden table`: manages tables, and repairs states that only an operator can resolve.

Policies decide each command, for the principal that `--as` names. Each decision is audited.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import typer

from catalog.base.identifiers import TableName
from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser, Table, admin_path
from catalog.cli.session import acting, administration, open_services

app = typer.Typer(help="Show, change, register, repair and drop tables.", no_args_is_help=True)

#: The maximum number of files that a clean-up lists.
_MOST_FILES: Final = 10_000

_Force = Annotated[
    bool, typer.Option("--force", help="Remove allowed locations even if live snapshots need them.")
]


@app.command(epilog="Example: lakewarden table show sales.orders --as ann")
def show(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Show a table's identity, seal and governed properties."""
    with administration(ctx, as_user) as admin:
        shown = admin.ask("GET", admin_path(table))
    if as_json:
        output.document(shown)
        return
    properties, copies = shown.pop("properties"), shown.pop("governed-copies")
    output.facts(shown | properties)
    if copies:
        output.note(
            f"metadata.json also holds governed properties, which have no effect: {', '.join(copies)}."
        )


@app.command(
    "set", epilog="Example: lakewarden table set sales.orders encryption.mechanism=envelope --as ann"
)
def set_(
    ctx: typer.Context,
    table: Table,
    properties: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="Properties to set.", show_default=False)
    ],
    force: _Force = False,
    as_user: AsUser = None,
) -> None:
    """Set properties of a table, including governed properties."""
    pairs = [_pair(text) for text in properties]
    if len(dict(pairs)) != len(pairs):
        raise typer.BadParameter("A property is given more than once. Give each property once.")
    _change(ctx, table, {"set": dict(pairs), "force": force}, as_user)


@app.command(epilog="Example: lakewarden table unset sales.orders encryption.columns --as ann")
def unset(
    ctx: typer.Context,
    table: Table,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Properties to remove.", show_default=False)
    ],
    force: _Force = False,
    as_user: AsUser = None,
) -> None:
    """Remove properties of a table. A governed property returns to its default."""
    _change(ctx, table, {"unset": names, "force": force}, as_user)


@app.command(
    epilog="Example: lakewarden table register sales.orders s3://lake/orders/v3.metadata.json --as ann"
)
def register(
    ctx: typer.Context,
    table: Table,
    metadata_location: Annotated[
        str, typer.Argument(help="Location of the metadata.json.", show_default=False)
    ],
    as_user: AsUser = None,
) -> None:
    """Register a table from its metadata.json, after checking every file that it names."""
    _do(ctx, table, "register", "is registered", as_user, {"metadata-location": metadata_location})


@app.command(epilog="Example: lakewarden table adopt sales.orders --as ann")
def adopt(ctx: typer.Context, table: Table, as_user: AsUser = None) -> None:
    """Adopt a table that another catalog created in the same pointer store."""
    _do(ctx, table, "adopt", "is adopted", as_user)


@app.command(epilog="Example: lakewarden table reseal sales.orders --as ann")
def reseal(ctx: typer.Context, table: Table, as_user: AsUser = None) -> None:
    """Check metadata that was not committed through the catalog, and seal it."""
    _do(ctx, table, "reseal", "is sealed", as_user)


@app.command(epilog="Example: lakewarden table restore sales.orders --as ann")
def restore(ctx: typer.Context, table: Table, as_user: AsUser = None) -> None:
    """Restore a table to the metadata that was sealed last."""
    _do(ctx, table, "restore", "is restored", as_user)


@app.command(epilog="Example: lakewarden table epochs sales.orders --as ann")
def epochs(ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Count the files of earlier encryption epochs, on branches and in retained snapshots."""
    with administration(ctx, as_user) as admin:
        _print_epochs(admin.ask("GET", admin_path(table, "regimes")), as_json)


@app.command("forbid-old-epochs", epilog="Example: lakewarden table forbid-old-epochs sales.orders --as ann")
def forbid_old_epochs(
    ctx: typer.Context, table: Table, as_user: AsUser = None, as_json: AsJson = False
) -> None:
    """Forbid files of earlier encryption epochs. Refused while a retained snapshot has one."""
    with administration(ctx, as_user) as admin:
        _print_epochs(admin.ask("POST", admin_path(table, "regimes", "forbid-old"), {}), as_json)


@app.command(epilog="Example: lakewarden table drop sales.orders --purge --as ann")
def drop(
    ctx: typer.Context,
    table: Table,
    purge: Annotated[bool, typer.Option("--purge", help="Also delete the table's files and keys.")] = False,
    as_user: AsUser = None,
) -> None:
    """Drop a table. Without --purge its files stay."""
    with (
        output.progress(f"Dropping the table {table}"),
        open_services(ctx) as services,
        acting(services, as_user) as caller,
    ):
        if not purge:
            services.lifecycle.drop(caller, table)
            output.note(f"Dropped the table {table}. Its files stay.")
            return
        left = services.lifecycle.purge(caller, table)
    output.note(f"Dropped the table {table} and deleted its files. Files that were kept elsewhere: {left}.")


@app.command("clean-up", epilog="Example: lakewarden table clean-up sales.orders --remove --as ann")
def clean_up(
    ctx: typer.Context,
    table: Table,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the files. Without it, the command only lists them.")
    ] = False,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """List, or remove, files in a table's directory that nothing names and that are three days old."""
    with administration(ctx, as_user) as admin:
        body = {"remove": remove, "max-files": _MOST_FILES}
        found = admin.ask("POST", admin_path(table, "clean-up"), body)
    if as_json:
        output.document(found)
        return
    output.rows(
        ("modified", "bytes", "path"),
        [
            (output.moment(datetime.fromisoformat(each["modified"])), each["bytes"], each["path"])
            for each in found["files"]
        ],
    )
    output.note(_clean_up_summary(found, remove=remove))


def _clean_up_summary(found: dict[str, Any], *, remove: bool) -> str:
    if not found["found"]:
        return "Found no garbage."
    listed = f" The first {_MOST_FILES:,} are listed." if found["found"] > _MOST_FILES else ""
    summary = f"Found {found['found']} files ({found['bytes']} bytes) that nothing names.{listed}"
    if remove:
        return f"{summary} Removed {found['removed']} of them."
    return f"{summary} Removed none. To remove them, repeat the command with --remove."


def _print_epochs(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.document(report)
        return
    for branch in report["branches"]:
        branch["encryption"] = branch["properties"]["encryption.mechanism"]
    columns = ("branch", "from-sequence-number", "encryption", "files", "bytes", "old-files", "old-bytes")
    output.answer(report, "branches", columns, as_json=False)
    output.rows(
        ("snapshot-with-old-files", "branches-and-tags", "old-files"),
        [[each["snapshot-id"], ", ".join(each["names"]), each["old-files"]] for each in report["snapshots"]],
    )
    left = "are refused" if report["old-forbidden"] else "can be read while their snapshots are retained"
    output.note(f"Files of earlier encryption epochs {left}.")


def _change(ctx: typer.Context, table: TableName, body: dict[str, Any], as_user: str | None) -> None:
    with administration(ctx, as_user) as admin:
        changed = admin.ask("PATCH", admin_path(table), body)
    output.facts(changed["properties"])


def _do(
    ctx: typer.Context,
    table: TableName,
    operation: str,
    what: str,
    as_user: str | None,
    body: dict[str, Any] | None = None,
) -> None:
    with administration(ctx, as_user) as admin:
        done = admin.ask("POST", admin_path(table, operation), body)
    output.note(f"The table {done['name']} {what} at {done['metadata-location']}.")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} is not a property. Give NAME=VALUE.")
    return name, value
