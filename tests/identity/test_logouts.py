"""Back-channel logout: a login that ended at its provider has no valid token any more."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlalchemy import Engine, func, select

from catalog.authorization.logouts import Login, Logout, Logouts
from catalog.authorization.principals import NO_PROVIDERS, Principals
from catalog.db.engine import open_database, read
from catalog.db.schema import lw_logout
from catalog.http import boundary
from catalog.identity.access_tokens import AccessTokens
from catalog.service import service_log
from catalog.settings.identity import IssuerSettings
from policy.errors import NotAuthenticated
from policy.principal import Principal
from tests.support.clock import WallClock
from tests.support.databases import upgrade
from tests.support.http_calls import refused
from tests.support.identity_provider import (
    AUDIENCE,
    LOGOUT_AUDIENCE,
    IdentityProvider,
    identity_provider,
    rsa_key,
)
from tests.support.lake import ALICE, BOB
from tests.support.service import Service, open_service

LOGOUT = "/identity/v1/logout"
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
EVENT = "http://schemas.openid.net/event/backchannel-logout"
ISSUER = "https://login.example"
LIFETIME = timedelta(hours=1)
ANN = Principal("ann")


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[Service]:
    """A service whose provider tells of logouts."""
    settings = {
        "IDENTITY__ISSUERS__CORP__ISSUER": provider.url,
        "IDENTITY__ISSUERS__CORP__AUDIENCE": AUDIENCE,
        "IDENTITY__ISSUERS__CORP__LOGOUT_AUDIENCE": LOGOUT_AUDIENCE,
        "IDENTITY__ISSUERS__CORP__MAX_LIFETIME_S": "3600",
    }
    with open_service(tmp_path_factory.mktemp("lake"), **settings) as running:
        yield running


@pytest.fixture
def nobody(served: Service) -> Iterator[httpx.Client]:
    with served.client(None) as client:
        yield client


@pytest.fixture
def alice(served: Service) -> Iterator[httpx.Client]:
    with served.client(ALICE) as client:
        yield client


def _status(client: httpx.Client, token: str) -> int:
    return client.get("/v1/config", headers={"Authorization": f"Bearer {token}"}).status_code


def _log_out(client: httpx.Client, token: str) -> httpx.Response:
    return client.post(LOGOUT, data={"logout_token": token})


def test_callers_without_a_token_who_go_away_do_not_fill_the_log(
    served: Service, nobody: httpx.Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Attack: requests that end in their body, each of which was a line, and a failure of the service."""
    monkeypatch.setattr(service_log, "_AGAIN_S", 1e9)
    url = httpx.URL(served.url)
    head = f"POST {LOGOUT} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n".encode() + FORM
    with caplog.at_level(logging.INFO, "lakewarden.http"):
        for _ in range(boundary._STRANGERS_A_MINUTE + 30):
            with socket.create_connection((url.host, url.port)) as connection:
                connection.sendall(head + b"\r\nlo")
                connection.shutdown(socket.SHUT_WR)
                connection.recv(1)
    lines = [each for each in caplog.records if each.name == "lakewarden.http"]
    assert 0 < len(lines) <= boundary._STRANGERS_A_MINUTE
    assert {each.levelno for each in lines} == {logging.INFO}


def test_a_token_replayed_after_logout_is_refused(
    served: Service, provider: IdentityProvider, nobody: httpx.Client
) -> None:
    ended = provider.token(ALICE, sid="s1")
    others = [provider.token(ALICE, sid="s2"), provider.token(BOB, sid="s3"), served.token(ALICE)]
    assert _status(nobody, ended) == 200
    answer = _log_out(nobody, provider.logout_token(sid="s1"))
    assert (answer.status_code, answer.content, answer.headers["Cache-Control"]) == (200, b"", "no-store")
    assert _status(nobody, ended) == 401
    assert _status(nobody, provider.token(ALICE, sid="s1", iat=int(time.time()) + 5)) == 401
    assert [_status(nobody, each) for each in others] == [200, 200, 200]


def test_all_sessions_of_a_subject_end_and_later_ones_do_not(
    provider: IdentityProvider, nobody: httpx.Client
) -> None:
    now = int(time.time())
    ended = [provider.token("eve", iat=now - 1), provider.token("eve", iat=now, sid="e1")]
    assert [_status(nobody, each) for each in ended] == [200, 200]
    assert _log_out(nobody, provider.logout_token(sub="eve", iat=now)).status_code == 200
    assert [_status(nobody, each) for each in ended] == [401, 401]
    assert _status(nobody, provider.token("eve", iat=now + 1)) == 200


def test_a_logout_token_that_is_sent_again_changes_nothing(
    served: Service, provider: IdentityProvider, nobody: httpx.Client, alice: httpx.Client
) -> None:
    now = int(time.time())
    once = provider.logout_token(sub="zoe", iat=now)
    for _ in range(3):
        assert _log_out(nobody, once).status_code == 200
    # An earlier one, which comes later, neither.
    assert _log_out(nobody, provider.logout_token(sub="zoe", iat=now - 30)).status_code == 200
    assert _status(nobody, provider.token("zoe", iat=now)) == 401
    assert _status(nobody, provider.token("zoe", iat=now + 1)) == 200
    records = alice.get("/admin/v1/audit?limit=1000").json()["records"]
    mine = [each for each in records if "'zoe'" in str(each["reasons"])]
    assert [(each["action"], each["resource"], each["allowed"]) for each in mine] == [
        ("identity.logout", "corp", True)
    ]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("check", "claims"),
    [
        *(("audience", {"aud": each}) for each in (AUDIENCE, None, ["other"])),
        *(("purpose", {"events": each}) for each in (None, {}, [EVENT], {EVENT: True}, {"other": {}}, EVENT)),
        *(("purpose", {"nonce": each}) for each in ("n", "", False)),
        *(("type", {"jti": each}) for each in (None, "", 7)),
        *(("type", {"sid": each}) for each in ("", 7, ["x"])),
        ("type", {"sub": {"name": "x"}}),
        ("login", {"sid": None}),
        ("expired", {"exp": None}),
        ("expired", {"exp": 1}),
        *(("lifetime", each) for each in ({"iat": None}, {"exp": int(time.time()) + 7200})),
        ("not-yet-valid", {"iat": int(time.time()) + 1000}),
        ("issuer", {"iss": "https://other.example"}),
    ],
)
def test_what_is_no_logout_token_ends_nothing(
    served: Service, provider: IdentityProvider, nobody: httpx.Client, check: str, claims: dict[str, object]
) -> None:
    token = provider.token(ALICE, sid="stays")
    wrong = provider.logout_token(**{"sid": "stays", **claims})
    answer = _log_out(nobody, wrong)
    told = refused(answer, 400, "RequestInvalid", "logout-token")
    assert f"{check}: " not in json.dumps(told)
    assert _status(nobody, token) == 200
    with pytest.raises(NotAuthenticated, match="not valid") as caught:
        served.lake.services.bearer_tokens.logout(wrong)
    assert caught.value.why is not None and caught.value.why.startswith(f"{check}: ")


def test_no_access_token_ends_a_login_and_no_logout_token_is_one(
    provider: IdentityProvider, nobody: httpx.Client
) -> None:
    access = provider.token(ALICE, sid="s9", aud=[AUDIENCE, LOGOUT_AUDIENCE])
    assert _log_out(nobody, access).status_code == 400
    assert _status(nobody, access) == 200
    logout = provider.logout_token(sub=ALICE, aud=[AUDIENCE, LOGOUT_AUDIENCE])
    assert _status(nobody, logout) == 401
    for typ, signs in (("at+jwt", 400), ("logout+jwt", 200), ("secevent+jwt", 400)):
        claims = {"sid": f"typ-{typ}", "aud": LOGOUT_AUDIENCE, "jti": "1", "events": {EVENT: {}}}
        assert _log_out(nobody, provider.signed(provider.claims(**claims), {"typ": typ})).status_code == signs
    forged = provider.signed(provider.claims(**claims), {"kid": "first"}, rsa_key("second"))
    assert _log_out(nobody, forged).status_code == 400


@pytest.mark.parametrize(
    "claims", [{"iat": None}, {"exp": time.time() + 24 * 3600}, {"sub": None}, {"sid": 7}]
)
def test_a_token_that_no_logout_could_end_is_refused(
    provider: IdentityProvider, nobody: httpx.Client, claims: dict[str, object]
) -> None:
    assert _status(nobody, provider.token("kim", **claims)) == 401


def test_a_form_with_one_logout_token_is_needed(provider: IdentityProvider, nobody: httpx.Client) -> None:
    token = provider.logout_token(sid="s1")
    form = "application/x-www-form-urlencoded"
    for content, kind, status in (
        (f"logout_token={token}", form, 200),
        (f"logout_token={token}&state=x", f"{form}; charset=utf-8", 200),
        (f"logout_token={token}", "application/json", 415),
        (f"logout_token={token}&logout_token={token}", form, 400),
        (f"logout_token={token}&logout_token=", form, 400),
        (f"token={token}", form, 400),
        ("", form, 400),
        ("logout_token=" + "x" * 40_000, form, 413),
        ("logout_token=\u00e9", form, 400),
    ):
        answer = nobody.post(LOGOUT, content=content, headers={"Content-Type": kind})
        assert answer.status_code == status, (content[:60], answer.text)


def test_without_the_setting_there_is_no_logout(provider: IdentityProvider) -> None:
    issuer = IssuerSettings(issuer=provider.url, audience=(AUDIENCE,))
    accepted = AccessTokens({"corp": issuer}, time.time, time.monotonic)
    with pytest.raises(NotAuthenticated):
        accepted.logout(provider.logout_token(sid="s1", aud=AUDIENCE))
    # Its tokens need none of the claims.
    assert accepted.verify(provider.token("kim", iat=None)).login is None
    with pytest.raises(ValidationError, match="max_lifetime_s"):
        IssuerSettings(issuer=provider.url, audience=(AUDIENCE,), logout_audience=(LOGOUT_AUDIENCE,))


@dataclass
class _Processes:
    """Two processes on one database."""

    logouts: Logouts
    users: Principals
    engine: Engine


@pytest.fixture
def clock() -> WallClock:
    return WallClock()


@pytest.fixture(params=["sqlite", "postgresql"])
def processes(request: pytest.FixtureRequest, tmp_path: Path, clock: WallClock) -> Iterator[_Processes]:
    url = f"sqlite:///{tmp_path}/lakewarden.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").create_database()
    one, other = (open_database(url) for _ in range(2))
    upgrade(one)
    yield _Processes(Logouts(one, clock), Principals(other, clock, NO_PROVIDERS), one)
    one.dispose()
    other.dispose()


def _is_refused(users: Principals, login: Login | None) -> bool:
    try:
        users.claimed(ANN, "corp", None if login is None else login.issued_at, login)
    except NotAuthenticated as refusal:
        assert refusal.why is not None and refusal.why.startswith("logout: ")
        return True
    return False


def test_a_logout_that_another_process_took_counts_with_the_next_request(
    processes: _Processes, clock: WallClock
) -> None:
    login = Login(ISSUER, "s1", "ann", clock.now)
    assert not _is_refused(processes.users, login)
    processes.logouts.add(Logout(ISSUER, "s1", None, clock.now, LIFETIME))
    assert _is_refused(processes.users, login)
    # Of another issuer, another session, or another subject that has the session's name.
    for other in (
        Login("https://other.example", "s1", "ann", clock.now),
        Login(ISSUER, "s2", "ann", clock.now),
        Login(ISSUER, None, "s1", clock.now),
        None,
    ):
        assert not _is_refused(processes.users, other)


def test_a_user_who_has_not_come_yet_is_refused_too(processes: _Processes, clock: WallClock) -> None:
    processes.logouts.add(Logout(ISSUER, None, "ann", clock.now, LIFETIME))
    assert _is_refused(processes.users, Login(ISSUER, "s1", "ann", clock.now))
    assert processes.users.find("ann") is None


def test_a_token_without_session_ends_with_any_session_of_its_subject(
    processes: _Processes, clock: WallClock
) -> None:
    processes.logouts.add(Logout(ISSUER, "s1", "ann", clock.now, LIFETIME))
    later = clock.now + timedelta(seconds=1)
    assert _is_refused(processes.users, Login(ISSUER, None, "ann", clock.now))
    assert not _is_refused(processes.users, Login(ISSUER, None, "ann", later))
    assert not _is_refused(processes.users, Login(ISSUER, "s2", "ann", clock.now))


def test_a_logout_is_kept_as_long_as_it_can_end_a_token(processes: _Processes, clock: WallClock) -> None:
    begun = clock.now
    processes.logouts.add(Logout(ISSUER, "s1", None, begun, LIFETIME))
    clock.now += LIFETIME - timedelta(seconds=1)
    processes.logouts.add(Logout(ISSUER, "s2", None, clock.now, LIFETIME))
    assert _is_refused(processes.users, Login(ISSUER, "s1", "ann", begun))
    clock.now += timedelta(seconds=1)
    processes.logouts.add(Logout(ISSUER, "s3", None, clock.now, LIFETIME))
    with read(processes.engine) as connection:
        assert connection.scalar(select(func.count()).select_from(lw_logout)) == 2


_NAME = st.sampled_from([None, "a", "b"])
_SECOND = st.integers(0, 3).map(lambda second: datetime(2030, 1, 1, second=second, tzinfo=UTC))


@given(_NAME, _NAME, _SECOND, _NAME, _NAME, _SECOND)
def test_the_keys_of_a_logout_are_those_of_the_logins_that_it_ends(
    session: str | None,
    subject: str | None,
    issued: datetime,
    ended: str | None,
    ended_subject: str | None,
    at: datetime,
) -> None:
    values = Login(ISSUER, session, subject, issued).values()
    named = set(Logout(ISSUER, ended, ended_subject, at, LIFETIME).named())
    by_name = {each for each in values if values[each] in named}
    assert ("session" in by_name) == (session is not None and session == ended)
    same = subject is not None and subject == ended_subject
    assert ("subject" in by_name) == (same and ended is None)
    assert ("without_session" in by_name) == (same and ended is not None and session is None)
