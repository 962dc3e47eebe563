"""`lakewarden kms-endpoint`: manages the keys of the KMS endpoint. No key bytes are ever shown.

Policies decide each command, for the principal that `--as` names. Each decision is audited.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser
from catalog.cli.session import acting, open_services

if TYPE_CHECKING:
    from catalog.kms_server.store import EndpointKey

app = typer.Typer(
    help="Manage the keys of the KMS endpoint for standard Hadoop clients.", no_args_is_help=True
)

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the key at the KMS endpoint.", show_default=False)
]
_COLUMNS = ("name", "bits", "versions", "state", "master-key-id")


@app.command("list", epilog="Example: lakewarden kms-endpoint list --as ann")
def list_(ctx: typer.Context, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """List the keys of the KMS endpoint on which the user has any permission."""
    with open_services(ctx) as services, acting(services, as_user, changes=False) as caller:
        _print(services.kms_endpoint.keys(caller), as_json)


@app.command(epilog="Example: lakewarden kms-endpoint disable pii --as ann")
def disable(ctx: typer.Context, name: _Name, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Disable all versions of a key, from the next request until you enable it again."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print([services.kms_endpoint.disable(caller, name)], as_json)


@app.command(epilog="Example: lakewarden kms-endpoint enable pii --as ann")
def enable(ctx: typer.Context, name: _Name, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Enable a disabled key again."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print([services.kms_endpoint.enable(caller, name)], as_json)


def _print(keys: Sequence[EndpointKey], as_json: bool) -> None:
    found = [
        (key.name, key.spec.bits, key.versions, str(key.state), key.wrapping.master_key_id) for key in keys
    ]
    if as_json:
        output.document([dict(zip(_COLUMNS, each, strict=True)) for each in found])
    else:
        output.rows(_COLUMNS, [list(each) for each in found])
