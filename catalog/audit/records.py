"""Audit records as values: bounded, masked, in canonical form, and chained.

- A value that is too long is cut, and marked as cut.
- Tokens and passwords are masked in all values (`catalog.base.clean_text`).
- Canonical form: JSON with sorted names, no spaces, ASCII only (RFC 8259).
- The fields `decisions` and `begun` are hashed only if they differ from 1 and false. So records of releases
  without these fields keep their hashes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from catalog.base.clean_text import clean
from policy.decision import Reason

#: A record as columns of `lw_audit`.
Row: TypeAlias = dict[str, object]

#: The previous hash of the first record of a chain.
GENESIS: Final = "0" * 64

HASHED_FIELDS: Final = (
    "writer",
    "sequence",
    "at_ms",
    "principal",
    "engine",
    "action",
    "resource",
    "allowed",
    "reasons",
    "request_id",
    "previous_hash",
)

_NAME_LENGTH: Final = 255
_ACTION_LENGTH: Final = 64
_REQUEST_ID_LENGTH: Final = 64
_RESOURCE_LENGTH: Final = 2_000
_RULE_LENGTH: Final = 64
_DETAIL_LENGTH: Final = 1_000

#: The maximum number of reasons in one record; the last one states how many were left out.
MAX_REASONS: Final = 16

#: The space of a record besides its texts: hashes, writer, numbers, and its entries in two indexes.
_OVERHEAD_BYTES: Final = 400
_SIZED: Final = ("principal", "engine", "action", "resource", "reasons", "request_id")

#: The principal of records without a user. No principal has this name.
NOBODY: Final = ""


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """A decision, or the outcome of one request.

    Attributes:
        principal: name of the user.
        engine: name of the engine that acts for the user, or None for the user's own process.
        action: the requested action, such as ``table-load``.
        resource: the dotted name of the table, or another resource.
        allowed: whether the request was allowed.
        reasons: the reasons, the decisive one first.
        request_id: the id that all records of one request share.
        at_ms: time of the decision, in milliseconds since 1970 UTC.
        decisions: number of decisions that the record counts; more than one for counted refusals.
        begun: whether the record was made before the effect of a granted change. It is neither a grant nor a
            refusal; the record that closes the request has the outcome.
    """

    principal: str
    engine: str | None
    action: str
    resource: str
    allowed: bool
    reasons: tuple[Reason, ...]
    request_id: str
    at_ms: int
    decisions: int = 1
    begun: bool = False


def to_columns(record: AuditRecord) -> Row:
    """Return the record's own columns, safe to store and to show."""
    return {
        "at_ms": record.at_ms,
        "principal": clean(record.principal, _NAME_LENGTH),
        "engine": None if record.engine is None else clean(record.engine, _NAME_LENGTH),
        "action": clean(record.action, _ACTION_LENGTH),
        "resource": clean(record.resource, _RESOURCE_LENGTH),
        "allowed": record.allowed,
        "reasons": _reasons_json(record.reasons),
        "request_id": clean(record.request_id, _REQUEST_ID_LENGTH),
        "decisions": record.decisions,
        "begun": record.begun,
    }


def is_refusal(row: Row) -> bool:
    """Return whether a record is a refusal."""
    return not row["allowed"] and not row["begun"]


def decisive_rule(row: Row) -> str:
    """Return the rule of a record's first reason."""
    return str(json.loads(str(row["reasons"]))[0]["rule"])


def decisive_only(row: Row) -> Row:
    """Return the record with its first reason only."""
    return {**row, "reasons": canonical(json.loads(str(row["reasons"]))[:1])}


def with_reason(row: Row, reason: Reason) -> Row:
    """Return the record with one more reason after the first."""
    first, *others = json.loads(str(row["reasons"]))
    return {**row, "reasons": canonical([first, _reason_fields(reason), *others])}


def size_of(row: Row) -> int:
    """Return the space of a record in the database in bytes, as the budget of refusals counts it."""
    return _OVERHEAD_BYTES + sum(len(str(row[name] or "")) for name in _SIZED)


def from_columns(row: Mapping[str, object]) -> AuditRecord:
    """Parse a stored record; the texts stay as stored."""
    return AuditRecord(
        principal=str(row["principal"]),
        engine=None if row["engine"] is None else str(row["engine"]),
        action=str(row["action"]),
        resource=str(row["resource"]),
        allowed=bool(row["allowed"]),
        reasons=_parse_reasons(str(row["reasons"])),
        request_id=str(row["request_id"]),
        at_ms=int(str(row["at_ms"])),
        decisions=int(str(row["decisions"])),
        begun=bool(row["begun"]),
    )


def principal_column(name: str) -> str:
    """Return a principal's name as stored, for searching."""
    return clean(name, _NAME_LENGTH)


def resource_column(name: str) -> str:
    """Return a resource as stored, for searching."""
    return clean(name, _RESOURCE_LENGTH)


def chained(rows: Sequence[Row], writer: str, sequence: int, previous_hash: str) -> list[Row]:
    """Add each row's position in the writer's chain.

    Args:
        rows: records in the order in which they were decided.
        writer: the chain they belong to.
        sequence: number of the chain's last record, 0 for an empty chain.
        previous_hash: hash of that record, or `GENESIS`.
    """
    chain: list[Row] = []
    for number, row in enumerate(rows, start=sequence + 1):
        linked = {**row, "writer": writer, "sequence": number, "previous_hash": previous_hash}
        previous_hash = record_hash(linked)
        chain.append({**linked, "hash": previous_hash})
    return chain


def record_hash(row: Mapping[str, object]) -> str:
    """Return the SHA-256 over the canonical JSON of all fields except the hash, in hexadecimal."""
    fields = {name: row[name] for name in HASHED_FIELDS}
    if row["decisions"] != 1:
        fields["decisions"] = row["decisions"]
    if row.get("begun"):
        fields["begun"] = True
    return digest(fields)


def digest(fields: Mapping[str, object]) -> str:
    """Return the SHA-256 of the canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical(fields).encode("ascii")).hexdigest()


def canonical(value: object) -> str:
    """Return the canonical JSON of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _reasons_json(reasons: Sequence[Reason]) -> str:
    listed = [_reason_fields(reason) for reason in reasons[:MAX_REASONS]]
    if len(reasons) > MAX_REASONS:
        listed.append({"rule": "cut", "detail": f"{len(reasons) - MAX_REASONS} more reasons were left out."})
    return canonical(listed)


def _reason_fields(reason: Reason) -> dict[str, str]:
    fields = {"rule": clean(reason.rule, _RULE_LENGTH), "detail": clean(reason.detail, _DETAIL_LENGTH)}
    if reason.policy is not None:
        fields["policy"] = clean(reason.policy, _NAME_LENGTH)
    if reason.item is not None:
        fields["item"] = clean(reason.item, _RULE_LENGTH)
    return fields


def _parse_reasons(text: str) -> tuple[Reason, ...]:
    """Parse the reasons; an edited record must not prevent reading the others."""
    try:
        found = tuple(
            Reason(**{name: str(value) for name, value in each.items()}) for each in json.loads(text)
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        found = ()
    return found or (Reason("unreadable", "The reasons do not have the form that the catalog writes."),)
