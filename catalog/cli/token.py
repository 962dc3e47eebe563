"""`lakewarden token`: issues, rotates, lists and revokes tokens of users and engines.

A token is shown once, when it is issued, alone on standard output: ``TOKEN=$(lakewarden token issue ann)``.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson, AsUser, Groups, Roles, duration_of, lifetime_of
from catalog.cli.session import calling, open_state, operating, remote_of, settings_of
from catalog.crypto.private_files import create_private
from catalog.kms_server.hadoop_token import credentials_file
from policy.errors import KmsUnavailable, RequestInvalid
from policy.principal import Principal
from policy.token_scope import TokenScope

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Engine

    from catalog.authorization.authorizer import Caller
    from catalog.authorization.tokens import IssuedToken, TokenKind
    from catalog.http.user_models import RotateToken
    from catalog.settings.catalog import Settings

_COLUMNS: Final = (
    "id",
    "kind",
    "principal",
    "groups",
    "roles",
    "created-at",
    "expires-at",
    "revoked-at",
    "used-at",
    "scope",
)

Lifetime = Annotated[
    timedelta | None,
    typer.Option(
        parser=lifetime_of,
        metavar="TIME",
        help="Lifetime of the token, such as 30d, or `never` if it has no end. Default: 90d.",
    ),
]

app = typer.Typer(help="Issue, rotate, list and revoke bearer tokens.", no_args_is_help=True)


@app.command(epilog="Example: lakewarden token issue bob --group analysts --ttl 90d")
def issue(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(help="Name of the user or engine that the token authenticates.", show_default=False),
    ],
    engine: Annotated[
        bool,
        typer.Option("--engine", help="Issue a token for one start of an engine that acts for its users."),
    ] = False,
    reusable: Annotated[
        bool,
        typer.Option(
            "--reusable",
            help="With --engine: allow any number of starts. Refused while `code` on the engine is granted.",
        ),
    ] = False,
    kms: Annotated[
        bool, typer.Option("--kms", help="Issue a token for the KMS endpoint, /kms/v1, alone.")
    ] = False,
    credentials: Annotated[
        Path | None,
        typer.Option(
            "--hadoop-credentials",
            metavar="FILE",
            help="With --kms: write the token to a new file that Hadoop clients read, and do not print it.",
        ),
    ] = None,
    service: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="With --hadoop-credentials: address of the KMS, as kms://https@HOST:PORT/kms."
        ),
    ] = None,
    groups: Groups = None,
    roles: Roles = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Limit the token to reading, whatever policies grant.")
    ] = False,
    namespaces: Annotated[
        list[str] | None,
        typer.Option(
            "--namespace",
            metavar="NAMESPACE",
            help="Limit the token to this namespace and those below it. Can be given several times.",
        ),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            metavar="NAMESPACE.TABLE",
            help="Limit the token to this table or view. Can be given several times, and with --namespace.",
        ),
    ] = None,
    ttl: Lifetime = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Issue a token and print it. It is printed only once."""
    scope = _scope(read_only, namespaces or (), tables or ())
    principal = Principal(name, frozenset(groups or ()), frozenset(roles or ()), scope)
    kind = _kind(engine, reusable, kms)
    _check_file(kind, credentials, service)
    if remote := remote_of(ctx, as_user):
        answer = remote.ask("POST", ("tokens",), _wanted(principal, kind, ttl))
    else:
        answer = _issue(settings_of(ctx), as_user, principal, _wanted(principal, kind, ttl))
    if credentials is not None and service is not None:
        write_credentials(credentials, answer, principal, service)
    _show_issued(answer, name, credentials, as_json)


@app.command(epilog="Example: lakewarden token rotate 0d5e4a60-7f0c-4f6e-8a53-6f2f6f0f5b1e --overlap 1h")
def rotate(
    ctx: typer.Context,
    token_id: Annotated[str, typer.Argument(metavar="ID", help="ID of the token.", show_default=False)],
    overlap: Annotated[
        timedelta,
        typer.Option(
            parser=duration_of, metavar="TIME", help="How long the old token stays valid, up to 7d."
        ),
    ] = "1h",  # type: ignore[assignment] # typer parses the default, too
    ttl: Lifetime = None,
    as_user: AsUser = None,
    as_json: AsJson = False,
) -> None:
    """Issue a token in place of another one, which stays valid for a while, and print it."""
    from catalog.http.user_models import RotateToken

    wanted = {"overlap-s": int(overlap.total_seconds()), **_lifetime(ttl)}
    if remote := remote_of(ctx, as_user):
        answer = remote.ask("POST", ("tokens", str(_id(token_id)), "rotate"), wanted)
    else:
        answer = _rotate(settings_of(ctx), as_user, token_id, RotateToken.model_validate(wanted))
    _show_issued(answer, f"the user of {token_id}", None, as_json)


@app.command("list", epilog="Example: lakewarden token list --user bob")
def list_(
    ctx: typer.Context,
    user: Annotated[str | None, typer.Option(metavar="USER", help="Only tokens of this user.")] = None,
    as_json: AsJson = False,
) -> None:
    """List tokens, including expired and revoked ones, without their secrets."""
    remote = remote_of(ctx)
    query = {} if user is None else {"principal": user}
    found = remote.ask("GET", ("tokens",), query=query) if remote else _list(settings_of(ctx), user)
    output.answer(found, "tokens", _COLUMNS, as_json=as_json)


@app.command(epilog="Example: lakewarden token revoke 0d5e4a60-7f0c-4f6e-8a53-6f2f6f0f5b1e")
def revoke(
    ctx: typer.Context,
    token_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="ID of the token.", show_default=False)
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Revoke every token of this user instead.")
    ] = None,
    as_user: AsUser = None,
) -> None:
    """Revoke a token, and every key that an engine registered with it."""
    if (token_id is None) == (user is None):
        raise typer.BadParameter("Give the ID of a token, or --user.")
    remote = remote_of(ctx, as_user)
    if token_id is not None:
        if remote:
            remote.ask("DELETE", ("tokens", str(_id(token_id))))
        else:
            _revoke(settings_of(ctx), token_id, as_user)
        output.note(f"Revoked the token {token_id}.")
    elif user is not None:
        body = {"principal": user}
        answer = remote.ask("POST", ("tokens", "revoke"), body) if remote else _revoke_all(ctx, user, as_user)
        output.note(_revoked(answer["revoked"], user))


def _revoked(count: int, user: str) -> str:
    if not count:
        return (
            f"No token was revoked: {user} has none. Names are case-sensitive; see `lakewarden token list`."
        )
    return f"Revoked {count} {'token' if count == 1 else 'tokens'} of {user}."


def _issue(
    settings: Settings, as_user: str | None, principal: Principal, wanted: dict[str, Any]
) -> dict[str, Any]:
    from catalog.http.user_models import IssueToken, TokenIssued

    body = IssueToken.model_validate(wanted)
    with open_state(settings) as state:
        issued = issue_recorded(state, calling(as_user), principal, body.kind, body.ttl)
    return TokenIssued.of(issued).model_dump(mode="json")


def _list(settings: Settings, user: str | None) -> dict[str, Any]:
    from catalog.authorization.tokens import TokenStore
    from catalog.http.user_models import TokenList

    with open_state(settings) as state:
        return TokenList.of(TokenStore(state).list(user)).model_dump(mode="json")


def _id(text: str) -> UUID:
    """Parse the id of a token; refuse a token in its place, which would be sent in a logged address."""
    try:
        return UUID(text)
    except ValueError:
        raise typer.BadParameter(
            "That is not the ID of a token. `lakewarden token list` shows IDs."
        ) from None


def _revoke(settings: Settings, token_id: str, as_user: str | None) -> None:
    from catalog.authorization.tokens import TokenStore

    with open_state(settings) as state, operating(state, calling(as_user)) as begin:
        begin("token.revoke", token_id)
        TokenStore(state).revoke(token_id)


def _revoke_all(ctx: typer.Context, user: str, as_user: str | None) -> dict[str, int]:
    from catalog.authorization.tokens import TokenStore

    with open_state(settings_of(ctx)) as state, operating(state, calling(as_user)) as begin:
        begin("token.revoke", f"user {user}")
        return {"revoked": TokenStore(state).revoke_all(user)}


def _rotate(settings: Settings, as_user: str | None, token_id: str, wanted: RotateToken) -> dict[str, Any]:
    from catalog.authorization.tokens import TokenStore
    from catalog.http.user_models import TokenIssued

    with open_state(settings) as state, operating(state, calling(as_user)) as begin:
        begin("token.issue", f"token {_id(token_id)}")
        issued = TokenStore(state).rotate(token_id, wanted.ttl, wanted.overlap)
    return TokenIssued.of(issued).model_dump(mode="json")


def issue_recorded(
    state: Engine, caller: Caller, principal: Principal, kind: TokenKind, ttl: timedelta | None
) -> IssuedToken:
    """Issue a token, with a record of it.

    Raises:
        as `TokenStore.issue`.
    """
    from catalog.authorization.tokens import TokenStore, new_token_text

    with operating(state, caller) as begin:
        begin("token.issue", new_token_text(principal, kind))
        return TokenStore(state).issue(principal, kind, ttl)


def write_credentials(file: Path, issued: dict[str, Any], principal: Principal, service: str) -> None:
    """Write a new token into a new file for Hadoop's clients (`HADOOP_TOKEN_FILE_LOCATION`).

    Raises:
        RequestInvalid: the file cannot be created.
    """
    now, ends = datetime.now(UTC), issued["expires-at"]
    expires = None if ends is None else datetime.fromisoformat(ends)
    data = credentials_file(issued["token"], principal.name, service, now, expires)
    try:
        create_private(file, data)
    except KmsUnavailable as failure:
        raise RequestInvalid(
            f"The token {issued['id']} was issued, and {failure.message}",
            rule="credentials-file",
            hint=f"Run `lakewarden token revoke {issued['id']}`, and name another file.",
        ) from failure


def _kind(engine: bool, reusable: bool, kms: bool) -> TokenKind:
    if engine and kms:
        raise typer.BadParameter("Give --engine or --kms, not both.")
    if reusable and not engine:
        raise typer.BadParameter("--reusable needs --engine.")
    if engine:
        return "engine-reusable" if reusable else "engine"
    return "kms" if kms else "user"


def _scope(read_only: bool, namespaces: Sequence[str], tables: Sequence[str]) -> TokenScope | None:
    """Return the scope that the options ask for; None if there is none."""
    given = read_only or namespaces or tables
    return TokenScope.of_names(read_only, namespaces, tables) if given else None


def _check_file(kind: TokenKind, credentials: Path | None, service: str | None) -> None:
    from catalog.settings.kms_options import is_kms_address

    if (credentials is None) != (service is None):
        raise typer.BadParameter("Give --hadoop-credentials and --service together.")
    if credentials is not None and kind != "kms":
        raise typer.BadParameter("--hadoop-credentials needs --kms.")
    if service is not None and not is_kms_address(service):
        raise typer.BadParameter(
            f"--service: {service!r} is not the address of a KMS. Give kms://https@HOST:PORT/kms."
        )


def _wanted(principal: Principal, kind: TokenKind, ttl: timedelta | None) -> dict[str, Any]:
    """Build the body that requests a token."""
    wanted = {"principal": principal.name, "kind": kind}
    named = {"groups": sorted(principal.groups), "roles": sorted(principal.roles)}
    scope = {} if principal.scope is None else {"scope": str(principal.scope)}
    return wanted | named | scope | _lifetime(ttl)


def _lifetime(ttl: timedelta | None) -> dict[str, int | None]:
    """Build the part of a body that asks for a lifetime; nothing for the default."""
    if ttl is None:
        return {}
    return {"ttl-s": None if ttl == timedelta.max else int(ttl.total_seconds())}


def _show_issued(issued: dict[str, Any], name: str, file: Path | None, as_json: bool) -> None:
    if as_json:
        if file is not None:
            del issued["token"]
            issued["credentials"] = str(file)
        output.document(issued)
        return
    ends = issued["expires-at"]
    until = "it is revoked" if ends is None else output.moment(datetime.fromisoformat(ends))
    where = "it is not shown again" if file is None else f"it is in {file}"
    output.note(f"Token {issued['id']} of {name}, valid until {until}; {where}.")
    if file is None:
        output.secret(issued["token"])
