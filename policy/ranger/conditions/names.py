"""What the names and functions in the expressions of conditions mean.

Rules:
- The names are those that Ranger gives to scripts. Its macros are other names of functions of ``ctx``.
- What the catalog does not know (the client's address, the action, the cluster, …) has no name here.

Source: RangerRequestScriptEvaluator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from types import MappingProxyType
from typing import Final

from policy.letter_case import fold
from policy.ranger.circumstances import Circumstances, Tag
from policy.ranger.conditions.times import has_passed
from policy.ranger.conditions.truth import Truth, Unknown, any_of, negated
from policy.ranger.conditions.values import Record, Undecided, Value, utf16
from policy.ranger.servicedef import LEVELS

_TAGS_UNKNOWN: Final = Unknown("the tags of the resource are not known")
_NAME: Final = "_name"

Arguments = tuple[Value, ...]


def _user(c: Circumstances) -> Value:
    name = c.subject.name
    return _attributes(c.users.users.get(name), name, f"the attributes of the user {name!r} are not known")


def _groups(c: Circumstances) -> Value:
    return Record({name: _group(c, name) for name in c.subject.groups})


def _group(c: Circumstances, name: str) -> Record:
    return _attributes(c.users.groups.get(name), name, f"the attributes of the group {name!r} are not known")


def _attributes(known: Mapping[str, str | None] | None, name: str, reason: str) -> Record:
    if known is None:
        return Record({_NAME: name}, Unknown(reason))
    return Record({**known, _NAME: name})


def _of_all_groups(c: Circumstances) -> Value:
    """The first value (``sVal``) and all values (``mVal``) of each attribute, in the order of groups."""
    groups = [_group(c, name) for name in sorted(c.subject.groups, key=utf16)]
    missing = next((each.missing for each in groups if each.missing is not None), None)
    if missing is not None:
        return Record({"sVal": Record({}, missing), "mVal": Record({}, missing)})
    every: dict[str, list[Value]] = {}
    for each in groups:
        for attribute, value in each.entries.items():
            every.setdefault(attribute, []).append(value)
    first = Record({name: values[0] for name, values in every.items()})
    return Record({"sVal": first, "mVal": Record({name: tuple(values) for name, values in every.items()})})


def _current_tag(c: Circumstances) -> Value:
    return Record({}) if c.tag is None else _tag(c.tag)


def _tag(tag: Tag) -> Record:
    match = Unknown("how a tag matches is not known")
    return Record({**tag.attributes, "_type": tag.type, "_matchType": match})


def _tags(c: Circumstances) -> Value:
    if c.tags is None:
        return Record({}, _TAGS_UNKNOWN)
    found: dict[str, Value] = {}
    for each in c.tags:
        # To Ranger, an arbitrary one of them counts.
        several = Unknown(f"the resource has several tags {each.type!r}")
        found[each.type] = several if each.type in found else _tag(each)
    return Record(found)


def _tag_names(c: Circumstances) -> Value:
    return _TAGS_UNKNOWN if c.tags is None else _in_order({each.type for each in c.tags})


def _resource(c: Circumstances) -> Value:
    if c.resource is None:
        return Record({}, Unknown("the question is not about one resource"))
    named = zip(c.resource.levels, c.resource.values, strict=True)
    entries = {level: _named(level, value) for level, value in named}
    owner = Unknown("the owner is not known") if c.subject.owner is None else c.subject.owner
    return Record({**entries, "_ownerUser": owner}, Unknown("the request does not name that level"))


def _named(level: str, value: str) -> Value:
    """A name, for a comparison of letters; unknown if other spellings mean the same."""
    if LEVELS[level].location or not (LEVELS[level].case_sensitive or value == fold(value)):
        return Unknown(f"the {level} {value!r} has other spellings")
    return value


def _request(c: Circumstances) -> Value:
    access = Unknown("the access type is not known") if c.access is None else c.access
    return Record(
        {
            "accessType": access,
            "user": c.subject.name,
            "userGroups": _in_order(c.subject.groups),
            "userRoles": _in_order(c.subject.roles),
            "userAttributes": _user(c),
        }
    )


def _in_order(names: Set[str]) -> tuple[Value, ...]:
    return tuple(sorted(names, key=utf16))


NAMES: Final[Mapping[str, Callable[[Circumstances], Value]]] = MappingProxyType(
    {
        "USER": _user,
        "UG": _groups,
        "UGA": _of_all_groups,
        "UGNAMES": lambda c: _in_order(c.subject.groups),
        "URNAMES": lambda c: _in_order(c.subject.roles),
        "TAG": _current_tag,
        "TAGS": _tags,
        "TAGNAMES": _tag_names,
        "tagAttr": lambda c: Record({} if c.tag is None else c.tag.attributes),
        "RES": _resource,
        "REQ": _request,
    }
)
"""The objects and lists by name."""

MEMBERS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "REQ": frozenset({"accessType", "user", "userGroups", "userRoles", "userAttributes", "resource"}),
        "RES": frozenset({"_ownerUser", *(each.name for each in LEVELS.values() if not each.location)}),
        "UGA": frozenset({"sVal", "mVal"}),
    }
)
"""The members of those of them that have no others."""


def _in_group(c: Circumstances, arguments: Arguments) -> Value:
    return _text(arguments[0]) in c.subject.groups


def _in_role(c: Circumstances, arguments: Arguments) -> Value:
    return _text(arguments[0]) in c.subject.roles


def _has_tag(c: Circumstances, arguments: Arguments) -> Value:
    return _TAGS_UNKNOWN if c.tags is None else any(each.type == _text(arguments[0]) for each in c.tags)


def _has_tag_attribute(c: Circumstances, arguments: Arguments) -> Value:
    return _TAGS_UNKNOWN if c.tags is None else any(_text(arguments[0]) in each.attributes for each in c.tags)


def _has_user_attribute(c: Circumstances, arguments: Arguments) -> Value:
    return _has(_user(c), _text(arguments[0]))


def _has_group_attribute(c: Circumstances, arguments: Arguments) -> Value:
    name = _text(arguments[0])
    return any_of(_has(_group(c, group), name) for group in c.subject.groups)


def _has(attributes: Value, name: str) -> Truth:
    assert isinstance(attributes, Record)
    if name in attributes.entries:
        return True
    return attributes.missing if isinstance(attributes.missing, Unknown) else False


def _user_attribute(c: Circumstances, arguments: Arguments) -> Value:
    attributes, name = _user(c), _text(arguments[0])
    has = _has(attributes, name)
    if has is True and isinstance(attributes, Record) and attributes.entries[name] not in (None, ""):
        return attributes.entries[name]
    if isinstance(has, Unknown):
        return has
    return _text(arguments[1]) if arguments[1:] and arguments[1] is not None else ""


def _tag_attribute(c: Circumstances, arguments: Arguments) -> Value:
    """An attribute of the current tag, or of the one tag of a type that has any."""
    *types, name = map(_text, arguments)
    if not types:
        return None if c.tag is None else c.tag.attributes.get(name)
    if c.tags is None:
        return _TAGS_UNKNOWN
    found = [each for each in c.tags if each.type == types[0] and each.attributes]
    if len(found) > 1:
        return Unknown(f"the resource has several tags {types[0]!r}")
    return found[0].attributes.get(name) if found else None


def _accessed_after(c: Circumstances, arguments: Arguments) -> Value:
    """Whether a time that a tag says has come, or no tag says one."""
    text = _tag_attribute(c, arguments)
    if text is None or isinstance(text, Unknown):
        return True if text is None else text
    return has_passed(_text(text), c.now)


def _accessed_before(c: Circumstances, arguments: Arguments) -> Value:
    """Whether a time that a tag says has not passed."""
    text = _tag_attribute(c, arguments)
    if text is None or isinstance(text, Unknown):
        return False if text is None else text
    return negated(has_passed(_text(text), c.now, including=False))


def _text(value: Value) -> str:
    if not isinstance(value, str):
        raise Undecided("an argument is not a text")
    return value


FUNCTIONS: Final[Mapping[str, tuple[range, Callable[[Circumstances, Arguments], Value]]]] = MappingProxyType(
    {
        "isInGroup": (range(1, 2), _in_group),
        "isInRole": (range(1, 2), _in_role),
        "isInAnyGroup": (range(1), lambda c, _: bool(c.subject.groups)),
        "isInAnyRole": (range(1), lambda c, _: bool(c.subject.roles)),
        "hasTag": (range(1, 2), _has_tag),
        "hasAnyTag": (range(1), lambda c, _: _TAGS_UNKNOWN if c.tags is None else bool(c.tags)),
        "hasTagAttr": (range(1, 2), _has_tag_attribute),
        "hasUserAttr": (range(1, 2), _has_user_attribute),
        "hasUgAttr": (range(1, 2), _has_group_attribute),
        "userAttr": (range(1, 3), _user_attribute),
        "getUser": (range(1), lambda c, _: c.subject.name),
        "getAttributeValue": (range(1, 3), _tag_attribute),
        "isAccessedAfter": (range(1, 3), _accessed_after),
        "isAccessedBefore": (range(1, 3), _accessed_before),
    }
)
"""The functions of ``ctx``: how many arguments they take, and what they say."""

TIMED: Final = frozenset({"isAccessedAfter", "isAccessedBefore"})
"""Those of them that look at the time."""

BY_NAME: Final = frozenset({"RES", "TAGS", "TAGNAMES", "hasTag", "hasAnyTag", "hasTagAttr"})
"""The names and functions that look at the names of the resource, or at its tags, which go by these names."""

OF_NAMED_TAGS: Final = frozenset({"getAttributeValue", "isAccessedAfter", "isAccessedBefore"})
"""Functions that look at any tag of the resource, and not the current one, if they take two arguments."""

RANGES: Final[Mapping[str, range]] = MappingProxyType(
    {
        "isAccessTimeAfter": range(1, 3),
        "isAccessTimeBefore": range(1, 3),
        "isAccessTimeBetween": range(2, 4),
    }
)
"""The functions of ``ctx`` that are about spans of time, and how many arguments they take."""

MACROS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "IS_IN_GROUP": "isInGroup",
        "IS_IN_ROLE": "isInRole",
        "HAS_TAG": "hasTag",
        "HAS_TAG_ATTR": "hasTagAttr",
        "HAS_USER_ATTR": "hasUserAttr",
        "HAS_UG_ATTR": "hasUgAttr",
        "GET_USER_ATTR": "userAttr",
        "IS_ACCESS_TIME_AFTER": "isAccessTimeAfter",
        "IS_ACCESS_TIME_BEFORE": "isAccessTimeBefore",
        "IS_ACCESS_TIME_BETWEEN": "isAccessTimeBetween",
    }
)
"""Other names of functions of ``ctx``."""

CALLS: Final[Mapping[str, tuple[str, bool]]] = MappingProxyType(
    {
        "IS_IN_ANY_GROUP": ("isInAnyGroup", True),
        "IS_NOT_IN_ANY_GROUP": ("isInAnyGroup", False),
        "IS_IN_ANY_ROLE": ("isInAnyRole", True),
        "IS_NOT_IN_ANY_ROLE": ("isInAnyRole", False),
        "HAS_ANY_TAG": ("hasAnyTag", True),
        "HAS_NO_TAG": ("hasAnyTag", False),
    }
)
"""Macros that are calls without arguments: the function, and whether its answer is taken as it is."""
