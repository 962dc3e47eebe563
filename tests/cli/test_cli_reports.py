"""`table list`, `key list --expiring` and `audit report`: who can run them, and their forms."""

from __future__ import annotations

import csv
import io

import pytest

from catalog.reports.audited import FIELDS
from tests.support.host import ADMIN, Host

ENCRYPTED = {"encryption.mechanism": "envelope"}
BY = ("--since", "1d", "--refused", "--by", "user,table,rule")
COMMANDS = {
    "table list": ("table", "list", "--as", ADMIN),
    "table list --encryption": ("table", "list", "--encryption", "--as", ADMIN),
    "key list --expiring": ("key", "list", "--expiring", "--older-than", "1s", "--as", ADMIN),
    "audit report": ("audit", "report", *BY),
    "access matrix": ("access", "matrix", "--user", ADMIN),
}


@pytest.fixture
def lake(host: Host) -> Host:
    host.make_table("sales.orders")
    host.make_table("sales.cards", **ENCRYPTED)
    return host


def test_tables_are_listed_with_their_encryption(lake: Host) -> None:
    listed = {each["table"]: each for each in lake.json("table", "list", "--as", ADMIN)["tables"]}
    assert {name: each["encryption"] for name, each in listed.items()} == {
        "sales.orders": "plaintext",
        "sales.cards": "envelope",
    }
    assert listed["sales.orders"]["owner"] == ADMIN and listed["sales.orders"]["format"] == "parquet"
    lake.run("table", "set", "sales.orders", "encryption.mechanism=envelope", "--as", ADMIN)
    found = lake.json("table", "list", "--encryption", "--as", ADMIN)["tables"]
    assert {each["table"]: each["old-plaintext-files"] for each in found} == {
        "sales.orders": 1,
        "sales.cards": 0,
    }


@pytest.mark.parametrize("command", ["table list", "table list --encryption", "key list --expiring"])
def test_a_user_without_audit_on_the_service_is_refused_and_it_is_recorded(lake: Host, command: str) -> None:
    """Attack: learn names, owners and keys of all tables."""
    words = [each for each in COMMANDS[command] if each not in ("--as", ADMIN)]
    lake.run("user", "assign", "eve", "--group", "it")
    refused = lake.run(*words, "--as", "eve", code=1)
    assert "eve is not authorized" in refused.stderr and "sales" not in refused.stdout
    counts = lake.json("audit", "report", *BY)["counts"]
    (eves,) = [each for each in counts if each["user"] == "eve"]
    assert (eves["rule"], eves["decisions"]) == ("policy-no-match", 1)


def test_keys_that_are_due_are_listed_for_all_tables(lake: Host) -> None:
    lake.make_table("sales.pins", **ENCRYPTED)
    found = lake.json(*COMMANDS["key list --expiring"])["keys"]
    assert {each["belongs-to"] for each in found} == {"sales.cards", "sales.pins"}
    shown = lake.run("key", "list", "--expiring", "--as", ADMIN)
    assert "Ages are not compared" in shown.stderr
    for wrong in (
        ["--expiring", "sales.cards"],
        [],
        ["sales.cards", "--within", "1d"],
        ["sales.cards", "--csv"],
    ):
        lake.run("key", "list", *wrong, "--as", ADMIN, code=2)


def test_audit_report_refuses_fields_that_it_does_not_have(host: Host) -> None:
    refused = host.run("audit", "report", "--since", "1d", "--by", "user,acton", code=2)
    assert all(field in refused.stderr for field in ("acton", *FIELDS))
    host.run("audit", "report", "--since", "1d", "--by", "user,user", code=2)
    usage = host.run("audit", "report", "--help").stdout
    assert all(field in usage for field in FIELDS)


@pytest.mark.nightly
@pytest.mark.parametrize("command", COMMANDS)
def test_each_report_has_every_form(lake: Host, command: str) -> None:
    words = COMMANDS[command]
    lake.run("table", "list", "--as", "nobody", code=1)
    page = lake.root / "page.html"
    lake.run(*words, "--html", page)
    text = page.read_text("utf-8")
    assert text.startswith("<!DOCTYPE html>") and "<svg" in text and "<script" not in text
    rows = list(csv.reader(io.StringIO(lake.run(*words, "--csv").stdout)))
    assert len(rows) > 1 and {len(row) for row in rows} == {len(rows[0])}
    assert isinstance(lake.json(*words), dict)
    assert lake.run(*words).stdout
    lake.run(*words, "--csv", "--json", code=2)
