"""What a service definition says otherwise than the one that policies are evaluated by here.

Source: Ranger's RangerServiceDef, and the default options of RangerAbstractResourceMatcher.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from policy.privileges.requests import ALL
from policy.ranger.conditions.condition import EVALUATED, EXPRESSIONS, IMPLICIT
from policy.ranger.servicedef import LEVELS, TAGS, Level

Json = dict[str, Any]

_SCRIPT: Final = "org.apache.ranger.plugin.conditionevaluator.RangerScriptConditionEvaluator"
_TEMPLATE: Final = "org.apache.ranger.plugin.conditionevaluator.RangerScriptTemplateConditionEvaluator"
_EXPIRED: Final = "ctx.isAccessedAfter('expiry_date');"


@dataclass(frozen=True, slots=True)
class Definition:
    """The differences.

    Attributes:
        uncertain_accesses: access types, in lower case, that imply others.
        wider: levels whose values match more here.
        narrower: levels whose values match less here.
        odd_conditions: types of conditions that are evaluated in another way here, or not at all in Ranger.
    """

    uncertain_accesses: frozenset[str] = frozenset()
    wider: frozenset[str] = frozenset()
    narrower: frozenset[str] = frozenset()
    odd_conditions: frozenset[str] = frozenset()

    @classmethod
    def of(cls, said: object) -> Definition:
        """The differences of a service definition, as far as it is given."""
        types = [each for each in _objects(said, "accessTypes") if each.get("impliedGrants")]
        implying = {str(each.get("name")).lower() for each in types if not _is_all(each)}
        named = ((LEVELS.get(str(each.get("name"))), each) for each in _objects(said, "resources"))
        levels = [(level, each) for level, each in named if level is not None]
        return cls(
            frozenset(implying),
            frozenset(level.name for level, each in levels if _is_wider(level, each)),
            frozenset(level.name for level, each in levels if _is_narrower(level, each)),
            _odd_conditions(said),
        )

    def __or__(self, other: Definition) -> Definition:
        return Definition(
            self.uncertain_accesses | other.uncertain_accesses,
            self.wider | other.wider,
            self.narrower | other.narrower,
            self.odd_conditions | other.odd_conditions,
        )


def _is_all(access_type: Json) -> bool:
    """Whether it is `ALL`, in a service definition of tags with the type of the service before it."""
    return str(access_type.get("name")).lower().rpartition(":")[2] == ALL


def _is_wider(level: Level, said: Json) -> bool:
    """Whether the service takes wildcards for letters, or tells upper from lower case."""
    if level in TAGS:  # a tag is named without wildcards
        return False
    return not _option(said, "wildCard") or not (level.case_sensitive or _option(said, "ignoreCase"))


def _is_narrower(level: Level, said: Json) -> bool:
    """Whether the service does not tell upper from lower case."""
    return level.case_sensitive and _option(said, "ignoreCase")


def _odd_conditions(said: object) -> frozenset[str]:
    """Types of conditions that are evaluated here, but not as the service definition says."""
    if not isinstance(said, dict):
        return frozenset()
    usual = {str(each.get("name")) for each in _objects(said, "policyConditions") if _is_usual(each)}
    return EVALUATED - usual - {IMPLICIT}


def _is_usual(condition: Json) -> bool:
    if str(condition.get("name")) in EXPRESSIONS:
        return condition.get("evaluator") == _SCRIPT
    options = condition.get("evaluatorOptions")
    template = options.get("scriptTemplate") if isinstance(options, dict) else None
    return condition.get("evaluator") == _TEMPLATE and template == _EXPIRED


def _option(said: Json, name: str) -> bool:
    options = said.get("matcherOptions")
    return not isinstance(options, dict) or str(options.get(name, True)).lower() == "true"


def _objects(said: object, name: str) -> Iterator[Json]:
    listed = said.get(name) if isinstance(said, dict) else None
    return (each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, dict))
