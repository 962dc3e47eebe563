"""The documentation site: each page is in it, references are complete, nothing comes from other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.support.vectors import each_row
from tools.site import command_page, diagrams, error_page, error_rules
from tools.site.error_rules import PACKAGES, Rule
from tools.site.links import without_outer_links
from tools.site.meanings import ADVICE, MEANINGS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@cache
def rules() -> dict[str, Rule]:
    return error_rules.collect()


def _named(pattern: str, *folders: str, suffix: str = "py") -> set[str]:
    files = (file for folder in folders for file in (ROOT / folder).rglob(f"*.{suffix}"))
    return {name for file in files for name in re.findall(pattern, file.read_text("utf-8"))}


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text("utf-8")
    listed = {
        line for tree in re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL) for line in tree.splitlines()
    }
    assert {page.stem for page in DOCS.glob("*.md")} - {"index"} <= listed


def test_every_rule_that_code_names_is_in_the_reference() -> None:
    named = _named(r'\brule="([a-z0-9-]+)"', *PACKAGES)
    assert len(named) > 300
    assert not named - set(rules())
    assert not _named(
        r'Exception\([^;{}]*?, Some\("([a-z0-9-]+)"\)', "spark_ext/scala", suffix="scala"
    ) - set(rules())


def test_every_rule_that_a_test_expects_is_in_the_reference() -> None:
    """Tests compare the rule of an error that was raised, and know nothing of how the reference is made."""
    expected = _named(
        r'\.value\.rule == "([a-z0-9-]+)"', *(f"tests/{each.name}" for each in (ROOT / "tests").iterdir())
    )
    assert len(expected) > 50
    assert not expected - set(rules())


def test_every_rule_has_a_meaning_and_says_what_to_do() -> None:
    assert {name for name, rule in rules().items() if not rule.messages} == set(MEANINGS)
    assert all(error_page.meaning(rule) and error_page.advice(rule) for rule in rules().values())


def test_every_class_of_errors_has_a_meaning() -> None:
    named = {kind for rule in rules().values() for kind in rule.kinds}
    assert named <= {*error_rules.error_meanings(), *error_page.OF_SPARK}


def test_advice_is_for_classes_of_errors_that_exist() -> None:
    assert set(ADVICE) <= set(error_rules.error_meanings())


def test_every_option_of_every_command_is_in_the_reference() -> None:
    page = command_page.page()
    commands = dict(command_page.commands())
    assert len(commands) > 60
    for path, command in commands.items():
        part = page.partition(f"## `{path}`\n")[2].partition("\n## ")[0]
        shown = [
            each for each in command.params if each.name != "help" and not getattr(each, "hidden", False)
        ]
        assert all(each.help for each in shown), path
        assert not [
            each.opts for each in shown if each.opts[0].startswith("--") and f"`{each.opts[0]}`" not in part
        ]


@each_row("name", list(diagrams.DIAGRAMS))
def test_a_diagram_is_as_it_is_drawn_and_has_a_text_alternative(name: str) -> None:
    diagram = diagrams.DIAGRAMS[name]
    assert (diagrams.IMAGES / f"{name}.svg").read_text("utf-8") == diagrams.svg(diagram)
    page = (DOCS / "diagrams.md").read_text("utf-8")
    assert f"![{diagram.title}](images/{name}.svg)" in page
    assert diagram.description in " ".join(page.split())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[changes](../CHANGELOG.md#x)", "changes (`CHANGELOG.md`)"),
        ("[examples/deployment](../examples/deployment)", "`examples/deployment`"),
        ("[here](keys.md) ![a](../a.png)", "[here](keys.md) ![a](../a.png)"),
    ],
)
def test_a_link_to_a_file_outside_of_the_site_shows_its_path(text: str, shown: str) -> None:
    assert without_outer_links(text, DOCS) == shown


@pytest.mark.nightly
def test_the_site_builds_without_a_warning_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    pytest.importorskip("furo", reason="needs the extra docs")
    command = (
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-d",
        tmp_path / "trees",
        DOCS,
        tmp_path / "site",
    )
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    loaded = re.compile(
        r"""<(?:script|img|iframe|source)\b[^>]*\ssrc="(?:https?:)?//|<link\b[^>]*\shref="(?:https?:)?//"""
    )
    styles = re.compile(r"""url\(["']?(?:https?:)?//|@import""")
    for file in (tmp_path / "site").rglob("*"):
        if file.suffix in (".html", ".css"):
            text = file.read_text("utf-8")
            assert not (loaded if file.suffix == ".html" else styles).search(text), file.name
    assert (tmp_path / "site" / "searchindex.js").stat().st_size > 100_000
