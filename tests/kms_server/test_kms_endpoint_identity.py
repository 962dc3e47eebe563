"""Who is believed at the KMS endpoint, and who is not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
import pytest
from starlette.datastructures import Headers

from catalog.audit.reading import read
from catalog.kms_server.hadoop_token import KIND, _number, _sized, credentials_file, secret_of
from catalog.kms_server.identity import COOKIE, DELEGATION_HEADER, Visit
from catalog.settings.catalog import Settings
from policy.errors import NotAuthenticated, RequestInvalid
from policy.principal import Principal
from tests.support.hadoop_tokens import delegation_token
from tests.support.kms_endpoint import endpoint_policies
from tests.support.lake import ALICE, lake_settings
from tests.support.service import TLS, Service, open_service
from tests.support.vectors import each_row

NAMES: Final = "/kms/v1/keys/names"


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """An endpoint that believes no client's own name."""
    root = tmp_path_factory.mktemp("strict")
    with open_service(root, policies=endpoint_policies(), KMS_ENDPOINT__ENABLED="true") as running:
        yield running


def ask(service: Service, *, path: str = NAMES, **headers: str) -> httpx.Response:
    """A request with these headers alone, underscores in their names as dashes."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.get(f"{service.url}{path}", headers=given, timeout=30, verify=TLS)


def turned_away(answer: httpx.Response) -> None:
    """Nobody, and loud: a standard client shows the error and no masks."""
    assert answer.status_code == 401, answer.text
    assert answer.json()["RemoteException"]["javaClassName"] == "java.lang.SecurityException"
    assert answer.json()["error"]["lakewarden"] == "NotAuthenticated"


def cookie_of(service: Service, user: str, **headers: str) -> str | None:
    """What a handshake sets."""
    answer = httpx.options(
        f"{service.url}{NAMES}?user.name={quote(user, safe='')}", headers=headers, timeout=30, verify=TLS
    )
    assert (answer.status_code, answer.content) == (200, b"")
    found = answer.headers.get("Set-Cookie")
    return found.split(";")[0] if found else None


def test_tokens_of_users_and_of_the_kms_endpoint_open_it(strict: Service) -> None:
    for kind in ("user", "kms"):
        token = strict.token(ALICE, kind)
        assert ask(strict, Authorization=f"Bearer {token}").status_code == 200
        assert ask(strict, X_Hadoop_Delegation_Token=delegation_token(token)).status_code == 200


def test_tokens_of_the_kms_endpoint_open_nothing_else(strict: Service) -> None:
    token = strict.token(ALICE, "kms")
    for path in (f"{strict.prefix}/namespaces", "/admin/v1/policies", "/metrics", "/v1/config"):
        answer = ask(strict, path=path, Authorization=f"Bearer {token}")
        assert answer.status_code == 401, path


def test_tokens_of_engines_revoked_ones_and_none_open_nothing(strict: Service) -> None:
    revoked = strict.lake.services.tokens.issue(strict.lake.caller(ALICE).principal, "kms", None)
    strict.lake.services.tokens.revoke(revoked.id)
    for text in (strict.engine_token(), revoked.text, "lw_x", ""):
        turned_away(ask(strict, Authorization=f"Bearer {text}".strip()))
        turned_away(ask(strict, X_Hadoop_Delegation_Token=delegation_token(text)))
    turned_away(ask(strict))


def test_no_two_credentials_no_token_in_the_address_and_nobody_else_to_act_for(served: Service) -> None:
    token = served.token(ALICE, "kms")
    bearer = {"Authorization": f"Bearer {token}"}
    assert ask(served, **bearer).status_code == 200
    turned_away(ask(served, **bearer, X_Hadoop_Delegation_Token=delegation_token(token)))
    turned_away(ask(served, path=f"{NAMES}?user.name=alice", **bearer))
    turned_away(ask(served, **bearer, Cookie=cookie_of(served, ALICE) or ""))
    two = [cookie_of(served, user) or "" for user in (ALICE, "carol")]
    turned_away(ask(served, Cookie="; ".join(two)))
    turned_away(
        httpx.get(f"{served.url}{NAMES}", headers=[("Cookie", each) for each in two], timeout=30, verify=TLS)
    )
    for more in ("doAs=carol", "DOAS=carol", f"delegation={delegation_token(token)}", f"token={token}"):
        turned_away(ask(served, path=f"{NAMES}?{more}", **bearer))
        turned_away(ask(served, path=f"{NAMES}?user.name=alice&{more}"))
    turned_away(ask(served, path=f"{NAMES}?user.name=alice&user.name=carol"))


def test_who_names_himself_is_believed_only_where_the_settings_say_so(
    served: Service, strict: Service
) -> None:
    assert ask(served, path=f"{NAMES}?user.name=alice").status_code == 200
    turned_away(ask(strict, path=f"{NAMES}?user.name=alice"))
    assert cookie_of(strict, ALICE) is None


def test_a_disabled_user_who_names_themselves_is_refused_and_others_have_their_groups(
    served: Service,
) -> None:
    users, identification = served.lake.services.principals, served.lake.services.identification
    users.assign("dora", frozenset({"hr"}), frozenset({"dba"}))
    query, given = f"{NAMES}?user.name=dora", cookie_of(served, "dora")
    assert given is not None
    local = Visit(Headers({"Host": "localhost"}), [("user.name", "dora")], None, "127.0.0.1", "1.1")
    assert identification.principal(local) == Principal("dora", {"hr"}, {"dba"})
    users.disable("dora")
    turned_away(ask(served, path=query))
    turned_away(ask(served, Cookie=given))
    users.disable("dora", disabled=False)
    assert ask(served, path=query).status_code == ask(served, Cookie=given).status_code == 200


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "10.0.0.1"},
        {"X-Forwarded-Host": "kms.example"},
        {"Forwarded": "for=10.0.0.1"},
        {"X-Real-IP": "10.0.0.1"},
        {"Via": "1.1 proxy"},
        {"X-Forwarded-Proto": "https"},
        {"X-Forwarded-Server": "proxy"},
        {"X-Original-Forwarded-For": "10.0.0.1"},
        {"X-Client-IP": "10.0.0.1"},
        {"True-Client-IP": "10.0.0.1"},
        {"CF-Connecting-IP": "10.0.0.1"},
        {"Origin": "https://attacker.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "attacker.example"},
        {"Host": "localhost.attacker.example"},
        {"Host": "127.0.0.1@attacker.example"},
        {"Host": ""},
    ],
)
def test_who_comes_through_a_proxy_or_by_another_name_is_not(
    served: Service, headers: dict[str, str]
) -> None:
    turned_away(httpx.get(f"{served.url}{NAMES}?user.name=alice", headers=headers, timeout=30, verify=TLS))
    assert cookie_of(served, ALICE, **headers) is None
    given = cookie_of(served, ALICE)
    assert given is not None
    turned_away(
        httpx.get(f"{served.url}{NAMES}", headers={**headers, "Cookie": given}, timeout=30, verify=TLS)
    )


def test_who_comes_as_nginx_passes_requests_on_is_not_believed(served: Service) -> None:
    host = served.url.removeprefix("http://")
    for version, status in (("1.0", 401), ("1.1", 200)):
        with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2])), timeout=30) as connection:
            asked = f"GET {NAMES}?user.name=alice HTTP/{version}\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            connection.sendall(asked.encode())
            assert int(connection.makefile("rb").readline().split()[1]) == status


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("user", ["", " ", "a&u=alice", 'a"b', "a\nb", "a" * 129, "-a", "{OWNER}", "ä"])
def test_names_that_nobody_has_are_not_believed(served: Service, user: str) -> None:
    assert cookie_of(served, user) is None
    turned_away(ask(served, path=f"{NAMES}?user.name={quote(user, safe='')}"))


def test_cookie_counts_as_long_as_it_is_ours_and_not_expired(served: Service, strict: Service) -> None:
    given = cookie_of(served, ALICE)
    assert given is not None and given.startswith(f'{COOKIE}="u=alice&p=alice&t=simple-dt&e=')
    assert ask(served, Cookie=given).status_code == 200
    signature = given.index("&s=") + 3
    for changed in (
        given.replace("alice", "carol"),
        given.replace("u=alice", "u=carol"),
        given.replace("&e=", "&e=9"),
        given[:signature] + "0" * 64 + '"',
        given[: signature - 3] + '"',
        f'{COOKIE}=""',
        f'{COOKIE}="alice"',
    ):
        turned_away(ask(served, Cookie=changed))
    turned_away(ask(strict, Cookie=given))


def test_expired_cookie_is_refused(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    identification = served.lake.services.identification
    given = cookie_of(served, ALICE)
    later = identification._now_ms() + 3_600_000
    monkeypatch.setattr(identification, "_now_ms", lambda: later)
    turned_away(ask(served, Cookie=given or ""))


def test_settings_believe_names_on_loopback_alone(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        assert _pseudo(tmp_path, host).kms_endpoint.pseudo
    for host in ("0.0.0.0", "::", "10.0.0.1", "lake.example"):
        with pytest.raises(RequestInvalid, match=r"kms_endpoint\.pseudo"):
            _pseudo(tmp_path, host)


def _pseudo(root: Path, host: str) -> Settings:
    return lake_settings(root, KMS_ENDPOINT__PSEUDO="true", HTTP__HOST=host)


def test_kms_endpoint_is_disabled_by_default(tmp_path: Path) -> None:
    with open_service(tmp_path) as shut:
        for method in ("GET", "OPTIONS"):
            answer = httpx.request(method, f"{shut.url}{NAMES}", timeout=30, verify=TLS)
            assert answer.status_code == 404


def test_who_is_turned_away_is_on_record(strict: Service) -> None:
    turned_away(ask(strict))
    found = read(
        strict.lake.services.engine, since_ms=None, principal=None, table=None, before=None, limit=100
    )
    assert any((each.record.action, each.record.resource) == ("authenticate", "127.0.0.1") for each in found)


@pytest.mark.parametrize("service", ["kms://https@kms1.example;kms2.example:9600/kms", "kms://http@h:1/k"])
def test_file_of_credentials_holds_the_token_for_its_service(service: str) -> None:
    now = datetime(2026, 11, 22, tzinfo=UTC)
    data = credentials_file("lw_secret", "ann", service, now, None)
    assert data.startswith(b"HDTS\0\1") and data.endswith(b"\0")
    assert data.count(service.encode()) == 2 and b"\x09lw_secret\x06kms-dt" in data


@each_row(
    "text",
    [
        "",
        "A",
        "AAAA",
        "!!!!",
        "A" * 5000,
        delegation_token("x")[:-4],
        delegation_token("x") + "AAAA",
        delegation_token("x", kind="HDFS_DELEGATION_TOKEN"),
        delegation_token("\N{LATIN SMALL LETTER A WITH DIAERESIS}"),
    ],
)
def test_what_is_no_delegation_token_of_ours_is_refused(text: str) -> None:
    with pytest.raises(NotAuthenticated):
        secret_of(text)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 255, 256, 3000])
def test_lengths_are_hadoops(length: int) -> None:
    """WritableUtils.writeVLong: one byte up to 127, else a mark and the bytes."""
    assert _sized(bytes(length))[: -length or None] == _number(length)
    expected = {0: b"\0", 127: b"\x7f", 128: b"\x8f\x80", 256: b"\x8e\x01\x00"}
    assert expected.get(length, _number(length)) == _number(length)
    if length:
        assert secret_of(delegation_token("s" * length)) == "s" * length
    assert KIND == "kms-dt" and DELEGATION_HEADER == "X-Hadoop-Delegation-Token"
