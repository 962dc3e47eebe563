"""Bearer tokens: shown once, kept as a hash, refused for any fault with one and the same sentence."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import Engine, select, text, update

from catalog.authorization.tokens import TokenStore
from catalog.db.engine import open_database, read, write
from catalog.db.schema import lw_token
from policy.errors import NotAuthenticated, RequestInvalid, StateUnavailable
from policy.principal import Principal
from policy.token_scope import TokenScope
from tests.support.clock import WallClock
from tests.support.databases import upgrade
from tests.support.postgres import PostgresServer

_ANN = Principal("ann", frozenset({"analysts", "staff"}), frozenset({"reader"}))


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
def tokens(engine: Engine, clock: WallClock) -> TokenStore:
    return TokenStore(engine, clock)


def test_a_token_speaks_for_its_principal_with_groups_and_roles(tokens: TokenStore) -> None:
    issued = tokens.issue(_ANN, "user", None)
    assert re.fullmatch(r"lw_[0-9a-f]{32}_[A-Za-z0-9_-]{43}", issued.text)
    assert tokens.verify(issued.text, "user") == _ANN


def test_the_text_is_neither_shown_again_nor_kept(tokens: TokenStore, engine: Engine) -> None:
    issued = tokens.issue(_ANN, "user", None)
    _, _, secret = issued.text.split("_", 2)
    with read(engine) as connection:
        stored = connection.execute(select(lw_token)).all()
    for shown in (repr(issued), str(issued), repr(tokens.list()), repr(stored)):
        assert secret not in shown
    assert secret.encode() not in Path(str(engine.url.database)).read_bytes()


def _refusal(tokens: TokenStore, text: str, kind: str = "user") -> str:
    with pytest.raises(NotAuthenticated) as refused:
        tokens.verify(text, kind)  # type: ignore[arg-type]
    return str(refused.value)


def test_every_fault_gives_the_same_refusal(tokens: TokenStore, clock: WallClock) -> None:
    good, revoked = tokens.issue(_ANN, "user", None), tokens.issue(_ANN, "user", None)
    expired = tokens.issue(_ANN, "user", timedelta(minutes=1))
    tokens.revoke(revoked.id)
    clock.now += timedelta(minutes=1)
    prefix, identity, secret = good.text[:3], good.text[3:35], good.text[36:]
    other_last = "A" if secret[-1] != "A" else "B"
    faults = [
        _refusal(tokens, text)
        for text in (
            "",
            "lw_",
            secret,
            revoked.text,
            expired.text,
            f"{prefix}{uuid.uuid4().hex}_{secret}",
            f"{prefix}{identity}_{secret[:-1]}{other_last}",
            f"{prefix}{identity}_{'A' * 43}",
            f"{prefix}{identity}_",
            f"{prefix}{identity.upper()}_{secret}",
            f"{prefix}{revoked.id.hex}_{secret}",
            f" {good.text}",
            f"{good.text}\n",
            f"{good.text[:-1]}\n",
            good.text * 100_000,
            good.text[:-1] + "é",
            good.text[:-1] + "\ud800",
            good.text[:-1] + "\x00",
            f"lw_{'0' * 31}１_{secret}",
        )
    ]
    assert len({*faults, _refusal(tokens, good.text, "engine")}) == 1
    assert not any(secret in fault for fault in faults)
    assert tokens.verify(good.text, "user") == _ANN


def test_an_engine_token_is_no_user_token(tokens: TokenStore) -> None:
    issued = tokens.issue(Principal("spark"), "engine", None)
    assert tokens.verify(issued.text, "engine") == Principal("spark")
    _refusal(tokens, issued.text, "user")


def test_a_token_expires_at_its_time(tokens: TokenStore, clock: WallClock) -> None:
    issued = tokens.issue(_ANN, "user", timedelta(seconds=10))
    clock.now += timedelta(seconds=9.999)
    assert tokens.verify(issued.text, "user") == _ANN
    clock.now += timedelta(seconds=0.001)
    _refusal(tokens, issued.text)


def test_revocation_takes_effect_at_once_in_another_store(tokens: TokenStore, engine: Engine) -> None:
    issued = tokens.issue(_ANN, "user", None)
    assert tokens.verify(issued.text, "user") == _ANN
    TokenStore(engine).revoke(issued.id.hex)
    _refusal(tokens, issued.text)


def test_revoking_twice_keeps_the_first_time(tokens: TokenStore, clock: WallClock) -> None:
    issued = tokens.issue(_ANN, "user", None)
    tokens.revoke(issued.id)
    first = clock.now
    clock.now += timedelta(days=1)
    tokens.revoke(str(issued.id))
    assert tokens.list()[0].revoked_at == first


@pytest.mark.parametrize("token_id", [uuid.uuid4(), "nonsense", "lw_secret"])
def test_revoking_what_does_not_exist_is_an_error(tokens: TokenStore, token_id: uuid.UUID | str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        tokens.revoke(token_id)
    assert str(token_id) not in str(refused.value)


def test_list_names_every_token_with_its_times(tokens: TokenStore, clock: WallClock) -> None:
    first = tokens.issue(_ANN, "user", timedelta(hours=1))
    clock.now += timedelta(seconds=1)
    second = tokens.issue(Principal("spark"), "engine", None)
    listed = tokens.list()
    assert [(info.id, info.kind, info.principal.name) for info in listed] == [
        (first.id, "user", "ann"),
        (second.id, "engine", "spark"),
    ]
    assert (listed[0].expires_at, listed[1].expires_at) == (first.expires_at, None)
    assert listed[0].created_at == clock.now - timedelta(seconds=1)


@pytest.mark.parametrize(
    ("principal", "kind", "ttl"),
    [
        (_ANN, "admin", None),
        (_ANN, "user", timedelta(0)),
        (_ANN, "user", timedelta(seconds=-1)),
    ],
)
def test_what_cannot_be_issued_is_refused(
    tokens: TokenStore, principal: Principal, kind: str, ttl: timedelta | None
) -> None:
    with pytest.raises(RequestInvalid):
        tokens.issue(principal, kind, ttl)  # type: ignore[arg-type]
    assert tokens.list() == ()


def test_without_the_database_nobody_is_authenticated(tokens: TokenStore, engine: Engine) -> None:
    issued = tokens.issue(_ANN, "user", None)
    Path(str(engine.url.database)).unlink()
    with pytest.raises(StateUnavailable):
        tokens.verify(issued.text, "user")


def test_every_token_of_a_user_is_revoked_at_once(tokens: TokenStore, clock: WallClock) -> None:
    valid = [tokens.issue(_ANN, "user", None), tokens.issue(_ANN, "kms", timedelta(hours=1))]
    tokens.issue(_ANN, "user", timedelta(seconds=1))
    bob = tokens.issue(Principal("bob"), "user", None)
    clock.now += timedelta(seconds=1)
    assert tokens.revoke_all("ann") == len(valid)
    for each, kind in zip(valid, ("user", "kms"), strict=True):
        _refusal(tokens, each.text, kind)
    assert tokens.verify(bob.text, "user") == Principal("bob")
    assert tokens.revoke_all("ann") == tokens.revoke_all("nobody") == 0


def test_a_rotated_token_is_valid_for_the_overlap(tokens: TokenStore, clock: WallClock) -> None:
    old = tokens.issue(_ANN, "user", timedelta(days=1))
    new = tokens.rotate(old.id, timedelta(days=90), timedelta(hours=1))
    for each in (old, new):
        assert tokens.verify(each.text, "user") == _ANN
    clock.now += timedelta(hours=1)
    _refusal(tokens, old.text)
    assert tokens.verify(new.text, "user") == _ANN
    assert new.expires_at == clock.now - timedelta(hours=1) + timedelta(days=90)


def test_a_rotation_does_not_lengthen_the_life_of_a_token(tokens: TokenStore, clock: WallClock) -> None:
    old = tokens.issue(_ANN, "user", timedelta(minutes=1))
    tokens.rotate(old.id, None, timedelta(hours=1))
    clock.now += timedelta(minutes=1)
    _refusal(tokens, old.text)


def test_what_is_not_valid_is_not_rotated(tokens: TokenStore, clock: WallClock) -> None:
    revoked, expired = tokens.issue(_ANN, "user", None), tokens.issue(_ANN, "user", timedelta(seconds=1))
    tokens.revoke(revoked.id)
    clock.now += timedelta(seconds=1)
    for each in (revoked.id, expired.id, uuid.uuid4(), "lw_secret"):
        with pytest.raises(RequestInvalid):
            tokens.rotate(each, None, timedelta(hours=1))
    assert len(tokens.list()) == 2


def test_a_use_that_cannot_be_noted_refuses_nobody(
    engine: Engine, tokens: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise sqlite3.OperationalError("the disk failed")

    issued = tokens.issue(_ANN, "user", None)
    with monkeypatch.context() as patch:
        patch.setattr(engine.dialect, "do_commit", fail)
        assert tokens.verify(issued.text, "user") == _ANN
    assert tokens.list()[0].used_at is None


class _Interrupted(WallClock):
    """A clock that does something when it is asked for the time, once."""

    def __init__(self, calls: int, act: Callable[[], object]) -> None:
        super().__init__()
        self._calls, self._act = calls, act

    def __call__(self) -> datetime:
        self._calls -= 1
        if self._calls == 0:
            self._act()
        return super().__call__()


def test_a_token_that_is_revoked_while_it_is_rotated_is_not_replaced(
    engine: Engine, tokens: TokenStore
) -> None:
    old = tokens.issue(_ANN, "user", None)
    rotating = TokenStore(engine, _Interrupted(1, lambda: tokens.revoke_all("ann")))
    with pytest.raises(RequestInvalid):
        rotating.rotate(old.id, None, timedelta(hours=1))
    assert len(tokens.list()) == 1


def test_who_revokes_all_tokens_during_a_rotation_revokes_the_new_one(postgres: PostgresServer) -> None:
    url = postgres.create_database()
    engine, other = open_database(url), open_database(url)
    upgrade(engine)
    tokens = TokenStore(engine, WallClock())
    old = tokens.issue(_ANN, "user", timedelta(days=1))
    revoking = Thread(target=TokenStore(other, WallClock()).revoke_all, args=("ann",))

    def revoke() -> None:
        revoking.start()
        while revoking.is_alive() and not _waits_for_a_lock(engine):
            revoking.join(0.01)

    # The second call is in the transaction of the rotation, which has decided that the token is valid.
    new = TokenStore(engine, _Interrupted(2, revoke)).rotate(old.id, None, timedelta(hours=1))
    revoking.join()
    for each in (old, new):
        _refusal(tokens, each.text)
    for each_engine in (engine, other):
        each_engine.dispose()


def _waits_for_a_lock(engine: Engine) -> bool:
    waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with read(engine) as connection:
        return bool(connection.execute(waiting).scalar_one())


def test_a_token_says_when_it_was_last_used(tokens: TokenStore, clock: WallClock) -> None:
    issued = tokens.issue(_ANN, "user", None)
    assert tokens.list()[0].used_at is None
    first = clock.now
    tokens.verify(issued.text, "user")
    clock.now += timedelta(minutes=9)
    tokens.verify(issued.text, "user")
    assert tokens.list()[0].used_at == first
    clock.now += timedelta(minutes=1)
    tokens.verify(issued.text, "user")
    _refusal(tokens, issued.text[:-1] + "!")
    assert tokens.list()[0].used_at == clock.now


def test_tokens_are_listed_by_user(tokens: TokenStore) -> None:
    tokens.issue(_ANN, "user", None)
    bob = tokens.issue(Principal("bob"), "user", None)
    assert [each.id for each in tokens.list("bob")] == [bob.id]
    assert tokens.list("Bob") == ()


def test_a_token_has_the_scope_that_it_was_issued_with_and_so_has_its_successor(tokens: TokenStore) -> None:
    scoped = Principal("ann", scope=TokenScope.parse("read-only table:sales.orders"))
    issued = tokens.issue(scoped, "user", None)
    successor = tokens.rotate(issued.id, None, timedelta(hours=1))
    assert tokens.verify(issued.text, "user") == tokens.verify(successor.text, "user") == scoped
    assert {each.scope for each in tokens.list()} == {"read-only table:sales.orders"}
    # Another token of the same user has none.
    assert tokens.verify(tokens.issue(Principal("ann"), "user", None).text, "user").scope is None


@pytest.mark.parametrize("stored", ["", "read-only everything", "READ-ONLY", "table:orders", "namespace:"])
def test_a_token_with_a_scope_that_cannot_be_read_is_refused(
    tokens: TokenStore, engine: Engine, stored: str
) -> None:
    issued = tokens.issue(Principal("ann", scope=TokenScope(read_only=True)), "user", None)
    with write(engine) as connection:
        connection.execute(update(lw_token).values(scope=stored))
    with pytest.raises(NotAuthenticated) as caught:
        tokens.verify(issued.text, "user")
    assert caught.value.why is not None and caught.value.why.startswith("scope: ")
    # It can still be found, and revoked.
    assert [each.scope for each in tokens.list()] == [stored]
    tokens.revoke(issued.id)


def test_a_scope_is_for_tokens_of_users_alone(tokens: TokenStore) -> None:
    scoped = Principal("ann", scope=TokenScope(read_only=True))
    for kind in ("engine", "engine-reusable", "kms"):
        with pytest.raises(RequestInvalid, match="scope"):
            tokens.issue(scoped, kind, None)  # type: ignore[arg-type]
    assert not tokens.list()
