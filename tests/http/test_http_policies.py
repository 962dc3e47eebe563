"""Policies in the catalog's own store, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest

from catalog.policy_store.delegation import MAX_DELEGATED_SIZE
from catalog.policy_store.documents import DocumentId, Edit, Kind, PolicyDocuments, StoredDocument
from catalog.policy_store.in_force import PolicyStore
from tests.support.http_calls import refused
from tests.support.lake import policy, tables
from tests.support.service import Service

DOCUMENTS = "/admin/v1/policies/documents"
CHANGES = "/admin/v1/policies/changes"


@pytest.fixture
def bob(served: Service) -> Iterator[httpx.Client]:
    """Bob, who administers nothing."""
    with served.client("bob") as client:
        yield client


@pytest.fixture
def path() -> str:
    """Where a document of the test's own is, or will be."""
    return f"{DOCUMENTS}/ranger/d-{uuid4().hex}"


@pytest.fixture
def text(namespace: str) -> str:
    """A document that lets Bob see the test's namespace."""
    return _reading(namespace, "bob")


def _reading(namespace: str, user: str) -> str:
    """A document that lets a user see a namespace."""
    return json.dumps(
        {"policies": [policy(f"readers of {namespace}", tables(namespace), {user: ["select"]})]}
    )


def _put(
    client: httpx.Client, path: str, text: str, revision: int | None = None, query: str = ""
) -> httpx.Response:
    headers = {"Content-Type": "application/json"} | _seen(revision)
    return client.put(f"{path}{query}", content=text, headers=headers)


def _delete(client: httpx.Client, path: str, revision: int | None = None) -> httpx.Response:
    return client.delete(path, headers=_seen(revision))


def _seen(revision: int | None) -> dict[str, str]:
    return {} if revision is None else {"If-Match": f'"{revision}"'}


def _revision(client: httpx.Client) -> int:
    """The number of the last change."""
    revision: int = client.get(DOCUMENTS).json()["revision"]
    return revision


def _sees(client: httpx.Client, served: Service, namespace: str) -> bool:
    return client.get(f"{served.prefix}/namespaces/{namespace}").status_code == 200


def test_a_document_is_in_force_at_once_and_no_more_when_it_is_removed(
    served: Service, alice: httpx.Client, bob: httpx.Client, namespace: str, path: str, text: str
) -> None:
    number = _revision(alice) + 1
    assert not _sees(bob, served, namespace)
    answer = _put(alice, path, text).json()
    assert (answer["revision"], answer["dry-run"], answer["lockout"]) == (number, False, None)
    title = f"policy 'readers of {namespace}'"
    assert answer["effect"] == {"added": [title], "removed": [], "changed": []}
    assert alice.get("/admin/v1/policies").json()["version"] == answer["version"]
    assert _sees(bob, served, namespace)
    found = alice.get(path)
    assert (found.text, found.headers["etag"]) == (text, f'"{number}"')
    assert _delete(alice, path, number).json()["effect"]["removed"] == [title]
    assert not _sees(bob, served, namespace)
    refused(alice.get(path), 404, "NoSuchDocument")
    assert path.rpartition("/")[2] not in alice.get(DOCUMENTS).text


def test_history_is_kept_so_that_one_can_go_back(
    alice: httpx.Client, namespace: str, path: str, text: str
) -> None:
    first = _put(alice, path, text).json()["revision"]
    changed = _put(alice, path, _reading(namespace, "carol"), first).json()
    assert changed["effect"]["changed"] == [f"policy 'readers of {namespace}'"]
    _delete(alice, path, first + 1)
    changes = alice.get(f"{path}/history").json()["changes"]
    assert [(each["revision"], each["author"], each["sha256"] is None) for each in changes] == [
        (first + 2, "alice", True),
        (first + 1, "alice", False),
        (first, "alice", False),
    ]
    assert alice.get("/admin/v1/policies/history", params={"limit": 1}).json()["changes"] == changes[:1]
    old = alice.get(path, params={"revision": first})
    assert old.text == text
    assert _put(alice, path, old.text).json()["revision"] == first + 3
    refused(alice.get(path, params={"revision": first + 2}), 404, "NoSuchDocument")


def test_a_change_that_was_not_seen_is_not_overwritten(
    alice: httpx.Client, namespace: str, path: str, text: str
) -> None:
    refused(_put(alice, path, text, 1), 409, "CommitConflict", "policy-revision")
    first = _put(alice, path, text).json()["revision"]
    other = _reading(namespace, "carol")
    error = refused(_put(alice, path, other), 409, "CommitConflict", "policy-revision")
    assert f"at revision {first}" in error["message"]
    refused(_put(alice, path, other, first + 7), 409, "CommitConflict", "policy-revision")
    refused(_delete(alice, path), 409, "CommitConflict", "policy-revision")
    assert alice.get(path).headers["etag"] == f'"{first}"'
    # The same again, as after an answer that was lost, changes nothing.
    assert _put(alice, path, text).json()["changes"] == []


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("tag", ["7", '"a"', 'W/"1"', "*", '"1", "2"', '"-1"', '"0"', '"\u0661"'])
def test_what_is_no_revision_is_refused(alice: httpx.Client, path: str, tag: str) -> None:
    headers = [(b"If-Match", tag.encode("utf-8"))]
    refused(alice.delete(path, headers=headers), 400, "RequestInvalid", "if-match")


def test_two_revisions_are_refused(alice: httpx.Client, path: str) -> None:
    headers = [(b"If-Match", b'"1"'), (b"If-Match", b'"1"')]
    refused(alice.delete(path, headers=headers), 400, "RequestInvalid", "if-match")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ('{"policies": [\n{"name": "x", "resuorces": {}}]}', "line 2, policies[0].resuorces"),
        ('{"policies": [{"name": "x",\n "name": "y"}]}', "twice"),
        ('{"policies": [\n{"name": "x", "resources": {"database": {"values": []}}}]}', "line 2"),
        (
            '{"roles": [{"name": "a", "roles": [{"name": "b"}]}, {"name": "b", "roles": [{"name": "a"}]}]}',
            "contain each other",
        ),
        ("[[]]", "catalog:ranger/d-"),
        ("{", "JSON"),
    ],
)
def test_a_mistake_refuses_the_change_whole_and_says_where(
    alice: httpx.Client, path: str, wrong: str, said: str
) -> None:
    before = alice.get("/admin/v1/policies").json()
    answer = _put(alice, path, wrong)
    assert answer.status_code == 400 and said in answer.json()["error"]["message"], answer.text
    assert alice.get("/admin/v1/policies").json() == before
    refused(alice.get(path), 404, "NoSuchDocument")


def test_several_documents_change_together_or_not_at_all(alice: httpx.Client, text: str) -> None:
    unique = uuid4().hex
    role = json.dumps({"roles": [{"name": f"r-{unique}", "users": [{"name": "bob"}]}]})

    def edit(name: str, content: str | None, expected: int | None = None) -> dict[str, Any]:
        name = f"{name}-{unique}"
        return {"kind": "ranger", "name": name, "content": content, "expected-revision": expected}

    def change(*edits: dict[str, Any]) -> httpx.Response:
        return alice.post(CHANGES, json={"changes": list(edits)})

    before = _revision(alice)
    assert change(edit("a", role), edit("b", "{")).status_code == 400
    assert _revision(alice) == before
    assert change(edit("a", role), edit("b", text)).json()["revision"] == before + 1
    # A role moves from one document to another: it may be in both as little as in none for a while.
    assert change(edit("c", role)).status_code == 400
    moved = change(edit("a", None, before + 1), edit("c", role))
    assert moved.json()["effect"] == {"added": [], "removed": [], "changed": []}
    refused(change(), 400, "RequestInvalid", "policy-change")
    refused(change(edit("d", "[]"), edit("d", "[]")), 400, "RequestInvalid", "policy-change")


def test_a_dry_run_tells_the_effect_and_changes_nothing(
    served: Service, alice: httpx.Client, bob: httpx.Client, namespace: str, path: str, text: str
) -> None:
    before = _revision(alice)
    answer = _put(alice, path, text, query="?dry-run=true").json()
    assert (answer["dry-run"], answer["effect"]["added"]) == (True, [f"policy 'readers of {namespace}'"])
    assert _revision(alice) == before
    assert not _sees(bob, served, namespace)
    assert _put(alice, path, "[[]]", query="?dry-run=true").status_code == 400
    assert _put(alice, path, "[]", 4, query="?dry-run=true").status_code == 409


def test_nobody_locks_himself_out_by_mistake(service: Service, path: str) -> None:
    item = {"users": ["alice"], "accesses": [{"type": "admin", "isAllowed": True}]}
    denial = json.dumps({"policies": [policy("no-admins", {"service": ["*"]}, {}, denyPolicyItems=[item])]})
    with service.client() as alice:
        tried = _put(alice, path, denial, query="?dry-run=true").json()
        assert tried["lockout"] == "alice would lose the permission to administer the catalog"
        refused(_put(alice, path, denial), 400, "RequestInvalid", "policy-lockout")
        assert _revision(alice) == 1
        assert _put(alice, path, denial, query="?force=true").status_code == 200
        refused(alice.get(DOCUMENTS), 403, "NotAuthorized")


def test_every_operation_needs_the_right_to_administer(bob: httpx.Client, path: str) -> None:
    edit = {"kind": "ranger", "name": "readers", "content": "[]", "expected-revision": None}
    operations: list[tuple[str, str, Any]] = [
        ("GET", DOCUMENTS, None),
        ("GET", "/admin/v1/policies/history", None),
        ("GET", path, None),
        ("GET", f"{path}/history", None),
        ("PUT", path, []),
        ("PUT", f"{path}?dry-run=true", []),
        ("DELETE", path, None),
        ("POST", CHANGES, {"changes": [edit]}),
        ("POST", CHANGES, {"changes": [edit], "dry-run": True}),
    ]
    for method, where, body in operations:
        refused(bob.request(method, where, json=body), 403, "NotAuthorized")


def test_a_change_is_on_record_with_both_revisions_and_digests(
    alice: httpx.Client, namespace: str, path: str, text: str
) -> None:
    first = _put(alice, path, text).json()["changes"][0]
    second = _put(alice, path, _reading(namespace, "carol"), first["revision"]).json()["changes"][0]
    records = alice.get("/admin/v1/audit", params={"limit": 50}).json()["records"]
    latest = next(each for each in records if each["reasons"][0]["rule"] == "policy-effect")
    assert (latest["principal"], latest["action"]) == ("alice", "admin.policies.change")
    assert latest["resource"] == f"policy ranger/{path.rpartition('/')[2]}"
    assert latest["request-id"] == second["request-id"]
    assert f"readers of {namespace}" in latest["reasons"][0]["detail"]
    told = latest["reasons"][1]["detail"]
    assert all(f"revision {each['revision']}" in told and each["sha256"] in told for each in (first, second))


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("name", ["-x", ".x", "a b", "\u00e4", "x" * 129, "a;b", "%3Cb%3E", "a%0Ab"])
def test_what_is_no_name_is_refused(alice: httpx.Client, name: str) -> None:
    refused(_put(alice, f"{DOCUMENTS}/ranger/{name}", "[]"), 400, "RequestInvalid")


def test_what_is_no_kind_is_refused(alice: httpx.Client) -> None:
    refused(_put(alice, f"{DOCUMENTS}/other/x", "[]"), 400, "RequestInvalid")


def test_rules_for_encryption_are_kept_too(served: Service, alice: httpx.Client) -> None:
    path = f"{DOCUMENTS}/encryption/pii"
    rule = {"name": "pii", "databases": ["hr"], "tables": ["*"], "mustEncrypt": True}
    made = _put(alice, path, json.dumps({"rules": [rule]})).json()
    assert made["effect"]["added"] == ["encryption rule 'pii'"]
    assert [each.name for each in served.lake.services.policies.encryption().rules] == ["pii"]
    answer = _put(alice, path, json.dumps({"rules": [{"name": "x"}]}), made["revision"])
    assert answer.status_code == 400 and "catalog:encryption/pii, line 1, rules[0]" in answer.text
    assert _delete(alice, path, made["revision"]).status_code == 200
    assert served.lake.services.policies.encryption().rules == ()


@pytest.fixture
def delegated(alice: httpx.Client, namespace: str) -> None:
    """Bob administers the policies of the test's namespace."""
    item = {
        "users": ["bob"],
        "accesses": [{"type": "select", "isAllowed": True}],
        "delegateAdmin": True,
    }
    granted = policy(f"bob in {namespace}", tables(namespace), {}) | {"policyItems": [item]}
    path = f"{DOCUMENTS}/ranger/delegation-{namespace}"
    assert _put(alice, path, json.dumps({"policies": [granted]})).status_code == 200


@pytest.mark.usefixtures("delegated")
def test_whoever_has_resources_delegated_keeps_documents_about_them(
    alice: httpx.Client, bob: httpx.Client, namespace: str, path: str
) -> None:
    text = _reading(namespace, "carol")
    made = _put(bob, path, text)
    assert made.status_code == 200, made.text
    revision = made.json()["revision"]
    assert bob.get(path).text == text
    assert _put(bob, path, _reading(namespace, "dave"), revision).status_code == 200
    assert _delete(bob, path, revision + 1).status_code == 200
    assert [each["author"] for each in alice.get(f"{path}/history").json()["changes"]] == ["bob"] * 3
    records = alice.get("/admin/v1/audit", params={"principal": "bob", "limit": 3}).json()["records"]
    assert [each["begun"] for each in records] == [False, True, True]
    assert [each["reasons"][0]["rule"] for each in records[1:]] == ["policy-effect", "policy-delegation"]


@pytest.mark.usefixtures("delegated")
def test_nothing_else_can_be_changed_or_read_by_delegation(
    alice: httpx.Client, bob: httpx.Client, namespace: str, path: str
) -> None:
    theirs, mine = _reading("elsewhere", "bob"), _reading(namespace, "carol")
    both = json.dumps({"policies": json.loads(theirs)["policies"] + json.loads(mine)["policies"]})
    with_role = json.dumps({**json.loads(mine), "roles": [{"name": "r", "users": [{"name": "bob"}]}]})
    more = mine.replace('"select"', '"alter"')
    disabled = both.replace('"service"', '"isEnabled": false, "service"', 1)
    own = f"{path}-own"
    revision = _put(bob, own, mine).json()["revision"]
    for text in (theirs, both, with_role, more, disabled, "[]"):
        refused(_put(bob, path, text), 403, "NotAuthorized", "policy-no-delegation")
        refused(_put(bob, own, text, revision), 403, "NotAuthorized", "policy-no-delegation")
    refused(_put(bob, own, mine + " " * MAX_DELEGATED_SIZE, revision), 413, "BodyTooLarge", "body-size")
    assert bob.get(own).text == mine
    _delete(alice, own, revision)
    rules = f"{DOCUMENTS}/encryption/d-{uuid4().hex}"
    refused(_put(bob, rules, '{"rules": []}'), 403, "NotAuthorized", "policy-no-delegation")
    # A document of others is answered like one that does not exist, unless its name is to be taken.
    for there in (both, "[]", with_role):
        revision = _put(alice, path, there).json()["revision"]
        answers = [
            [
                bob.get(where).json(),
                _put(bob, where, mine, revision).json(),
                _delete(bob, where, revision).json(),
            ]
            for where in (path, f"{path}-none")
        ]
        assert [each["error"]["rule"] for each in answers[0]] == ["policy-no-delegation"] * 3
        assert answers[0][0] == answers[1][0] and answers[0][2] == answers[1][2]
        assert "elsewhere" not in json.dumps(answers)
        _delete(alice, path, revision)
    refused(bob.get(DOCUMENTS), 403, "NotAuthorized")


@pytest.mark.usefixtures("delegated")
def test_a_document_that_others_took_over_meanwhile_is_not_changed_by_delegation(
    served: Service,
    alice: httpx.Client,
    bob: httpx.Client,
    namespace: str,
    path: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bob guesses the revision of a change that is made between the look at his rights and his change."""
    revision = _put(bob, path, _reading(namespace, "carol")).json()["revision"]
    theirs, find = _reading("elsewhere", "dave"), PolicyDocuments.find
    left = [lambda: _put(alice, path, theirs, revision)]

    def found_before(documents: PolicyDocuments, document: DocumentId) -> StoredDocument | None:
        found = find(documents, document)
        if left:
            assert left.pop()().status_code == 200
        return found

    monkeypatch.setattr(PolicyDocuments, "find", found_before)
    answer = _put(bob, path, _reading(namespace, "bob"), revision + 1)
    refused(answer, 403, "NotAuthorized", "policy-no-delegation")
    assert not left
    monkeypatch.undo()
    assert alice.get(path).text == theirs
    assert _delete(alice, path, revision + 1).status_code == 200


def _behind(served: Service, name: str, text: str | None) -> None:
    """Put or remove a document as another replica, which has other files, would: nothing is checked here."""
    documents = served.lake.services.policy_documents
    base, document = documents.current(), DocumentId(Kind.RANGER, name)
    there = base.documents.get(document)
    content = None if text is None else text.encode()
    edit = Edit(document, content, there.change.revision if there else None)
    number = base.version.revision + 1
    now = datetime.now(UTC)
    changed = StoredDocument.of(edit, number, author="alice", request_id=uuid4().hex, changed_at=now)
    documents.replace(base, [changed])


@pytest.mark.usefixtures("delegated")
def test_a_delegation_that_ended_elsewhere_lets_nothing_be_changed(
    served: Service, bob: httpx.Client, namespace: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica took it away, and this one has not looked since."""
    monkeypatch.setattr(PolicyStore, "in_force", lambda store: store.last)
    _behind(served, f"delegation-{namespace}", None)
    for query in ("", "?dry-run=true"):
        answer = _put(bob, path, _reading(namespace, "carol"), query=query)
        refused(answer, 403, "NotAuthorized", "policy-no-delegation")


@pytest.mark.usefixtures("delegated")
def test_where_documents_make_no_set_a_delegate_learns_nothing_of_the_others(
    served: Service, alice: httpx.Client, bob: httpx.Client, namespace: str, path: str
) -> None:
    """Without a set, everything in it would count as added by the change that mends it."""
    text, twin = _reading(namespace, "carol"), f"twin-{namespace}"
    revision = _put(bob, path, text).json()["revision"]
    _behind(served, twin, text)
    try:
        where = f"{path}?dry-run=true"
        mended = _delete(alice, where, revision).json()
        assert "policy 'alice-tables'" in mended["effect"]["added"]
        answer = _delete(bob, where, revision)
        refused(answer, 403, "NotAuthorized", "policy-no-delegation")
        assert "alice-tables" not in answer.text
    finally:
        _behind(served, twin, None)
