"""What a token with a scope can do, of a user who can do everything: each operation is tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from policy.principal import Principal
from policy.token_scope import TokenScope
from tests.authorization.roles import ELSEWHERE, OWN, STEWARD
from tests.authorization.rows import Row, Try
from tests.authorization.test_authorization_matrix import ROWS
from tests.authorization.world import DOOR, PLAIN, VAULT, World, open_world
from tests.support.http_calls import refused
from tests.support.service import TLS

#: Needs of which one is enough: of tokens that read alone.
_READING = {"select", "any", "db:any", "release", "engine", "token", "own-process"}
#: Of tokens that are limited to another namespace; what is listed for them is tested below.
_APART = {"token", "own-process"}
#: Asks nothing of the user. What a KMS client is told at its handshake shows nothing.
_OPEN = {"OPTIONS /kms/v1/{path:path}", "GET /livez", "GET /readyz", "GET /healthz"}
#: The KMS endpoint, and what needs no permission but is a change.
_NEVER = (" /kms/v1/", "DELETE /engine/v1/writes/")
TRIED = [row for row in ROWS if row.bare and STEWARD in row.allowed.split()]


@dataclass(frozen=True)
class _Scoped(Try):
    """A try by the steward with another token."""

    client: httpx.Client | None = None

    @property
    def http(self) -> httpx.Client:
        """The connection with that token."""
        assert self.client is not None
        return self.client


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    memory = Path("/dev/shm")
    with (
        TemporaryDirectory(dir=memory if memory.is_dir() else None) as root,
        open_world(Path(root)) as opened,
    ):
        yield opened


@pytest.mark.parametrize(
    ("scope", "enough"),
    [
        ("read-only", _READING),
        (f"namespace:{ELSEWHERE}", _APART),
        pytest.param(f"table:{ELSEWHERE}.taken", _APART, marks=pytest.mark.nightly),
    ],
)
def test_a_token_does_nothing_outside_of_its_scope(world: World, scope: str, enough: set[str]) -> None:
    with _client(world, scope) as http:
        for row in TRIED:
            answer = row.call(_Scoped(world, STEWARD, False, client=http))
            passes = row.route in _OPEN or _has(row, enough)
            assert answer.is_success == passes, (str(row), answer.status_code, answer.text)
            if not passes:
                assert answer.status_code in (401, 403), str(row)
                assert world.changes() == world.changes_before, str(row)


def test_a_token_of_a_namespace_brings_no_location_into_its_tables(world: World) -> None:
    """The steward can use every location, and every one of these changes is in the namespace."""
    with _client(world, f"namespace:{OWN}") as http:
        for row in ROWS:
            for via in row.via:
                outside = next(each for each in row.states if each.startswith("outside"))
                answer = row.call(_Scoped(world, STEWARD, False, via=via, state=outside, client=http))
                assert answer.status_code == 403, (str(row), via, answer.status_code, answer.text)
                assert world.changes() == world.changes_before, (str(row), via)


def test_a_token_sees_and_does_what_is_in_its_scope(world: World) -> None:
    with _client(world, f"table:{OWN}.{PLAIN}") as http:
        prefix = world.service.prefix
        assert http.get(f"{prefix}/namespaces").json()["namespaces"] == [[OWN]]
        listed = http.get(f"{prefix}/namespaces/{OWN}/tables").json()["identifiers"]
        assert listed == [{"namespace": [OWN], "name": PLAIN}]
        assert http.get(f"{prefix}/namespaces/{OWN}/tables/{PLAIN}").is_success
        assert http.post(f"/engine/v1/tables/{OWN}/{PLAIN}/writes").is_success
        refused(http.get(f"{prefix}/namespaces/{OWN}/tables/{VAULT}"), 403, "NotAuthorized")
    with _client(world, f"read-only namespace:{OWN}") as http:
        assert http.get(f"{prefix}/namespaces/{OWN}/tables/{VAULT}").status_code != 401
        refused(http.post(f"/engine/v1/tables/{OWN}/{PLAIN}/writes"), 403, "NotAuthorized", "token-scope")


def test_the_audit_log_names_the_scope(world: World) -> None:
    with _client(world, f"table:{OWN}.{PLAIN}") as http:
        http.post(f"/engine/v1/tables/{OWN}/{PLAIN}/load", headers={"X-Request-Id": "scoped"})
    records = world.client(STEWARD).get("/admin/v1/audit?limit=1000").json()["records"]
    (record,) = (each for each in records if each["request-id"] == "scoped")
    assert f"table:{OWN}.{PLAIN}" in str(record["reasons"])


def test_a_definer_view_lends_no_token_what_is_outside_of_its_scope(world: World) -> None:
    """A view that the user defines reads with all that they have. So a token with a scope makes none."""
    views = f"{world.service.prefix}/namespaces/{OWN}/views"
    view = world.client(STEWARD).get(f"{views}/{DOOR}").json()["metadata"]
    with _client(world, f"namespace:{OWN}") as http:
        update = {"action": "set-properties", "updates": {"comment": "mine"}}
        answer = http.post(f"{views}/{DOOR}", json={"requirements": [], "updates": [update]})
        refused(answer, 403, "NotAuthorized", "token-scope")
        rename = {
            "source": {"namespace": [OWN], "name": DOOR},
            "destination": {"namespace": [OWN], "name": world.new()},
        }
        refused(
            http.post(f"{world.service.prefix}/views/rename", json=rename),
            403,
            "NotAuthorized",
            "token-scope",
        )
        body = {"name": world.new(), "schema": view["schemas"][0], "view-version": view["versions"][0]}
        body["properties"] = {"security": "definer"}
        refused(http.post(views, json=body), 403, "NotAuthorized", "token-scope")


def _has(row: Row, enough: set[str]) -> bool:
    if any(each in row.route for each in _NEVER):
        return False
    return all(not enough.isdisjoint(need.split("|")) for need in row.needs)


def _client(world: World, scope: str) -> httpx.Client:
    steward = Principal(STEWARD, scope=TokenScope.parse(scope))
    token = world.lake.services.tokens.issue(steward, "user", None).text
    client = httpx.Client(
        base_url=world.service.url, headers={"Authorization": f"Bearer {token}"}, timeout=60, verify=TLS
    )
    client.event_hooks = {"request": [world._note]}
    return client
