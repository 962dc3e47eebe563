"""Users who are deleted: what they had ends, and a later user of the same name gets none of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import Engine

from catalog.authorization.principals import Principals, hold
from catalog.authorization.tokens import TokenStore
from catalog.authorization.user_deletion import delete_user
from catalog.db.engine import open_database, write
from catalog.settings.identity import IdentitySettings, IssuerSettings
from policy.errors import NotAuthenticated, RequestInvalid
from policy.principal import Principal
from tests.support.clock import WallClock
from tests.support.databases import upgrade
from tests.support.postgres import PostgresServer

CORP = IssuerSettings(issuer="https://login.example", audience=("lake",))
IDENTITY = IdentitySettings(issuers={"corp": CORP})
ANN = Principal("ann", frozenset({"staff"}), frozenset({"reader"}))


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path}/lakewarden.db")
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture
def users(engine: Engine, clock: WallClock) -> Principals:
    return Principals(engine, clock, IDENTITY)


@pytest.fixture
def tokens(engine: Engine, clock: WallClock) -> TokenStore:
    return TokenStore(engine, clock, identity=IDENTITY)


def _delete(engine: Engine, clock: WallClock, identity: IdentitySettings = IDENTITY) -> int:
    return delete_user(engine, identity, clock.now, "ann")


def test_a_later_user_of_the_name_has_nothing_of_a_user_who_was_deleted(
    engine: Engine, clock: WallClock, users: Principals, tokens: TokenStore
) -> None:
    issued = [tokens.issue(ANN, kind, None) for kind in ("user", "user", "kms")]  # type: ignore[arg-type]
    tokens.revoke(issued[0].id)
    users.claimed(Principal("ann", frozenset({"admins"})), "corp")
    assert _delete(engine, clock) == 2
    assert users.find("ann") is None
    assert not tokens.list("ann")
    assert users.current("ann") is None
    for _ in range(2):
        for each in issued:
            with pytest.raises(NotAuthenticated):
                tokens.verify(each.text, "user", "kms")
        # A user of the same name comes.
        own = tokens.issue(Principal("ann"), "user", None)
        assert tokens.verify(own.text, "user") == Principal("ann")
    with pytest.raises(RequestInvalid, match="knows no user"):
        delete_user(engine, IDENTITY, clock.now, "nobody")


def test_a_disabled_user_whom_a_provider_can_name_is_not_deleted(
    engine: Engine, clock: WallClock, users: Principals
) -> None:
    """Their next token would make them again, as somebody who is not disabled."""
    users.claimed(ANN, "corp")
    users.disable("ann")
    with pytest.raises(RequestInvalid, match="corp"):
        _delete(engine, clock)
    with pytest.raises(NotAuthenticated):
        users.claimed(ANN, "corp")
    # Of a provider that is not in the settings, no token comes.
    _delete(engine, clock, IdentitySettings())
    assert users.find("ann") is None


@pytest.mark.parametrize("attack", ["claims are forgotten", "never came"])
def test_no_detour_enables_a_disabled_user_by_deleting_them(
    engine: Engine, clock: WallClock, users: Principals, attack: str
) -> None:
    """Attack: the provider names the user, but nothing is known of that any more, or not yet."""
    if attack == "never came":
        users.assign("ann", frozenset(), frozenset())
    else:
        users.claimed(ANN, "corp")
    users.disable("ann")
    users.forget_claims("ann")
    with pytest.raises(RequestInvalid, match="corp"):
        _delete(engine, clock)
    with pytest.raises(NotAuthenticated):
        users.claimed(ANN, "corp")
    # A provider whose names all begin with another prefix cannot name them.
    _delete(engine, clock, IdentitySettings(issuers={"k8s": CORP.model_copy(update={"prefix": "k8s:"})}))
    assert users.find("ann") is None


def test_a_token_that_is_issued_while_its_user_is_deleted_is_no_token_of_a_later_user(
    postgres: PostgresServer, clock: WallClock
) -> None:
    engine = open_database(postgres.create_database())
    upgrade(engine)
    tokens, outcome = TokenStore(engine, clock), []

    def issue() -> None:
        try:
            outcome.append(tokens.issue(Principal("ann"), "user", None).text)
        except RequestInvalid:
            outcome.append("")

    try:
        tokens.issue(ANN, "user", None)
        with write(engine) as connection:
            hold(connection, "ann")
            waiting = [Thread(target=issue), Thread(target=_delete, args=(engine, clock))]
            for each in waiting:
                each.start()
                each.join(0.3)
        for each in waiting:
            each.join()
        # Whichever came first, no token that is valid is left for a later user.
        (text,) = outcome
        known = Principals(engine, clock, IDENTITY).find("ann")
        tokens.issue(Principal("ann"), "user", None)
        if known is None and text:
            with pytest.raises(NotAuthenticated):
                tokens.verify(text, "user")
    finally:
        engine.dispose()
