"""Pages of the console: what each shows, and to whom."""

from __future__ import annotations

import html
import json
import re
from uuid import uuid4

import httpx
import pytest

from catalog.http.console import audit, bounded_work, difference, keys, refusals
from catalog.http.console.bounded_work import BoundedWork
from catalog.http.console.navigation import ENTRIES
from catalog.policy_store.documents import DocumentId, Edit, Kind, title_of
from tests.support.console import browser, text_of
from tests.support.http_calls import encrypted_table, new_table
from tests.support.lake import ALICE, BOB, CAROL
from tests.support.service import Service


@pytest.fixture
def table(served: Service, alice: httpx.Client) -> str:
    """An encrypted table of the namespace `db`, which Carol reads."""
    alice.post(f"{served.prefix}/namespaces", json={"namespace": ["db"]})
    name = f"t{uuid4().hex[:12]}"
    made = encrypted_table(alice, "db", name)
    assert made.status_code == 200, made.text
    return name


def test_namespaces_and_tables_are_those_that_the_user_sees(
    served: Service, alice: httpx.Client, table: str
) -> None:
    alice.post(f"{served.prefix}/namespaces", json={"namespace": ["bobs"]})
    new_table(alice, served.prefix, "bobs", "own")
    for user, seen, hidden in ((CAROL, "db", "bobs"), (BOB, "bobs", "db")):
        namespaces = browser(served, user).get("/console").text
        assert f"name={seen}" in namespaces and f"name={hidden}" not in namespaces
    assert table in browser(served, CAROL).get("/console/namespace", name="db").text
    assert browser(served, CAROL).get("/console/namespace", name="bobs").status_code == 403


def test_a_table_has_locations_properties_encryption_columns_and_keys(
    served: Service, alice: httpx.Client, table: str
) -> None:
    shown = text_of(browser(served).get("/console/table", name=f"db.{table}"))
    governed = alice.get(f"/admin/v1/tables/db/{table}").json()
    (key,) = alice.get(f"/admin/v1/tables/db/{table}/keys").json()["keys"]
    for each in (
        governed["location"],
        governed["table-uuid"],
        "envelope",
        "sealed",
        key["id"],
        "active",
        "name",
    ):
        assert each in shown


def test_a_user_without_a_permission_is_shown_no_table_and_not_whether_there_is_one(
    served: Service, table: str
) -> None:
    opened = browser(served, BOB)
    there, nowhere = (opened.get("/console/table", name=name) for name in (f"db.{table}", "db.nothing"))
    assert there.status_code == nowhere.status_code == 403
    assert "uuid" not in there.text.lower()


@pytest.mark.parametrize("name", ["", "t", "a.b.", "a..b", "a/b.c", "x" * 600])
def test_a_name_that_is_none_is_refused_on_a_page(served: Service, name: str) -> None:
    answer = browser(served).get("/console/table", name=name)
    assert answer.status_code == 400 and answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("user", [ALICE, None])
@pytest.mark.parametrize(
    "path", ["/console/none", "/console/", "/console/table/x", "/console/static/none.js"]
)
def test_an_address_without_a_page_is_answered_with_a_page_and_a_way_back(
    served: Service, path: str, user: str | None
) -> None:
    answer = browser(served, user).get(path)
    assert answer.status_code == 404 and answer.headers["content-type"].startswith("text/html")
    assert 'href="/console"' in answer.text and "no page" in text_of(answer)
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_method_that_a_page_does_not_take_is_answered_with_a_page(served: Service) -> None:
    opened = browser(served)
    for answer in (opened.get("/console/logout"), opened.post("/console"), opened.post("/console/none")):
        assert answer.status_code in (404, 405) and answer.headers["content-type"].startswith("text/html")
        assert 'href="/console"' in answer.text


@pytest.mark.parametrize("path", ["/consoles", "/none", "/v1/none", "/Console"])
def test_the_api_answers_addresses_without_an_operation_as_before(served: Service, path: str) -> None:
    answer = browser(served).get(path)
    assert answer.status_code == 404 and answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("path", [each.path for each in ENTRIES if each.operation is not None])
def test_pages_of_administration_need_the_permission_of_the_api(served: Service, path: str) -> None:
    refused = browser(served, CAROL).get(path)
    assert refused.status_code == 403 and "no-match" in refused.text
    assert browser(served, ALICE).get(path).status_code == 200


def test_the_navigation_has_the_pages_that_the_user_can_open(served: Service) -> None:
    everything, little = (browser(served, user).get("/console").text for user in (ALICE, CAROL))
    for each in ENTRIES:
        assert f'href="{each.path}"' in everything
    assert 'href="/console/audit"' not in little and 'href="/console"' in little


def test_policies_are_shown_in_words(served: Service) -> None:
    opened = browser(served)
    (document,) = [each.name for each in served.lake.services.policy_documents.current().documents]
    assert document in opened.get("/console/policies").text
    shown = text_of(opened.get("/console/policies/document", kind="ranger", name=document))
    assert "carol-reads" in shown and "database: db; table: *; column: *" in shown and "users carol" in shown


def test_a_policy_document_needs_the_permission_of_the_api(served: Service) -> None:
    (document,) = [each.name for each in served.lake.services.policy_documents.current().documents]
    assert (
        browser(served, CAROL).get("/console/policies/document", kind="ranger", name=document).status_code
        == 403
    )


def test_an_explanation_is_that_of_policy_check(served: Service, table: str) -> None:
    resource = f"column:db.{table}/name"
    for user, answer, why in ((CAROL, "Allowed", "carol-reads"), (BOB, "Denied", "no policy")):
        shown = text_of(browser(served).get("/console/explain", user=user, resource=resource))
        assert answer in shown and why.lower() in shown.lower()


def test_a_table_is_not_looked_up_for_what_is_of_none(served: Service) -> None:
    for resource in ("service:lakewarden", "key:pii", "database:db"):
        asked = {"user": ALICE, "resource": resource, "access": "select"}
        assert browser(served).get("/console/explain", **asked, live="true").status_code == 400
        assert (
            "clear the box" in text_of(browser(served).get("/console/explain", **asked, live="true")).lower()
        )


def test_facts_of_a_table_are_explained_to_users_who_can_load_it(served: Service, table: str) -> None:
    asked = {"user": CAROL, "resource": f"table:db.{table}", "live": "true"}
    assert browser(served).get("/console/explain", **asked).status_code == 200
    assert (
        browser(served).get("/console/explain", **(asked | {"resource": "table:db.none"})).status_code == 404
    )


def test_the_audit_log_is_searched_by_user_resource_and_time_in_pages(served: Service) -> None:
    opened = browser(served)
    with served.client(CAROL) as carol:
        for number in range(60):
            carol.get(f"{served.prefix}/namespaces", headers={"X-Request-Id": f"look-{number}"})
    first = opened.get("/console/audit", user=CAROL)
    assert "look-59" in first.text and "look-1<" not in first.text
    following = re.search(r'rel="next" href="([^"]+)"', first.text)
    assert following is not None
    assert "look-1<" in opened.get(html.unescape(following[1])).text
    assert "look-" not in opened.get("/console/audit", user="eve").text
    assert "No record" in text_of(opened.get("/console/audit", since="2999-01-01T00:00"))
    assert opened.get("/console/audit", since="yesterday").status_code == 400
    assert opened.get("/console/audit", before="made up").status_code == 400


def test_the_audit_log_is_verified(served: Service) -> None:
    assert "intact" in text_of(browser(served).get("/console/audit/verify"))
    assert browser(served, CAROL).get("/console/audit/verify").status_code == 403


def test_values_are_escaped_wherever_they_come_from(served: Service, alice: httpx.Client) -> None:
    """Attack: names of tables, policies, users and values of the log with markup."""
    evil = "<script>alert(1)</script>"
    name = "<b onmouseover=alert(1)>'\"&t"
    alice.post(f"{served.prefix}/namespaces", json={"namespace": ["db"]})
    assert new_table(alice, served.prefix, "db", name).status_code == 200
    opened = browser(served)
    for path, asked in (
        ("/console/namespace", {"name": "db"}),
        ("/console/table", {"name": f"db.{name}"}),
        ("/console/explain", {"user": evil, "resource": f"table:db.{name}"}),
        ("/console/audit", {"user": evil, "table": evil}),
        ("/console/audit", {}),
        ("/console/audit", {"since": evil}),
        ("/console/policies/document", {"kind": "ranger", "name": evil}),
    ):
        text = opened.get(path, **asked).text
        assert "<script" not in text and "<b onmouseover" not in text, path


def test_a_policy_with_markup_is_escaped(served: Service) -> None:
    content = (
        b'{"policies": [{"name": "<script>p</script>", "service": "lake", "description": "<img src=x>",'
        b' "resources": {"database": {"values": ["<i>"]}, "table": {"values": ["*"]},'
        b' "column": {"values": ["*"]}},'
        b' "policyItems": [{"users": ["<u>"], "accesses": [{"type": "select"}]}]}]}'
    )
    services = served.lake.services
    made = Edit(DocumentId(Kind.RANGER, "evil"), content, None)
    services.policy_changes.make([made], served.lake.caller(ALICE), lambda prepared: None, force=False)
    text = browser(served).get("/console/policies/document", kind="ranger", name="evil").text
    assert "&lt;script&gt;p&lt;/script&gt;" in text
    for markup in ("<script", "<img src=x", "<i>", "<u>"):
        assert markup not in text


def test_refusals_are_counted_with_a_chart(served: Service) -> None:
    with served.client(BOB) as bob:
        bob.get("/admin/v1/audit")
    opened = browser(served)
    for by, seen in (("user", BOB), ("action", "audit.read"), ("table", "lakewarden")):
        text = opened.get("/console/refusals", by=by).text
        assert f"<td>{seen}</td>" in text and "<svg" in text and 'class="bar"' in text
    assert opened.get("/console/refusals", by="reasons").status_code == 400
    assert opened.get("/console/refusals", days="91").status_code == 400


def test_a_period_with_too_many_records_is_refused(served: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_MOST", 1)
    answer = browser(served).get("/console/refusals")
    assert answer.status_code == 400 and "console-size" in answer.text


def test_keys_that_are_due_are_shown(served: Service, alice: httpx.Client, table: str) -> None:
    alice.post(f"/admin/v1/tables/db/{table}/keys/destroy", json={"confirm": f"db.{table}"})
    shown = text_of(browser(served).get("/console/keys"))
    assert f"db.{table}" in shown and "destr" in shown.lower()


PROPOSED = {
    "policies": [
        {
            "name": "bob-reads",
            "service": "lake",
            "resources": {
                "database": {"values": ["db"]},
                "table": {"values": ["*"]},
                "column": {"values": ["*"]},
            },
            "policyItems": [{"users": [BOB], "accesses": [{"type": "select"}]}],
        }
    ]
}


def test_a_proposed_document_is_compared_and_not_stored(served: Service, table: str) -> None:
    served.token(BOB)
    opened, documents = browser(served), served.lake.services.policy_documents
    revision = documents.current().version.revision
    shown = text_of(opened.post("/console/difference", document=json.dumps(PROPOSED), replaces=""))
    assert "grants" in shown and BOB in shown and f"db.{table}" in shown
    (title,) = [title_of(each) for each in documents.current().documents if "lake" in each.name]
    taken = text_of(opened.post("/console/difference", document='{"policies": []}', replaces=title))
    assert "takes away" in taken and CAROL in taken
    assert documents.current().version.revision == revision


@pytest.mark.parametrize(
    ("document", "replaces"),
    [
        ("no JSON", ""),
        ("", ""),
        ('{"policies": [{"name": 1}]}', ""),
        ('{"policies": []}', "catalog:ranger/none"),
    ],
)
def test_a_proposed_document_that_is_none_is_refused(served: Service, document: str, replaces: str) -> None:
    answer = browser(served).post("/console/difference", document=document, replaces=replaces)
    assert answer.status_code == 400 and answer.headers["content-type"].startswith("text/html")


def test_a_comparison_needs_the_permission_its_own_page_and_a_bounded_document(served: Service) -> None:
    fields = {"document": json.dumps(PROPOSED), "replaces": ""}
    assert browser(served, CAROL).post("/console/difference", **fields).status_code == 403
    assert (
        browser(served).post("/console/difference", origin="https://a.example", **fields).status_code == 403
    )
    large = {"document": "x" * (1 << 20), "replaces": ""}
    assert browser(served).post("/console/difference", **large).status_code == 413


def test_a_document_that_is_refused_is_in_the_form_again_unchanged(served: Service) -> None:
    """Backslashes too: a document that is sent again must be the same."""
    document = r'{"policies": [{"name": "a\\b\u0041 </textarea><script>"'
    for fields in ({"document": document, "replaces": ""}, {"document": document, "replaces": "none"}):
        answer = browser(served).post("/console/difference", **fields)
        assert answer.status_code == 400 and 'role="alert"' in answer.text and "<script" not in answer.text
        found = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", answer.text, re.DOTALL)
        assert found is not None and html.unescape(found[1]) == document


def test_a_comparison_that_takes_too_long_is_ended_and_the_next_can_begin(
    served: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"document": json.dumps(PROPOSED), "replaces": ""}
    with monkeypatch.context() as patched:
        patched.setattr(bounded_work, "LONGEST_S", -1.0)
        answer = browser(served).post("/console/difference", **fields)
        assert answer.status_code == 400 and "console-size" in answer.text
        assert html.escape(BOB) in answer.text
    assert browser(served).post("/console/difference", **fields).status_code == 200


def test_one_comparison_runs_at_a_time(served: Service) -> None:
    with difference._work.alone:
        answer = browser(served).post("/console/difference", document="{}", replaces="")
    assert answer.status_code == 503 and "console-busy" in answer.text


@pytest.mark.parametrize(
    ("path", "command", "work"),
    [
        ("/console/audit/verify", "lakewarden audit verify", audit._work),
        ("/console/keys", "lakewarden key list --expiring", keys._work),
    ],
)
def test_verification_and_the_report_of_keys_are_bounded(
    served: Service, table: str, monkeypatch: pytest.MonkeyPatch, path: str, command: str, work: BoundedWork
) -> None:
    opened = browser(served)
    with monkeypatch.context() as patched:
        patched.setattr(bounded_work, "LONGEST_S", -1.0)
        answer = opened.get(path)
        assert answer.status_code == 400 and "console-size" in answer.text and command in answer.text
    with work.alone:
        assert opened.get(path).status_code == 503
    assert opened.get(path).status_code == 200
