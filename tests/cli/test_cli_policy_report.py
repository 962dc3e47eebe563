"""`lakewarden policy report`: what breaks rules is listed, and is the exit code."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from tests.support.host import ADMIN, Host
from tests.support.rules import rule, text_of
from tests.support.tables import ENCRYPTED, SCHEMA


def make_tables(host: Host) -> None:
    """One table in plaintext, one encrypted."""
    with host.catalog() as catalog:
        catalog.create_namespace("db")
        catalog.create_table("db.plain", SCHEMA)
        catalog.create_table("db.safe", SCHEMA, properties=ENCRYPTED)


def rules_file(host: Host, name: str = "draft.json") -> Path:
    path = host.data / name
    path.write_text(text_of(rule("names", columns=["name"])))
    return path


def test_without_rules_nothing_breaks(host: Host) -> None:
    make_tables(host)
    shown = host.run("policy", "report", "--as", ADMIN).stdout
    assert "2 fits, 0 breaks, 0 unknown" in shown and "db.plain" not in shown
    assert "db.plain" in host.run("policy", "report", "--as", ADMIN, "--all").stdout


def test_what_would_break_a_draft_is_shown_and_is_the_exit_code(host: Host) -> None:
    make_tables(host)
    draft = str(rules_file(host))
    shown = host.run("policy", "report", "--as", ADMIN, "--rules", draft, code=3).stdout
    assert "db.plain" in shown and "db.safe" not in shown and "1 fits, 1 breaks, 0 unknown" in shown
    assert "Column 'name' must be encrypted. Set encryption.mechanism=envelope." in shown
    printed = host.run("policy", "report", "--as", ADMIN, "--rules", draft, "--json", code=3).stdout
    document = json.loads(printed)
    assert document["counts"] == {"fits": 1, "breaks": 1, "unknown": 0}
    (table,) = document["tables"]
    assert (table["table"], table["standing"]) == ("db.plain", "breaks")
    assert [(each["rule"], each["ask"], each["column"]) for each in table["violations"]] == [
        ("names", "must-encrypt", "name")
    ]


def test_a_table_that_cannot_be_loaded_is_no_good_news(host: Host) -> None:
    make_tables(host)
    for path in host.data.rglob("*.metadata.json"):
        path.unlink()
    shown = host.run("policy", "report", "--as", ADMIN, code=3).stdout
    assert "0 fits, 0 breaks, 2 unknown" in shown and "was deleted" in shown


def test_a_draft_with_a_mistake_is_refused_with_its_place(host: Host) -> None:
    path = host.data / "draft.json"
    path.write_text('{"rules": [\n {"name": "r"}]}')
    told = host.run("policy", "report", "--as", ADMIN, "--rules", str(path), code=1).stderr
    assert "draft.json, line 2, rules[0]" in told


def test_the_report_is_for_administrators(host: Host) -> None:
    make_tables(host)
    assert "is not authorized" in host.run("policy", "report", "--as", "bob", code=1).stderr


def test_the_example_of_the_documentation_works(host: Host) -> None:
    page = (Path(__file__).parents[2] / "docs" / "encryption-policy.md").read_text("utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    path = host.data / "house.json"
    path.write_text(example)
    with host.catalog() as catalog:
        for namespace in ("crm", "sandbox"):
            catalog.create_namespace(namespace)
            catalog.create_table((namespace, "leads"), Schema(NestedField(1, "email", StringType())))
    (broken,) = host.json("policy", "report", "--as", ADMIN, "--rules", str(path), code=3)["tables"]
    (violation,) = broken["violations"]
    told = f"Encryption rule {violation['rule']!r}: {violation['detail']} {violation['remedy']}"
    assert broken["table"] == "crm.leads" and told in page.replace("\n-- ", " ")
    host.run("policy", "put", "house", str(path), "--kind", "encryption", "--as", ADMIN)
    assert "1 breaks" in host.run("policy", "report", "--as", ADMIN, code=3).stdout
