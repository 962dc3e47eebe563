"""`lakewarden token`: bearer tokens of users and engines.

A token is shown once, when it is issued, alone on standard output: ``TOKEN=$(lakewarden token issue ann)``.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer
from sqlalchemy import Engine

from catalog.authorize import Caller
from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser, Groups, Roles, duration_of
from catalog.cli.session import calling, open_state, record_operation, settings_of
from catalog.tokens import IssuedToken, TokenInfo, TokenKind, TokenStore
from policy.principal import Principal

app = typer.Typer(help="Bearer tokens.", no_args_is_help=True)


@app.command()
def issue(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The user or engine it speaks for.", show_default=False)],
    engine: Annotated[
        bool, typer.Option("--engine", help="For an engine that acts for its users, not for a user.")
    ] = False,
    groups: Groups = None,
    roles: Roles = None,
    ttl: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration_of, metavar="TIME", help="How long it is valid, such as 30d; else until revoked."
        ),
    ] = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Issue a token and show it, this once."""
    principal = Principal(name, frozenset(groups or ()), frozenset(roles or ()))
    with open_state(settings_of(ctx)) as state:
        issued = issue_recorded(state, calling(as_user), principal, "engine" if engine else "user", ttl)
    expires = output.moment(issued.expires_at)
    if as_json:
        output.document({"id": str(issued.id), "token": issued.text, "expires": expires})
        return
    output.note(
        f"Token {issued.id} of {name}, valid until {expires or 'it is revoked'}; it is not shown again."
    )
    output.secret(issued.text)


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List all tokens, expired and revoked ones included, without their secrets."""
    with open_state(settings_of(ctx)) as state:
        found = [_shown(info) for info in TokenStore(state).list()]
    if as_json:
        output.document(found)
        return
    columns = ("id", "kind", "principal", "groups", "roles", "created", "expires", "revoked")
    lines = [{**each, "groups": _joined(each["groups"]), "roles": _joined(each["roles"])} for each in found]
    output.rows(columns, [[line[name] for name in columns] for line in lines])


@app.command()
def revoke(
    ctx: typer.Context,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The token's id.", show_default=False)],
    as_user: AsUser = None,
) -> None:
    """Make a token invalid at once."""
    with open_state(settings_of(ctx)) as state:
        record_operation(state, calling(as_user), "token.revoke", token_id)
        TokenStore(state).revoke(token_id)
    output.note("The token is revoked.")


def issue_recorded(
    state: Engine, caller: Caller, principal: Principal, kind: TokenKind, ttl: timedelta | None
) -> IssuedToken:
    """Issue a token, with a record of it.

    Raises:
        as `TokenStore.issue`.
    """
    record_operation(state, caller, "token.issue", f"{kind} {principal.name}")
    return TokenStore(state).issue(principal, kind, ttl)


def _shown(info: TokenInfo) -> dict[str, object]:
    return {
        "id": str(info.id),
        "kind": info.kind,
        "principal": info.principal.name,
        "groups": sorted(info.principal.groups),
        "roles": sorted(info.principal.roles),
        "created": output.moment(info.created_at),
        "expires": output.moment(info.expires_at),
        "revoked": output.moment(info.revoked_at),
    }


def _joined(names: object) -> str:
    return ", ".join(names) if isinstance(names, list) else ""
