"""Opens the catalog for a command: on the host of its database, or over HTTP with `--url`.

- On the host, commands work on the database directly: a user who can read the settings and the database is
  the operator. With `--url` they are requests to `/admin/v1` with the user's own token.
- Policies authorize operations on tables, on the host for the principal that `--as` names. Each decision is
  audited.
- Operations of an operator on tokens and master keys need no policy: they have to work when policies are
  broken, and a user with the database and the keystore cannot be prevented from them. Each is audited before
  and after it happens.
- A command imports its dependencies when it runs, so that help and completion work without database, KMS or
  Arrow.
- The request id in the audit log names the operating system user who ran the command, for any `--as`.
"""

from __future__ import annotations

import os
import pwd
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import typer

from catalog.audit.outcomes import note
from catalog.cli import output
from policy.decision import Decision, Reason
from policy.errors import KmsUnavailable, RequestInvalid
from policy.principal import Principal

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from catalog.authorization.authorizer import Caller
    from catalog.client.http import CatalogClient
    from catalog.kms.interface import KmsClient
    from catalog.kms.local import LocalKms
    from catalog.policy_store.in_force import InForce
    from catalog.service.services import Services
    from catalog.settings.catalog import Settings
    from catalog.settings.kms import KmsSettings

_LONGEST_USER: Final = 40
_LONGEST_TOKEN: Final = 4096
#: The resource in the audit log for a command that is refused before its resource is known.
_COMMAND: Final = "command line"
_OPERATOR: Final = Reason("operator", "Run by an operator on the catalog's host.")


@dataclass(frozen=True, slots=True)
class Session:
    """The catalog that a command works on.

    Attributes:
        config: the settings file that the command line names, or None.
        environ: the environment variables.
        remote: the service that the command line names; None for the catalog on this host.
    """

    config: Path | None
    environ: Mapping[str, str]
    remote: Remote | None = None

    def settings(self) -> Settings:
        """Load the settings.

        Raises:
            RequestInvalid: see `Settings.load`.
            typer.BadParameter: the command line names a service.
        """
        from catalog.settings.catalog import Settings

        if self.remote is not None:
            raise on_the_host()
        return Settings.load(self.config, self.environ)


class Administration(Protocol):
    """The operations of `/admin/v1`, of a service or in this process."""

    def ask(
        self,
        method: str,
        path: Sequence[str],
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Any:
        """Call an operation, and return its JSON document; `path` are the names below `/admin/v1`."""


@dataclass(frozen=True, slots=True)
class Remote:
    """A service, and the token of its user.

    Attributes:
        url: the address of the service.
        token_file: the private file with the user's token.
    """

    url: str
    token_file: Path

    def ask(
        self,
        method: str,
        path: Sequence[str],
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Any:
        """See `Administration`; errors as in `CatalogClient.post`."""
        with output.progress(f"Waiting for {self.url}"):
            return self.client().ask(method, ("admin", "v1", *path), body, query, again=False)

    def client(self) -> CatalogClient:
        """Create the client that sends the requests.

        Raises:
            RequestInvalid: the address is not valid, or the file is not private.
            NotAuthenticated: the file has no token.
        """
        from catalog.client.http import CatalogClient

        return CatalogClient(self.url, self.token())

    def token(self) -> str:
        """Read the user's token.

        Raises:
            RequestInvalid: the file is not private.
        """
        from catalog.crypto.private_files import read_private

        try:
            token = read_private(self.token_file, limit=_LONGEST_TOKEN)
        except KmsUnavailable as failure:
            raise RequestInvalid(
                failure.message, path=failure.path, rule="token-file", hint=failure.hint
            ) from failure
        return token.decode("ascii", "replace").strip()


@contextmanager
def administration(ctx: typer.Context, as_user: str | None) -> Iterator[Administration]:
    """Open the administration API of the catalog that the command line names.

    Args:
        ctx: the running command.
        as_user: the user that a command on the catalog's host acts for; see `calling`.

    Raises:
        typer.BadParameter: `as_user` for a service, where the token determines the user.
        LakewardenError: as `open_services`.
    """
    remote = remote_of(ctx, as_user)
    if remote is not None:
        with output.progress(f"{ctx.command_path}: waiting for {remote.url}"):
            yield remote
        return
    from catalog.http.in_process import InProcess

    with output.progress(ctx.command_path) as tell, open_services(ctx) as services:
        yield InProcess(services, calling(as_user), tell)


def remote_of(ctx: typer.Context, as_user: str | None = None) -> Remote | None:
    """Return the service that the command line names; None for this host. Errors as in `administration`."""
    session: Session = ctx.obj
    if session.remote is not None and as_user is not None:
        raise typer.BadParameter("--as works on the catalog's host. With --url, the token says who acts.")
    return session.remote


def on_the_host() -> typer.BadParameter:
    """Build the error for a command that cannot be sent to a service."""
    return typer.BadParameter(
        "This command works on the catalog's host. Run it there, without --url and --token-file."
    )


def settings_of(ctx: typer.Context) -> Settings:
    """Load the settings of a running command; errors as `Session.settings`."""
    session: Session = ctx.obj
    return session.settings()


def os_user() -> str:
    """Return the operating system's name of this process's user; environment variables are not used."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid-{os.getuid()}"


def calling(as_user: str | None) -> Caller:
    """Return the caller that a command acts for: `as_user`, or the operating system's user.

    Raises:
        RequestInvalid: the name is not valid for a principal.
    """
    from catalog.authorization.authorizer import Caller

    user = os_user()
    principal = Principal(user if as_user is None else as_user)
    return Caller(principal, None, f"cli-{user[:_LONGEST_USER]}-{secrets.token_hex(6)}")


def user_named(
    ctx: typer.Context, name: str, groups: Sequence[str] | None, roles: Sequence[str] | None
) -> Principal:
    """Return the user about whom a command asks: with the groups and roles that are given, or else are known.

    A note says if such a user is refused, whatever policies say.

    Raises:
        RequestInvalid: a name is not valid for a principal.
        StateUnavailable: the database does not answer.
    """
    given = Principal(name, frozenset(groups or ()), frozenset(roles or ()))
    if groups or roles:
        return given
    from catalog.authorization.principals import principals_of

    settings = settings_of(ctx)
    with open_state(settings) as state:
        principals = principals_of(state, settings.identity)
        found = principals.find(name)
    if found is None:
        return given
    if (why := principals.why_unknown(found)) is not None:
        output.note(f"Tokens of the catalog for {name} are refused now ({why}).")
    return found.principal


def open_kms(settings: KmsSettings) -> KmsClient:
    """Open the key management service that the settings describe."""
    from catalog.kms.registry import load_kms
    from catalog.settings.kms import kms_options

    return load_kms(settings.kind, kms_options(settings))


def open_local_kms(settings: Settings) -> LocalKms:
    """Open the local KMS, whose master keys the commands manage.

    Raises:
        RequestInvalid: the settings name another KMS.
    """
    from catalog.kms.local import LocalKms

    kms = open_kms(settings.kms)
    if not isinstance(kms, LocalKms):
        raise RequestInvalid(
            f"The master keys are in the KMS {kms.identifier!r}, not in the local KMS.",
            rule="local-kms",
            hint="Manage them with the tools of that KMS.",
        )
    return kms


def open_services(ctx: typer.Context) -> Services:
    """Open the catalog with all of its parts; use it in a `with` statement.

    Raises:
        as `Services.open` and `open_kms`.
    """
    from catalog.service.services import Services

    settings = settings_of(ctx)
    return Services.open(settings, open_kms(settings.kms))


@contextmanager
def open_state(settings: Settings) -> Iterator[Engine]:
    """Open only the catalog's database, without policies, KMS and storage.

    Raises:
        StateUnavailable: it does not answer, or has the schema of another release.
    """
    from catalog.db import migrate
    from catalog.db.engine import open_database

    engine = open_database(settings.database.url)
    try:
        migrate.check(engine)
        yield engine
    finally:
        engine.dispose()


def policies_in_force(ctx: typer.Context) -> InForce:
    """Load the policies that the service would have in force; neither KMS nor storage is needed.

    Raises:
        PolicyInvalid: they cannot be evaluated.
        StateUnavailable: the database does not answer.
    """
    from catalog.policy_store.documents import PolicyDocuments
    from catalog.policy_store.in_force import InForce

    settings = settings_of(ctx)
    with open_state(settings) as engine:
        return InForce.of(PolicyDocuments(engine, settings.catalog.name).current())


@contextmanager
def acting(services: Services, as_user: str | None, *, changes: bool = True) -> Iterator[Caller]:
    """Yield the caller that a command acts for (`calling`), and record the outcome of the block.

    Args:
        services: the open catalog.
        as_user: see `calling`.
        changes: whether the command changes something.

    Raises:
        StateUnavailable: the outcome could not be recorded.
    """
    from catalog.closing import closed

    caller = calling(as_user)
    with closed(services.authorizer, caller, _COMMAND, changes=changes):
        yield caller


class Begin(Protocol):
    """Records an operation of an operator before it happens; without the record it must not happen."""

    def __call__(self, action: str, resource: str, *more: Reason) -> None: ...


@contextmanager
def operating(engine: Engine, caller: Caller) -> Iterator[Begin]:
    """Run an operation that needs no policy: call `Begin` before the effect; the outcome is recorded.

    Args:
        engine: the catalog's database.
        caller: the operator.

    Raises:
        StateUnavailable: it could not be recorded.
    """
    from catalog.audit.trail import AuditTrail
    from catalog.authorization.authorizer import Authorizer
    from catalog.closing import closed
    from policy.ranger import PolicySet

    trail = AuditTrail(engine)
    authorizer = Authorizer(PolicySet.empty, trail, lambda: datetime.now(UTC))

    def begin(action: str, resource: str, *more: Reason) -> None:
        authorizer.record(caller, action, resource, Decision.allow(_OPERATOR, *more))
        for each in more:
            note(each.rule, each.detail)

    with closing(trail), closed(authorizer, caller, _COMMAND, changes=True):
        yield begin
