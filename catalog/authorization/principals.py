"""Keeps what the catalog knows of users and engines: groups, roles, and whether they are disabled.

- A principal has the groups and roles that an administrator assigned, and those of the access token that its
  identity provider issued last. An older token of the same user changes nothing: a group that they have left
  does not come back with it.
- Claims count until they are older than `identity.claims_max_age_s`, and while their provider is in the
  settings. Nothing is decided for a user whose claims do not count: with unknown groups, a policy that denies
  one of them would be missed.
- A disabled principal is refused, whatever token it has.
- An identity provider names no engine: its user would have the groups of the engine, and the engine those of
  its user. Engines are the principals with a token of an engine that is not revoked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    and_,
    bindparam,
    exists,
    func,
    literal,
    or_,
    select,
    true,
    update,
)

from catalog.authorization.known_principals import DISABLED, KnownPrincipal, known, not_in_force
from catalog.authorization.logouts import Login, has_ended
from catalog.base.times import to_ms
from catalog.db.engine import read, write
from catalog.db.inserts import insert_into
from catalog.db.prepared import Prepared
from catalog.db.schema import lw_principal, lw_token
from catalog.settings.identity import IdentitySettings
from policy.errors import RequestInvalid
from policy.principal import Principal

#: Where no identity provider is in the settings.
NO_PROVIDERS: Final = IdentitySettings()
#: How old the time of the last claims can be in the database before they are written again: for tokens that
#: do not say when they were issued.
_WRITTEN_AFTER: Final = timedelta(hours=1)
_FIND: Final = select(lw_principal).where(lw_principal.c.name == bindparam("wanted"))
_FIND_ALONE: Final = Prepared(_FIND)
_ONE: Final = select(literal(1).label("one")).subquery()
#: Whether the login of a token has ended, and its user, if they are known.
_FIND_BY_LOGIN: Final = Prepared(
    select(has_ended().label("ended"), *lw_principal.c).select_from(
        _ONE.outerjoin(lw_principal, lw_principal.c.name == bindparam("wanted"))
    )
)
#: The kinds of tokens of engines.
ENGINE_KINDS: Final = ("engine", "engine-reusable")
_ENGINE_TOKEN: Final = select(lw_token.c.id).where(
    lw_token.c.principal == bindparam("wanted"),
    lw_token.c.kind.in_(ENGINE_KINDS),
    lw_token.c.revoked_ms.is_(None),
)


class Principals:
    """The users and engines in the catalog's database.

    Args:
        engine: the database, upgraded.
        now: the time, with a zone.
        identity: which claims of identity providers count.
    """

    def __init__(self, engine: Engine, now: Callable[[], datetime], identity: IdentitySettings) -> None:
        self._engine = engine
        self._now = now
        self._identity = identity

    def find(self, name: str) -> KnownPrincipal | None:
        """Return a principal, disabled ones too; None if there is none of this name.

        Raises:
            StateUnavailable: the database does not answer.
        """
        row = _FIND_ALONE.named(self._engine, wanted=name)
        return None if row is None else known(row)

    def find_by_login(self, name: str, login: Login | None) -> KnownPrincipal | None:
        """Return a principal who comes with a login at an identity provider, as `find`.

        Raises:
            NotAuthenticated: the login has ended.
            StateUnavailable: the database does not answer.
        """
        if login is None:
            return self.find(name)
        row = _FIND_BY_LOGIN.named(self._engine, wanted=name, **login.values())
        assert row is not None
        if row["ended"]:
            raise not_in_force("logout: the user has logged out at the identity provider")
        return None if row["name"] is None else known(row)

    def list(self) -> tuple[KnownPrincipal, ...]:
        """Return every principal by name. Errors: `find`."""
        with read(self._engine) as connection:
            rows = connection.execute(select(lw_principal).order_by(lw_principal.c.name)).mappings()
            return tuple(map(known, rows))

    def why_unknown(self, found: KnownPrincipal) -> str | None:
        """Return why nothing is decided for a principal now; None if it is known."""
        return found.why_unknown(self._now(), self._identity)

    def named(self, name: str) -> Principal:
        """Return a user who came without a token; one who is not known has no groups and roles.

        Raises:
            NotAuthenticated: they are disabled, or what their identity provider said does not count any more.
            StateUnavailable: the database does not answer.
        """
        found = self.find(name)
        if found is None:
            return Principal(name)
        if (why := self.why_unknown(found)) is not None:
            raise not_in_force(why)
        return found.principal

    def current(self, name: str) -> Principal | None:
        """Return a user for whom something is decided without a token at hand; None if nothing is.

        That needs fresh claims of a provider, or a valid token of the catalog without a scope.

        Raises:
            StateUnavailable: the database does not answer.
        """
        return next(iter(self._current(lw_principal.c.name == name)), None)

    def everybody(self) -> frozenset[Principal]:
        """Return the users whom `current` returns. Errors: `current`."""
        return frozenset(self._current(true()))

    def _current(self, wanted: ColumnElement[bool]) -> Iterator[Principal]:
        now = self._now()
        has_token = exists().where(
            lw_token.c.principal == lw_principal.c.name,
            lw_token.c.kind == "user",
            _has_no_scope(),
            is_valid(to_ms(now)),
        )
        query = select(lw_principal).where(wanted, or_(lw_principal.c.claimed_ms.is_not(None), has_token))
        with read(self._engine) as connection:
            rows = connection.execute(query).mappings().all()
        found = map(known, rows)
        return (each.principal for each in found if each.why_unknown(now, self._identity) is None)

    def assign(self, name: str, groups: frozenset[str], roles: frozenset[str]) -> KnownPrincipal:
        """Assign groups and roles in place of those that were assigned; a new principal is created.

        Raises:
            RequestInvalid: a name is not valid.
            StateUnavailable: the database does not answer.
        """
        wanted = Principal(name, groups, roles)
        with write(self._engine) as connection:
            ensure(connection, wanted.name, self._now())
            _update(connection, name, groups=_listed(wanted.groups), roles=_listed(wanted.roles))
            return required_principal(connection, name)

    def disable(self, name: str, *, disabled: bool = True) -> KnownPrincipal:
        """Refuse a principal from now on, or no longer.

        Raises:
            RequestInvalid: there is no such principal.
            StateUnavailable: the database does not answer.
        """
        with write(self._engine) as connection:
            found = required_principal(connection, name)
            if disabled != (found.disabled_at is not None):
                _update(connection, name, disabled_ms=to_ms(self._now()) if disabled else None)
            return required_principal(connection, name)

    def forget_claims(self, name: str) -> KnownPrincipal:
        """Forget the groups and roles that an identity provider named, and when: those assigned are left.

        Raises:
            RequestInvalid: there is no such principal.
            StateUnavailable: the database does not answer.
        """
        with write(self._engine) as connection:
            required_principal(connection, name)
            _update(connection, name, issuer=None, claimed_groups=None, claimed_roles=None, claimed_ms=None)
            return required_principal(connection, name)

    def claimed(
        self,
        claims: Principal,
        issuer: str,
        issued_at: datetime | None = None,
        login: Login | None = None,
    ) -> Principal:
        """Take the groups and roles of an access token, and return the user with those of an administrator.

        Args:
            claims: the user as the token names it.
            issuer: the provider, by its name in the settings.
            issued_at: when the token was issued, if it says so. A token that was issued before the last one
                does not change what is known of its user.
            login: the login that the token comes from, for a provider that tells of logouts.

        Raises:
            NotAuthenticated: the login has ended, the user is disabled, or an engine has this name.
            StateUnavailable: the database does not answer.
        """
        found = self.find_by_login(claims.name, login)
        if found is None or self._is_news(found, claims, issuer, issued_at):
            found = self._write(claims, issuer, issued_at or self._now())
        if found.disabled_at is not None:
            raise not_in_force(DISABLED)
        return found.principal

    def _is_news(
        self, found: KnownPrincipal, claims: Principal, issuer: str, issued_at: datetime | None
    ) -> bool:
        if found.issuer != issuer or found.claimed_at is None:
            return True
        differs = (found.claimed_groups, found.claimed_roles) != (claims.groups, claims.roles)
        if issued_at is None:
            return differs or self._now() - found.claimed_at >= _WRITTEN_AFTER
        # Two tokens of one second: the last one counts that came.
        return issued_at > found.claimed_at or (differs and issued_at == found.claimed_at)

    def _write(self, claims: Principal, issuer: str, claimed_at: datetime) -> KnownPrincipal:
        row, claimed_ms = lw_principal.c, to_ms(claimed_at)
        with write(self._engine) as connection:
            ensure(connection, claims.name, self._now())
            hold(connection, claims.name)
            if connection.execute(_ENGINE_TOKEN, {"wanted": claims.name}).first() is not None:
                raise not_in_force("engine: an engine has this name")
            connection.execute(
                update(lw_principal)
                # Another process can have written those of a newer token.
                .where(
                    row.name == claims.name,
                    or_(row.claimed_ms.is_(None), row.claimed_ms <= claimed_ms, row.issuer != issuer),
                )
                .values(
                    issuer=issuer,
                    claimed_groups=_listed(claims.groups),
                    claimed_roles=_listed(claims.roles),
                    claimed_ms=claimed_ms,
                )
            )
            return required_principal(connection, claims.name)


def principals_of(engine: Engine, identity: IdentitySettings) -> Principals:
    """Return the principals in a database, by the time of this host."""
    return Principals(engine, lambda: datetime.now(UTC), identity)


def is_valid(now_ms: int) -> ColumnElement[bool]:
    """Return the condition of tokens that are neither revoked nor expired."""
    expires = lw_token.c.expires_ms
    return and_(lw_token.c.revoked_ms.is_(None), or_(expires.is_(None), expires > now_ms))


def revoke_every(connection: Connection, name: str, now_ms: int) -> int:
    """Revoke the tokens of a principal, expired ones too: a key of an engine outlives its token's time.

    Returns:
        how many were valid until now.
    """
    hold(connection, name)
    mine = (lw_token.c.principal == name, lw_token.c.revoked_ms.is_(None))
    valid = select(func.count()).select_from(lw_token).where(*mine, is_valid(now_ms))
    count = connection.execute(valid).scalar_one()
    connection.execute(update(lw_token).where(*mine).values(revoked_ms=now_ms))
    return count


def _has_no_scope() -> ColumnElement[bool]:
    """Return the condition of tokens with which a user can do all that policies grant."""
    return lw_token.c.scope.is_(None)


def introduce(connection: Connection, principal: Principal, now: datetime) -> None:
    """Create a principal; one that is known already has to have the groups and roles that are given, if any.

    Raises:
        RequestInvalid: it has others.
    """
    is_new = ensure(connection, principal.name, now)
    found = require_known(connection, principal.name)
    if not principal.groups and not principal.roles:
        return
    if not is_new and (principal.groups, principal.roles) != (found.groups, found.roles):
        raise RequestInvalid(
            f"The user {principal.name!r} is known with other groups or roles.",
            rule="user-groups",
            hint=f"Give none, or change them first with `lakewarden user assign {principal.name}`.",
        )
    _update(connection, principal.name, groups=_listed(principal.groups), roles=_listed(principal.roles))


def ensure(connection: Connection, name: str, now: datetime) -> bool:
    """Create a principal without groups, if there is none of this name; return whether there was none."""
    new = insert_into(connection, lw_principal)
    new = new.values(name=name, groups="[]", roles="[]", known_since_ms=to_ms(now))
    added = new.on_conflict_do_nothing(index_elements=["name"]).returning(lw_principal.c.name)
    return connection.execute(added).first() is not None


def require_no_claims(connection: Connection, name: str) -> None:
    """Refuse to make an engine of a user whom an identity provider named.

    Raises:
        RequestInvalid: one did.
    """
    if require_known(connection, name).claimed_at is not None:
        raise RequestInvalid(
            f"An identity provider has named the user {name!r}, so no engine can have this name.",
            rule="engine-name",
            hint="Give the engine another name.",
        )


def require_known(connection: Connection, name: str) -> KnownPrincipal:
    """Return a principal, whom no other transaction deletes until this one ends.

    A deletion that came meanwhile is seen. A later one waits, and finds what this transaction leaves.

    Raises:
        RequestInvalid: there is none of this name.
    """
    hold(connection, name)
    return required_principal(connection, name)


def hold(connection: Connection, name: str) -> None:
    """Let no other transaction change which tokens a principal has, until this one ends."""
    # SQLite has one writer at a time. On PostgreSQL, the next statement sees what was committed meanwhile.
    connection.execute(select(lw_principal.c.name).where(lw_principal.c.name == name).with_for_update())


def _find(connection: Connection, name: str) -> KnownPrincipal | None:
    row = connection.execute(_FIND, {"wanted": name}).mappings().one_or_none()
    return None if row is None else known(row)


def required_principal(connection: Connection, name: str) -> KnownPrincipal:
    """Return a principal.

    Raises:
        RequestInvalid: there is none of this name.
    """
    found = _find(connection, name)
    if found is None:
        raise RequestInvalid(
            f"The catalog knows no user {name!r}.",
            rule="user",
            hint="Run `lakewarden user list`. Names differ by case.",
        )
    return found


def _update(connection: Connection, name: str, **values: object) -> None:
    connection.execute(update(lw_principal).where(lw_principal.c.name == name).values(**values))


def _listed(names: frozenset[str]) -> str:
    return json.dumps(sorted(names))
