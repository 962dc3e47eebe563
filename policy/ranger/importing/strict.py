"""Asks the strict reader about one part of a document at a time.

What a part is worth is decided by the reader of the documents in force alone (`parse_documents`). None of its
rules is repeated here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from policy.errors import PolicyInvalid
from policy.ranger.model import Policy
from policy.ranger.parse import Contents, parse_documents

Json = dict[str, Any]

_PLACE: Final = re.compile(r"part, line \d+(?:, (?P<path>.*?))?: (?P<problem>.*)", re.DOTALL)
_PART: Final = re.compile(r"^(?:tagPolicies\.)?(?:policies|roles)\[0\]\.?")


@dataclass(frozen=True, slots=True)
class Home:
    """Where policies of a kind stand in a document.

    Attributes:
        what: how the report calls such a policy.
        every: the access type that means every one.
        tagged: whether they are about tags.
        zones: the definitions of security zones, without policies.
    """

    what: str
    every: str
    tagged: bool = False
    zones: Mapping[str, Json] = field(default_factory=dict)

    def problem(self, policy: Mapping[str, object]) -> str | None:
        """Why a policy is refused, with the field; None if it is read."""
        return problem_of(self._document(policy))

    def read(self, policy: Mapping[str, object]) -> Policy:
        """A policy that is read."""
        contents = _read(self._document(policy))
        (found,) = contents.policies + contents.disabled
        return found

    def _document(self, policy: Mapping[str, object]) -> Json:
        listed: Json = {"policies": [dict(policy)]}
        document = {"policies": [], "tagPolicies": listed} if self.tagged else listed
        return document | {"securityZones": self.zones}


OWN: Final = Home("policy", "all")
TAGGED: Final = Home("tag policy", "hive:all", tagged=True)


def problem_of(document: object) -> str | None:
    """Why a document is refused, with the field; None if it is read."""
    try:
        _read(document)
    except PolicyInvalid as error:
        return short(error)
    return None


def short(error: PolicyInvalid) -> str:
    """A refusal, with the place in the part that it is about."""
    found = _PLACE.fullmatch(error.message)
    assert found is not None
    path = _PART.sub("", found["path"] or "")
    return f"{path}: {found['problem']}" if path else found["problem"]


def _read(document: object) -> Contents:
    return parse_documents({"part": json.dumps(document)})
