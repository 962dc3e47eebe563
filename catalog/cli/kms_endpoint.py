"""`lakewarden kms-endpoint`: keys of the KMS endpoint for stock Hadoop clients. No key bytes are ever shown.

What is done is decided by the policies for the principal that `--as` names, and audited.
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

app = typer.Typer(help="Keys of the KMS endpoint for stock Hadoop clients.", no_args_is_help=True)

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The key's name at the KMS endpoint.", show_default=False)
]
_COLUMNS = ("name", "bits", "versions", "state", "master-key-id")


@app.command("list")
def list_(ctx: typer.Context, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """List the keys of the KMS endpoint that one has any right on."""
    with open_services(ctx) as services, acting(services, as_user, changes=False) as caller:
        _print(services.door.keys(caller), as_json)


@app.command()
def disable(ctx: typer.Context, name: _Name, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Make a key unusable with the next request, in every version, until it is enabled again."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print([services.door.disable(caller, name)], as_json)


@app.command()
def enable(ctx: typer.Context, name: _Name, as_user: AsUser = None, as_json: AsJson = False) -> None:
    """Make a disabled key usable again."""
    with open_services(ctx) as services, acting(services, as_user) as caller:
        _print([services.door.enable(caller, name)], as_json)


def _print(keys: Sequence[EndpointKey], as_json: bool) -> None:
    found = [
        (key.name, key.spec.bits, key.versions, str(key.state), key.wrapping.master_key_id) for key in keys
    ]
    if as_json:
        output.document([dict(zip(_COLUMNS, each, strict=True)) for each in found])
    else:
        output.rows(_COLUMNS, [list(each) for each in found])
