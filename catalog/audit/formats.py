"""Formats audit records as lines of JSON: their own form, CloudEvents, or OCSF.

- Lines are ASCII, so that a name cannot break a line or control a terminal.
- Only the form of its own is evidence that `lakewarden audit verify` compares: it has each field that is
  hashed, by its name. The other forms have the same values.
- A value that the record does not have is left out, or is `unknown` where a schema demands it.

Sources: CloudEvents 1.0.2, JSON format; OCSF 1.8.0, class API Activity (6003).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from typing import Any, Final

from catalog.audit.records import HASHED_FIELDS, canonical

#: A record as columns of the database, or of the archive.
Record = Mapping[str, object]


class LineFormat(StrEnum):
    """The form of lines."""

    JSON = "json"
    CLOUDEVENTS = "cloudevents"
    OCSF = "ocsf"


_OCSF_VERSION: Final = "1.8.0"
_CATEGORY_UID: Final = 6
_CLASS_UID: Final = 6003
_CREATE, _READ, _UPDATE, _DELETE, _OTHER = 1, 2, 3, 4, 99
#: Activities by the last word of an action. An action that is not here is "Other", with its own name.
_ACTIVITIES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("create", "stage", "register", "issue", "adopt"), _CREATE),
    **dict.fromkeys(("load", "list", "exists", "plan", "read", "show", "inspect", "verify", "report"), _READ),
    **dict.fromkeys(("commit", "alter", "update", "change", "rename", "write", "replace"), _UPDATE),
    **dict.fromkeys(("drop", "purge", "destroy", "prune", "remove"), _DELETE),
}
_INFORMATIONAL, _LOW = 1, 2
_SUCCESS, _FAILURE = 1, 2
_UNKNOWN: Final = "unknown"


def formatter(form: LineFormat) -> Callable[[Record], str]:
    """Return the function that makes a line, without its end, of a record."""
    return {
        LineFormat.JSON: record_line,
        LineFormat.CLOUDEVENTS: cloudevents_line,
        LineFormat.OCSF: ocsf_line,
    }[form]


def record_line(row: Record) -> str:
    """Return a record as one line of JSON, by the names that are hashed."""
    return canonical(_fields(row))


def cloudevents_line(row: Record) -> str:
    """Return a record as an event of CloudEvents. `source` and `id` together are unique."""
    event = {
        "specversion": "1.0",
        "type": "lakewarden.audit.record",
        "source": f"urn:uuid:{row['writer']}",
        "id": str(row["sequence"]),
        "subject": row["resource"],
        "time": moment(row["at_ms"]),
        "datacontenttype": "application/json",
        "data": _fields(row),
    }
    return canonical(_present(event))


def ocsf_line(row: Record) -> str:
    """Return a record as an event of OCSF, class API Activity."""
    activity = _ACTIVITIES.get(str(row["action"]).rpartition(".")[2], _OTHER)
    event = {
        "category_uid": _CATEGORY_UID,
        "class_uid": _CLASS_UID,
        "activity_id": activity,
        "activity_name": str(row["action"]) if activity == _OTHER else None,
        "type_uid": _CLASS_UID * 100 + activity,
        "time": row["at_ms"],
        "count": row["decisions"] if row["decisions"] != 1 else None,
        "severity_id": _INFORMATIONAL if row["allowed"] or row["begun"] else _LOW,
        **_status(row),
        "metadata": _metadata(row),
        "actor": _actor(row),
        "api": {"operation": row["action"], "service": {"name": "lakewarden"}},
        # A record has the address of the client only where it is what the record is about.
        "src_endpoint": {"svc_name": row["engine"] or _UNKNOWN},
        "resources": [{"name": row["resource"]}] if row["resource"] else None,
        "unmapped": {
            name: _fields(row)[name] for name in ("reasons", "writer", "sequence", "previous_hash", "hash")
        },
    }
    return canonical(_present(event))


def document(text: object) -> object:
    """Parse a JSON text; an edited one is returned as text."""
    try:
        return json.loads(str(text))
    except (ValueError, RecursionError):
        return text


def moment(at_ms: object) -> str | None:
    """Return a time as text; None if it is out of range."""
    try:
        return datetime.fromtimestamp(int(str(at_ms)) / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def _fields(row: Record) -> dict[str, object]:
    fields = {name: row[name] for name in (*HASHED_FIELDS, "decisions", "begun", "hash")}
    return {**fields, "reasons": document(row["reasons"]), "at": moment(row["at_ms"])}


def _status(row: Record) -> dict[str, object]:
    if row["begun"]:
        return {"status_id": _OTHER, "status": "Begun", **_why(row)}
    return {"status_id": _SUCCESS if row["allowed"] else _FAILURE, **_why(row)}


def _why(row: Record) -> dict[str, object]:
    first = next(iter(_reasons(row)), {})
    return {"status_code": first.get("rule"), "status_detail": first.get("detail")}


def _metadata(row: Record) -> dict[str, object]:
    product = {"name": "Lakewarden", "vendor_name": "Lakewarden", "version": version("lakewarden")}
    return {
        "version": _OCSF_VERSION,
        "product": product,
        "log_name": "audit",
        "uid": f"{row['writer']}:{row['sequence']}",
        "correlation_uid": row["request_id"],
    }


def _actor(row: Record) -> dict[str, object]:
    user = {"user": {"name": row["principal"]}} if row["principal"] else {}
    engine = {"app_name": row["engine"]} if row["engine"] else {}
    policies = [{"policy": {"name": each["policy"]}} for each in _reasons(row) if each.get("policy")]
    decided = {"authorizations": policies} if policies else {}
    return {**user, **engine, **decided} if user or engine else {"app_name": _UNKNOWN, **decided}


def _reasons(row: Record) -> list[dict[str, Any]]:
    found = document(row["reasons"])
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _present(event: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in event.items() if value not in (None, "")}
