"""Audit records as CloudEvents and OCSF: what their specifications demand, with all that a record says."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from sqlalchemy import Engine

from catalog.audit.formats import LineFormat, cloudevents_line, ocsf_line, record_line
from catalog.audit.records import AuditRecord, Row, to_columns
from catalog.audit.stream import Exports
from catalog.audit.trail import AuditTrail
from catalog.settings.sections import AuditSettings
from policy.decision import Reason

#: What the class and its objects demand; its `source` says where that is from.
SCHEMA = json.loads((Path(__file__).parents[1] / "vectors" / "ocsf-api-activity.json").read_text())
TYPES: dict[str, type] = {"string_t": str, "integer_t": int, "long_t": int, "object": dict}
#: CloudEvents 1.0.2, "Context Attributes": names of attributes in JSON.
CLOUDEVENTS = {"specversion", "type", "source", "id", "subject", "time", "datacontenttype", "data"}
ACTIONS = [
    "table.load",
    "table.create",
    "table.drop",
    "table.commit",
    "admin.token.issue",
    "authenticate",
    "x",
]

reasons = st.builds(
    Reason, st.text(max_size=9), st.text(max_size=9), st.none() | st.text(max_size=9), st.none()
)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """A record as it is in the database, whatever its texts are."""
    text = st.text(max_size=12)
    record = AuditRecord(
        draw(text),
        draw(st.none() | text),
        draw(st.sampled_from(ACTIONS) | text.filter(bool)),
        draw(text),
        draw(st.booleans()),
        tuple(draw(st.lists(reasons, min_size=1, max_size=3))),
        draw(text),
        draw(st.integers(0, 2**45)),
        decisions=draw(st.integers(1, 5)),
        begun=draw(st.booleans()),
    )
    known = {
        "writer": "5f2c",
        "sequence": draw(st.integers(1, 2**40)),
        "previous_hash": "0" * 64,
        "hash": "f" * 64,
    }
    return {**to_columns(record), **known}


def check(document: dict[str, Any], demanded: dict[str, Any], where: str) -> None:
    """Fail unless a document has what a class or object of OCSF demands, and nothing unknown."""
    attributes = demanded["attributes"]
    assert document.keys() <= attributes.keys(), where
    assert document.keys() >= set(demanded["required"]), where
    assert not demanded["at_least_one"] or document.keys() & set(demanded["at_least_one"]), where
    for name, value in document.items():
        known, values = attributes[name], value if isinstance(value, list) else [value]
        assert isinstance(value, list) is known.get("array", False), (where, name)
        for each in values:
            if known["type"] in TYPES:
                assert type(each) is TYPES[known["type"]], (where, name)
                assert "enum" not in known or each in known["enum"], (where, name)
            else:
                check(each, SCHEMA["objects"][known["type"]], f"{where}.{name}")


@pytest.mark.nightly
@given(rows())
def test_each_record_is_an_event_of_ocsf(row: Row) -> None:
    line = ocsf_line(row)
    event = json.loads(line)
    assert line.isascii() and line.isprintable()
    check(event, SCHEMA["class"], "event")
    assert event["type_uid"] == event["class_uid"] * 100 + event["activity_id"]
    # A value of "Other" comes with the name that the source uses.
    assert (event["activity_id"] == 99) == ("activity_name" in event)
    assert (event["status_id"] == 99) == ("status" in event)
    assert event["metadata"]["version"] == SCHEMA["version"]
    if not row["begun"]:
        assert event["status_id"] == (1 if row["allowed"] else 2)
    assert event["unmapped"]["hash"] == row["hash"]


@given(rows())
def test_each_record_is_an_event_of_cloudevents(row: Row) -> None:
    line = cloudevents_line(row)
    event = json.loads(line)
    assert line.isascii() and line.isprintable()
    assert event.keys() <= CLOUDEVENTS
    assert event["specversion"] == "1.0" and event["id"] == str(row["sequence"])
    assert all(isinstance(event[name], str) and event[name] for name in event.keys() - {"data"})
    assert re.fullmatch(r"[!-~]+", event["source"])
    assert "time" not in event or datetime.fromisoformat(event["time"]).tzinfo is not None
    assert event["data"] == json.loads(record_line(row))


@pytest.mark.parametrize(
    ("action", "activity"),
    [("table.load", 2), ("table.create", 1), ("table.commit", 3), ("table.purge", 4), ("table.sign", 99)],
)
def test_activities_are_those_of_ocsf(action: str, activity: int) -> None:
    record = AuditRecord(
        "ann", "spark", action, "db.t", False, (Reason("policy-no-match", "no", "p"),), "q", 1
    )
    event = json.loads(
        ocsf_line({**to_columns(record), "writer": "w", "sequence": 1, "previous_hash": "", "hash": ""})
    )
    assert event["activity_id"] == activity
    assert event["actor"] == {
        "user": {"name": "ann"},
        "app_name": "spark",
        "authorizations": [{"policy": {"name": "p"}}],
    }
    assert (event["status_code"], event["status_detail"]) == ("policy-no-match", "no")
    assert event["api"]["operation"] == action and event["resources"] == [{"name": "db.t"}]


@pytest.mark.parametrize("form", LineFormat)
def test_the_file_of_a_service_has_the_form_of_the_settings(
    engine: Engine, tmp_path: Path, form: LineFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.audit.stream._LOOK_S", 0.01)
    file = tmp_path / "records.jsonl"
    exports = Exports(engine, file, None, form=form)
    trail = AuditTrail(engine)
    trail.append([AuditRecord("ann", None, "table.load", "db.t", True, (Reason("r", "d"),), "q", 1)])
    trail.close()
    exports.close()
    (line,) = file.read_text().splitlines()
    key = {"json": "hash", "cloudevents": "specversion", "ocsf": "class_uid"}[form]
    assert key in json.loads(line)


def test_a_format_without_a_file_is_refused() -> None:
    with pytest.raises(ValidationError, match="stream_file"):
        AuditSettings(stream_format="ocsf")
