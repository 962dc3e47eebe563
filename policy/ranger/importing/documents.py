"""Makes strict documents of what Ranger exports, and of what its plugins download."""

from __future__ import annotations

from collections.abc import Mapping

from policy.errors import PolicyInvalid
from policy.ranger.importing.report import Imported, Line, Outcome
from policy.ranger.parse import parse_documents


def import_ranger(sources: Mapping[str, bytes]) -> Imported:
    """Make strict documents of Ranger's.

    Args:
        sources: all documents of one service by name, which messages use: policies, roles, tags, user store.

    Returns:
        The documents with a report. Nothing is raised for what the documents contain.
    """
    if len(sources) != 1:
        return Imported({}, (Line("", "", "document", "", Outcome.BLOCKED, ("not one document",)),))
    ((name, data),) = sources.items()
    try:
        parse_documents(sources)
    except PolicyInvalid as error:
        return Imported({}, (Line(name, "", "document", "", Outcome.BLOCKED, (error.message,)),))
    return Imported({"ranger": data}, (Line(name, "", "document", "", Outcome.TAKEN),))
