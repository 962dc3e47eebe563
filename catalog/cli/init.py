"""`lakewarden init`: creates a catalog in a directory of its own.

The administrator's token is shown once, alone on standard output.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.cli import output
from catalog.cli.arguments import DEFAULT_DATA_DIR
from catalog.cli.session import Session, calling, open_state, os_user
from catalog.cli.token import issue_recorded
from policy.principal import Principal

if TYPE_CHECKING:
    from catalog.settings.catalog import Settings


def init(
    ctx: typer.Context,
    admin: Annotated[
        str | None,
        typer.Option(metavar="USER", help="The first administrator. Default: the operating system's user."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help=f"Directory of the database, keystore and policies. Default: ./{DEFAULT_DATA_DIR}."
        ),
    ] = None,
) -> None:
    """Create a catalog: settings, keys, database, and an administrator with a policy and a token."""
    from catalog.cli.first_use import make_catalog
    from catalog.settings.catalog import DEFAULT_FILE

    principal = Principal(os_user() if admin is None else admin)
    session: Session = ctx.obj
    file = session.config or Path(session.environ.get("LAKEWARDEN_CONFIG") or DEFAULT_FILE)
    settings = make_catalog(file, session.environ, principal, data_dir, output.note)
    _make_token(settings, principal)


def _make_token(settings: Settings, admin: Principal) -> None:
    """Issue the first user's token, unless users have tokens already."""
    from catalog.authorization.tokens import DEFAULT_TTL, TokenStore

    with open_state(settings) as state:
        if any(info.kind == "user" for info in TokenStore(state).list()):
            output.note(
                "No token was issued, since users have tokens. To issue one, run `lakewarden token issue`."
            )
            return
        issued = issue_recorded(state, calling(None), admin, "user", DEFAULT_TTL)
    output.note(
        f"Token of the administrator {admin.name}, valid for {DEFAULT_TTL.days} days. It is not shown again:"
    )
    output.secret(issued.text)
