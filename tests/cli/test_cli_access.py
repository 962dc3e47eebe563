"""`lakewarden access`: reports of a real catalog, in each form."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.host import Host

Json = dict[str, Any]


def reading(name: str, column: str = "*", **who: list[str]) -> Json:
    resources = {
        "database": {"values": ["sales"]},
        "table": {"values": ["*"]},
        "column": {"values": [column]},
    }
    item = {**who, "accesses": [{"type": "select"}]}
    return {"name": name, "service": "lakewarden", "resources": resources, "policyItems": [item]}


@pytest.fixture
def lake(host: Host) -> Host:
    host.make_table()
    host.put_policies(reading("sales", groups=["hr"]))
    host.run("user", "assign", "bob", "--group", "hr")
    host.run("user", "assign", "eve", "--group", "it")
    return host


def files(host: Host, *policies: Json, name: str = "draft.json") -> str:
    path = host.root / name
    path.write_text(json.dumps({"policies": policies}), "utf-8")
    return str(path)


def test_who_can_names_the_users_with_columns_and_policies(lake: Host) -> None:
    found = lake.json("access", "who-can", "read", "sales.orders")
    (bobs,) = [each for each in found["answers"] if "bob" in each["users"]]
    assert bobs["columns"] == ["id"] and "sales policyItems[0]" in bobs["policies"]
    assert not any("eve" in each["users"] for each in found["answers"])
    everyone = lake.json("access", "who-can", "read", "sales.orders.ID", "--all")
    (eves,) = [each for each in everyone["answers"] if "eve" in each["users"]]
    assert eves["allowed"] is False and everyone["resource"] == "sales.orders.id"


def test_who_can_says_whom_the_service_refuses_now(lake: Host) -> None:
    lake.run("user", "disable", "bob")
    shown = lake.run("access", "who-can", "read", "sales.orders")
    assert "The service refuses bob now (disabled" in shown.stderr
    assert "Reads are decided for --through engine." in shown.stderr


@pytest.mark.nightly
def test_who_can_refuses_what_does_not_exist(lake: Host) -> None:
    assert "does not exist" in lake.run("access", "who-can", "read", "sales.none", code=1).stderr
    assert "Columns: id." in lake.run("access", "who-can", "read", "sales.orders.none", code=1).stderr
    lake.run("access", "who-can", "reed", "sales.orders", code=2)
    lake.run("access", "who-can", "read", "sales.orders", "--json", "--csv", code=2)
    for ignored in (["--engine", "spark"], ["--through", "engine"]):
        lake.run("access", "who-can", "update", "sales.orders", *ignored, code=2)


@pytest.mark.nightly
def test_a_matrix_shows_what_a_user_and_a_group_can_do(lake: Host) -> None:
    lake.make_table("sales.returns")
    for who in (("--user", "bob"), ("--group", "hr")):
        found = lake.json("access", "matrix", *who)["answers"]
        (tables,) = [each for each in found if each["kind"] == "table"]
        assert tables["resources"] == ["sales.orders", "sales.returns"]
        assert (tables["accesses"], tables["read"]) == (["select"], "all columns")
    assert "no other group" in lake.run("access", "matrix", "--group", "hr").stderr
    assert lake.json("access", "matrix", "--user", "eve")["answers"] == []
    (tables,) = [
        each
        for each in lake.json("access", "matrix", "--user", "eve", "--all")["answers"]
        if each["kind"] == "table"
    ]
    assert tables["read"] == "denied"
    assert "does not know the user zoe" in lake.run("access", "matrix", "--user", "zoe").stderr
    lake.run("access", "matrix", code=2)
    lake.run("access", "matrix", "--user", "bob", "--group", "hr", code=2)


def test_diff_shows_what_a_draft_takes_away_and_grants(lake: Host) -> None:
    path = files(lake, reading("sales", groups=["it"]))
    changes = lake.json("access", "diff", "catalog", path)["changes"]
    told = {
        (each["effect"], user)
        for each in changes
        if each["access"] == "select" and "column sales.orders.id" in each["resources"]
        for user in each["users"]
    }
    assert {("takes away", "bob"), ("grants", "eve")} <= told
    assert lake.json("access", "diff", path, path)["changes"] == []
    assert "No decision differs" in lake.run("access", "diff", path, path).stderr


def test_diff_refuses_a_file_with_a_mistake(lake: Host) -> None:
    path = lake.root / "bad.json"
    path.write_text('{"policies": [{"name": "x"}]}')
    assert "bad.json" in lake.run("access", "diff", "catalog", str(path), code=1).stderr


def test_a_page_loads_nothing_and_escapes_names(lake: Host) -> None:
    lake.run("user", "assign", "<script>alert(1)</script>", "--group", "hr")
    page = lake.root / "report.html"
    lake.run("access", "who-can", "read", "sales.orders", "--html", page)
    text = page.read_text("utf-8")
    assert "<script" not in text and "&lt;script&gt;" in text and "<svg" in text
    assert "default-src 'none'" in text and "src=" not in text
    assert page.stat().st_mode & 0o777 == 0o600
    lake.run("access", "who-can", "read", "sales.orders", "--html", page, code=1)


def test_a_page_is_private_from_its_first_moment(lake: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: another user opens the page before its mode is changed, and reads what is written later."""
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    page = lake.root / "early.html"
    lake.run("access", "who-can", "read", "sales.orders", "--html", page)
    assert page.stat().st_mode & 0o777 == 0o600


def test_a_page_is_written_through_no_link(lake: Host) -> None:
    """Attack: a link in a shared directory, to a file that a user would then own."""
    link, target = lake.root / "link.html", lake.root / "target.html"
    link.symlink_to(target)
    lake.run("access", "who-can", "read", "sales.orders", "--html", link, code=1)
    assert not target.exists()


def test_a_cell_of_csv_is_no_formula(lake: Host) -> None:
    lake.run("user", "assign", "=cmd()", "--group", "hr")
    draft = files(lake, reading("sales", users=["nobody"]))
    printed = lake.run("access", "diff", "catalog", draft, "--csv").stdout
    rows = list(csv.reader(io.StringIO(printed)))
    assert rows[0][0] == "effect" and len(rows) > 1
    assert not any(cell.startswith("=") for row in rows for cell in row)


def test_diff_works_without_policies_of_a_directory(lake: Host, tmp_path: Path) -> None:
    empty = tmp_path / "none"
    empty.mkdir()
    changes = lake.json("access", "diff", "catalog", str(empty))["changes"]
    assert {each["effect"] for each in changes} == {"takes away"}


def test_diff_compares_engines_that_only_policies_name(lake: Host) -> None:
    item = {"users": ["bob"], "accesses": [{"type": "act"}]}
    engine = {"name": "engines", "resources": {"engine": {"values": ["spark-prod"]}}, "policyItems": [item]}
    found = lake.json("access", "diff", files(lake), files(lake, engine, name="engines.json"))
    assert [
        (each["effect"], each["access"], each["resources"], each["users"]) for each in found["changes"]
    ] == [("grants", "act", ["engine spark-prod"], ["bob"])]


def test_diff_says_that_who_can_administer_policies_is_not_compared(lake: Host) -> None:
    same = reading("sales", groups=["hr"])
    delegating = json.loads(json.dumps(same))
    delegating["policyItems"][0]["delegateAdmin"] = True
    found = lake.json("access", "diff", files(lake, same), files(lake, delegating, name="delegating.json"))
    assert (found["changes"], found["not-compared"]) == ([], ["sales"])
