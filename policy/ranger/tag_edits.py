"""Edits a document of tags: one resource's tags, in the JSON of Ranger's tag download.

Rules:
- A resource is a database, table or column by its name; letter case does not matter. It has a tag of a name
  once.
- What nothing refers to any more is left out of the document.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from policy.errors import RequestInvalid
from policy.fields import of_json
from policy.letter_case import fold
from policy.privileges.requests import Resource
from policy.ranger.parse import MAX_DOCUMENT_SIZE, no_pause
from policy.ranger.tag_documents import tagged_resources

_WILDCARDS: Final = frozenset("*?{}")
_EMPTY: Final = '{"tags": {}, "serviceResources": [], "resourceToTagIds": {}}'

_Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TagOfResource:
    """A tag of a resource, for display.

    Attributes:
        resource: the resource by levels, as the document names it.
        type: the tag's name.
        attributes: its attributes.
        is_timed: whether it is assigned at some times only.
    """

    resource: Mapping[str, str]
    type: str
    attributes: Mapping[str, str]
    is_timed: bool

    @property
    def title(self) -> str:
        """The resource in the form ``KIND:NAME``."""
        *above, name = self.resource.values()
        kind = list(self.resource)[-1]
        return f"{kind}:{'.'.join(above)}{'/' if kind == 'column' else '.' if above else ''}{name}"


class TagDocument:
    """A document of tags that is edited.

    Args:
        name: how messages call it.
        content: what it says; None for a document that does not exist.

    Raises:
        PolicyInvalid: it is not a document of tags.
    """

    def __init__(self, name: str, content: bytes | str | None) -> None:
        self._name = name
        text = _EMPTY if content is None else content
        top = of_json(name, text, what="Tags", max_size=MAX_DOCUMENT_SIZE)
        list(tagged_resources(top, no_pause))
        self._top: _Json = json.loads(text)
        self._tags: _Json = _by_number(self._top.get("tags"))
        self._resources: list[_Json] = self._top.get("serviceResources") or []
        assigned = _by_number(self._top.get("resourceToTagIds"))
        self._assigned: dict[str, list[int]] = {number: tags or [] for number, tags in assigned.items()}

    @property
    def text(self) -> str:
        """The document as it is now, without what nothing refers to."""
        used = {number for numbers in self._assigned.values() for number in numbers}
        tags = {number: tag for number, tag in self._tags.items() if int(number) in used}
        parts = {"tags": tags, "serviceResources": self._resources, "resourceToTagIds": self._assigned}
        return json.dumps(self._top | parts, indent=1)

    @property
    def is_empty(self) -> bool:
        """Whether no resource has a tag."""
        return not any(self._assigned.values())

    def set(self, resource: Resource, types: Iterable[str], attributes: Mapping[str, str]) -> None:
        """Give a resource tags; one that it has gets these attributes, and stays valid at the same times.

        Raises:
            RequestInvalid: it cannot be tagged by name.
        """
        numbers = self._numbers_of(resource)
        if not numbers:
            numbers = [1 + max((each["id"] for each in self._resources), default=0)]
            self._resources.append({"id": numbers[0], "resourceElements": _elements(resource)})
        for name in types:
            for number in self._having(numbers, name) or numbers[:1]:
                tag = 1 + max(map(int, self._tags), default=0)
                self._tags[str(tag)] = self._times(number, name) | {
                    "type": name,
                    "attributes": dict(attributes),
                }
                self._assigned[str(number)] = [*self._others(number, name), tag]

    def remove(self, resource: Resource, types: Iterable[str]) -> None:
        """Take tags from a resource.

        Raises:
            RequestInvalid: it does not have one of them in this document.
        """
        numbers = self._numbers_of(resource)
        for name in types:
            having = self._having(numbers, name)
            if not having:
                raise RequestInvalid(
                    f"The {resource} does not have the tag {name!r} in the document {self._name}.",
                    rule="tag",
                    hint="Find its document with `lakewarden tag list`. Change imported tags at the source.",
                )
            for number in having:
                self._assigned[str(number)] = self._others(number, name)
        without = {number for number in numbers if not self._assigned.get(str(number))}
        for number in without:
            self._assigned.pop(str(number), None)
        self._resources[:] = [each for each in self._resources if each["id"] not in without]

    def __iter__(self) -> Iterator[TagOfResource]:
        for resource in self._resources:
            values = {
                level: ", ".join(said["values"]) for level, said in resource["resourceElements"].items()
            }
            ordered = {level: values[level] for level in (*_LEVELS, *values) if level in values}
            for number in self._assigned.get(str(resource["id"]), ()):
                tag = self._tags[str(number)]
                attributes, validity = tag.get("attributes") or {}, tag.get("validityPeriods")
                yield TagOfResource(ordered, tag["type"], attributes, bool(validity))

    def _others(self, resource: int, type_: str) -> list[int]:
        """The tags of a resource that have other names."""
        numbers = self._assigned.get(str(resource), ())
        return [each for each in numbers if self._tags[str(each)]["type"] != type_]

    def _having(self, resources: Iterable[int], type_: str) -> list[int]:
        """Which of these entries have a tag of a name."""
        return [
            each
            for each in resources
            if len(self._others(each, type_)) < len(self._assigned.get(str(each), ()))
        ]

    def _times(self, resource: int, type_: str) -> _Json:
        """When a tag of an entry is valid: its periods, in their member; empty for always."""
        tags = [self._tags[str(each)] for each in self._assigned.get(str(resource), ())]
        periods = [each.get("validityPeriods") for each in tags if each["type"] == type_]
        return {"validityPeriods": list(chain.from_iterable(periods))} if periods and all(periods) else {}

    def _numbers_of(self, resource: Resource) -> list[int]:
        """The entries of a resource: a document can list it several times."""
        wanted = _folded(_elements(resource))
        return [each["id"] for each in self._resources if _folded(each["resourceElements"]) == wanted]


def _by_number(numbered: _Json | None) -> _Json:
    return {str(int(number)): each for number, each in (numbered or {}).items()}


_LEVELS: Final = ("database", "table", "column")


def about(tag: TagOfResource, resource: Resource) -> bool:
    """Whether a tag is of a resource, or of something in it."""
    return all(
        fold(tag.resource.get(level, "")) == fold(value)
        for level, value in zip(resource.levels, resource.values, strict=True)
    )


def _elements(resource: Resource) -> _Json:
    """The resource as documents write it.

    Raises:
        RequestInvalid: it is not a database, table or column, or its name would be a pattern.
    """
    if resource.levels[0] != _LEVELS[0]:
        raise RequestInvalid(
            f"The {resource} cannot have tags.", rule="tag", hint="Name a database, table or column."
        )
    if not _WILDCARDS.isdisjoint("".join(resource.values)):
        raise RequestInvalid(
            f"The {resource} cannot have tags: its name has one of the characters * ? {{ }}.",
            rule="tag",
            hint="Tag what it is in.",
        )
    return {level: {"values": [value]} for level, value in zip(resource.levels, resource.values, strict=True)}


def _folded(elements: _Json) -> object:
    """A resource for comparison: names without letter case, by level."""
    return {
        level: ([fold(value) for value in said["values"]], bool(said.get("isExcludes")))
        for level, said in elements.items()
    }
