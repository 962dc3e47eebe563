"""Progress on a terminal and elsewhere: right amounts, never on standard output, nothing left behind."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from catalog.base import progress
from catalog.base.progress import Progress, counted
from catalog.cli import output
from tests.support import terminal
from tests.support.host import Host

COMMAND = f"{terminal.AT_ONCE}from catalog.cli.main import app\napp()"
_HIDDEN, _SHOWN = "\x1b[?25l", "\x1b[?25h"
_AMOUNT = re.compile(r": (\d+) of (\d+)")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal, each update is a line."""
    _at_once(monkeypatch)


def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    # Without the thread, which would show the same step many times.
    monkeypatch.setattr(Progress, "_tick", lambda self: None)


def _lines(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    _at_once(monkeypatch)
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    return shown


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 20), st.integers(0, 10))))
def test_an_amount_never_exceeds_its_total(told: Sequence[tuple[str, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shown = _lines(patch)
        with Progress("work", lines=True) as bar:
            for step in told:
                bar.tell(*step)
    found = [(int(done), int(total)) for done, total in _AMOUNT.findall(shown.getvalue())]
    assert len(found) >= len(told)
    assert all(done <= total for done, total in found)
    assert not told or found[-1] == (min(told[-1][1:]), told[-1][2])


@given(st.integers(0, 50))
def test_what_is_counted_is_shown_up_to_its_total(number: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        shown = _lines(patch)
        with Progress("work", lines=True) as bar:
            assert list(counted(range(number), bar.tell, "items", number)) == list(range(number))
    found = [int(done) for done, _ in _AMOUNT.findall(shown.getvalue())]
    assert found == sorted(found) and found[-1] == number


@pytest.mark.usefixtures("at_once")
def test_the_last_amount_is_shown_although_it_comes_soon_after_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 10.0)
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    with Progress("work", lines=True) as bar:
        now[0] = 11.0
        bar.tell("rows", 5, 9)
        bar.tell("rows", 9, 9)
    assert [line.split(",")[0] for line in capsys.readouterr().err.splitlines()] == [
        "rows: 5 of 9",
        "rows: 9 of 9",
    ]


@pytest.mark.usefixtures("at_once")
def test_a_line_tells_rate_and_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    with Progress("work", lines=True) as bar:
        bar.tell("rows", 1_000, 36_000)
        now[0] = 10.0
        bar.tell("rows", 1_020, 36_000)
        now[0] = 100.0
        bar.tell("other", 0, None)
    assert capsys.readouterr().err.splitlines()[:3] == [
        "rows: 1,000 of 36,000, 0 s so far.",
        "rows: 1,020 of 36,000, 2 a second, 10 s so far, about 4.9 h to go.",
        "other: 0 s so far.",
    ]


@pytest.mark.parametrize(("after", "shown"), [(9.9, ""), (10.1, "work: 10 s so far.\n")])
def test_lines_come_after_ten_seconds(monkeypatch: pytest.MonkeyPatch, after: float, shown: str) -> None:
    now, stderr = [0.0], io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    monkeypatch.setattr(Progress, "_tick", lambda self: None)
    with Progress("work", lines=True) as bar:
        now[0] = after
        bar.advance(0)
        assert stderr.getvalue() == shown


def test_time_that_passes_is_shown_while_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.01)
    with os.fdopen(read) as shown, os.fdopen(write, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with Progress("Waiting for https://lake", lines=True):
            assert shown.readline().startswith("Waiting for https://lake: ")


def test_work_goes_on_if_standard_error_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    monkeypatch.setattr(progress, "_LINE_EVERY_S", 0.0)
    stderr = os.fdopen(write, "w")
    monkeypatch.setattr(sys, "stderr", stderr)
    with Progress("work", lines=True) as bar:
        bar.tell("rows", 1, 2)
        bar.tell("rows", 2, 2)
    with pytest.raises(BrokenPipeError):
        stderr.close()


@pytest.mark.usefixtures("at_once")
def test_names_are_shown_without_control_characters_and_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    token = f"lw_{'0' * 32}_secret"
    with Progress("work", lines=True) as bar:
        bar.tell(f"sales.\x1b[31m{token} https://ann:pw@lake", 1, 2)
    shown = capsys.readouterr().err
    assert "\x1b" not in shown and "secret" not in shown and "pw" not in shown


@pytest.mark.usefixtures("at_once")
def test_a_block_inside_of_another_one_uses_its_display(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("outer", lines=True), output.progress("inner") as tell:
        tell("rows", 1, 2)
    shown = capsys.readouterr().err
    assert "rows: 1 of 2" in shown and "inner" not in shown
    with output.progress("next", lines=True) as tell:
        tell("files", 1, 1)
    assert "files: 1 of 1" in capsys.readouterr().err


@pytest.mark.parametrize(("after", "is_shown"), [(1.9, False), (2.1, True)])
def test_a_bar_comes_after_two_seconds(monkeypatch: pytest.MonkeyPatch, after: float, is_shown: bool) -> None:
    now, shown = [0.0], io.StringIO()
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "console", lambda: Console(file=shown, force_terminal=True))
    with Progress("work", 9) as bar:
        now[0] = after
        bar.advance(1)
    assert ("1 of 9" in shown.getvalue()) is is_shown


def test_results_go_to_standard_output_alone_while_a_bar_is_shown(host: Host) -> None:
    arguments = ("--config", host.config, "audit", "export")
    shown = terminal.run(COMMAND, *arguments, cwd=host.root)
    assert shown.code == 0
    assert json.loads(shown.stdout.splitlines()[0])["sequence"] == 1
    assert "Exporting" in shown.terminal and "sequence" not in shown.terminal
    _assert_removed(shown.terminal)


def test_results_on_the_same_terminal_follow_the_bar(host: Host) -> None:
    arguments = ("--config", host.config, "audit", "verify", "--json")
    shown = terminal.run(COMMAND, *arguments, cwd=host.root, stdout_too=True)
    _assert_removed(shown.terminal)
    document = shown.terminal.rpartition(_SHOWN)[2]
    assert json.loads(document[document.index("{") :])["problems"] == []
    assert "Verifying" in shown.terminal


def test_an_interrupt_removes_the_bar(tmp_path: Path) -> None:
    code = (
        f"{terminal.AT_ONCE}import os, signal\n"
        "with progress.Progress('work') as bar:\n"
        "    bar.tell('rows', 1, 2)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
    )
    shown = terminal.run(code, cwd=tmp_path)
    assert "work" in shown.terminal and shown.code == -signal.SIGINT
    _assert_removed(shown.terminal)


def test_a_command_without_a_terminal_shows_nothing(at_once: None, host: Host) -> None:
    assert host.run("audit", "export").stderr == ""


def test_a_dumb_terminal_gets_no_bar(tmp_path: Path) -> None:
    code = (
        f"{terminal.AT_ONCE}import os\n"
        "os.environ['TERM'] = 'dumb'\n"
        "with progress.Progress('work', lines=True) as bar:\n"
        "    bar.tell('rows', 1, 2)\n"
    )
    shown = terminal.run(code, cwd=tmp_path).terminal
    assert "rows: 1 of 2" in shown and "\x1b" not in shown


def _assert_removed(shown: str) -> None:
    """Check that the cursor is visible again, and the line of the bar empty."""
    assert shown.count(_HIDDEN) == shown.count(_SHOWN) > 0
    assert shown.rindex(_SHOWN) > shown.rindex(_HIDDEN)
    assert "\x1b[1A\x1b[2K" in shown[shown.rindex(_HIDDEN) :]
