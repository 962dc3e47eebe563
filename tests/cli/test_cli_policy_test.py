"""`lakewarden policy test`, the pytest plugin on the same files, and what `policy check` explains."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from catalog.cli.main import app
from catalog.policy_cases.files import case_files
from policy.errors import RequestInvalid
from tests.support.command_line import CliRunner, Result
from tests.support.host import ADMIN, Host
from tests.support.lake import write_unchecked

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "policy-tests"
CASES = Path("cases", "sales.policy-test.yaml")
_CONTRACTORS = "resource: table:sales.orders\n    expect: "
CONTRACTORS = (f"{_CONTRACTORS}deny", f"{_CONTRACTORS}allow")
PAGE = ROOT / "docs" / "policy-tests.md"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example of the docs, in a directory of its own, which is the working directory."""
    copied = tmp_path / "example"
    shutil.copytree(EXAMPLE, copied)
    monkeypatch.chdir(copied)
    return copied


def run(*arguments: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["policy", "test", *map(str, arguments)])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


def run_json(*arguments: str | Path, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code).stdout)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def test_the_example_passes_and_reaches_everything(place: Path) -> None:
    found = run("cases", "--min-coverage", "100")
    assert f"{CASES} ............" in found.stdout
    assert "100.0 %" in found.stdout and "12 passed, 0 failed" in found.stdout
    assert "\x1b" not in found.stdout


def test_every_case_has_its_line_and_time_if_asked_for(place: Path) -> None:
    assert "  passed  analysts read orders  " in run("cases", "-v").stdout
    edit(CASES, "expect: allow", "expect: deny")
    assert "  FAILED  analysts read orders  " in run("cases", "--verbose", code=1).stdout


def test_a_failure_is_shown_with_place_reasons_and_what_would_change_it(place: Path) -> None:
    edit(CASES, *CONTRACTORS)
    shown = run("cases", code=1).stdout
    assert f"FAILED {CASES}:41 contractors read nothing, analysts or not" in shown
    assert "expected allow, got deny." in shown and "[sales: analysts read denyPolicyItems[0]]" in shown
    assert "'bob' must leave the group 'contractors'" in shown
    assert f"{CASES} ..F" in shown and "11 passed, 1 failed" in shown


def test_a_policy_that_was_opened_too_far_fails_its_test(place: Path) -> None:
    edit(place / "policies" / "sales.json", '{"groups": ["contractors"]', '{"groups": ["contractor"]')
    failed = [case["name"] for case in run_json("cases", code=1)["files"][0]["cases"] if not case["passed"]]
    assert failed == ["contractors read nothing, analysts or not"]


def test_too_little_coverage_fails_and_names_what_is_missed(place: Path) -> None:
    path = place / "policies" / "sales.json"
    policies = json.loads(path.read_text("utf-8"))
    item = {"users": ["zoe"], "accesses": [{"type": "drop"}]}
    policies["policies"][0]["policyItems"].append(item)
    path.write_text(json.dumps(policies), "utf-8")
    found = run("cases", "--min-coverage", "90", code=1)
    assert "policies/sales.json: 'sales: analysts read' policyItems[2]" in found.stdout
    assert "8 of 9 parts of the policies, 88.9 %" in found.stdout and "90 %" in found.stderr
    run("cases", "--min-coverage", "88")
    run("cases")
    run("cases", "--min-coverage", "101", code=2)


def test_json_and_junit_say_the_same(place: Path) -> None:
    edit(CASES, *CONTRACTORS)
    found = run_json("cases", "--junit", "report.xml", code=1)
    (file,) = found["files"]
    case = next(case for case in file["cases"] if not case["passed"])
    assert (found["passed"], found["failed"], found["not-run"]) == (11, 1, 0)
    assert (case["line"], case["allowed"], case["problems"]) == (41, False, ["expected allow, got deny."])
    assert case["reasons"][0]["item"] == "denyPolicyItems[0]" and case["changes"][0]["what"] == "denial"
    assert found["coverage"] == {
        "percent": 87.5,
        "reached": 7,
        "parts": 8,
        "missed": [
            {
                "document": "policies/sales.json",
                "policy": "sales: analysts read",
                "item": "denyPolicyItems[0]",
            }
        ],
    }
    (suite,) = ElementTree.parse("report.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("12", "1", "0")
    (failure,) = suite.iter("failure")
    assert failure.get("message") == "expected allow, got deny." and "contractors" in (failure.text or "")


def test_a_mistake_in_a_file_is_no_success_and_keeps_no_other_file_from_running(place: Path) -> None:
    shutil.copy(CASES, "cases/broken.policy-test.yaml")
    edit(Path("cases/broken.policy-test.yaml"), "access: select", "acces: select")
    found = run("cases", "--junit", "report.xml", code=2)
    assert "cases/broken.policy-test.yaml cannot be run" in found.stdout
    assert "cases/broken.policy-test.yaml, line 28, column 5, cases[0].acces: unknown field" in found.stdout
    assert "12 passed, 0 failed, 1 not run" in found.stdout
    assert len(list(ElementTree.parse("report.xml").getroot().iter("error"))) == 1
    assert "acces" in run_json("cases", code=2)["files"][0]["error"]


def test_a_report_that_cannot_be_written_hides_no_failure(place: Path) -> None:
    edit(Path("cases/sales.policy-test.yaml"), *CONTRACTORS)
    found = run("cases", "--junit", "none/report.xml", code=2)
    assert "expected allow, got deny." in found.stdout and "cannot be written" in found.stderr


def test_a_mistake_in_a_policy_is_no_success(place: Path) -> None:
    edit(place / "policies" / "sales.json", "denyPolicyItems", "denyPolicyItem")
    assert "policies/sales.json, line 15" in run("cases", code=2).stdout


@pytest.mark.parametrize("gone", ["../policies", "../encryption"])
def test_documents_that_are_not_there_are_no_success(place: Path, gone: str) -> None:
    shutil.rmtree(place / "cases" / gone)
    assert "the file does not exist" in run("cases", code=2).stdout
    (place / "cases" / gone).mkdir()
    assert "the directory has no policy documents" in run("cases", code=2).stdout


def test_nothing_to_run_is_no_success(place: Path) -> None:
    Path("empty").mkdir()
    assert "the directory has no file whose name ends in .policy-test.yaml" in run("empty", code=2).stdout
    assert "the file or directory does not exist" in run("nowhere", code=2).stdout
    assert "1 not run" in run("empty", "cases", code=2).stdout
    assert "must end in .policy-test.yaml" in run("policies/sales.json", code=2).stdout
    run(code=2)


@pytest.mark.parametrize("name", ["x.policy-test.yml", "x.policy_test.yaml", "x.policy-tests.yaml"])
def test_a_name_that_nearly_ends_right_is_not_passed_over(place: Path, name: str) -> None:
    shutil.copy(CASES, Path("cases", name))
    assert f"cases/{name}: the name of a test file must end in" in run("cases", code=2).stdout


def test_files_are_found_at_any_depth_once_and_in_order(place: Path) -> None:
    deep = place / "cases" / "a" / "b"
    deep.mkdir(parents=True)
    shutil.copy(CASES, deep / "deep.policy-test.yaml")
    (place / "cases" / "other.yaml").write_text("no: case", "utf-8")
    assert [path.name for path in case_files(place / "cases")] == [
        "deep.policy-test.yaml",
        "sales.policy-test.yaml",
    ]
    os.symlink(place / "cases", deep / "round")
    found = run_json("cases", "cases", CASES, "--policies", "policies", "--encryption-rules", "encryption")
    assert [file["file"] for file in found["files"]] == [
        "cases/a/b/deep.policy-test.yaml",
        "cases/sales.policy-test.yaml",
    ]
    # Both test the same documents, which count once.
    assert found["coverage"]["parts"] == 8


def test_other_policies_can_be_tested_by_the_same_cases(place: Path) -> None:
    shutil.copytree("policies", "others")
    edit(Path("others/sales.json"), "contractors", "contractor")
    assert run_json("cases", "--policies", "others", code=1)["failed"] == 1
    assert run_json("cases", "--policies", "others/sales.json", code=1)["failed"] == 1
    assert run_json("cases")["failed"] == 0


def test_what_is_no_file_is_not_waited_for(place: Path) -> None:
    os.mkfifo("cases/pipe.policy-test.yaml")
    assert "the file does not exist" in run("cases", code=2).stdout
    os.mkfifo("policies/pipe.json")
    assert "the file does not exist" in run(CASES, code=2).stdout


def test_a_directory_that_cannot_be_read_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def walk(path: Path, *, onerror: Any) -> Any:
        onerror(PermissionError(13, "Permission denied", str(path)))
        return iter(())

    monkeypatch.setattr(os, "walk", walk)
    with pytest.raises(RequestInvalid, match="cases: the directory cannot be read: Permission denied"):
        case_files(Path("cases"))


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project with the example and a test of its own."""
    shutil.copytree(EXAMPLE, pytester.path, dirs_exist_ok=True)
    pytester.makepyfile(test_own="def test_own():\n    assert True\n")
    return pytester


def pytest_run(project: pytest.Pytester, *arguments: str, **outcomes: int) -> str:
    """What pytest says, which must have these outcomes."""
    found = project.runpytest_inprocess("-p", "no:cacheprovider", *arguments)
    found.assert_outcomes(**outcomes)
    return found.stdout.str()


@pytest.mark.nightly
def test_pytest_collects_the_same_cases_and_no_other_yaml(project: pytest.Pytester) -> None:
    (project.path / "cases" / "other.yaml").write_text("not: a case", "utf-8")
    pytest_run(project, passed=13)
    pytest_run(project, "-k", "exception", passed=1, deselected=12)
    pytest_run(project, f"{CASES}::analysts read orders", passed=1)


def test_pytest_shows_a_failure_as_the_command_does_and_stops_at_it(project: pytest.Pytester) -> None:
    edit(project.path / CASES, *CONTRACTORS)
    shown = pytest_run(project, "-x", passed=2, failed=1)
    assert f"{CASES}:41" in shown and "expected allow, got deny." in shown
    assert "must leave the group 'contractors'" in shown
    assert "Traceback" not in shown


@pytest.mark.nightly
def test_pytest_says_where_a_file_has_its_mistake(project: pytest.Pytester) -> None:
    edit(project.path / CASES, "expect: allow", "expect: yes")
    shown = pytest_run(project, errors=1)
    assert "line 30, column 13, cases[0].expect: 'yes' is not a string" in shown and "Traceback" not in shown


@pytest.mark.nightly
def test_pytest_shows_a_defect_with_its_traceback(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policy.testing.run.Suite.run", lambda suite, case: 1 / 0)
    assert "ZeroDivisionError" in pytest_run(project, "-x", str(CASES), failed=1)


@pytest.mark.nightly
def test_pytest_runs_cases_in_several_processes(place: Path) -> None:
    plugins = ("-p", "xdist", "-p", "catalog.policy_cases.pytest_plugin", "-p", "no:cacheprovider", "-n", "2")
    path = os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path}
    command = [sys.executable, "-m", "pytest", *plugins]
    done = subprocess.run(
        command, cwd=place, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert "12 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_is_there_once_lakewarden_is_installed() -> None:
    (found,) = [each for each in entry_points(group="pytest11") if each.name == "lakewarden"]
    assert found.value == "catalog.policy_cases.pytest_plugin"


@pytest.mark.nightly
def test_the_plugin_costs_a_project_without_policy_tests_nothing() -> None:
    code = "import sys, catalog.policy_cases.pytest_plugin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = done.stdout.split()
    assert {name for name in loaded if name.startswith("catalog")} == {
        "catalog",
        "catalog.policy_cases",
        "catalog.policy_cases.pytest_plugin",
    }
    assert not {"policy", "yaml", "pyarrow"} & set(loaded) and "pytest" in loaded


def test_the_page_shows_the_example_as_it_is() -> None:
    page = PAGE.read_text("utf-8")
    for block in page.split("```yaml\n")[1:]:
        shown = block.split("```")[0]
        assert shown in (EXAMPLE / CASES).read_text("utf-8") or shown.startswith("# ")


def question(host: Host, *more: str, column: str = "email", code: int = 0) -> Any:
    return host.json("policy", "check", f"column:sales.customers/{column}", "select", *more, code=code)


@pytest.fixture
def explaining(host: Host) -> Host:
    """A catalog with the policies of the example."""
    host.run("policy", "put", "sales", EXAMPLE / "policies" / "sales.json")
    return host


def test_check_says_what_would_change_a_denial(explaining: Host) -> None:
    found = question(explaining, "--as", "bob", column="id", code=3)
    said = {change["detail"] for change in found["changes"]}
    assert "'bob' must join the group 'analysts'." in said
    assert "'bob' must own it; no owner was given." in said
    assert question(explaining, "--as", "bob", "--owner", "bob")["allowed"] is True
    text = explaining.run(
        "policy", "check", "--as", "bob", "column:sales.customers/id", "select", code=3
    ).stdout
    assert "Each of these changes alone would allow it" in text and "in the group 'analysts'" in text


def test_check_says_what_a_grant_hangs_on_and_which_mask_there_is(explaining: Host) -> None:
    eve = ("--as", "eve", "--group", "analysts")
    found = question(explaining, *eve, column="id")
    assert found["mask"] is None and found["row-filter"] is False and found["changes"] == []
    assert [(each["item"], each["allowed"]) for each in found["without"]] == [("policyItems[0]", False)]
    text = explaining.run("policy", "check", *eve, "column:sales.customers/id", "select").stdout
    assert "Without policyItems[0] of 'sales: analysts read': denied." in text
    masked = question(explaining, *eve)
    assert masked["mask"] == {
        "type": "MASK_HASH",
        "policy": "sales: e-mail addresses are hashed",
        "item": "dataMaskPolicyItems[0]",
    }
    assert [each["rule"] for each in masked["reasons"]] == ["mask", "policy-allow"]
    assert [(each["item"], each["allowed"]) for each in masked["without"]] == [
        ("dataMaskPolicyItems[0]", True),
        ("policyItems[0]", False),
    ]
    text = explaining.run("policy", "check", *eve, "column:sales.customers/email", "select").stdout
    assert "masked by 'sales: e-mail addresses are hashed': MASK_HASH." in text


def test_check_of_a_live_table_looks_at_its_owner_and_its_encryption(host: Host) -> None:
    host.make_table(**{"encryption.mechanism": "envelope"})
    asked = ("policy", "check", "column:sales.orders/id", "select", "--as", ADMIN)
    client = (*asked, "--through", "standard-client")
    assert host.json(*client)["allowed"] is True
    refused = host.json(*client, "--live", code=3)
    assert [each["rule"] for each in refused["reasons"]] == ["standard-client"]
    assert host.json(*asked, "--live")["allowed"] is True


@pytest.mark.nightly
def test_check_of_a_live_table_shows_row_filter_and_masks_as_decided(host: Host) -> None:
    host.make_table()
    resources = {"database": {"values": ["sales"]}, "table": {"values": ["orders"]}}
    everyone = {"groups": ["public"], "accesses": [{"type": "select"}]}
    rows = {
        "name": "rows",
        "policyType": 2,
        "resources": resources,
        "rowFilterPolicyItems": [
            {**everyone, "rowFilterInfo": {"filterExpr": "id > 1 AND NOT is_member('x')"}}
        ],
    }
    mask = {
        "name": "mask",
        "policyType": 1,
        "resources": {**resources, "column": {"values": ["id"]}},
        "dataMaskPolicyItems": [{**everyone, "dataMaskInfo": {"dataMaskType": "MASK_SHOW_LAST_4"}}],
    }
    host.put_policies(rows, mask)
    asked = ("policy", "check", "column:sales.orders/id", "select", "--as", ADMIN, "--live")
    found = host.json(*asked)
    assert found["decided-row-filter"] == "id > 1"
    assert found["decided-masks"] == {"id": "hive-show-last-4"}
    shown = host.run(*asked).stdout
    assert "Row filter as decided: id > 1" in shown
    assert "Masks as decided: id: hive-show-last-4" in shown
    misfit = {**rows, "rowFilterPolicyItems": [{**everyone, "rowFilterInfo": {"filterExpr": "id = 'x'"}}]}
    with host.services() as services:
        content = json.dumps({"policies": [misfit, mask]}).encode()
        write_unchecked(services.policy_documents, "more", content)
    refused = host.json(*asked, code=3)
    assert "'rows'" in refused["reasons"][0]["detail"] and "'rows'" in refused["problem"]


def test_check_answers_for_another_time(explaining: Host) -> None:
    ledger = ("policy", "check", "--as", "dora", "--role", "auditor", "table:sales.ledger", "select")
    explaining.run(*ledger, "--at", "2030-06-30T23:59:59+02:00")
    late = explaining.json(*ledger, "--at", "2030-07-01T00:00:00+02:00", code=3)
    assert [each["what"] for each in late["changes"]].count("time") == 1
    assert late["roles-held"] == ["auditor"] and late["at"] == "2030-07-01T00:00:00+02:00"
    for wrong in ("2030-07-01T00:00:00", "tomorrow", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00"):
        explaining.run(*ledger, "--at", wrong, code=2)


def test_check_says_when_nothing_is_near(host: Host) -> None:
    text = host.run("policy", "check", "--as", "bob", "engine:spark", "code", code=3).stdout
    assert "No single change" in text
    held = host.run("policy", "check", "--as", ADMIN, "--role", "r", "table:a.b", "alter").stdout
    assert "Roles held: r." in held


@pytest.mark.nightly
def test_check_says_which_policies_filter_rows_and_mask_columns(host: Host) -> None:
    resources = {"database": {"values": ["s"]}, "table": {"values": ["t"]}}
    everyone = {"groups": ["public"], "accesses": [{"type": "select"}]}
    policies = [
        {
            "name": "rows",
            "policyType": 2,
            "resources": resources,
            "rowFilterPolicyItems": [{**everyone, "rowFilterInfo": {"filterExpr": "x = 1"}}],
        },
        {
            "name": "mask",
            "policyType": 1,
            "resources": {**resources, "column": {"values": ["c"]}},
            "dataMaskPolicyItems": [{**everyone, "dataMaskInfo": {"dataMaskType": "MASK"}}],
        },
        {
            "name": "read",
            "resources": {**resources, "column": {"values": ["*"]}},
            "policyItems": [{"users": ["client"], "accesses": [{"type": "select"}]}],
        },
        {
            "name": "enforce",
            "resources": {"service": {"values": ["*"]}},
            "policyItems": [{"users": ["client"], "accesses": [{"type": "enforce"}]}],
        },
    ]
    host.put_policies(*policies)
    text = host.run("policy", "check", "--as", ADMIN, "column:s.t/c", "select").stdout
    assert "Rows are filtered by 'rows': x = 1" in text and "masked by 'mask': MASK." in text
    assert (
        "The column is not masked."
        in host.run("policy", "check", "--as", ADMIN, "column:s.t/d", "all").stdout
    )
    found = host.json("policy", "check", "--as", ADMIN, "table:s.t", "select")
    assert found["row-filter"] is True and found["row-filters"] == [
        {"policy": "rows", "item": "rowFilterPolicyItems[0]", "filter": "x = 1", "doubt": None}
    ]
    for client in ("process", "standard-client"):
        through = ("policy", "check", "--as", ADMIN, "table:s.t", "select", "--through", client)
        assert [each["rule"] for each in host.json(*through, code=3)["reasons"]] == ["row-filter"]
    trusted = ("policy", "check", "--as", "client", "table:s.t", "select", "--through", "standard-client")
    assert host.json(*trusted)["reasons"][0]["rule"] == "row-filter"
    assert "row-filter" not in host.json("policy", "check", "--as", ADMIN, "table:s.t", "alter")
