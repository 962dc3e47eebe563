"""Policies in the database: one set, in force in every process within a minute."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, delete, event, update

from catalog.base.errors import CommitConflict
from catalog.db.engine import write
from catalog.db.readers import readers_of
from catalog.db.schema import lw_policy_document, lw_policy_set
from catalog.policy_store import in_force
from catalog.policy_store.documents import (
    EMPTY,
    DocumentId,
    Edit,
    Kind,
    PolicyDocuments,
    StoredDocument,
    StoredSet,
)
from catalog.policy_store.in_force import MAX_AGE_S, InForce, PolicyStore
from policy.errors import PolicyInvalid, StateUnavailable
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from tests.support.clock import Clock
from tests.support.lake import policy, tables

pytestmark = pytest.mark.usefixtures("long_reload_wait")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MAIN = DocumentId(Kind.RANGER, "main")


@pytest.fixture
def documents(engine: Engine, catalog_name: str) -> PolicyDocuments:
    """The store of a catalog of the test's own."""
    return PolicyDocuments(engine, catalog_name)


@pytest.fixture
def store(documents: PolicyDocuments, clock: Clock) -> PolicyStore:
    """What a process decides by."""
    return PolicyStore(documents, clock=clock)


def _granting(user: str, name: str = "grant") -> bytes:
    return json.dumps({"policies": [policy(name, tables("db"), {user: ["select"]})]}).encode()


def _write(documents: PolicyDocuments, content: bytes | None, document: DocumentId = MAIN) -> StoredSet:
    """Change a document as another process would; nothing is checked."""
    base = documents.current()
    edit = Edit(document, content, None)
    changed = StoredDocument.of(edit, base.version.revision + 1, author="ann", request_id="r", changed_at=NOW)
    return documents.replace(base, [changed])


def _may(store: PolicyStore, user: str) -> bool:
    request = AccessRequest(Principal(user), Resource.table("db", "t"), "select")
    return store.current().decide(request, NOW).allowed


def test_what_is_written_is_what_is_read(documents: PolicyDocuments) -> None:
    assert documents.current() == EMPTY
    assert documents.version() == EMPTY.version
    content = bytes(range(256)) * 10
    written = _write(documents, content)
    assert documents.current() == written
    assert documents.version() == written.version
    assert written.documents[MAIN].content == content
    _write(documents, None)
    assert documents.current().documents == {}
    assert [(each.revision, each.sha256 is None) for each in documents.history(limit=9)] == [
        (2, True),
        (1, False),
    ]
    old = documents.find(MAIN, 1)
    assert old is not None and old.content == content
    assert documents.find(MAIN, 3) is None


_EDITS = st.lists(
    st.tuples(st.sampled_from(Kind), st.sampled_from("ab"), st.none() | st.binary(max_size=3)), max_size=8
)


@pytest.mark.nightly
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=_EDITS)
def test_any_changes_leave_what_they_say_and_the_way_back(
    engine: Engine, edits: list[tuple[Kind, str, bytes | None]]
) -> None:
    documents = PolicyDocuments(engine, uuid4().hex)
    states: list[dict[DocumentId, bytes | None]] = [{}]
    for kind, name, content in edits:
        document = DocumentId(kind, name)
        _write(documents, content, document)
        states.append({each: says for each, says in states[-1].items() if each != document})
        if content is not None:
            states[-1][document] = content
    found = documents.current()
    assert {each: stored.content for each, stored in found.documents.items()} == states[-1]
    assert found.version == documents.version()
    assert found.version.revision == len(edits)
    history = documents.history(limit=100)
    for revision, state in enumerate(states):
        last = {each.id: each.revision for each in reversed(history) if each.revision <= revision}
        then = {each: documents.find(each, number) for each, number in last.items()}
        kept = {
            each: stored.content for each, stored in then.items() if stored and stored.content is not None
        }
        assert kept == state


def test_catalogs_in_one_database_have_sets_of_their_own(engine: Engine, documents: PolicyDocuments) -> None:
    other = PolicyDocuments(engine, "another catalog")
    _write(documents, b"1")
    assert other.current() == EMPTY and list(other.history(limit=9)) == []


def test_of_changes_at_once_one_comes_first(documents: PolicyDocuments) -> None:
    for _ in range(2):
        base = documents.current()
        barrier = threading.Barrier(4)

        def attempt(number: int, base: StoredSet = base, barrier: threading.Barrier = barrier) -> bool:
            edit = Edit(DocumentId(Kind.RANGER, f"d{number}"), str(base.version.revision).encode(), None)
            changed = StoredDocument.of(
                edit, base.version.revision + 1, author="ann", request_id="r", changed_at=NOW
            )
            barrier.wait()
            try:
                documents.replace(base, [changed])
            except CommitConflict:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(attempt, range(4))) == 1
        assert documents.version().revision == base.version.revision + 1
        assert documents.current().version == documents.version()


def test_a_set_that_says_the_same_again_is_not_the_one_before(documents: PolicyDocuments) -> None:
    _write(documents, b"1")
    base = _write(documents, None)
    _write(documents, b"1")
    after = _write(documents, None)
    assert (after.version.digest, after.documents) == (base.version.digest, {})
    other = DocumentId(Kind.RANGER, "other")
    changed = StoredDocument.of(Edit(other, b"2", None), 3, author="ann", request_id="r", changed_at=NOW)
    with pytest.raises(CommitConflict):
        documents.replace(base, [changed])
    assert documents.current() == after


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "change",
    [
        update(lw_policy_document).values(content=_granting("mallory")),
        update(lw_policy_document).values(revision=7),
        update(lw_policy_document).values(name="x y"),
        update(lw_policy_document).values(kind="other"),
        delete(lw_policy_document),
        update(lw_policy_set).values(digest="0" * 64),
    ],
)
def test_rows_edited_behind_the_catalogs_back_are_not_taken_for_policies(
    engine: Engine, documents: PolicyDocuments, catalog_name: str, clock: Clock, change: object
) -> None:
    _write(documents, _granting("bob"))
    store = PolicyStore(documents, clock=clock)
    with write(engine) as connection:
        assert not isinstance(change, str)
        table = change.table  # type: ignore[attr-defined]
        connection.execute(change.where(table.c.catalog == catalog_name))  # type: ignore[attr-defined]
    with pytest.raises(PolicyInvalid, match="do not match their recorded digest"):
        documents.current()
    with pytest.raises(PolicyInvalid):
        PolicyStore(documents, clock=clock)
    clock.now += 10
    assert _may(store, "bob") and not _may(store, "mallory")


def test_another_process_notices_a_change_at_its_next_look(
    documents: PolicyDocuments, store: PolicyStore, clock: Clock
) -> None:
    _write(documents, _granting("bob"))
    clock.now += 4.9
    assert not _may(store, "bob")
    clock.now += 0.1
    assert _may(store, "bob")
    _write(documents, None)
    clock.now += 5
    assert not _may(store, "bob")


def test_a_process_that_was_idle_looks_before_it_answers(
    documents: PolicyDocuments, store: PolicyStore, clock: Clock
) -> None:
    _write(documents, _granting("bob"))
    clock.now += 3_600
    assert _may(store, "bob")


def test_when_nothing_changed_a_look_is_one_query_and_nothing_is_read(
    engine: Engine, documents: PolicyDocuments, clock: Clock
) -> None:
    _write(documents, _granting("bob"))
    store = PolicyStore(documents, clock=clock)
    first, queries = store.current(), []

    def count(*arguments: object) -> None:
        queries.append(arguments[2])

    readers = readers_of(engine)
    event.listen(readers, "before_cursor_execute", count)
    try:
        for _ in range(100):
            assert store.current() is first
        assert queries == []
        clock.now += 5
        assert store.current() is first
        assert len([each for each in queries if "lw_policy" in str(each)]) == 1
        assert not any("lw_policy_document" in str(each) for each in queries)
    finally:
        event.remove(readers, "before_cursor_execute", count)


def _fail(monkeypatch: pytest.MonkeyPatch, documents: PolicyDocuments) -> None:
    def unavailable() -> None:
        raise StateUnavailable("The catalog's database does not answer.", rule="database")

    monkeypatch.setattr(documents, "version", unavailable)


def test_without_the_database_a_set_answers_for_a_minute_and_then_nothing_does(
    documents: PolicyDocuments, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(documents, _granting("bob"))
    store = PolicyStore(documents, clock=clock)
    with monkeypatch.context() as outage:
        _fail(outage, documents)
        clock.now += MAX_AGE_S - 0.1
        assert _may(store, "bob")
        assert store.problem is not None and "does not answer" in store.problem
        clock.now += 0.1
        for _ in range(3):
            with pytest.raises(StateUnavailable, match="40 seconds"):
                store.current()
            clock.now += 10
    clock.now += 5
    assert _may(store, "bob")
    assert store.problem is None


def test_a_database_that_is_lost_is_asked_once_a_look_and_not_by_each_request(
    documents: PolicyDocuments, store: PolicyStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def unavailable() -> None:
        asked.append(clock.now)
        raise StateUnavailable("No.", rule="database")

    monkeypatch.setattr(documents, "version", unavailable)
    clock.now += MAX_AGE_S
    for _ in range(10):
        with pytest.raises(StateUnavailable):
            store.current()
    assert len(asked) == 1


def test_a_set_that_is_bad_here_keeps_the_good_one_in_force_until_it_is_too_old(
    documents: PolicyDocuments, store: PolicyStore, clock: Clock
) -> None:
    """What is refused could take a permission away."""
    _write(documents, _granting("bob"))
    clock.now += 5
    assert _may(store, "bob")
    _write(documents, b'{"policies": [\n{"nam": 1}]}')
    clock.now += MAX_AGE_S - 0.1
    assert _may(store, "bob") and not store.is_closed
    assert store.problem is not None and "catalog:ranger/main, line 2" in store.problem
    with pytest.raises(PolicyInvalid):
        store.reload()
    clock.now += 0.1
    for mistake in (b"{", b"[["):
        with pytest.raises(StateUnavailable, match="40 seconds") as refusal:
            store.current()
        assert refusal.value.rule == "policy-age" and store.is_closed
        _write(documents, mistake)
        clock.now += 10
    _write(documents, _granting("carol"))
    clock.now += 5
    assert _may(store, "carol") and not _may(store, "bob")
    assert not store.is_closed and store.problem is None


@pytest.mark.nightly
def test_many_threads_see_one_whole_set_or_the_other(documents: PolicyDocuments, clock: Clock) -> None:
    def both(number: int) -> bytes:
        granted = [policy(f"{name} {number}", tables(name), {"ann": ["select"]}) for name in ("a", "b")]
        return json.dumps({"policies": granted}).encode()

    _write(documents, both(0))
    store = PolicyStore(documents, poll_s=0, clock=clock)
    torn: list[object] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            found = store.current()
            requests = [AccessRequest(Principal("ann"), Resource.table(name, "t"), "select") for name in "ab"]
            if not all(found.decide(each, NOW).allowed for each in requests):
                torn.append(found)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 8):
        _write(documents, both(number))
    stop.set()
    for thread in threads:
        thread.join()
    assert torn == []


def test_a_long_reading_keeps_no_request_waiting_and_no_old_set_in_force_beyond_a_minute(
    documents: PolicyDocuments, store: PolicyStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    parse = InForce.of

    def slow(*arguments: Any) -> InForce:
        assert released.wait(60)
        return parse(*arguments)

    monkeypatch.setattr(in_force, "_RELOAD_WAIT_S", 0.0)
    monkeypatch.setattr(in_force, "_STALE_RELOAD_WAIT_S", 0.0)
    monkeypatch.setattr(InForce, "of", slow)
    _write(documents, _granting("bob"))
    clock.now += 5
    assert not _may(store, "bob")
    clock.now += MAX_AGE_S - 6
    assert not _may(store, "bob")
    clock.now += 1
    with pytest.raises(StateUnavailable):
        store.current()
    released.set()
    reader = store._reader
    assert reader is not None
    reader.join()
    assert _may(store, "bob")


def test_many_requests_at_once_read_a_change_once(
    documents: PolicyDocuments, store: PolicyStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []
    parse = InForce.of
    monkeypatch.setattr(InForce, "of", lambda *each: parsed.append(1) or parse(*each))  # type: ignore[func-returns-value]
    _write(documents, _granting("bob"))
    clock.now += MAX_AGE_S
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: _may(store, "bob"), range(64)))
    assert len(parsed) == 1


class _Lock:
    """The store's lock, telling when a caller waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.release = self._lock.release
        self.waited_for = threading.Event()

    def acquire(self, blocking: bool) -> bool:
        if self._lock.acquire(blocking=False):
            return True
        if blocking:
            self.waited_for.set()
        return self._lock.acquire(blocking)


def test_requests_that_no_set_can_answer_wait_for_the_one_that_looks(
    documents: PolicyDocuments, store: PolicyStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, released, parse = _Lock(), threading.Event(), InForce.of

    def slow(*arguments: Any) -> InForce:
        assert released.wait(60)
        return parse(*arguments)

    monkeypatch.setattr(InForce, "of", slow)
    monkeypatch.setattr(store, "_lock", lock)
    _write(documents, _granting("bob"))
    clock.now += MAX_AGE_S
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(_may, store, "bob") for _ in range(2)]
        assert lock.waited_for.wait(30)
        released.set()
        assert all(each.result() for each in answers)


def test_the_age_of_a_set_is_counted_from_when_it_was_asked_for(
    documents: PolicyDocuments, store: PolicyStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was changed while documents were read is not in them."""
    parse = InForce.of

    def slow(*arguments: Any) -> InForce:
        clock.now += 30
        return parse(*arguments)

    monkeypatch.setattr(InForce, "of", slow)
    _write(documents, _granting("bob"))
    clock.now += 5
    assert _may(store, "bob")
    assert store.age_s == 30


def test_a_database_restored_from_a_backup_is_noticed(
    engine: Engine, documents: PolicyDocuments, catalog_name: str, clock: Clock
) -> None:
    """The number of the last change may be that of before, with other documents."""
    first = _write(documents, _granting("bob"))
    store = PolicyStore(documents, clock=clock)
    with write(engine) as connection:
        for table in (lw_policy_document, lw_policy_set):
            connection.execute(delete(table).where(table.c.catalog == catalog_name))
    assert _write(documents, _granting("carol")).version.revision == first.version.revision
    clock.now += 5
    assert _may(store, "carol") and not _may(store, "bob")
