"""The policies and requests of Apache Ranger's own tests: no answer grants or shows more than Ranger's.

tests/vectors/ranger-public/differences.json lists each request that is answered otherwise, with the reason.
"""

from __future__ import annotations

import json
from typing import Any

from policy.ranger.importing import Outcome, import_ranger
from tests.support.ranger_public import (
    LAXER,
    SAME,
    STRICTER,
    VECTORS,
    NotAsked,
    compared,
    imported,
    in_force,
    policies_for,
    requests,
    schedules,
    vectors,
)
from tests.support.vectors import each_row

Json = dict[str, Any]

DIFFERENCES = json.loads((VECTORS / "differences.json").read_text("utf-8"))
FILES = vectors()
REQUESTS = [(file, name, request) for file, vector in FILES.items() for name, request in requests(vector)]


def listed(kind: str) -> dict[tuple[str, str], str]:
    """The reason for which each request is listed, by file and name."""
    return {
        (file, name): reason
        for reason, files in DIFFERENCES[kind].items()
        for file, names in files.items()
        for name in names
    }


def test_every_request_is_answered_as_by_ranger_or_is_listed_as_refused() -> None:
    found: Json = {SAME: [], STRICTER: [], LAXER: [], "not asked": {}}
    for file, name, request in REQUESTS:
        try:
            found[compared(policies_for(FILES[file], request), request)].append((file, name))
        except NotAsked as reason:
            found["not asked"][file, name] = str(reason)
    assert found[LAXER] == []
    assert set(found[STRICTER]) == {each for each in listed(STRICTER) if each[0] != "schedules"}
    assert found["not asked"] == listed("not asked")
    assert len(found[SAME]) >= 349


def test_every_document_is_taken_over_with_the_stored_report() -> None:
    assert DIFFERENCES["reports"].keys() == FILES.keys()
    for file, vector in FILES.items():
        found = imported(vector)
        counts = {outcome.value: len(lines) for outcome in Outcome if (lines := found.of(outcome))}
        assert counts == DIFFERENCES["reports"][file], file


def test_schedules_hold_when_they_do_in_ranger_or_are_listed() -> None:
    different = {("schedules", name) for name, case in schedules() if in_force(case) != case["expected"]}
    assert different == {each for each in listed(STRICTER) if each[0] == "schedules"}
    stricter = [case for name, case in schedules() if ("schedules", name) in different]
    assert all(case["expected"]["applicable"] for case in stricter)


def test_downloads_of_a_plugin_are_taken_over() -> None:
    vector = json.loads((VECTORS / "downloads.json").read_text("utf-8"))
    found = imported(vector)
    assert found.blocked == ()
    assert found.documents.keys() == {"ranger", "tags", "users"}


OTHERS = json.loads((VECTORS / "other-services.json").read_text("utf-8"))["documents"]


@each_row("document", OTHERS, count=6)
def test_documents_of_other_types_of_services_are_blocked(document: Json) -> None:
    found = import_ranger({"other": json.dumps(document).encode()})
    kind = document["serviceDef"]["name"]
    assert found.documents == {}
    (line,) = found.blocked
    assert line.reasons[0].startswith(f"serviceDef.name: the service type {kind!r} is not supported.")
