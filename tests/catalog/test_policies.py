"""The policies in force: changed files are noticed, and a bad change never takes the good set away."""

from __future__ import annotations

import errno
import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from catalog.policy_store.files import PolicyFiles
from catalog.policy_store.in_force import PolicyStore
from policy.errors import PolicyInvalid
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet
from tests.support.clock import Clock

pytestmark = pytest.mark.usefixtures("long_reload_wait")

_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def _write(path: Path, user: str, table: str = "t") -> None:
    """A document that grants a user SELECT on one table, put in place as an editor does."""
    policy = {
        "name": f"{path.stem} for {user}",
        "service": "lake",
        "resources": {"database": {"values": ["db"]}, "table": {"values": [table]}},
        "policyItems": [{"users": [user], "accesses": [{"type": "select", "isAllowed": True}]}],
    }
    path.with_suffix(".new").write_text(json.dumps({"policies": [policy]}))
    path.with_suffix(".new").replace(path)


def _may(policies: PolicySet, user: str, table: str = "t") -> bool:
    request = AccessRequest(Principal(user), Resource.table("db", table), "select")
    return policies.decide(request, _NOW).allowed


def test_without_paths_or_documents_nothing_is_granted(tmp_path: Path) -> None:
    assert not _may(PolicyStore(PolicyFiles([])).current(), "ann")
    assert not _may(PolicyStore(PolicyFiles([tmp_path])).current(), "ann")


def test_files_and_directories_make_one_set(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    _write(tmp_path / "d" / "a.json", "ann")
    _write(tmp_path / "d" / "b.json", "bob")
    _write(tmp_path / "single.policy", "cy")
    (tmp_path / "d" / "notes.txt").write_text("not a policy")
    found = PolicyStore(PolicyFiles([tmp_path / "d", tmp_path / "single.policy"])).current()
    assert [_may(found, user) for user in ("ann", "bob", "cy", "dan")] == [True, True, True, False]


def test_a_change_is_noticed_after_the_poll_time_and_not_before(tmp_path: Path, clock: Clock) -> None:
    _write(tmp_path / "a.json", "ann")
    store = PolicyStore(PolicyFiles([tmp_path]), poll_s=10, clock=clock)
    _write(tmp_path / "a.json", "bob")
    clock.now += 9.5
    assert _may(store.current(), "ann")
    clock.now += 0.5
    assert not _may(store.current(), "ann")
    assert _may(store.current(), "bob")


def test_a_change_in_place_of_the_same_size_and_time_is_noticed(tmp_path: Path, clock: Clock) -> None:
    path, other = tmp_path / "a.json", tmp_path / "other"
    _write(path, "ann")
    _write(other, "bob")
    before = path.stat()
    store = PolicyStore(PolicyFiles([path]), poll_s=0, clock=clock)
    text = other.read_text().replace("other for", "a for")
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.write_text(text)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (
        before.st_ino,
        before.st_size,
        before.st_mtime_ns,
    )
    assert _may(store.current(), "bob")


@pytest.mark.parametrize("added", [True, False])
def test_an_added_and_a_removed_document_are_noticed(tmp_path: Path, clock: Clock, added: bool) -> None:
    _write(tmp_path / "a.json", "ann")
    if not added:
        _write(tmp_path / "b.json", "bob")
    store = PolicyStore(PolicyFiles([tmp_path]), poll_s=0, clock=clock)
    if added:
        _write(tmp_path / "b.json", "bob")
    else:
        (tmp_path / "b.json").unlink()
    assert _may(store.current(), "bob") is added
    assert _may(store.current(), "ann")


def test_unchanged_files_are_not_read_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path / "a.json", "ann")
    store = PolicyStore(PolicyFiles([tmp_path]), poll_s=0, clock=clock)
    first = store.current()
    read: list[object] = []
    monkeypatch.setattr(PolicyFiles, "read", lambda files: read.append(files))
    assert store.current() is first
    assert read == []


@pytest.mark.parametrize("bad", ["{", "", '{"policies": [{"name": "x", "resuorces": {}}]}'])
def test_a_bad_change_is_refused_whole_and_the_good_set_stays(tmp_path: Path, clock: Clock, bad: str) -> None:
    _write(tmp_path / "a.json", "ann")
    store = PolicyStore(PolicyFiles([tmp_path]), poll_s=0, clock=clock)
    assert store.problem is None
    _write(tmp_path / "a.json", "bob")
    (tmp_path / "b.json").write_text(bad)
    assert _may(store.current(), "ann")
    assert not _may(store.current(), "bob")
    assert store.problem is not None and "b.json" in store.problem
    (tmp_path / "b.json").unlink()
    assert _may(store.current(), "bob")
    assert store.problem is None


def test_a_bad_change_that_is_taken_back_leaves_no_problem(tmp_path: Path, clock: Clock) -> None:
    _write(tmp_path / "a.json", "ann")
    store = PolicyStore(PolicyFiles([tmp_path]), poll_s=0, clock=clock)
    (tmp_path / "b.json").write_text("{")
    store.current()
    assert store.problem is not None
    (tmp_path / "b.json").unlink()
    store.current()
    assert store.problem is None


def test_a_bad_set_is_parsed_once_a_change(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path / "a.json", "ann")
    store = PolicyStore(PolicyFiles([tmp_path]), poll_s=0, clock=clock)
    (tmp_path / "b.json").write_text("{")
    store.current()
    read: list[object] = []
    monkeypatch.setattr(PolicyFiles, "read", lambda files: read.append(files))
    assert _may(store.current(), "ann")
    assert store.problem is not None
    assert read == []


def test_a_failure_to_read_is_tried_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path / "a.json", "ann")
    store = PolicyStore(PolicyFiles([tmp_path]), poll_s=0, clock=clock)
    _write(tmp_path / "a.json", "bob")

    def exhausted(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as fault:
        fault.setattr("catalog.policy_store.files.os.open", exhausted)
        assert _may(store.current(), "ann")
    assert store.problem is not None
    assert _may(store.current(), "bob")
    assert store.problem is None


def test_a_vanished_directory_leaves_the_good_set_in_force(tmp_path: Path, clock: Clock) -> None:
    directory = tmp_path / "d"
    directory.mkdir()
    _write(directory / "a.json", "ann")
    store = PolicyStore(PolicyFiles([directory]), poll_s=0, clock=clock)
    directory.rename(tmp_path / "elsewhere")
    assert _may(store.current(), "ann")
    assert store.problem is not None and str(directory) in store.problem


def test_the_first_load_must_succeed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    for path in (tmp_path, tmp_path / "a.json", tmp_path / "missing.json"):
        with pytest.raises(PolicyInvalid):
            PolicyStore(PolicyFiles([path]))


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.json")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "b.json").mkdir()
    for path in (tmp_path / "a.json", tmp_path / "d", Path("/dev/zero")):
        with pytest.raises(PolicyInvalid):
            PolicyStore(PolicyFiles([path]))


def test_reload_reads_now_and_reports_a_mistake(tmp_path: Path, clock: Clock) -> None:
    _write(tmp_path / "a.json", "ann")
    store = PolicyStore(PolicyFiles([tmp_path]), poll_s=1_000, clock=clock)
    _write(tmp_path / "a.json", "bob")
    assert _may(store.reload(), "bob")
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(PolicyInvalid):
        store.reload()
    assert store.problem is not None
    assert _may(store.current(), "bob")


def test_many_threads_see_one_whole_set_or_the_other(tmp_path: Path, clock: Clock) -> None:
    for name in ("a", "b"):
        _write(tmp_path / f"{name}.json", "ann", table=name)
    store = PolicyStore(PolicyFiles([tmp_path]), poll_s=0, clock=clock)
    torn: list[object] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            found = store.current()
            if not (_may(found, "ann", "a") and _may(found, "ann", "b")):
                torn.append(found)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(20):
        _write(tmp_path / "b.json", "ann", table="b")
        _write(tmp_path / "c.json", f"user-{number}")
    stop.set()
    for thread in threads:
        thread.join()
    assert torn == []
    assert _may(store.reload(), "user-19")
