"""Reports for people and programs."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.errors import RequestInvalid
from spark_ext.pipelines.items import Finding, Item, Outcome, Rule, Severity, Status
from spark_ext.pipelines.page import bars
from spark_ext.pipelines.report import Report, RunState

RULES = (
    Rule("foreign-path", Severity.ERROR, "A file is outside of the table.", "Remove it."),
    Rule("small-file", Severity.NOTE, "A file is small.", "Compact the table."),
)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_FINDINGS = st.builds(
    Finding,
    table=_TEXT,
    rule=st.sampled_from([each.id for each in RULES]),
    severity=st.sampled_from(Severity),
    message=_TEXT,
    hint=_TEXT,
    snapshot=st.none() | st.integers(0, 2**63 - 1),
    ref=st.none() | _TEXT,
    path=st.none() | _TEXT,
    column=st.none() | _TEXT,
    bytes=st.integers(0, 2**63 - 1),
)


def report(*findings: Finding) -> Report:
    counted = {rule.id: sum(each.rule == rule.id for each in findings) for rule in RULES}
    return Report(
        pipeline="audit",
        rules=RULES,
        state=RunState.INCOMPLETE,
        run_id="r1",
        outcomes=(
            Outcome("a", "n.a", counts={"files": 2}),
            Outcome("b", "n.b", Status.FAILED, "It is <b>broken</b>.", counts={"files": 1}),
        ),
        findings=findings,
        found={name: number for name, number in counted.items() if number},
    )


@given(_FINDINGS)
def test_findings_and_items_return_from_json_as_they_were(finding: Finding) -> None:
    outcome = Outcome("k", "t", Status.LEFT, "why", (finding, finding), {"files": 3}, 1.5)
    assert Outcome.from_json(outcome.to_json()) == outcome
    item = Item("k", finding.table, 1, 2, {"a": [1, None, finding.message]})
    assert Item.from_json(item.to_json()) == item


@given(st.lists(_FINDINGS, max_size=4))
def test_sarif_names_the_rule_and_place_of_every_finding(findings: list[Finding]) -> None:
    log = json.loads(report(*findings).to_sarif())
    (run,) = log["runs"]
    known = {each["id"] for each in run["tool"]["driver"]["rules"]}
    assert len(run["results"]) == len(findings)
    for result, finding in zip(run["results"], findings, strict=True):
        assert result["ruleId"] == finding.rule and result["ruleId"] in known
        assert result["level"] == finding.severity
        (location,) = result["locations"]
        assert location["logicalLocations"][0]["fullyQualifiedName"] == finding.table
        assert ("physicalLocation" in location) is (finding.path is not None)


HOSTILE = {
    "message": "\x1b[31mred\u202e\n [click](https://evil.example) " + "x" * 5_000,
    "path": "s3://AKIA:hunter2@bucket/x?X-Amz-Signature=hunter2",
    "ref": "a\x07" + "b" * 5_000,
    "snapshot": 2**70,
}


def test_findings_of_hostile_tables_control_no_terminal_and_have_no_credentials() -> None:
    finding = RULES[0].found("n.a", **HOSTILE)  # type: ignore[arg-type]
    shown = (finding.message, finding.path, finding.ref)
    assert all(each is not None and each.isprintable() and len(each) < 2_100 for each in shown)
    assert "hunter2" not in str(finding)
    assert finding.snapshot is None
    assert RULES[0].found("n.a", snapshot=-(2**63) + 1, path="file:///a/b").path == "file:///a/b"


def test_sarif_has_no_link_that_a_table_chose() -> None:
    log = json.loads(
        report(RULES[0].found("n.a", "[x](https://e.example)", path="javascript:a()")).to_sarif()
    )
    (result,) = log["runs"][0]["results"]
    assert "](" not in result["message"]["text"].replace(r"\](", "")
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert ":" not in uri


class _Tags(HTMLParser):
    """What a browser would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@given(_FINDINGS)
def test_the_page_runs_and_loads_nothing_whatever_a_table_is_called(finding: Finding) -> None:
    hostile = Finding(
        f"<script>{finding.table}", finding.rule, Severity.ERROR, '"><img src=x onerror=y>', finding.hint
    )
    parsed = _Tags()
    parsed.feed(report(finding, hostile).to_html())
    assert parsed.tags.isdisjoint({"script", "img", "link", "iframe", "object", "b"})
    assert not any(name.startswith("on") or name in ("src", "href") for name in parsed.attributes)


def test_the_page_has_charts_of_items_and_findings() -> None:
    found = [RULES[0].found("n.a", path="s3://x/y"), RULES[0].found("n.b"), RULES[1].found("n.a")]
    page = report(*found).to_html()
    for text in (
        "Findings by rule",
        "Findings by table",
        "Items",
        "foreign-path",
        "s3://x/y",
        "&lt;b&gt;broken",
    ):
        assert text in page
    assert page.count("<rect") == 6


@given(st.dictionaries(_TEXT, st.integers(0, 10**9), max_size=60))
def test_bars_lose_no_value(values: dict[str, int]) -> None:
    drawn = bars(values.items(), {})
    assert sum(each.value for each in drawn) == sum(values.values())
    assert all(0 < each.width <= 420 for each in drawn)


def test_a_report_is_written_in_the_form_that_its_name_says(tmp_path: Path) -> None:
    made = report(RULES[0].found("n.a"))
    assert json.loads(made.write(tmp_path / "a.json").read_text())["items"] == {
        "done": 1,
        "failed": 1,
        "left": 0,
    }
    assert json.loads(made.write(tmp_path / "a.sarif").read_text())["version"] == "2.1.0"
    assert made.write(tmp_path / "a.html").read_text().startswith("<!doctype html>")
    with pytest.raises(RequestInvalid):
        made.write(tmp_path / "a.pdf")


def test_a_report_replaces_a_file_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Finding("n.a", "foreign-path", Severity.ERROR, "m", "h", path="file:///t/\udcff")
    made, file = report(odd), tmp_path / "a.json"
    assert json.loads(made.write(file).read_text())["findings"][0]["path"] == "file:///t/\udcff"
    before = file.read_bytes()

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(RequestInvalid, match="No space left"):
            report().write(file)
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"] and file.read_bytes() == before
    for wrong in (tmp_path / "absent" / "a.json", tmp_path / "a.txt"):
        with pytest.raises(RequestInvalid):
            made.write(wrong)


def test_findings_that_the_report_leaves_out_are_counted() -> None:
    made = Report("audit", RULES, RunState.COMPLETE, found={"foreign-path": 30_000, "unknown": 1})
    assert made.left_out == 30_001
    assert made.severities == {"error": 30_001, "warning": 0, "note": 0}
