"""Commits to several tables: all of them take effect, in one step, or none does."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from pyiceberg.table import Table
from sqlalchemy import func, select

from catalog.audit.trail import read as audit
from catalog.base import crash_points
from catalog.base.identifiers import table_name
from catalog.commits import committer
from catalog.db.engine import read
from catalog.db.schema import lw_seal
from catalog.http.bodies import updates_of
from policy.errors import CommitStateUnknown
from tests.support.crash import assert_sound, seen
from tests.support.hooks import once_at
from tests.support.http_calls import new_key, new_table, refused
from tests.support.lake import BOB, policy, standard_policies, tables
from tests.support.lossy_proxy import lossy_proxy
from tests.support.service import Service
from tests.support.tables import rows

Change = dict[str, Any]


class _Death(BaseException):
    """What stops a process that dies, and is caught nowhere."""


@pytest.fixture
def pair(served: Service, alice: httpx.Client, namespace: str) -> Iterator[str]:
    """A namespace with the tables `a` and `b`."""
    for name in "ab":
        assert new_table(alice, served.prefix, namespace, name).status_code == 200
    yield namespace
    assert_sound(served.lake)


def change(namespace: str, name: str, *updates: Change, on: tuple[Change, ...] = ()) -> Change:
    """A change of one table."""
    identifier = {"namespace": [namespace], "name": name}
    return {"identifier": identifier, "requirements": list(on), "updates": list(updates)}


def setting(**properties: str) -> Change:
    """The update that sets properties."""
    return {"action": "set-properties", "updates": properties}


def schema_is(schema_id: int) -> Change:
    """The requirement that no other schema is current."""
    return {"type": "assert-current-schema-id", "current-schema-id": schema_id}


def send(
    client: httpx.Client, served: Service, *changes: Change, headers: dict[str, str] | None = None
) -> httpx.Response:
    """Send a transaction."""
    url = f"{served.prefix}/transactions/commit"
    return client.post(url, json={"table-changes": list(changes)}, headers=headers)


def state(served: Service, namespace: str) -> list[object]:
    """All that can have changed: the tables, their metadata files, and seals that could still win."""
    names = [table_name([namespace], each) for each in "ab"]
    directories = [
        Path(served.lake.services.loader.load(each).record.location.canonical.removeprefix("file://"))
        for each in names
    ]
    with read(served.lake.services.engine) as connection:
        waiting = connection.scalar(
            select(func.count()).select_from(lw_seal).where(lw_seal.c.state == "prepared")
        )
    files = [sorted(each.rglob("*.metadata.json")) for each in directories]
    return [[seen(served.lake, each) for each in names], files, waiting]


def appended(served: Service, namespace: str, name: str, first: int = 1) -> Change:
    """What PyIceberg would send for an append."""
    table = served.iceberg().load_table(f"{namespace}.{name}")
    transaction = table.transaction()
    transaction.append(rows(first))
    parts = [json.loads(each.model_dump_json(by_alias=True)) for each in transaction._updates]
    on = [json.loads(each.model_dump_json(by_alias=True)) for each in transaction._requirements]
    return change(namespace, name, *parts, on=tuple(on))


def stored(served: Service, namespace: str, name: str) -> Table:
    """A table as a standard client sees it."""
    return served.iceberg().load_table(f"{namespace}.{name}")


def test_all_changes_take_effect_together(served: Service, alice: httpx.Client, pair: str) -> None:
    seen_between: list[list[object]] = []
    before = state(served, pair)
    changes = (appended(served, pair, "a"), change(pair, "b", setting(owner="me"), on=(schema_is(0),)))
    with crash_points.hooked(once_at("prepared", lambda: seen_between.append(state(served, pair)[:1]))):
        answer = send(alice, served, *changes)
    assert (answer.status_code, answer.content) == (204, b"")
    assert seen_between == [before[:1]]
    assert stored(served, pair, "a").scan().to_arrow().num_rows == 2
    assert stored(served, pair, "b").properties["owner"] == "me"


def test_the_operation_is_advertised(served: Service, alice: httpx.Client) -> None:
    assert "POST /v1/{prefix}/transactions/commit" in alice.get("/v1/config").json()["endpoints"]


REFUSALS: dict[str, tuple[Callable[[str], list[Change]], int, str, str]] = {
    "no change": (lambda _: [], 400, "RequestInvalid", "transaction-tables"),
    "too many": (
        lambda n: [change(n, f"t{number}") for number in range(committer.MAX_TABLES + 1)],
        400,
        "RequestInvalid",
        "transaction-tables",
    ),
    "a table twice": (
        lambda n: [change(n, "b", setting(x="1")), change(n, "b", setting(y="1"))],
        400,
        "RequestInvalid",
        "transaction-tables",
    ),
    "a creation": (
        lambda n: [change(n, "c", on=({"type": "assert-create"},))],
        400,
        "NotSupportedYet",
        "transaction-create",
    ),
    "an unmet requirement": (
        lambda n: [change(n, "b", setting(x="1"), on=(schema_is(7),))],
        409,
        "CommitConflict",
        "assert-current-schema-id",
    ),
    "another UUID": (
        lambda n: [change(n, "b", {"action": "assign-uuid", "uuid": "00000000-0000-0000-0000-000000000001"})],
        403,
        "MetadataTampered",
        "table-uuid",
    ),
    "no such table": (lambda n: [change(n, "c", setting(x="1"))], 404, "NoSuchTable", ""),
}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("reason", REFUSALS)
def test_one_refusal_refuses_all(served: Service, alice: httpx.Client, pair: str, reason: str) -> None:
    others, status, kind, rule = REFUSALS[reason]
    first = [] if reason == "no change" else [change(pair, "a", setting(x="1"))]
    before = state(served, pair)
    answer = send(alice, served, *first, *others(pair))
    error = refused(answer, status, kind, rule or None)
    assert state(served, pair) == before
    if status == 409:
        assert "Requirement failed: current schema changed: expected id 7 != 0" in error["message"]
        assert f"table={pair}.b" in error["message"]


def test_tables_with_much_metadata_are_refused_together(
    served: Service, alice: httpx.Client, pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their metadata is in memory at the same time."""
    seal = served.lake.services.loader.load_sealed(table_name([pair], "a")).seal
    assert seal is not None
    monkeypatch.setattr(served.lake.services.committer, "_max_metadata_bytes", seal.digest.length + 1)
    before = state(served, pair)
    both = [change(pair, each, setting(x="1")) for each in "ab"]
    refused(send(alice, served, *both), 400, "RequestInvalid", "transaction-size")
    assert state(served, pair) == before
    assert send(alice, served, both[0]).status_code == 204


def test_a_change_without_a_table_is_refused(served: Service, alice: httpx.Client, pair: str) -> None:
    before = state(served, pair)
    answer = send(alice, served, change(pair, "a", setting(x="1")), {"requirements": [], "updates": []})
    refused(answer, 400, "RequestInvalid")
    assert state(served, pair) == before


def test_a_foreign_file_in_one_table_refuses_all(served: Service, alice: httpx.Client, pair: str) -> None:
    """The files of each table are judged by its own allow-list, as in a commit of its own."""
    of_a, of_b = (appended(served, pair, each) for each in "ab")
    of_b["updates"] = of_a["updates"]
    before = state(served, pair)
    answer = send(alice, served, of_a, of_b)
    refused(answer, 403, "LocationNotAllowed")
    assert state(served, pair) == before


def test_a_mixed_commit_in_one_table_refuses_all(served: Service, alice: httpx.Client, pair: str) -> None:
    mixed = appended(served, pair, "b")
    mixed["updates"].append(setting(**{"read.allowed.data.paths": f"file:///elsewhere/{pair}"}))
    before = state(served, pair)
    answer = send(alice, served, change(pair, "a", setting(x="1")), mixed)
    refused(answer, 400, "RequestInvalid", "mixed-commit")
    assert state(served, pair) == before


def test_permissions_on_every_table_are_needed(served: Service, alice: httpx.Client, pair: str) -> None:
    mine = policy("bob-a", {"database": [pair], "table": ["a"], "column": ["*"]}, {BOB: ["all"]})
    before = state(served, pair)
    served.lake.set_policies([*standard_policies(), mine])
    try:
        with served.client(BOB) as bob:
            parts = change(pair, "a", setting(x="1")), change(pair, "b", setting(x="1"))
            refused(send(bob, served, *parts), 403, "NotAuthorized")
            refused(send(bob, served, *reversed(parts)), 403, "NotAuthorized")
            assert state(served, pair) == before
            assert send(bob, served, parts[0]).status_code == 204
    finally:
        served.lake.set_policies(standard_policies())


def test_governed_properties_come_into_force_with_the_other_changes(
    served: Service, alice: httpx.Client, pair: str
) -> None:
    listed = f"{stored(served, pair, 'a').location()},file:///elsewhere/{pair}"
    widened = change(pair, "a", setting(**{"read.allowed.data.paths": listed}))
    answer = send(alice, served, widened, change(pair, "b", setting(x="1"), on=(schema_is(7),)))
    refused(answer, 409, "CommitConflict")
    assert "elsewhere" not in stored(served, pair, "a").properties["read.allowed.data.paths"]
    assert send(alice, served, widened, change(pair, "b", setting(x="1"))).status_code == 204
    assert f"/elsewhere/{pair}" in stored(served, pair, "a").properties["read.allowed.data.paths"]
    assert stored(served, pair, "b").properties["x"] == "1"


def test_governed_properties_need_in_a_transaction_what_they_need_alone(
    served: Service, alice: httpx.Client, pair: str
) -> None:
    served.lake.set_policies([*standard_policies(), policy("bob-all", tables(pair), {BOB: ["all"]})])
    try:
        listed = setting(**{"read.allowed.data.paths": f"file:///elsewhere/{pair}"})
        before = state(served, pair)
        with served.client(BOB) as bob:
            answer = send(bob, served, change(pair, "a", setting(x="1")), change(pair, "b", listed))
            refused(answer, 403, "NotAuthorized")
        assert state(served, pair) == before
    finally:
        served.lake.set_policies(standard_policies())


@pytest.mark.parametrize("rival", ["a", "b"])
@pytest.mark.parametrize("changed", ["both", "one"])
def test_a_commit_that_comes_first_refuses_all(
    served: Service, alice: httpx.Client, pair: str, rival: str, changed: str
) -> None:
    """So does one to a table of which the transaction only requires something."""
    states: list[list[object]] = []

    def overtake() -> None:
        stored(served, pair, rival).transaction().set_properties(mine="1").commit_transaction()
        states.append(state(served, pair))

    second = change(pair, "b", *([setting(x="1")] if changed == "both" else []), on=(schema_is(0),))
    with crash_points.hooked(once_at("prepared", overtake)):
        answer = send(alice, served, change(pair, "a", setting(x="1")), second)
    error = refused(answer, 409, "CommitConflict")
    assert f"table={pair}.{rival}" in error["message"]
    (meanwhile,), after = states, state(served, pair)
    assert after[0] == meanwhile[0]
    kept = {each.name for files in cast(list[list[Path]], after[1]) for each in files}
    pointers = {Path(each.metadata_location).name for each in cast(list[Any], after[0])}
    assert pointers < kept and len(kept) == 3


@pytest.mark.parametrize("point", ["checked", "metadata-written", "prepared", "published"])
def test_a_process_that_dies_leaves_all_or_nothing(
    served: Service, alice: httpx.Client, pair: str, point: str
) -> None:
    def die() -> None:
        raise _Death

    services, caller = served.lake.services, served.lake.caller("alice")
    before = state(served, pair)[0]
    changes = [committer.TableChange(table_name([pair], each), (), _updates(setting(x="1"))) for each in "ab"]
    with crash_points.hooked(once_at(point, die)), contextlib.suppress(_Death):
        services.committer.commit_together(caller, changes)
    after = state(served, pair)[0]
    if point == "published":
        assert all("x" in stored(served, pair, each).properties for each in "ab")
    else:
        assert after == before
    assert send(alice, served, *(change(pair, each, setting(y="1")) for each in "ab")).status_code == 204


def test_a_move_whose_answer_is_lost_is_looked_up(
    served: Service, alice: httpx.Client, pair: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pointers = served.lake.services.committer._context.pointers
    swap = pointers.swap

    def lost(*given: Any) -> None:
        swap(*given)
        raise CommitStateUnknown("The answer was lost.")

    monkeypatch.setattr(pointers, "swap", lost)
    answer = send(alice, served, *(change(pair, each, setting(x="1")) for each in "ab"))
    assert answer.status_code == 204
    assert all(stored(served, pair, each).properties["x"] == "1" for each in "ab")


def test_each_table_has_its_records_under_the_request(served: Service, pair: str) -> None:
    def records(request_id: str) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        for each in sorted(audit(served.lake.services.engine, limit=10_000), key=lambda one: one.sequence):
            one = each.record
            if one.request_id == request_id:
                answer = "begun" if one.begun else "allowed" if one.allowed else "refused"
                found.setdefault(one.resource, []).append((one.action, answer))
        return found

    # Repeated refusals of one user are counted together, so this is a user of this test alone.
    user = f"user-{pair}"
    served.lake.set_policies([*standard_policies(), policy("user", tables(pair), {user: ["all"]})])
    names = [f"{pair}.a", f"{pair}.b"]
    both = change(pair, "a", setting(x="1")), change(pair, "b", setting(x="1"))
    client = served.client(user)
    assert send(client, served, *both, headers={"X-Request-Id": f"{pair}-1"}).status_code == 204
    done = [("table.commit", "begun"), ("table.commit", "allowed")]
    assert records(f"{pair}-1") == dict.fromkeys(names, done)
    unmet = change(pair, "b", setting(x="2"), on=(schema_is(7),))
    tampered = REFUSALS["another UUID"][0](pair)[0]
    for number, last in enumerate((unmet, tampered)):
        request_id = f"{pair}-{number}-refused"
        answer = send(client, served, both[0], last, headers={"X-Request-Id": request_id})
        assert answer.status_code in (403, 409)
        found = records(request_id)
        assert sorted(found) == names
        assert [each[-1] for each in found.values()] == [("table.commit", "refused")] * 2
        assert all(sum(one == ("table.commit", "refused") for one in each) == 1 for each in found.values())
    client.close()
    served.lake.set_policies(standard_policies())


def test_a_repeated_transaction_takes_effect_once_and_is_authorized_again(
    served: Service, alice: httpx.Client, pair: str
) -> None:
    served.lake.set_policies([*standard_policies(), policy("bob-all", tables(pair), {BOB: ["all"]})])
    try:
        headers, body = new_key(), {"table-changes": [appended(served, pair, each) for each in "ab"]}
        url = f"{served.prefix}/transactions/commit"
        with lossy_proxy(served.url) as lossy, lossy.losing_every_first_answer():
            bearer = {"Authorization": f"Bearer {served.token(BOB)}"}
            with httpx.Client(base_url=lossy.url, headers=bearer, timeout=60) as bob:
                with pytest.raises(httpx.RemoteProtocolError):
                    bob.post(url, json=body, headers=headers)
                assert bob.post(url, json=body, headers=headers).status_code == 204
        assert all(len(stored(served, pair, each).snapshots()) == 1 for each in "ab")
        served.lake.set_policies(standard_policies())
        with served.client(BOB) as bob:
            refused(bob.post(url, json=body, headers=headers), 403, "NotAuthorized")
    finally:
        served.lake.set_policies(standard_policies())


def _updates(*updates: Change) -> Any:
    return updates_of(list(updates))
