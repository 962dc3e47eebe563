"""`lakewarden policy lint`: each statement with its place, its answer and why; the exit code sums them up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.host import ADMIN, Host

SCRIPT = """-- orders
USE lake.sales;
CREATE TABLE orders (id BIGINT, item STRING) USING iceberg
  TBLPROPERTIES ('encryption.mechanism' = 'envelope');
INSERT INTO orders VALUES (1, 'tea');
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """A script that the administrator may run."""
    file = tmp_path / "orders.sql"
    file.write_text(SCRIPT)
    return file


def _lint(host: Host, file: Path, *more: str, user: str = ADMIN, code: int = 0) -> str:
    words = ("policy", "lint", str(file), "--dialect", "spark", "--as", user, "--catalog", "lake", *more)
    return host.run(*words, code=code).stdout


def test_a_script_that_may_run(host: Host, script: Path) -> None:
    shown = _lint(host, script)
    assert f"{script}:2:1: USE: allowed" in shown
    assert f"{script}:3:1: CREATE TABLE: allowed" in shown
    assert "needs create on table sales.orders" in shown
    assert "needs use on key lakewarden" in shown
    assert "3 statements, 0 denied" in shown


def test_a_script_that_may_not_run_ends_with_3(host: Host, script: Path) -> None:
    shown = _lint(host, script, user="bob", code=3)
    assert f"{script}:3:1: CREATE TABLE: denied" in shown
    assert "current-unknown" in shown  # the USE is denied
    script.write_text("DROP TABLE sales.t;\nDROP TABLE 'x'")
    assert f"{script}:2:12: DROP TABLE: denied" in _lint(host, script, code=3)


def test_groups_and_roles_count(host: Host, script: Path) -> None:
    item = {"accesses": [{"type": "drop", "isAllowed": True}]}
    policy = {
        "name": "droppers",
        "service": "lake",
        "resources": {"database": {"values": ["sales"]}, "table": {"values": ["*"]}},
        "policyItems": [{**item, "groups": ["staff"]}, {**item, "roles": ["dropper"]}],
    }
    host.put_policies(policy)
    script.write_text("DROP TABLE sales.t")
    _lint(host, script, user="bob", code=3)
    _lint(host, script, "--group", "staff", user="bob")
    _lint(host, script, "--role", "dropper", user="bob")


def test_json_has_it_all(host: Host, script: Path) -> None:
    script.write_text("ALTER TABLE sales.t SET TBLPROPERTIES ('write.data.path'='s3://lake/x');\nCALL x()")
    answer = json.loads(_lint(host, script, "--json", code=3))
    assert answer["allowed"] is False
    altered, called = answer["statements"]
    # The administrator of a new catalog may use storage below the warehouse alone.
    assert altered["allowed"] is False
    assert altered["reasons"][0]["detail"].startswith("No policy grants rwstorage")
    assert (called["line"], called["column"], called["statement"]) == (2, 6, "CALL")
    assert called["reasons"][0]["rule"] == "not-supported-yet" and called["hint"]


def test_hive_and_a_current_namespace(host: Host, script: Path) -> None:
    script.write_text("CREATE TABLE orders (id INT) STORED BY ICEBERG")
    words = ("policy", "lint", str(script), "--dialect", "hive", "--as", ADMIN)
    assert "no-database" in host.run(*words, code=3).stdout
    assert "create on table sales.orders" in host.run(*words, "--database", "sales").stdout


@pytest.mark.nightly
def test_live_looks_tables_up(host: Host, script: Path) -> None:
    host.make_table()
    script.write_text("SELECT * FROM sales.orders")
    assert "columns-unknown" in _lint(host, script, code=3)
    assert "select on column sales.orders.id" in _lint(host, script, "--live")
    script.write_text("CREATE TABLE sales.orders (id INT)")
    _lint(host, script)
    assert "table-exists" in _lint(host, script, "--live", code=3)


def test_without_live_neither_keystore_nor_warehouse_is_needed(host: Host, script: Path) -> None:
    (host.data / "keystore.json").unlink()
    _lint(host, script)


def test_a_script_that_cannot_be_read(host: Host, script: Path, tmp_path: Path) -> None:
    words = ("policy", "lint", "--dialect", "spark", "--as", ADMIN)
    assert "cannot be read" in host.run(*words, tmp_path / "missing.sql", code=1).stderr
    assert "cannot be read" in host.run(*words, tmp_path, code=1).stderr
    script.write_bytes(b"SELECT '\xff'")
    assert "byte 8 is not UTF-8" in host.run(*words, script, code=1).stderr


def test_wrong_usage(host: Host, script: Path) -> None:
    host.run("policy", "lint", str(script), "--as", ADMIN, code=2)
    host.run("policy", "lint", str(script), "--as", ADMIN, "--dialect", "presto", code=2)
    host.run("policy", "lint", str(script), "--dialect", "spark", code=2)
    for namespace in ("a..b", "", "."):
        _lint(host, script, "--database", namespace, code=2)
    _lint(host, script, "--database", "a.b")


def test_a_use_that_is_denied_lacks_any_right(host: Host, script: Path) -> None:
    shown = _lint(host, script, user="bob", code=3)
    assert "policy-no-match: No policy grants 'bob' any privilege on database sales or below it." in shown
    assert "needs any right on database sales" in _lint(host, script)


def test_a_reason_stands_once(host: Host, script: Path) -> None:
    """What is asked for the owner and for others may be refused for one reason."""
    script.write_text("DROP TABLE lake.sales.t")
    (dropped,) = json.loads(_lint(host, script, "--json", user="bob", code=3))["statements"]
    assert [each["detail"] for each in dropped["reasons"]] == [
        "No policy grants drop on table sales.t to 'bob'."
    ]


def test_what_a_script_says_does_not_drive_the_terminal(host: Host, script: Path) -> None:
    script.write_text("DROP TABLE `s`.`\x1b[31mt`; CREATE TABLE s.t (id INT) TBLPROPERTIES ('\x1b]0;x'='y')")
    assert "\x1b" not in _lint(host, script, code=3)
