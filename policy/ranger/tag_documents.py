"""Tags of resources in Ranger's JSON: all of a document, or nothing of it.

Rules:
- Accepted: what Ranger Admin's tag download writes (ServiceTags), if it is whole: no changes to earlier tags.
- A resource that has tags and a tag that a resource has are in the document.
- Definitions of tags have no effect. Tags do not depend on the user, so that their resources have no macros.

Source: Ranger's ServiceTags, RangerTag, RangerTagDef and RangerServiceResource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from policy.fields import Field
from policy.ranger.model import AssignedTag
from policy.ranger.resources import literal_resources_of
from policy.ranger.schedules import schedule_of
from policy.ranger.tags import TaggedResource
from policy.ranger.users import text_or_null

_BASE: Final = frozenset(
    {"id", "guid", "isEnabled", "createdBy", "updatedBy", "createTime", "updateTime", "version"}
)
_TOP: Final = frozenset(
    {
        "op",
        "tagModel",
        "serviceName",
        "tagVersion",
        "tagUpdateTime",
        "tagDefinitions",
        "tags",
        "serviceResources",
        "resourceToTagIds",
        "isDelta",
        "tagsChangeExtent",
        "isTagsDeduped",
    }
)
_MARKS: Final = frozenset({"serviceResources", "resourceToTagIds", "tagDefinitions"})
_TAG: Final = _BASE | {"type", "owner", "attributes", "options", "validityPeriods"}
_RESOURCE: Final = _BASE | {
    "serviceName",
    "resourceElements",
    "ownerUser",
    "resourceSignature",
    "additionalInfo",
}
_DEFINITION: Final = _BASE | {"name", "source", "attributeDefs"}
_OLD_VALIDITY: Final = "TAG_VALIDITY_PERIODS"


def is_tags(top: Field) -> bool:
    """Whether a document has the form of tags of resources."""
    return isinstance(top.value, dict) and any(name in top.value for name in _MARKS)


def tagged_resources(top: Field, pause: Callable[[], None]) -> Iterator[TaggedResource]:
    """Read a document of tags: the resources that have some.

    Args:
        top: the document.
        pause: is called often, so that others can use the interpreter meanwhile.

    Raises:
        PolicyInvalid: naming document, line and field of the first thing that is wrong.
    """
    _check_whole(top.members(_TOP))
    tags = {number: _tag(each) for number, each in _numbered(top["tags"])}
    assigned = {number: _tags_of(each, tags) for number, each in _numbered(top["resourceToTagIds"])}
    for each in top["serviceResources"].elements():
        pause()
        members = each.members(_RESOURCE)
        _check_enabled(members)
        resource = literal_resources_of(members["resourceElements"])
        if tags_of_it := assigned.pop(_id(members["id"]), ()):
            yield TaggedResource(resource, tags_of_it)
    for number in assigned:
        raise top["resourceToTagIds"][str(number)].invalid("no resource in serviceResources has this id.")


def _check_whole(top: Field) -> None:
    """Refuse what is to be added to, or taken from, tags that are not in the document."""
    if top["isDelta"].boolean(False):
        raise top["isDelta"].invalid("changes to earlier tags are not supported.", "Download all tags.")
    if top["op"].given:
        top["op"].choice("add_or_update", "replace")
    for _, each in _numbered(top["tagDefinitions"]):
        each.members(_DEFINITION)["name"].string()


def _tag(field: Field) -> AssignedTag:
    members = field.members(_TAG)
    _check_enabled(members)
    options = members["options"]
    validity = tuple(schedule_of(each) for each in members["validityPeriods"].elements())
    if not validity and options.given and _OLD_VALIDITY in options.names():
        raise options[_OLD_VALIDITY].invalid(
            "validity periods in options are not supported.", "Use the field validityPeriods."
        )
    return AssignedTag(members["type"].string(), tuple(sorted(_attributes(members["attributes"]))), validity)


def _attributes(field: Field) -> Iterator[tuple[str, str | None]]:
    for name in field.names() if field.given else ():
        yield name, text_or_null(field[name])


def _tags_of(field: Field, tags: Mapping[int, AssignedTag]) -> tuple[AssignedTag, ...]:
    found = []
    for each in field.elements():
        number = _id(each)
        if number not in tags:
            raise each.invalid(f"there is no tag with the id {number}.")
        found.append(tags[number])
    return tuple(dict.fromkeys(found))


def _check_enabled(members: Field) -> None:
    if not members["isEnabled"].boolean(True):
        raise members["isEnabled"].invalid("a disabled entry is not supported.", "Remove it.")


def _numbered(field: Field) -> Iterator[tuple[int, Field]]:
    """The members of an object whose names are numbers."""
    for name in field.names() if field.given else ():
        if not name.isascii() or not name.isdecimal():
            raise field[name].invalid("the name is not an id.")
        yield int(name), field[name]


def _id(field: Field) -> int:
    found = field.integer()
    if found is None:
        raise field.invalid("the id is missing.")
    return found
