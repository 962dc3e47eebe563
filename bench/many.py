"""Many tables, policies and users: `python -m bench.many [--tables N] [--policies N] [--users N]`.

The service runs as in production, on SQLite and, where it is installed, on PostgreSQL. Decisions are measured
in this process. The full size is 100,000 tables, 10,000 policies, and 10,000 users in 1,000 groups.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
from rich.console import Console

from bench.many_samples import BIG, Size, Zipf, fill, policies
from bench.many_service import Process, serving
from bench.report import Figure, at_most, figure, machine, show, write
from bench.samples import root_of
from catalog.db import engine as db
from catalog.policy_store.documents import Edit, PolicyDocuments, StoredDocument
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet
from tests.support.lake import (
    ALICE,
    Lake,
    open_lake,
    policy,
    standard_policies,
)
from tests.support.postgres import start_postgres

_PAGE: Final = 100
_FEW: Final = "few"
_SCHEMA: Final = {
    "type": "struct",
    "fields": [{"id": 1, "name": "id", "type": "long", "required": False}],
}
_POLL_S: Final = "0.5"
#: Seconds between two changes of the policies.
_CHANGE_S: Final = 3


def decisions(size: Size, runs: int) -> list[Figure]:
    """Decide SELECT on tables, in CPU time: by users and tables of a Zipf mix, and by all of them alike."""
    now, users = datetime.now(UTC), [size.user(number) for number in range(size.users)]
    text = json.dumps({"policies": list(policies(size))})
    start = time.process_time()
    found = PolicySet.parse({"many": text})
    parsed = time.process_time() - start

    def asked(chosen_users: Sequence[int], chosen_tables: Sequence[int]) -> list[float]:
        taken = []
        for user, table in zip(chosen_users, chosen_tables, strict=True):
            request = AccessRequest(users[user], Resource.table(*size.name(table)), "select")
            before = time.thread_time_ns()
            found.decide(request, now)
            taken.append((time.thread_time_ns() - before) / 1000)
        return taken

    count_of = 3_000 * runs
    mixed_users, mixed_tables = Zipf(size.users, 1), Zipf(size.tables, 2)
    asked(mixed_users.draw(count_of), mixed_tables.draw(count_of))
    warm = sorted(asked(mixed_users.draw(count_of), mixed_tables.draw(count_of)))
    chosen = random.Random(3)
    alike = sorted(
        asked(chosen.choices(range(size.users), k=count_of), chosen.choices(range(size.tables), k=count_of))
    )
    return [
        figure(f"parse {size.policies:,} policies, CPU time", [parsed], "s"),
        at_most(30, figure("a decision, warm, a Zipf mix, p50", warm, "µs")),
        figure("  p99", [_percentile(warm, 99)], "µs"),
        at_most(300, figure("a decision, each of other users and tables, p50", alike, "µs")),
        figure("  p99", [_percentile(alike, 99)], "µs"),
    ]


def of_database(root: Path, name: str, url: str, size: Size, runs: int) -> list[Figure]:
    """Measure the service on a database."""
    few = [size.name(number)[1] for number in range(1, size.tables, max(2, size.tables // 5 & ~1))]
    said = [
        *standard_policies(),
        *policies(size),
        policy("few", {"database": [BIG], "table": few, "column": ["*"]}, {_FEW: ["select"]}),
    ]
    with open_lake(root, policies=said, DATABASE__URL=url) as lake:
        with db.write(lake.services.engine) as connection:
            fill(connection, lake.settings.catalog.name, lake.settings.warehouse, size)
            connection.exec_driver_sql("ANALYZE")  # as autovacuum does
        tokens = lake.services.tokens
        alice, seldom = (tokens.issue(Principal(each), "user", None).text for each in (ALICE, _FEW))
        with serving(root, url, lake.services.catalog, alice, POLICIES_POLL_S=_POLL_S) as service:
            found = [
                at_most(4, figure("start to first answer, elapsed", [service.started_s], "s")),
                figure("  CPU time", [service.started_cpu_s], "s"),
                figure("  memory", [service.memory_mb()], "MB"),
                *_lists(service, seldom, 10 * runs),
                *_changes(service, 5 * runs),
                *_reloads(lake, service, said, 4 * runs),
            ]
    return [replace(each, name=f"{name}: {each.name}") for each in found]


def _lists(service: Process, few: str, times: int) -> Iterator[Figure]:
    tables, namespaces = f"{service.url}/namespaces/{BIG}/tables", f"{service.url}/namespaces"
    last = _last_token(service, tables)
    for what, url, token, user in (
        ("the first page of 100 of a namespace", tables, "", None),
        ("the last page of 100", tables, last, None),
        ("the first page for a user who sees 5 tables", tables, "", few),
        ("a page of 100 namespaces", namespaces, "", None),
    ):
        headers = {} if user is None else {"Authorization": f"Bearer {user}"}
        parameters = {"pageToken": token, "pageSize": _PAGE}

        def ask(url: str = url, headers: Any = headers, parameters: Any = parameters) -> None:
            service.client.get(url, params=parameters, headers=headers).raise_for_status()

        yield from _measured(service, what, ask, times, 5)


def _changes(service: Process, times: int) -> Iterator[Figure]:
    numbers = count()
    tables, moves = f"{service.url}/namespaces/{BIG}/tables", f"{service.url}/tables/rename"
    made, renamed = iter(range(times + 1)), iter(range(times + 1))

    def create() -> None:
        body = {"name": f"new{next(numbers)}", "schema": _SCHEMA}
        service.client.post(tables, json=body).raise_for_status()

    def rename() -> None:
        number = next(made)
        source, target = ({"namespace": [BIG], "name": f"{each}{number}"} for each in ("new", "moved"))
        service.client.post(moves, json={"source": source, "destination": target}).raise_for_status()

    def drop() -> None:
        service.client.delete(f"{tables}/moved{next(renamed)}").raise_for_status()

    yield from _measured(service, "CREATE", create, times, 20)
    yield from _measured(service, "rename", rename, times, None)
    yield from _measured(service, "DROP", drop, times, None)


def _reloads(lake: Lake, service: Process, said: Sequence[dict[str, Any]], seconds: int) -> list[Figure]:
    """What p99 of a short request is while policies are read, beside what it is otherwise."""
    url = f"{service.url}/namespaces/{BIG}"
    alone = sorted(_requests(service.client, url, seconds))
    ended = threading.Event()
    changing = threading.Thread(target=_change, args=(lake, said, ended))
    changing.start()
    try:
        beside = sorted(_requests(service.client, url, seconds))
    finally:
        ended.set()
        changing.join()
    usual, meanwhile = (_percentile(each, 99) for each in (alone, beside))
    return [
        figure("a short request, p99", [usual], "ms"),
        figure("  while policies change all the time, p99", [meanwhile], "ms"),
        at_most(50, figure("  a reload adds", [meanwhile - usual], "ms")),
        figure("  memory afterwards", [service.memory_mb()], "MB"),
    ]


def _change(lake: Lake, said: Sequence[dict[str, Any]], ended: threading.Event) -> None:
    """Change one policy of the large document again and again, with little work in this process."""
    documents = PolicyDocuments(lake.services.engine, lake.settings.catalog.name)
    base, contents = documents.current(), []
    for access in ("create", "drop"):
        more = policy("more", {"database": ["more"]}, {ALICE: [access]})
        contents.append(json.dumps({"policies": [*said, more]}).encode())
    (document,) = base.documents
    for number in count():
        if ended.wait(_CHANGE_S):
            return
        edit = Edit(document, contents[number % 2], None)
        revision, now = base.version.revision + 1, datetime.now(UTC)
        stored = StoredDocument.of(edit, revision, author=ALICE, request_id="bench", changed_at=now)
        base = documents.replace(base, [stored])


def _requests(client: httpx.Client, url: str, seconds: float) -> list[float]:
    taken, end = list[float](), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        client.get(url).raise_for_status()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def _measured(
    service: Process, what: str, ask: Callable[[], None], times: int, budget: float | None
) -> Iterator[Figure]:
    """Elapsed time, checked against a budget, and the CPU time of the service as a mean."""
    ask()
    taken, before = [], service.cpu_s()
    for _ in range(times):
        start = time.perf_counter()
        ask()
        taken.append((time.perf_counter() - start) * 1000)
    used = (service.cpu_s() - before) * 1000 / times
    elapsed = figure(what, taken, "ms")
    yield elapsed if budget is None else at_most(budget, elapsed)
    yield figure("  CPU time, mean", [used], "ms")


def _last_token(service: Process, url: str) -> str:
    """The token of a page at the end of a list."""
    token = following = ""
    while following is not None:
        token = following
        answer = service.client.get(url, params={"pageToken": token, "pageSize": 1_000}).raise_for_status()
        following = answer.json().get("next-page-token")
    return token


def _percentile(ordered: Sequence[float], percent: int) -> float:
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


@contextmanager
def _databases(root: Path) -> Iterator[dict[str, str]]:
    server, _ = start_postgres()
    found = {"SQLite": f"sqlite:///{root}/many.db"}
    try:
        if server is not None:
            found["PostgreSQL"] = server.create_database()
        yield found
    finally:
        if server is not None:
            server.remove()


def main() -> None:
    """Measure all, and write the figures."""
    arguments = argparse.ArgumentParser(description="Many tables, policies and users")
    arguments.add_argument("--tables", type=int, default=10_000)
    arguments.add_argument("--policies", type=int, default=1_000)
    arguments.add_argument("--users", type=int, default=1_000)
    arguments.add_argument("--groups", type=int, default=100)
    arguments.add_argument("--runs", type=int, default=5)
    given = arguments.parse_args()
    size = Size(given.tables, given.policies, given.users, given.groups)
    console, figures = Console(), decisions(size, given.runs)
    show(console, "Decisions", figures)
    with tempfile.TemporaryDirectory() as directory, _databases(Path(directory).resolve()) as databases:
        for name, url in databases.items():
            root = root_of(Path(directory).resolve(), name.lower())
            measured = of_database(root, name, url, size, given.runs)
            show(console, name, measured)
            figures += measured
    console.print(f"written to {write(figures, machine() | {k: str(v) for k, v in vars(given).items()})}")


if __name__ == "__main__":
    main()
