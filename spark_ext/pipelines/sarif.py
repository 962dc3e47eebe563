"""Writes findings as SARIF, which code hosts and security dashboards read.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import quote

from policy.errors import LocationInvalid
from policy.location.location import Location
from spark_ext.pipelines.items import Finding, Rule

_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"


def sarif(pipeline: str, rules: Sequence[Rule], findings: Iterable[Finding]) -> dict[str, Any]:
    """Return a SARIF log with one run.

    Args:
        pipeline: its name.
        rules: the rules that it knows.
        findings: what was found.
    """
    driver = {"name": f"lakewarden {pipeline}", "rules": [_rule(each) for each in rules]}
    results = [_result(each) for each in findings]
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "help": {"text": rule.hint},
        "defaultConfiguration": {"level": str(rule.severity)},
    }


def _result(each: Finding) -> dict[str, Any]:
    names = [
        (each.table, "resource"),
        (each.ref, "namespace"),
        (each.snapshot, "object"),
        (each.column, "member"),
    ]
    logical = [{"fullyQualifiedName": str(name), "kind": kind} for name, kind in names if name is not None]
    location: dict[str, Any] = {"logicalLocations": logical}
    if each.path is not None:
        location["physicalLocation"] = {"artifactLocation": {"uri": _uri(each.path)}}
    return {
        "ruleId": each.rule,
        "level": str(each.severity),
        "message": {"text": _without_links(f"{each.message} {each.hint}".strip())},
        "locations": [location],
    }


def _uri(path: str) -> str:
    """Return a path as a URI; what is no location has no scheme that a viewer would follow."""
    try:
        Location.parse(path)
    except LocationInvalid:
        return quote(path, safe="/%")
    return quote(path, safe=":/%")


def _without_links(text: str) -> str:
    """Return a message whose viewers see no link in it (section 3.11.6, "Messages with embedded links")."""
    return text.replace("[", r"\[").replace("]", r"\]") if "](" in text else text
