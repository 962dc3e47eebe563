"""`lakewarden user`: lists users and engines, assigns groups and roles to them, disables and deletes them.

The catalog learns of a user by a token: one that it issues, or an access token of an identity provider.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser, Groups, Roles
from catalog.cli.session import calling, open_state, operating, remote_of, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from catalog.authorization.known_principals import KnownPrincipal
    from catalog.authorization.principals import Principals

_COLUMNS: Final = (
    "name",
    "groups",
    "roles",
    "issuer",
    "claimed-groups",
    "claimed-roles",
    "claimed-at",
    "known-since",
    "disabled-at",
)

Name = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.", show_default=False)]

app = typer.Typer(help="List users, assign groups and roles, disable and delete users.", no_args_is_help=True)


@app.command("list", epilog="Example: lakewarden user list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the users and engines that the catalog knows, with their groups and roles."""
    remote = remote_of(ctx)
    found = remote.ask("GET", ("users",)) if remote else _list(ctx)
    output.answer(found, "users", _COLUMNS, as_json=as_json)


@app.command(epilog="Example: lakewarden user assign bob --group analysts --group staff")
def assign(
    ctx: typer.Context,
    name: Name,
    groups: Groups = None,
    roles: Roles = None,
    as_user: AsUser = None,
) -> None:
    """Assign groups and roles to a user, in place of those that were assigned before.

    Groups and roles of an identity provider are kept beside them. A new user is created.
    """
    given = frozenset(groups or ()), frozenset(roles or ())
    body = {"user": name, "groups": sorted(given[0]), "roles": sorted(given[1])}
    _change(ctx, as_user, "assign", body, lambda users: users.assign(name, *given))
    output.note(f"The user {name} has the groups and roles that were given.")


@app.command(epilog="Example: lakewarden user disable bob")
def disable(ctx: typer.Context, name: Name, as_user: AsUser = None) -> None:
    """Refuse a user from the next request on, whatever token they have."""
    _change(ctx, as_user, "disable", {"user": name}, lambda users: users.disable(name))
    output.note(f"The user {name} is disabled.")


@app.command(epilog="Example: lakewarden user enable bob")
def enable(ctx: typer.Context, name: Name, as_user: AsUser = None) -> None:
    """Accept a user again who was disabled."""
    _change(ctx, as_user, "enable", {"user": name}, lambda users: users.disable(name, disabled=False))
    output.note(f"The user {name} is enabled.")


@app.command(epilog="Example: lakewarden user forget-claims bob")
def forget_claims(ctx: typer.Context, name: Name, as_user: AsUser = None) -> None:
    """Forget the groups and roles that an identity provider named.

    The groups and roles that were assigned are left. The provider's next token names its groups again.
    """
    _change(ctx, as_user, "forget-claims", {"user": name}, lambda users: users.forget_claims(name))
    output.note(f"The user {name} has the groups and roles that were assigned, and no others.")


@app.command(epilog="Example: lakewarden user delete bob")
def delete(ctx: typer.Context, name: Name, as_user: AsUser = None) -> None:
    """Delete a user who defines no definer views, and revoke every token of theirs.

    The audit log, policies and the tables that the user owns keep the name.
    To refuse a user, disable them instead.
    """
    body = {"user": name}
    if remote := remote_of(ctx, as_user):
        remote.ask("POST", ("users", "delete"), body)
    else:
        _delete(ctx, as_user, name)
    output.note(f"The user {name} is deleted, and has no valid token any more.")


def _delete(ctx: typer.Context, as_user: str | None, name: str) -> None:
    from catalog.authorization.user_deletion import delete_user

    settings = settings_of(ctx)
    with open_state(settings) as state, operating(state, calling(as_user)) as begin:
        begin("user.delete", name)
        delete_user(state, settings.identity, datetime.now(UTC), name)


def _list(ctx: typer.Context) -> dict[str, Any]:
    from catalog.authorization.principals import principals_of
    from catalog.http.user_models import UserList

    settings = settings_of(ctx)
    with open_state(settings) as state:
        users = principals_of(state, settings.identity)
        return UserList.of(users.list()).model_dump(mode="json")


def _change(
    ctx: typer.Context,
    as_user: str | None,
    action: str,
    body: dict[str, Any],
    change: Callable[[Principals], KnownPrincipal],
) -> None:
    """Send a change to the service that the command line names, or make and record it on this host."""
    if remote := remote_of(ctx, as_user):
        remote.ask("POST", ("users", action), body)
        return
    from catalog.authorization.principals import principals_of

    settings = settings_of(ctx)
    with open_state(settings) as state, operating(state, calling(as_user)) as begin:
        begin(f"user.{action}", body["user"])
        change(principals_of(state, settings.identity))
