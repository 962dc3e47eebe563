"""The authorization matrix: every operation, every role, every state of a location.

The table (`rows_*.py`, `places.py`) says who may do what. A model that knows nothing of the product
(`model.py`) and the running service answer the same questions; all three agree in every cell. An operation of
the service without a row fails: add it to the table, with what it needs and who may.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from catalog.http.app import create_app
from tests.authorization import model, places
from tests.authorization.roles import ANONYMOUS, ELSEWHERE, ENGINE_ALONE, OWN, ROLES, STEWARD, WITH_TOKEN
from tests.authorization.rows import Row, Try
from tests.authorization.rows_admin import ADMIN_ROWS
from tests.authorization.rows_engine import ENGINE_ROWS
from tests.authorization.rows_iceberg import ROWS as ICEBERG_ROWS
from tests.authorization.rows_keys import KEY_ROWS
from tests.authorization.rows_kms_endpoint import ROWS as KMS_ENDPOINT_ROWS
from tests.authorization.rows_policies import ROWS as POLICY_ROWS
from tests.authorization.rows_rewrites import ROWS as REWRITE_ROWS
from tests.authorization.rows_snapshots import ROWS as SNAPSHOT_ROWS
from tests.authorization.rows_views import ROWS as VIEW_ROWS
from tests.authorization.world import ABSENT, DOOR, PLAIN, SIGHT, VAULT, World, open_world
from tests.support.http_calls import refused

ROWS = (
    *ICEBERG_ROWS,
    *ENGINE_ROWS,
    *ADMIN_ROWS,
    *KEY_ROWS,
    *REWRITE_ROWS,
    *SNAPSHOT_ROWS,
    *VIEW_ROWS,
    *POLICY_ROWS,
    *KMS_ENDPOINT_ROWS,
)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    # In memory where there is such a place: thousands of answers are recorded, and none of them has to last.
    memory = Path("/dev/shm")
    with (
        TemporaryDirectory(dir=memory if memory.is_dir() else None) as root,
        open_world(Path(root)) as opened,
    ):
        yield opened


def served_operations(world: World) -> set[str]:
    """Method and path of every route of the service."""
    routes = list(iter_route_contexts(create_app(world.lake.services).routes))
    assert all(route.methods for route in routes), "what is mounted or spoken over sockets has no row"
    return {f"{method} {route.path}" for route in routes for method in route.methods or ()}


def test_every_operation_has_a_row_and_every_row_an_operation(world: World) -> None:
    listed = {row.route for row in ROWS}
    served = served_operations(world)
    assert sorted(served - listed) == [], "an operation that is not in the authorization matrix"
    assert sorted(listed - served) == [], "a row of an operation that there is not"


def test_rows_are_told_apart_by_their_case() -> None:
    assert [name for name, count in Counter(map(str, ROWS)).items() if count > 1] == []


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_table_and_model_agree(row: Row) -> None:
    """Who may, as the table spells it out, is who has what the operation needs."""
    assert row.allowed.split() == sorted(row.allowed.split(), key=_order)
    assert set(row.allowed.split()) == {role for role in ROLES if model.permits(role, row.needs)}


#: Who is refused is tried in each run. Of the roles that are allowed the same, these two are; all at night.
_FIRST = 2
_ALLOWED = pytest.mark.parametrize(
    "allowed_roles", [_FIRST, pytest.param(len(ROLES), marks=pytest.mark.nightly)], ids=["some", "all"]
)


@_ALLOWED
@pytest.mark.parametrize("row", [row for row in ROWS if row.bare], ids=str)
def test_service_agrees(world: World, row: Row, allowed_roles: int) -> None:
    """Each role, without naming a location; what is refused changes nothing."""
    allowed = row.allowed.split()
    _answered(world, row, [Try(world, role, role in allowed) for role in ROLES], allowed_roles)


@_ALLOWED
@pytest.mark.parametrize(
    ("row", "via"), [(row, via) for row in ROWS for via in row.via], ids=lambda value: str(value)
)
def test_service_agrees_on_locations(world: World, row: Row, via: str, allowed_roles: int) -> None:
    """Each role with a location in each state: all that is needed, or nothing is done."""
    allowed = row.allowed.split()
    tries = [
        Try(
            world,
            role,
            role in allowed and model.permits(role, places.needs(state, via)),
            via=via,
            state=state,
        )
        for state in row.states
        for role in (_WORTH_TRYING if via == row.via[0] else _FEW)
    ]
    assert {each.allowed for each in tries} == {True, False}
    _answered(world, row, tries, allowed_roles)


@pytest.mark.parametrize("row", [row for row in ROWS if row.on_table], ids=str)
def test_who_is_refused_is_not_told_whether_there_is_a_table(world: World, row: Row) -> None:
    """The answer for a table that is not there is that for one that is, but for the name.

    Users who can load tables can know; all others cannot, whatever else they can do. Only plans are told
    apart by every user with a right on the table, since rights on single columns let one plan.
    """
    via, state = (row.via[0], "outside, granted") if row.via else ("", None)
    for role in _WITHOUT_TABLES:
        if role in row.allowed.split() or model.permits(role, [row.known_to]):
            continue
        answers = [
            row.call(Try(world, role, False, via=via, state=state, absent=absent)) for absent in (False, True)
        ]
        assert len({each.status_code for each in answers}) == 1, role
        assert len({_without_names(each) for each in answers}) == 1, role


def test_lists_show_what_one_has_a_right_on(world: World) -> None:
    prefix = world.service.prefix
    for role in WITH_TOKEN:
        found = world.client(role).get(f"{prefix}/namespaces").json()["namespaces"]
        assert ([OWN] in found) == model.permits(role, ["db:any"]), role
        assert ([ELSEWHERE] in found) == (role == STEWARD), role
        if model.permits(role, ["db:any"]):
            listed = world.client(role).get(f"{prefix}/namespaces/{OWN}/tables").json()["identifiers"]
            names = {each["name"] for each in listed}
            assert ({PLAIN, VAULT} <= names) == model.permits(role, ["any"]), role


#: Roles for which a location makes a difference, or must not.
_WORTH_TRYING = ("alterer", "owner", "creator", "keeper", "mason", "storer", STEWARD)
#: With RWStorage on one directory, on none, and on all, for the further ways to name a location.
_FEW = ("keeper", "mason", STEWARD)
#: Roles that may not load a table, each for another reason.
_WITHOUT_TABLES = ("nobody", "creator", "dropper", "storer", "admin")


def _order(role: str) -> int:
    return ROLES.index(role)


def _answered(world: World, row: Row, tries: list[Try], allowed_roles: int) -> None:
    tried: Counter[str | None] = Counter()
    for attempt in (each for each in tries if each.allowed):
        tried[attempt.state] += 1
        if tried[attempt.state] > allowed_roles:
            continue
        answer = row.call(attempt)
        assert answer.status_code == row.ok, (attempt.role, attempt.state, answer.text)
    for attempt in (each for each in tries if not each.allowed):
        answer = row.call(attempt)
        _refused_as_said(row, attempt, answer)
        assert world.changes() == world.changes_before, (attempt.role, attempt.state)


def _refused_as_said(row: Row, attempt: Try, answer: httpx.Response) -> None:
    status, error = row.refusal
    if attempt.role in (ANONYMOUS, ENGINE_ALONE):
        status, error = 401, "NotAuthenticated"
    if answer.request.method == "HEAD":
        assert (answer.status_code, answer.text) == (status, ""), attempt
        return
    refused(answer, status, error)


def _without_names(answer: httpx.Response) -> str:
    return re.sub(rf"\b{OWN}\.({PLAIN}|{VAULT}|{SIGHT}|{DOOR}|{ABSENT})\b|\bt[0-9]+\b", "…", answer.text)
