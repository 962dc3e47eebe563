"""`lakewarden kms-endpoint`: manages the keys of the KMS endpoint. No key bytes are ever shown.

Policies decide each command, for the principal that `--as` names. Each decision is audited.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser
from catalog.cli.session import administration

app = typer.Typer(
    help="Manage the keys of the KMS endpoint for standard Hadoop clients.", no_args_is_help=True
)

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the key at the KMS endpoint.", show_default=False)
]
_COLUMNS: Final = ("name", "bits", "versions", "state", "master-key-id")


@app.command("list", epilog="Example: lakewarden kms-endpoint list --as ann")
def list_(ctx: typer.Context, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """List the keys of the KMS endpoint on which the user has any permission."""
    with administration(ctx, as_user) as admin:
        output.answer(admin.ask("GET", ("door-keys",)), "keys", _COLUMNS, as_json=as_json)


@app.command(epilog="Example: lakewarden kms-endpoint disable pii --as ann")
def disable(ctx: typer.Context, name: _Name, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Disable all versions of a key, from the next request until you enable it again."""
    _move(ctx, "disable", name, as_user, as_json)


@app.command(epilog="Example: lakewarden kms-endpoint enable pii --as ann")
def enable(ctx: typer.Context, name: _Name, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Enable a disabled key again."""
    _move(ctx, "enable", name, as_user, as_json)


def _move(ctx: typer.Context, operation: str, name: str, as_user: str | None, as_json: bool) -> None:
    with administration(ctx, as_user) as admin:
        key = admin.ask("POST", ("door-keys", operation), {"name": name})
    output.answer({"keys": [key]}, "keys", _COLUMNS, as_json=as_json)
