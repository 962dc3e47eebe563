"""A naive evaluator of IAM policies, as far as session policies of storage credentials use them.

It knows nothing of how the catalog writes them: `${*}`, `${?}` and `${$}` are literal characters, any other
variable is an error, `*` and `?` are wildcards, a denial wins, and a missing context key fits no condition.
Source: AWS IAM User Guide, "Policy evaluation logic" and "IAM JSON policy elements: Condition operators".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def is_allowed(policy: str, action: str, resource: str, context: Mapping[str, str] | None = None) -> bool:
    """Whether a policy allows an action on a resource."""
    document = json.loads(policy)
    assert document["Version"] == "2012-10-17", "older versions have no variables"
    effects = {
        statement["Effect"]
        for statement in document["Statement"]
        if _applies(statement, action, resource, context or {})
    }
    return effects == {"Allow"}


def _applies(statement: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]) -> bool:
    known = {"Effect", "Action", "Resource", "Condition"}
    assert set(statement) <= known, f"not evaluated: {set(statement) - known}"
    conditions = statement.get("Condition", {})
    assert set(conditions) <= {"StringLike"}, f"not evaluated: {conditions}"
    return (
        any(_fits(each, action) for each in _list(statement["Action"]))
        and any(_fits(each, resource) for each in _list(statement["Resource"]))
        and all(
            key in context and any(_fits(each, context[key]) for each in _list(patterns))
            for key, patterns in conditions.get("StringLike", {}).items()
        )
    )


def _list(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value]


def _fits(pattern: str, text: str) -> bool:
    parts, at = [], 0
    for found in _VARIABLE.finditer(pattern):
        assert found[1] in ("*", "?", "$"), f"a variable of the request: {found[0]}"
        parts += [_wild(pattern[at : found.start()]), re.escape(found[1])]
        at = found.end()
    parts.append(_wild(pattern[at:]))
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _wild(text: str) -> str:
    return "".join({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in text)
