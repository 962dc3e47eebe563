"""What a service definition says otherwise than the one that policies are evaluated by here.

Source: Ranger's RangerServiceDef, and the default options of RangerAbstractResourceMatcher.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from policy.privileges.requests import ACCESS_TYPES, ALL
from policy.ranger.conditions.condition import EVALUATED, EXPRESSIONS, IMPLICIT
from policy.ranger.servicedef import LEVELS, OWN_TYPES, TAGS, Level

Json = dict[str, Any]

_SCRIPT: Final = "org.apache.ranger.plugin.conditionevaluator.RangerScriptConditionEvaluator"
_TEMPLATE: Final = "org.apache.ranger.plugin.conditionevaluator.RangerScriptTemplateConditionEvaluator"
_RESTRICTIONS: Final = {1: "dataMaskDef", 2: "rowFilterDef"}
#: What Ranger's Hive service makes of a column, by type of mask, without spaces.
_TRANSFORMERS: Final = {
    "MASK": "mask({col})",
    "MASK_SHOW_LAST_4": "mask_show_last_n({col},4,'x','x','x',-1,'1')",
    "MASK_SHOW_FIRST_4": "mask_show_first_n({col},4,'x','x','x',-1,'1')",
    "MASK_HASH": "mask_hash({col})",
    "MASK_DATE_SHOW_YEAR": "mask({col},'x','x','x',-1,'1',1,0,-1)",
}
#: Every access type that the catalog requires.
_REQUIRED: Final = frozenset().union(*ACCESS_TYPES.values()) - {ALL}
_EXPIRED: Final = "ctx.isAccessedAfter('expiry_date');"


@dataclass(frozen=True, slots=True)
class Definition:
    """The differences.

    Attributes:
        uncertain_accesses: access types, in lower case, that imply others.
        wider: levels whose values match more here.
        narrower: levels whose values match less here.
        odd_conditions: types of conditions that are evaluated in another way here, or not at all in Ranger.
        all_is_less: whether `ALL` does not imply every access type that the service has.
        odd_masks: types of masks that show something else in Ranger.
        wild: types of policies and levels that take wildcards in masking and row filter policies; by default,
            these are letters to Ranger.
    """

    uncertain_accesses: frozenset[str] = frozenset()
    wider: frozenset[str] = frozenset()
    narrower: frozenset[str] = frozenset()
    odd_conditions: frozenset[str] = frozenset()
    all_is_less: bool = False
    odd_masks: frozenset[str] = frozenset()
    wild: frozenset[tuple[int, str]] = frozenset()

    @classmethod
    def of(cls, said: object) -> Definition:
        """The differences of a service definition, as far as it is given."""
        types = [each for each in _objects(said, "accessTypes") if each.get("impliedGrants")]
        implying = {str(each.get("name")).lower() for each in types if _own(each.get("name")) != ALL}
        named = ((LEVELS.get(str(each.get("name"))), each) for each in _objects(said, "resources"))
        levels = [(level, each) for level, each in named if level is not None]
        return cls(
            frozenset(implying),
            frozenset(level.name for level, each in levels if _is_wider(level, each)),
            frozenset(level.name for level, each in levels if _is_narrower(level, each)),
            _odd_conditions(said),
            _all_is_less(said),
            _odd_masks(said),
            frozenset(pair for kind, name in _RESTRICTIONS.items() for pair in _wild(said, kind, name)),
        )

    def __or__(self, other: Definition) -> Definition:
        return Definition(
            self.uncertain_accesses | other.uncertain_accesses,
            self.wider | other.wider,
            self.narrower | other.narrower,
            self.odd_conditions | other.odd_conditions,
            self.all_is_less or other.all_is_less,
            self.odd_masks | other.odd_masks,
            self.wild | other.wild,
        )


USUAL: Final = Definition()
"""No differences."""


def _own(name: object) -> str | None:
    """A name in lower case, without the type of service that tags have before it; None if not ours."""
    service, separator, own = str(name).lower().rpartition(":")
    return own if not separator or service in OWN_TYPES else None


def _all_is_less(said: object) -> bool:
    """Whether a grant of `ALL` grants more here than in a service with these access types."""
    types = {
        own: each for each in _objects(said, "accessTypes") if (own := _own(each.get("name"))) is not None
    }
    implied = types.get(ALL, {}).get("impliedGrants")
    grants = {_own(each) for each in implied} if isinstance(implied, list) else set()
    return not (types.keys() & _REQUIRED) <= grants


def _odd_masks(said: object) -> frozenset[str]:
    masking = said.get("dataMaskDef") if isinstance(said, dict) else None
    types = [(_own(each.get("name")), each.get("transformer")) for each in _objects(masking, "maskTypes")]
    named = {name.upper(): "".join(str(how).split()) for name, how in types if name is not None and how}
    return frozenset(name for name, how in named.items() if how != _TRANSFORMERS.get(name))


def _wild(said: object, kind: int, name: str) -> Iterator[tuple[int, str]]:
    """The levels that take wildcards in policies of a type."""
    restricting = said.get(name) if isinstance(said, dict) else None
    own = {str(each.get("name")): each for each in _objects(said, "resources")}
    for each in _objects(restricting, "resources"):
        level, options = str(each.get("name")), each.get("matcherOptions")
        says = isinstance(options, dict) and "wildCard" in options
        if _option(each if says else own.get(level, {}), "wildCard"):
            yield kind, level


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
