"""What the catalog knows of users: groups of an administrator and of a provider, and who is disabled."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from catalog.authorization.known_principals import KnownPrincipal
from catalog.authorization.logouts import Login
from catalog.authorization.principals import Principals
from catalog.authorization.tokens import TokenKind, TokenStore
from catalog.db.engine import open_database
from catalog.settings.identity import IdentitySettings, IssuerSettings
from policy.errors import NotAuthenticated, RequestInvalid
from policy.principal import Principal
from policy.token_scope import TokenScope
from tests.support.clock import WallClock
from tests.support.databases import upgrade

CLAIMS_AGE = timedelta(days=7)
_ISSUERS = {
    name: IssuerSettings(issuer=f"https://{name}.example", audience=("lake",), prefix=f"{name}/")
    for name in ("corp", "other", "kubernetes")
}
IDENTITY = IdentitySettings(claims_max_age_s=CLAIMS_AGE.total_seconds(), issuers=_ISSUERS)


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


def test_a_token_has_the_groups_that_its_user_has_when_it_is_used(
    users: Principals, tokens: TokenStore
) -> None:
    issued = tokens.issue(Principal("ann", frozenset({"staff"}), frozenset({"reader"})), "user", None)
    assert tokens.verify(issued.text, "user") == Principal("ann", {"staff"}, {"reader"})
    users.assign("ann", frozenset({"analysts"}), frozenset())
    assert tokens.verify(issued.text, "user") == Principal("ann", {"analysts"})


def test_issuing_a_token_does_not_change_the_groups_of_a_known_user(tokens: TokenStore) -> None:
    ann = Principal("ann", frozenset({"staff"}))
    tokens.issue(ann, "user", None)
    for same in (ann, Principal("ann")):
        tokens.issue(same, "user", None)
    for other in (Principal("ann", frozenset({"staff", "admins"})), Principal("ann", roles=frozenset({"r"}))):
        with pytest.raises(RequestInvalid) as refused:
            tokens.issue(other, "user", None)
        assert refused.value.rule == "user-groups"
    assert len(tokens.list()) == 3


def test_the_claims_of_the_last_token_count_and_those_of_an_administrator_stay(
    users: Principals, tokens: TokenStore
) -> None:
    users.assign("ann", frozenset({"trusted"}), frozenset())
    own = tokens.issue(Principal("ann"), "user", None)
    first = Principal("ann", frozenset({"staff", "analysts"}), frozenset({"reader"}))
    assert users.claimed(first, "corp") == Principal("ann", {"staff", "analysts", "trusted"}, {"reader"})
    # A group that the user has left in the provider ends with the next token, for the catalog's tokens too.
    assert users.claimed(Principal("ann", frozenset({"staff"})), "corp").groups == {"staff", "trusted"}
    assert tokens.verify(own.text, "user") == Principal("ann", {"staff", "trusted"})


def test_an_older_token_does_not_bring_back_a_group_that_its_user_has_left(
    users: Principals, tokens: TokenStore, clock: WallClock
) -> None:
    own = tokens.issue(Principal("ann"), "user", None)
    since = clock.now
    old, new = Principal("ann", frozenset({"staff", "admins"})), Principal("ann", frozenset({"staff"}))
    assert users.claimed(old, "corp", since) == old
    clock.now += timedelta(minutes=30)
    assert users.claimed(new, "corp", clock.now) == new
    clock.now += timedelta(hours=2)
    for _ in range(2):
        assert users.claimed(old, "corp", since) == new
        assert tokens.verify(own.text, "user") == users.current("ann") == new
    # A group that came and went between two tokens of the same groups stays away too.
    assert users.claimed(new, "corp", clock.now) == new
    assert users.claimed(old, "corp", clock.now - timedelta(minutes=1)) == new


def test_a_newer_token_that_another_process_took_meanwhile_counts(
    engine: Engine, users: Principals, clock: WallClock
) -> None:
    old, new = Principal("ann", frozenset({"admins"})), Principal("ann", frozenset({"staff"}))
    since = clock.now
    users.claimed(Principal("ann"), "corp", since - timedelta(hours=1))

    class Overtaken(Principals):
        def find_by_login(self, name: str, login: Login | None) -> KnownPrincipal | None:
            found = super().find_by_login(name, login)
            users.claimed(new, "corp", since + timedelta(minutes=1))
            return found

    assert Overtaken(engine, clock, IDENTITY).claimed(old, "corp", since) == new


def test_claims_are_as_old_as_their_token(users: Principals, tokens: TokenStore, clock: WallClock) -> None:
    own = tokens.issue(Principal("ann"), "user", None)
    since = clock.now
    clock.now += CLAIMS_AGE + timedelta(seconds=1)
    assert users.claimed(Principal("ann"), "corp", since) == Principal("ann")
    with pytest.raises(NotAuthenticated):
        tokens.verify(own.text, "user")


def test_claims_are_written_when_they_change_or_are_old(
    users: Principals, engine: Engine, clock: WallClock
) -> None:
    claims = Principal("ann", frozenset({"staff"}))
    users.claimed(claims, "corp")
    since = clock.now
    clock.now += timedelta(minutes=59)
    users.claimed(claims, "corp")
    found = users.find("ann")
    assert found is not None and found.claimed_at == since
    clock.now += timedelta(minutes=1)
    users.claimed(claims, "corp")
    found = users.find("ann")
    assert found is not None and (found.claimed_at, found.known_since) == (clock.now, since)


def test_a_user_whom_the_provider_has_not_named_for_too_long_is_refused(
    users: Principals, tokens: TokenStore, clock: WallClock
) -> None:
    own = tokens.issue(Principal("ann"), "user", None)
    users.claimed(Principal("ann", frozenset({"staff"})), "corp")
    clock.now += CLAIMS_AGE
    tokens.verify(own.text, "user")
    assert users.current("ann") is not None
    clock.now += timedelta(seconds=1)
    with pytest.raises(NotAuthenticated):
        tokens.verify(own.text, "user")
    assert users.current("ann") is None
    users.claimed(Principal("ann"), "corp")
    assert tokens.verify(own.text, "user") == Principal("ann")


@pytest.mark.parametrize("kind", ["engine", "engine-reusable"])
def test_a_provider_names_no_engine(
    users: Principals, tokens: TokenStore, clock: WallClock, kind: TokenKind
) -> None:
    engine = Principal("spark", frozenset({"engines"}))
    issued = tokens.issue(engine, kind, None)
    for groups in ({"engines"}, {"untrusted"}):
        with pytest.raises(NotAuthenticated):
            users.claimed(Principal("spark", frozenset(groups)), "corp", clock.now)
    clock.now += CLAIMS_AGE + timedelta(seconds=1)
    assert tokens.verify(issued.text, kind) == engine
    # An engine that is no more leaves its name.
    tokens.revoke(issued.id)
    assert users.claimed(Principal("spark"), "corp", clock.now) == engine
    with pytest.raises(RequestInvalid) as refused:
        tokens.issue(Principal("spark"), kind, None)
    assert refused.value.rule == "engine-name"


def test_a_user_who_left_the_provider_is_known_again_by_what_was_assigned(
    users: Principals, tokens: TokenStore, clock: WallClock
) -> None:
    users.assign("ann", frozenset({"staff"}), frozenset())
    own = tokens.issue(Principal("ann"), "user", None)
    users.claimed(Principal("ann", frozenset({"admins"}), frozenset({"dba"})), "corp")
    clock.now += CLAIMS_AGE + timedelta(seconds=1)
    with pytest.raises(NotAuthenticated):
        tokens.verify(own.text, "user")
    users.forget_claims("ann")
    assert tokens.verify(own.text, "user") == users.current("ann") == Principal("ann", {"staff"})
    assert users.claimed(Principal("ann", frozenset({"admins"})), "corp").groups == {"admins", "staff"}
    with pytest.raises(RequestInvalid):
        users.forget_claims("nobody")


def test_a_disabled_user_is_refused_with_every_token(
    users: Principals, tokens: TokenStore, clock: WallClock
) -> None:
    own = tokens.issue(Principal("ann"), "user", None)
    kms = tokens.issue(Principal("ann"), "kms", None)
    users.disable("ann")
    for each, kind in ((own, "user"), (kms, "kms")):
        with pytest.raises(NotAuthenticated):
            tokens.verify(each.text, kind)  # type: ignore[arg-type]
    with pytest.raises(NotAuthenticated):
        users.claimed(Principal("ann"), "corp")
    assert users.current("ann") is None
    disabled = users.find("ann")
    clock.now += timedelta(days=1)
    assert users.disable("ann") == disabled
    users.disable("ann", disabled=False)
    assert tokens.verify(own.text, "user") == Principal("ann")


def test_names_that_differ_by_case_are_two_users(users: Principals, tokens: TokenStore) -> None:
    users.assign("ann", frozenset({"staff"}), frozenset())
    users.assign("Ann", frozenset(), frozenset())
    assert [each.name for each in users.list()] == ["Ann", "ann"]
    users.disable("Ann")
    assert tokens.verify(tokens.issue(Principal("ann"), "user", None).text, "user").groups == {"staff"}


def test_only_users_with_a_valid_token_or_claims_are_current(
    users: Principals, tokens: TokenStore, clock: WallClock
) -> None:
    users.assign("idle", frozenset({"staff"}), frozenset())
    tokens.issue(Principal("engine"), "engine", None)
    tokens.issue(Principal("ended"), "user", timedelta(minutes=1))
    tokens.revoke(tokens.issue(Principal("revoked"), "user", None).id)
    tokens.issue(Principal("own"), "user", None)
    users.claimed(Principal("claimed"), "corp")
    clock.now += timedelta(minutes=1)
    assert {each.name for each in users.everybody()} == {"own", "claimed"}
    assert users.current("nobody") is None


def test_who_is_not_known_cannot_be_disabled(users: Principals) -> None:
    with pytest.raises(RequestInvalid):
        users.disable("nobody")
    assert users.find("nobody") is None


@pytest.mark.parametrize("name", ["", " ", "a" * 256, "a\nb"])
def test_a_name_that_no_principal_has_is_not_stored(users: Principals, name: str) -> None:
    with pytest.raises(RequestInvalid):
        users.assign(name, frozenset(), frozenset())
    with pytest.raises(RequestInvalid):
        users.assign("ann", frozenset({name}), frozenset())
    assert users.list() == ()


def test_a_token_with_a_scope_makes_nobody_a_current_user(users: Principals, tokens: TokenStore) -> None:
    """Such a token does not administer, and what a user lends by a view is more than it reads."""
    tokens.issue(Principal("ann", scope=TokenScope(read_only=True)), "user", None)
    assert users.current("ann") is None
    assert not users.everybody()
    tokens.issue(Principal("ann"), "user", None)
    assert users.current("ann") == Principal("ann")


def test_claims_of_an_issuer_that_left_the_settings_count_no_longer(
    engine: Engine, users: Principals, tokens: TokenStore, clock: WallClock
) -> None:
    """Nothing is decided: a policy can deny a group that the issuer named."""
    own = tokens.issue(Principal("ann"), "user", None)
    users.claimed(Principal("ann", frozenset({"staff"})), "corp")
    assert tokens.verify(own.text, "user") == users.current("ann") == Principal("ann", {"staff"})
    left = IDENTITY.model_copy(
        update={"issuers": {name: each for name, each in IDENTITY.issuers.items() if name != "corp"}}
    )
    users, tokens = Principals(engine, clock, left), TokenStore(engine, clock, identity=left)
    with pytest.raises(NotAuthenticated) as caught:
        tokens.verify(own.text, "user")
    assert caught.value.why is not None and caught.value.why.startswith("claims-issuer: ")
    assert users.current("ann") is None
    with pytest.raises(NotAuthenticated):
        users.named("ann")
    users.forget_claims("ann")
    assert tokens.verify(own.text, "user") == Principal("ann")
    # Another issuer's token counts in place of them.
    users.claimed(Principal("bob", frozenset({"staff"})), "corp")
    users.claimed(Principal("bob"), "other")
    assert users.current("bob") == Principal("bob")
