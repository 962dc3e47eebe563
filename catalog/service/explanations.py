"""Explains decisions of stored policies: reasons, what is seen of values, and what would change the decision.

`lakewarden policy check` and the console answer by these functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from catalog.policy_store.documents import StoredSet
from catalog.policy_store.kinds import OF_POLICIES
from policy.errors import PolicyInvalid
from policy.explain import Book, Considered, Explanation, explain
from policy.known_table import KnownTable
from policy.privileges.requests import AccessRequest, Through
from policy.ranger.parse import parse_documents

_SEEN_BY: Final = ("select", "all", "_any")


@dataclass(frozen=True, slots=True)
class Question:
    """A request to explain the decision of.

    Attributes:
        request: the request.
        at: its time, with a zone.
        table: what is known of the table that it is about.
        through: how the user reads a table or a column.
        engine: name of the engine, if it is read through one; None if that is not known.
    """

    request: AccessRequest
    at: datetime
    table: KnownTable
    through: Through
    engine: str | None


def explained(stored: StoredSet, question: Question) -> tuple[Considered, Explanation]:
    """Explain the decision of stored policies on a request.

    Raises:
        PolicyInvalid: the policies cannot be evaluated.
    """
    book = Book(parse_documents(stored.contents(*OF_POLICIES)))
    considered = book.consider(
        question.request, question.at, question.table, question.through, question.engine
    )
    return considered, explain(book, considered)


def values_seen(considered: Considered) -> dict[str, Any]:
    """Return mask and row filters of a decision, if the request is about reading values."""
    if considered.request.access not in _SEEN_BY:
        return {}
    depth = len(considered.request.resource.levels)
    found: dict[str, Any] = {}
    if considered.request.resource.levels[-1] == "column":
        found["mask"] = None if considered.mask is None else asdict(considered.mask)
    if considered.request.resource.levels[0] == "database" and depth > 1:
        found["row-filter"] = considered.has_row_filter
        found["row-filters"] = [
            {
                "policy": each.policy,
                "item": each.item,
                "filter": None if each.filter is None else each.filter.text,
                "doubt": each.doubt,
            }
            for each in considered.row_filters
        ]
        found.update(_decided(considered))
    return found


def _decided(considered: Considered) -> dict[str, Any]:
    """Return row filter and masks as readers get them, if the table's schema is known."""
    schema = considered.table.schema
    if schema is None:
        return {}
    try:
        row_filter, masks = considered.row_filter_text, considered.restriction.masks
    except PolicyInvalid as problem:
        return {"problem": problem.message}
    return {
        "decided-row-filter": row_filter,
        "decided-masks": {
            schema.by_id[field_id].name: mask.action.value for field_id, mask in sorted(masks.items())
        },
    }


def remarks(considered: Considered, explanation: Explanation) -> Iterator[str]:
    """Yield sentences beside a decision: roles, mask, row filters, and what it would be without an item."""
    if explanation.held:
        yield f"Roles held: {', '.join(explanation.held)}."
    if considered.request.access in _SEEN_BY:
        yield from _masks(considered)
    for each in explanation.without:
        answer = "allowed" if each.decision.allowed else "denied"
        yield f"Without {each.item} of {each.policy!r}: {answer}. {each.decision.explanation}"


def _masks(considered: Considered) -> Iterator[str]:
    seen = values_seen(considered)
    if considered.request.resource.levels[-1] == "column":
        mask = considered.mask
        yield (
            "The column is not masked."
            if mask is None
            else f"The column is masked by {mask.policy!r}: {mask.type}."
        )
    for each in seen.get("row-filters", ()):
        shown = f"no row, because {each['doubt']}" if each["filter"] is None else each["filter"]
        yield f"Rows are filtered by {each['policy']!r}: {shown}"
    if "problem" in seen:
        yield f"Scans fail: {seen['problem']}"
    if "decided-row-filter" in seen:
        yield f"Row filter as decided: {seen['decided-row-filter']}"
        masks = (f"{name}: {action}" for name, action in seen["decided-masks"].items())
        yield f"Masks as decided: {', '.join(masks) or 'none'}"
