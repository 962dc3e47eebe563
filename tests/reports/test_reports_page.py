"""The page of a report: it loads nothing, escapes every text, and can be read in light and dark."""

from __future__ import annotations

import re

import pytest

from catalog.reports.page import page
from catalog.reports.report import Chart, Report

ATTACK = "<img src=x onerror=alert(1)>\"'&"


def report(**more: object) -> Report:
    given: dict[str, object] = {
        "title": ATTACK,
        "columns": (ATTACK, "count", "empty"),
        "rows": [(ATTACK, 1, None), ([f"{ATTACK}{number}" for number in range(30)], 2, ())],
        "document": {},
        "charts": [Chart(ATTACK, {ATTACK: 1}), Chart(ATTACK, {ATTACK: 0, "b": 3}, over_time=True)],
        "notes": [ATTACK],
    }
    return Report(**{**given, **more})  # type: ignore[arg-type]


def test_every_text_is_escaped_and_nothing_is_loaded() -> None:
    """Attack: names of users and tables that are code."""
    text = page(report())
    assert "<img" not in text and "<script" not in text and text.count("&lt;img") > 30
    assert not re.search(r"""\b(src|href|url)\s*[=(]""", text.replace("img src", ""))
    assert "default-src 'none'" in text


def test_columns_without_content_are_left_out_and_every_name_is_there() -> None:
    text = page(report())
    assert '<th scope="col">empty</th>' not in text and "30 names" in text
    assert all(f"&amp;{number}" in text for number in range(30))
    assert "empty" in page(report(rows=[]))


def test_a_time_line_has_a_column_for_each_time() -> None:
    amounts = {f"2030-01-0{day}": amount for day, amount in ((1, 4), (2, 0), (3, 1))}
    text = page(report(charts=[Chart("t", amounts, over_time=True)]))
    heights = re.findall(r'<rect x="[\d.]+" width="0.8" y="[\d.]+" height="([\d.]+)"', text)
    assert heights == ["100", "0", "25"] and "2030-01-02: 0" in text


def luminance(color: str) -> float:
    """The relative luminance of a color (WCAG 2.2)."""
    digits = color[1:] if len(color) == 7 else "".join(2 * each for each in color[1:])
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_texts_and_bars_have_enough_contrast_in_light_and_dark(scheme: int) -> None:
    blocks = re.findall(r":root\{([^}]*)\}", page(report()))
    colors = dict(re.findall(r"--(\w+):(#[0-9a-f]+)", blocks[scheme]))
    for text in ("text", "soft", "bar"):
        assert contrast(colors[text], colors["page"]) >= 4.5, text
    assert contrast(colors["text"], colors["head"]) >= 4.5
