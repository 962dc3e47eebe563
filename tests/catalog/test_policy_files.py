"""Files are applied to the database: what is in force is what they say, and a mistake changes nothing."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine

from catalog.authorization.authorizer import Caller
from catalog.authorization.principals import NO_PROVIDERS, principals_of
from catalog.policy_store.changes import PolicyChanges
from catalog.policy_store.documents import DocumentId, Edit, Kind, PolicyDocuments
from catalog.policy_store.files import PolicyFiles
from catalog.policy_store.in_force import PolicyStore
from catalog.service.services import Services
from policy.errors import PolicyInvalid, RequestInvalid
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from tests.support.lake import lake_settings, open_lake, policy, tables

OPERATOR = Caller(Principal("operator"), None, "request")
RULE = {"name": "hr", "databases": ["hr"], "tables": ["*"], "mustEncrypt": True}


def _write(path: Path, user: str, name: str | None = None) -> None:
    granted = policy(name or f"{path.stem} for {user}", tables("db"), {user: ["select"]})
    path.write_text(json.dumps({"policies": [granted]}))


def _may(documents: PolicyDocuments, *users: str) -> list[bool]:
    policies = PolicyStore(documents).current()
    table = Resource.table("db", "t")
    return [
        policies.decide(AccessRequest(Principal(user), table, "select"), datetime.now(UTC)).allowed
        for user in users
    ]


@pytest.fixture
def documents(engine: Engine, catalog_name: str) -> PolicyDocuments:
    """The documents of a catalog of the test's own."""
    return PolicyDocuments(engine, catalog_name)


@pytest.fixture
def apply(
    engine: Engine, catalog_name: str, documents: PolicyDocuments
) -> Callable[[PolicyFiles], list[str]]:
    """Applies files; answers the documents that changed."""
    changes = PolicyChanges(
        documents, None, principals_of(engine, NO_PROVIDERS), catalog_name, lambda: datetime.now(UTC)
    )

    def applied(files: PolicyFiles) -> list[str]:
        edits = files.edits(documents.current())
        made = changes.make(edits, OPERATOR, lambda _: None, by_policy=False) if edits else None
        return [] if made is None else [str(each.id) for each in made.changed]

    return applied


Apply = Callable[[PolicyFiles], list[str]]


def test_the_database_says_what_files_and_directories_say(
    tmp_path: Path, documents: PolicyDocuments, apply: Apply
) -> None:
    (tmp_path / "d").mkdir()
    _write(tmp_path / "d" / "a.json", "ann")
    _write(tmp_path / "d" / "b.json", "bob")
    _write(tmp_path / "single.policy", "cy")
    (tmp_path / "d" / "notes.txt").write_text("not a policy")
    (tmp_path / "rules.json").write_text(json.dumps({"rules": [RULE]}))
    files = PolicyFiles([tmp_path / "d", tmp_path / "single.policy"], [tmp_path / "rules.json"])
    assert apply(files) == [
        "ranger/files.a",
        "ranger/files.b",
        "ranger/files.single.policy",
        "encryption/files.rules",
    ]
    assert _may(documents, "ann", "bob", "cy", "dan") == [True, True, True, False]
    assert [each.name for each in PolicyStore(documents).encryption().rules] == ["hr"]
    assert apply(files) == []
    assert documents.current().documents[DocumentId(Kind.RANGER, "files.a")].content == (
        (tmp_path / "d" / "a.json").read_bytes()
    )


def test_what_is_gone_is_removed_and_what_is_of_others_stays(
    tmp_path: Path, engine: Engine, catalog_name: str, documents: PolicyDocuments, apply: Apply
) -> None:
    for name in ("a", "b"):
        _write(tmp_path / f"{name}.json", name)
    apply(PolicyFiles([tmp_path]))
    _write(tmp_path / "c", "c")
    (tmp_path / "rules").write_text(json.dumps({"rules": [RULE]}))
    apply(PolicyFiles([], [tmp_path / "rules"]))
    content = json.dumps({"policies": [policy("own", tables("db"), {"own": ["select"]})]}).encode()
    changed = PolicyFiles([tmp_path]).edits(documents.current())
    assert changed == ()
    own = Edit(DocumentId(Kind.RANGER, "own"), content, None)
    changes = PolicyChanges(
        documents, None, principals_of(engine, NO_PROVIDERS), catalog_name, lambda: datetime.now(UTC)
    )
    changes.make([own], OPERATOR, lambda _: None)
    (tmp_path / "a.json").unlink()
    _write(tmp_path / "b.json", "bea")
    assert apply(PolicyFiles([tmp_path])) == ["ranger/files.b", "ranger/files.a"]
    assert _may(documents, "a", "b", "bea", "own") == [False, False, True, True]
    assert len(PolicyStore(documents).encryption().rules) == 1


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("bad", ["{", "", '{"policies": [{"name": "x", "resuorces": {}}]}'])
def test_a_file_with_a_mistake_is_named_and_what_is_in_force_stays(
    tmp_path: Path, documents: PolicyDocuments, apply: Apply, bad: str
) -> None:
    _write(tmp_path / "a.json", "ann")
    apply(PolicyFiles([tmp_path]))
    _write(tmp_path / "a.json", "bob")
    (tmp_path / "b.json").write_text(bad)
    with pytest.raises(PolicyInvalid, match=str(tmp_path / "b.json")):
        apply(PolicyFiles([tmp_path]))
    assert _may(documents, "ann", "bob") == [True, False]


def test_a_file_that_contradicts_another_document_is_refused(
    tmp_path: Path, documents: PolicyDocuments, apply: Apply
) -> None:
    _write(tmp_path / "a.json", "ann", "readers")
    apply(PolicyFiles([tmp_path]))
    _write(tmp_path / "b.json", "bob", "readers")
    with pytest.raises(PolicyInvalid, match=r"b\.json, line 1, policies\[0\]\.name"):
        apply(PolicyFiles([tmp_path]))
    assert _may(documents, "ann", "bob") == [True, False]


def test_names_that_are_none_and_files_of_one_name_are_refused(tmp_path: Path, apply: Apply) -> None:
    (tmp_path / "d").mkdir()
    for path in (tmp_path / "a.json", tmp_path / "d" / "a.json", tmp_path / "two words.json"):
        _write(path, path.parent.name)
    with pytest.raises(PolicyInvalid, match="of the same name"):
        apply(PolicyFiles([tmp_path / "a.json", tmp_path / "d"]))
    with pytest.raises(PolicyInvalid, match="cannot name a document"):
        apply(PolicyFiles([tmp_path / "two words.json"]))


def test_what_cannot_be_read_is_refused_without_waiting(
    tmp_path: Path, documents: PolicyDocuments, apply: Apply, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    _write(tmp_path / "d" / "a.json", "ann")
    apply(PolicyFiles([tmp_path / "d"]))
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "b.json").mkdir()
    for path in (tmp_path / "pipe.json", tmp_path / "e", Path("/dev/zero"), tmp_path / "missing"):
        with pytest.raises(PolicyInvalid):
            apply(PolicyFiles([path]))

    def exhausted(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as fault:
        fault.setattr("catalog.policy_store.files.os.open", exhausted)
        with pytest.raises(PolicyInvalid, match="Too many open files"):
            apply(PolicyFiles([tmp_path / "d"]))
    assert _may(documents, "ann") == [True]


def test_a_change_in_place_of_the_same_size_and_time_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[1]")
    files, before = PolicyFiles([tmp_path]), path.stat()
    seen = files.fingerprints()
    assert files.fingerprints() == seen
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.write_text("[2]")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.fingerprints() != seen


def test_an_embedded_catalog_applies_its_files_when_it_is_opened(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        _write(tmp_path / "policies" / "more.json", "erin")
        assert _may(lake.services.policy_documents, "erin") == [False]
        lake.reopen()
        assert _may(lake.services.policy_documents, "erin") == [True]
        (tmp_path / "policies" / "more.json").write_text("{")
        with pytest.raises(PolicyInvalid, match=r"more\.json"):
            Services.open(lake.settings, lake.kms)
        change = lake.services.policy_documents.history(limit=1)[0]
        assert (change.author, str(change.id)) == ("lakewarden", "ranger/files.more")


def test_files_are_not_applied_by_each_replica(tmp_path: Path) -> None:
    """One that starts with older files would undo what was changed since."""
    with pytest.raises(RequestInvalid, match="lakewarden policy apply"):
        lake_settings(tmp_path, DATABASE__URL="postgresql://h/d", POLICIES=tmp_path)
