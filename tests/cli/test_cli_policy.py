"""`lakewarden policy`: a decision is explained, and its answer is the exit code."""

from __future__ import annotations

import pytest

from policy.errors import LakewardenError
from tests.support.host import ADMIN, Host
from tests.support.vectors import each_row


def test_an_answer_comes_with_its_reasons(host: Host) -> None:
    granted = host.json("policy", "check", "--as", ADMIN, "table:sales.orders", "alter")
    assert granted["allowed"] is True
    assert granted["reasons"][0]["policy"] == "administrator: databases, tables and columns"
    denied = host.run("policy", "check", "--as", "bob", "table:sales.orders", "alter", code=3)
    assert denied.stdout.startswith("denied") and "policy-no-match" in denied.stdout


@pytest.mark.nightly
@each_row(
    ("resource", "access"),
    [
        ("database:sales.eu", "create"),
        ("table:sales.eu.orders", "_any"),
        ("column:sales.orders/customer.email", "select"),
        ("key:lakewarden", "release"),
        ("service:lakewarden", "audit"),
    ],
)
def test_each_kind_of_resource_can_be_asked_for(host: Host, resource: str, access: str) -> None:
    host.run("policy", "check", "--as", ADMIN, resource, access)
    host.run("policy", "check", "--as", "bob", resource, access, code=3)


@each_row(("resource", "access"), [("engine:spark", "code"), ("url:s3://lake/x", "read")])
def test_the_administrator_is_not_granted_what_the_catalog_does_not_need(
    host: Host, resource: str, access: str
) -> None:
    host.run("policy", "check", "--as", ADMIN, resource, access, code=3)


def test_groups_and_roles_count(host: Host) -> None:
    item = {"accesses": [{"type": "select", "isAllowed": True}]}
    policy = {
        "name": "readers",
        "service": "lake",
        "resources": {"database": {"values": ["sales"]}},
        "policyItems": [{**item, "groups": ["staff"]}, {**item, "roles": ["reader"]}],
    }
    host.put_policies(policy)
    question = ("policy", "check", "--as", "bob", "database:sales", "select")
    host.run(*question, code=3)
    host.run(*question, "--group", "staff")
    host.run(*question, "--role", "reader")


@each_row("resource", ["orders", "tabel:a.b", "table:orders", "column:sales.orders", "column:a/b"])
def test_a_resource_that_is_not_one_is_wrong_usage(host: Host, resource: str) -> None:
    host.run("policy", "check", "--as", ADMIN, resource, "select", code=2)


@each_row("resource", ["database:sales", "key:lakewarden", "engine:spark"])
def test_only_a_table_or_a_column_is_looked_up(host: Host, resource: str) -> None:
    refused = host.run("policy", "check", "--as", ADMIN, resource, "_any", "--live", code=2)
    assert "--live needs a table or a column" in refused.stderr


def test_looking_up_a_table_that_does_not_exist_is_an_error(host: Host) -> None:
    asked = ("policy", "check", "--as", ADMIN, "table:sales.nowhere", "select")
    assert "The table sales.nowhere does not exist" in host.run(*asked, "--live", code=1).stderr
    assert host.run(*asked).stdout.startswith("allowed")


def test_an_access_type_that_the_resource_does_not_have_is_refused(host: Host) -> None:
    assert "access type" in host.run("policy", "check", "--as", ADMIN, "key:k", "select", code=1).stderr


def test_the_policies_can_be_asked_without_keystore_but_not_without_database(host: Host) -> None:
    (host.data / "keystore.json").unlink()
    host.run("policy", "check", "--as", ADMIN, "table:sales.orders", "alter")
    shown = host.json("policy", "show")
    assert shown["sources"] == ["ranger/admin"]
    assert (shown["revision"], len(shown["version"]), len(shown["encryption-version"])) == (1, 64, 64)
    assert shown["version"] in host.run("policy", "show").stdout
    (host.data / "lakewarden.db").unlink()
    host.run("policy", "check", "--as", ADMIN, "table:sales.orders", "alter", code=1)


def test_a_decision_is_never_an_unhandled_error(host: Host) -> None:
    result = host.run("policy", "check", "--as", "b\x1b[31mob", "table:a.b", "select", code=1)
    assert not isinstance(result.exception, LakewardenError)
