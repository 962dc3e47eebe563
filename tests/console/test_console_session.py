"""Sessions of the console: login, logout, cookies, forms of other sites, and what ends a session."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import select

from catalog.audit.trail import read as read_audit
from catalog.authorization.console_sessions import MOST_SESSIONS, ConsoleSessions
from catalog.db.engine import read
from catalog.db.schema import lw_console_session
from catalog.http.app import create_app
from catalog.http.console.app import ROUTERS
from catalog.http.console.routes import ConsoleRoute
from policy.errors import NotAuthenticated, RequestInvalid
from policy.principal import Principal
from policy.token_scope import TokenScope
from tests.support.clock import WallClock
from tests.support.console import COOKIE, URL, Browser, browser, session_in, text_of
from tests.support.lake import ALICE, BOB, CAROL, lake_settings, open_lake
from tests.support.service import Service, open_service

PATHS = sorted(route.path for router in ROUTERS for route in router.routes if "GET" in (route.methods or ()))
GUARDED = sorted(
    route.path
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, ConsoleRoute) and "GET" in (route.methods or ())
)


def _is_logged_in(opened: Browser) -> bool:
    return opened.get("/console").status_code == 200


def test_there_is_no_console_unless_the_settings_have_its_address(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        paths = [getattr(route, "path", "") for route in create_app(lake.services).routes]
    assert not [path for path in paths if path.startswith("/console")]


@pytest.mark.parametrize(
    "url",
    [
        "http://lake.example",
        "https://lake.example/console",
        "https://Lake.example",
        "https://a@lake.example",
        "https://lake.example:443",
        "lake.example",
        "https://lake.example?x",
    ],
)
def test_an_address_that_others_can_listen_to_or_that_is_ambiguous_is_refused(
    tmp_path: Path, url: str
) -> None:
    with pytest.raises(RequestInvalid, match="console"):
        lake_settings(tmp_path, CONSOLE__URL=url)


def test_a_login_sets_a_cookie_that_scripts_and_other_sites_cannot_use(served: Service) -> None:
    answer = browser(served, None).log_in(served.token(ALICE))
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")
    name, *flags = (part.strip() for part in answer.headers["set-cookie"].split(";"))
    assert name.startswith(f"{COOKIE}=")
    assert {flag.lower() for flag in flags} == {"httponly", "secure", "path=/", "samesite=strict"}


def test_without_tls_the_cookie_has_no_prefix_that_browsers_would_refuse(tmp_path: Path) -> None:
    url = "http://127.0.0.1:8181"
    with open_service(tmp_path, CONSOLE__URL=url) as service:
        opened = browser(service, None)
        answer = opened.post("/console/login", origin=url, token=service.token(ALICE))
    assert answer.headers["set-cookie"].startswith("lakewarden-console=")
    assert "Secure" not in answer.headers["set-cookie"]


def test_a_token_that_is_not_valid_begins_no_session_and_is_on_record(served: Service) -> None:
    wrong = "lw_" + "0" * 32 + "_" + "s" * 43
    answer = browser(served, None).log_in(wrong)
    assert answer.status_code == 401 and session_in(answer) is None
    assert wrong not in answer.text and answer.headers["www-authenticate"].startswith("Bearer")
    last = read_audit(served.lake.services.engine, principal="", limit=1)[0].record
    assert (last.action, last.allowed) == ("authenticate", False)
    assert wrong not in repr(last)


def test_tokens_of_engines_begin_no_session(served: Service) -> None:
    assert browser(served, None).log_in(served.engine_token()).status_code == 401


def test_logins_are_on_record(served: Service) -> None:
    browser(served, BOB)
    found = [each.record for each in read_audit(served.lake.services.engine, principal=BOB, limit=10)]
    assert [each.action for each in found if each.allowed] == ["console.login"]


def test_the_token_is_in_no_page_header_or_database_row(served: Service) -> None:
    token = served.token(ALICE)
    opened = browser(served)
    for path in GUARDED:
        answer = opened.get(path, name="db.t", kind="ranger", user=token, resource=f"table:db.{token}")
        assert token not in answer.text and token not in repr(answer.headers.raw)
    with read(served.lake.services.engine) as connection:
        rows = connection.execute(select(lw_console_session)).all()
    assert rows and opened.cookie is not None
    assert not [row for row in rows if token.encode() in row.sealed_token or opened.cookie in repr(row)]


def test_a_cookie_is_no_token_for_the_api(served: Service) -> None:
    """Attack: a copied cookie."""
    opened = browser(served)
    for headers in ({"Authorization": f"Bearer {opened.cookie}"}, {"Cookie": f"{COOKIE}={opened.cookie}"}):
        assert opened.client.get("/v1/config", headers=headers).status_code == 401


def test_a_logout_ends_the_session_and_not_the_token(served: Service) -> None:
    opened, other = browser(served), browser(served)
    answer = opened.post("/console/logout")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/login")
    assert session_in(answer) is None and "Max-Age=0" in answer.headers["set-cookie"]
    assert opened.get("/console").status_code == 401
    assert _is_logged_in(other)


def test_each_login_begins_a_new_session_and_ends_the_one_before(served: Service) -> None:
    """Attack: a session that the attacker began, planted in a browser."""
    opened = browser(served, BOB)
    planted = opened.cookie
    opened.log_in(served.token(ALICE))
    assert opened.cookie != planted
    assert not _is_logged_in(Browser(opened.client, planted))
    assert ALICE in text_of(opened.get("/console"))


def test_a_link_on_another_site_logs_nobody_out(served: Service) -> None:
    """Attack: browsers send no cookie with such a link, and obey `Set-Cookie` in the answer."""
    opened = browser(served, None)
    for path in GUARDED:
        assert "set-cookie" not in opened.get(path).headers
    assert "set-cookie" not in opened.get("/console/login").headers


def test_a_login_that_fails_leaves_the_session(served: Service) -> None:
    opened = browser(served)
    assert "set-cookie" not in opened.post("/console/login", token="x").headers
    assert _is_logged_in(opened)


def test_the_cookie_of_a_session_that_is_over_is_forgotten(served: Service) -> None:
    opened = browser(served)
    opened.post("/console/logout")
    assert "Max-Age=0" in opened.get("/console").headers["set-cookie"]


@pytest.mark.parametrize("cookie", ["", "x", "A" * 43, "A" * 44, "é", '"', "A" * 5_000])
def test_a_made_up_cookie_is_no_session(served: Service, cookie: str) -> None:
    opened = browser(served, None)
    answer = opened.client.get("/console", headers={"Cookie": f"{COOKIE}={cookie}".encode()})
    assert answer.status_code == 401


def test_a_cookie_that_is_sent_twice_is_no_session(served: Service) -> None:
    """Attack: a second cookie of the same name, from another path."""
    mine, theirs = browser(served, ALICE), browser(served, BOB)
    both = {"Cookie": f"{COOKIE}={mine.cookie}; {COOKIE}={theirs.cookie}"}
    assert mine.client.get("/console", headers=both).status_code == 401


@pytest.mark.parametrize(
    "origin", [None, "null", "https://evil.example", "http://lake.example", f"{URL}:444"]
)
@pytest.mark.parametrize("path", ["/console/login", "/console/logout"])
def test_a_form_of_another_site_is_refused(served: Service, path: str, origin: str | None) -> None:
    """Attack: a page of another site logs its visitor in as the attacker, or out."""
    opened = browser(served)
    fields = {"token": served.token(BOB)} if path.endswith("login") else {}
    answer = opened.post(path, origin=origin, **fields)
    assert answer.status_code == 403 and "console-origin" in answer.text
    assert session_in(answer) is None and _is_logged_in(opened)


def test_an_origin_that_is_sent_twice_is_refused(served: Service) -> None:
    opened = browser(served)
    headers = [("Origin", URL), ("Origin", "https://evil.example"), ("Cookie", f"{COOKIE}={opened.cookie}")]
    assert opened.client.post("/console/logout", headers=headers).status_code == 403


@pytest.mark.parametrize("fields", [{}, {"token": "x", "next": "https://evil.example"}, {"tokens": "x"}])
def test_a_login_takes_a_token_alone_and_no_address_to_go_to(served: Service, fields: dict[str, str]) -> None:
    assert browser(served, None).post("/console/login", **fields).status_code in (400, 415)


def test_a_login_form_is_bounded(served: Service) -> None:
    assert browser(served, None).post("/console/login", token="x" * 30_000).status_code == 413


def test_a_session_ends_with_its_token(served: Service) -> None:
    """Revoked, its user disabled: the next request is refused."""
    tokens, principals = served.lake.services.tokens, served.lake.services.principals
    issued = tokens.issue(Principal("dora"), "user", None)
    opened = browser(served, None)
    opened.log_in(issued.text)
    assert _is_logged_in(opened)
    principals.disable("dora")
    assert not _is_logged_in(opened)
    principals.disable("dora", disabled=False)
    assert _is_logged_in(opened)
    tokens.revoke(issued.id)
    assert not _is_logged_in(opened)


def test_the_scope_of_the_token_limits_the_session(served: Service) -> None:
    scope = TokenScope.parse("namespace:elsewhere")
    issued = served.lake.services.tokens.issue(Principal(ALICE, scope=scope), "user", None)
    opened = browser(served, None)
    assert opened.log_in(issued.text).status_code == 303
    assert opened.get("/console").status_code == 200
    assert opened.get("/console/audit").status_code == 403
    assert browser(served, ALICE).get("/console/audit").status_code == 200


@pytest.mark.parametrize("path", GUARDED)
def test_every_page_needs_a_session(served: Service, path: str) -> None:
    answer = browser(served, None).get(path)
    assert answer.status_code == 401 and 'name="token"' in answer.text


@pytest.mark.parametrize("path", PATHS)
def test_pages_are_not_cached_run_no_script_and_load_nothing_from_elsewhere(
    served: Service, path: str
) -> None:
    headers = browser(served).get(path).headers
    assert headers["cache-control"] == "no-store" and headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin" and headers["x-frame-options"] == "DENY"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
    assert policy.pop("style-src") == policy.pop("img-src") == policy.pop("form-action") == "'self'"
    assert set(policy) == {"default-src", "frame-ancestors", "base-uri"} and set(policy.values()) == {
        "'none'"
    }


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_pages_have_no_other_methods(served: Service, path: str, method: str) -> None:
    answer = browser(served).client.request(method, path, headers={"Origin": URL})
    assert answer.status_code == 405


def test_every_page_only_reads() -> None:
    """Forms of login and logout, and of documents to compare, are all that is posted."""
    posted = {r.path for router in ROUTERS for r in router.routes if "GET" not in (r.methods or ())}
    assert posted <= {"/console/login", "/console/logout", "/console/difference"}


def test_a_session_is_over_after_its_time_whatever_its_token_says(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        clock = WallClock()
        sessions = ConsoleSessions(lake.services.engine, clock, timedelta(hours=1))
        cookie = sessions.begin(ALICE, "a token")
        clock.now += timedelta(minutes=59)
        assert sessions.token(cookie) == "a token"
        clock.now += timedelta(minutes=1)
        with pytest.raises(NotAuthenticated):
            sessions.token(cookie)


def test_a_user_has_a_bounded_number_of_sessions_and_the_oldest_ends(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        clock = WallClock()
        sessions = ConsoleSessions(lake.services.engine, clock, timedelta(hours=1))
        others = sessions.begin(CAROL, "carol's")
        cookies = []
        for number in range(MOST_SESSIONS + 2):
            clock.now += timedelta(seconds=1)
            cookies.append(sessions.begin(ALICE, f"token {number}"))
        for each in cookies[:2]:
            with pytest.raises(NotAuthenticated):
                sessions.token(each)
        assert [sessions.token(each) for each in cookies[2:]] == [f"token {n}" for n in range(2, 22)]
        assert sessions.token(others) == "carol's"


def test_a_row_that_was_copied_to_another_session_does_not_open(tmp_path: Path) -> None:
    """Attack: a writer of the database gives their session the token of another user."""
    with open_lake(tmp_path) as lake:
        sessions = lake.services.console_sessions
        mine, theirs = sessions.begin(BOB, "bob's"), sessions.begin(ALICE, "alice's")
        with lake.services.engine.begin() as connection:
            stolen = select(lw_console_session.c.sealed_token).where(lw_console_session.c.principal == ALICE)
            connection.execute(
                lw_console_session.update()
                .where(lw_console_session.c.principal == BOB)
                .values(sealed_token=stolen.scalar_subquery())
            )
        with pytest.raises(NotAuthenticated):
            sessions.token(mine)
        assert sessions.token(theirs) == "alice's"
