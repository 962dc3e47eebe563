"""Ranger's policy JSON into typed policies: all of a document, or nothing of it.

Rules:
- Accepted: what Ranger's export writes (``{"policies": [...], ...}``), what its plugins download (service
  policies without deltas), one policy, a list of policies; with ``roles``, ``tagPolicies`` and
  ``securityZones`` beside, or alone.
- What would have no effect, and so grant more than it seems to, is refused: unknown names, unknown access
  types, items for nobody, items of another policy type, one page of a longer list, policies of another
  service type.
- What could be meant in two ways is refused: two policies of one name or id, two roles of one name, roles
  that contain each other.
- What can be read but not evaluated (some conditions, security zones that no document defines) is kept and
  marked; the evaluation lets it deny, never grant.
- A security zone that several documents define, as those of several services do, has the resources of all.
- Of policies on tags, what they say of other services' access types is left out.
- A document of attributes of users and groups (`policy.ranger.users`), or of tags of resources
  (`policy.ranger.tag_documents`), is told from the others by its form.
- A disabled policy is read as strictly as the others and has no effect.

Source: Ranger's RangerPolicy, RangerRole, RangerPolicyList and ServicePolicies.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from policy.fields import Field, of_json
from policy.ranger.containers import Listed, check_service_type, parts_of
from policy.ranger.items import (
    ITEM_LISTS,
    access_items,
    conditions_of,
    mask_items,
    require_unused,
    row_filter_items,
)
from policy.ranger.matching import ResourcePattern
from policy.ranger.model import NORMAL, OVERRIDE, Policy, PolicyType
from policy.ranger.resources import resource_sets
from policy.ranger.roles import Role, find_cycle
from policy.ranger.schedules import schedules_of
from policy.ranger.servicedef import OWN_TYPES, TAG_TYPE, TAGS, limit_of
from policy.ranger.tag_documents import is_tags, tagged_resources
from policy.ranger.tags import NO_TAGS, AssignedTags, TaggedResource
from policy.ranger.users import NO_USERS, UserStore, is_user_store, user_store
from policy.ranger.zones import Zone
from policy.strict_json import PathStep

POLICIES: Final = "ranger"
"""Documents of policies and roles."""

USERS: Final = "users"
"""Documents of attributes of users and groups."""

TAGS_OF_RESOURCES: Final = "tags"
"""Documents of tags of resources."""

NO_KINDS: Final[Mapping[str, str]] = MappingProxyType({})

MAX_DOCUMENT_SIZE: Final = 64 * 1024 * 1024
"""Largest policy document, in bytes (in characters, where text is given)."""

_BASE: Final = frozenset(
    {"id", "guid", "isEnabled", "createdBy", "updatedBy", "createTime", "updateTime", "version"}
)
POLICY_FIELDS: Final = _BASE | {
    "service",
    "name",
    "policyType",
    "policyPriority",
    "description",
    "resourceSignature",
    "isAuditEnabled",
    "resources",
    "additionalResources",
    "conditions",
    "policyItems",
    "denyPolicyItems",
    "allowExceptions",
    "denyExceptions",
    "dataMaskPolicyItems",
    "rowFilterPolicyItems",
    "serviceType",
    "options",
    "validitySchedules",
    "policyLabels",
    "zoneName",
    "isDenyAllElse",
}
"""The fields of a policy."""
_ROLE: Final = _BASE | {"name", "description", "options", "users", "groups", "roles", "createdByUser"}


@dataclass(frozen=True, slots=True)
class _PolicyRead:
    """A policy that was read.

    Attributes:
        digest: SHA-256 of its JSON.
        policy: the policy.
        enabled: whether it is enabled.
        place: its service and its security zone, within which names are unique.
        path: where it stands in its document.
    """

    digest: bytes
    policy: Policy
    enabled: bool
    place: tuple[object, object]
    path: tuple[PathStep, ...]


@dataclass(frozen=True, slots=True)
class _DocumentRead:
    """A document that was read: its policies, roles and zones with where they stand; users; or tags."""

    policies: tuple[_PolicyRead, ...] = ()
    roles: tuple[tuple[Role, tuple[PathStep, ...]], ...] = ()
    zones: tuple[tuple[Zone, tuple[PathStep, ...]], ...] = ()
    users: UserStore | None = None
    tagged: tuple[TaggedResource, ...] | None = None

    @property
    def kind(self) -> str:
        """`POLICIES`, `USERS` or `TAGS_OF_RESOURCES`."""
        if self.tagged is not None:
            return TAGS_OF_RESOURCES
        return POLICIES if self.users is None else USERS


@dataclass(frozen=True, slots=True)
class Memory:
    """What was read of documents before. What is the same need not be read again.

    What a policy means depends on its JSON alone, and what a document means on its bytes alone.

    Attributes:
        documents: by the SHA-256 of their content, and whether that was text.
        policies: by the SHA-256 of their JSON.
        tags: those of all documents.
    """

    documents: Mapping[tuple[bool, bytes], _DocumentRead]
    policies: Mapping[bytes, _PolicyRead]
    tags: AssignedTags = NO_TAGS


NO_MEMORY: Final = Memory({}, {})


@dataclass(frozen=True, slots=True)
class Contents:
    """What a set of documents says.

    Attributes:
        policies: the enabled policies, in their order.
        disabled: those that are read as strictly and have no effect.
        roles: the roles by name.
        users: attributes of users and groups.
        zones: the security zones by name.
        tags: the tags of resources.
        memory: what need not be read again.
    """

    policies: tuple[Policy, ...]
    disabled: tuple[Policy, ...]
    roles: Mapping[str, Role]
    users: UserStore = NO_USERS
    zones: Mapping[str, Zone] = dataclasses.field(default_factory=dict)
    tags: AssignedTags = NO_TAGS
    memory: Memory = dataclasses.field(default=NO_MEMORY, repr=False, compare=False)


def no_pause() -> None:
    """Read without a pause."""


def parse_documents(
    documents: Mapping[str, bytes | str],
    before: Memory = NO_MEMORY,
    pause: Callable[[], None] = no_pause,
    kinds: Mapping[str, str] = NO_KINDS,
) -> Contents:
    """Read policy documents.

    Args:
        documents: JSON texts by name; the name is used in messages.
        before: what was read before.
        pause: is called often, so that others can use the interpreter meanwhile.
        kinds: which kind documents must be of, by name; those that it does not have are of any kind.

    Raises:
        PolicyInvalid: naming document, line and field of the first thing that is wrong.
    """
    policies: dict[bool, list[Policy]] = {True: [], False: []}
    names: set[object] = set()
    roles: dict[str, tuple[Role, str, tuple[PathStep, ...]]] = {}
    users = NO_USERS
    zones: dict[str, Zone] = {}
    read: dict[tuple[bool, bytes], _DocumentRead] = {}
    for document, data in documents.items():
        key = (isinstance(data, str), _digest(data))
        read[key] = found = before.documents.get(key) or _document(document, data, before, pause)
        if found.kind != kinds.get(document, found.kind):
            raise _top(document, data).invalid(
                f"the document is of the kind {found.kind}, not {kinds[document]}.",
                "Use the kind that fits its content.",
            )
        for each in found.policies:
            pause()
            policies[each.enabled].append(each.policy)
            _require_new(names, document, data, each)
        for role, path in found.roles:
            if role.name in roles:
                raise _at(document, data, path)["name"].invalid(f"the role {role.name!r} is defined twice.")
            roles[role.name] = role, document, path
        if found.users is not None:
            users = _joined(users, found.users, document, data)
        for zone, path in found.zones:
            zones[zone.name] = _with_more(zones.get(zone.name), zone, document, data, path)
    known = {name: role for name, (role, _, _) in roles.items()}
    cycle = find_cycle(known)
    if cycle is not None:
        _, document, path = roles[cycle[0]]
        members = _at(document, documents[document], path)["roles"]
        raise members.invalid(f"the roles {' → '.join(cycle)} contain each other.")
    by_digest = {each.digest: each for found in read.values() for each in found.policies}
    enabled, disabled = (tuple(_closed(each, zones) for each in policies[on]) for on in (True, False))
    tags = _assigned([each.tagged for each in read.values() if each.tagged is not None], before.tags, pause)
    return Contents(enabled, disabled, known, users, zones, tags, Memory(read, by_digest, tags))


def kind_of(document: str, data: bytes | str) -> str:
    """The kind of a document by its form: `POLICIES`, `USERS` or `TAGS_OF_RESOURCES`.

    Raises:
        PolicyInvalid: it is not strict JSON.
    """
    top = _top(document, data)
    if is_tags(top):
        return TAGS_OF_RESOURCES
    return USERS if is_user_store(top) else POLICIES


def _joined(users: UserStore, more: UserStore, document: str, data: bytes | str) -> UserStore:
    twice = users.given_twice(more)
    if twice is not None:
        raise _at(document, data, twice).invalid(f"another document has attributes of {twice[1]!r}, too.")
    return users.joined(more)


def _assigned(
    found: list[tuple[TaggedResource, ...]], before: AssignedTags, pause: Callable[[], None]
) -> AssignedTags:
    """The tags of all documents; those from before, if no document of tags has changed."""
    known = tuple(each for tagged in found for each in tagged)
    return before if known == before.resources else AssignedTags(known, pause)


def _with_more(
    known: Zone | None, more: Zone, document: str, data: bytes | str, path: tuple[PathStep, ...]
) -> Zone:
    """A zone with what another definition adds to it."""
    if known is None:
        return more
    if known.has_tag_service != more.has_tag_service:
        field = _at(document, data, path)["containsAssociatedTagService"]
        raise field.invalid(f"another document says otherwise of the zone {more.name!r}.")
    return replace(known, resources=(*known.resources, *more.resources))


def _closed(policy: Policy, zones: Mapping[str, Zone]) -> Policy:
    """The policy; one that can deny but not grant, if no document defines its zone."""
    if policy.zone is None or policy.zone in zones:
        return policy
    return replace(policy, limit=f"no document defines its security zone {policy.zone!r}")


def _digest(data: bytes | str) -> bytes:
    content = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).digest()


def _document(document: str, data: bytes | str, before: Memory, pause: Callable[[], None]) -> _DocumentRead:
    top = _top(document, data, pause)
    if is_user_store(top):
        return _DocumentRead(users=user_store(top))
    if is_tags(top):
        return _DocumentRead(tagged=tuple(tagged_resources(top, pause)))
    parts = parts_of(top, pause)
    listed, policies = parts.policies, []
    # What was read is freed one by one: all at once, it would take longer than a slice.
    listed.reverse()
    while listed:
        pause()
        policies.append(_policy_read(listed.pop(), before))
    roles = tuple((_role(field), field.path) for field in parts.roles)
    zones = tuple((zone, field.path) for zone, field in parts.zones)
    return _DocumentRead(tuple(policies), roles, zones)


def _policy_read(listed: Listed, before: Memory) -> _PolicyRead:
    """Read a policy, unless the same was read before in a list of the same kind."""
    field = listed.field
    digest = _digest(json.dumps([field.value, listed.zone, listed.on_tags]))
    known = before.policies.get(digest)
    if known is not None:
        return replace(known, path=field.path)
    policy, enabled = _policy(listed)
    place = (field["service"].value or policy.is_on_tags, policy.zone)
    return _PolicyRead(digest, policy, enabled, place, field.path)


def _top(document: str, data: bytes | str, pause: Callable[[], None] = no_pause) -> Field:
    return of_json(document, data, what="Policy document", max_size=MAX_DOCUMENT_SIZE, pause=pause)


def _at(document: str, data: bytes | str, path: tuple[PathStep, ...]) -> Field:
    """A field of a document, for a message."""
    found = _top(document, data)
    for step in path:
        found = found[step] if isinstance(step, str) else list(found.elements())[step]
    return found


def _require_new(names: set[object], document: str, data: bytes | str, read: _PolicyRead) -> None:
    """Refuse a second policy of one name in a service and zone, and a second one of one id in a document.

    Reasons and the audit log name the policy that decided, so there must be one of that name.
    """
    policy = read.policy
    for member, key in (("name", (read.place, policy.name)), ("id", (document, policy.id))):
        if policy.id is None and member == "id":
            continue
        if key in names:
            field = _at(document, data, read.path)[member]
            raise field.invalid(
                f"another policy has the {member} {field.value!r}.",
                "Rename or remove one of the policies.",
            )
        names.add(key)


def _policy(listed: Listed) -> tuple[Policy, bool]:
    """The policy in a list, and whether it is enabled."""
    members = listed.field.members(POLICY_FIELDS)
    name = members["name"].string()
    kind = PolicyType(_choice(members["policyType"], tuple(PolicyType), PolicyType.ACCESS))
    _check_remarks(members)
    resources = resource_sets(members, kind)
    hierarchy = resources[0].hierarchy
    _check_kind(members, listed, hierarchy == TAGS)
    require_unused(members, kind)
    _require_effect(members)
    access = {list_name: access_items(members[list_name], hierarchy) for list_name in _ACCESS_LISTS}
    policy = Policy(
        name=name,
        id=members["id"].integer(),
        type=kind,
        priority=_choice(members["policyPriority"], (NORMAL, OVERRIDE), NORMAL),
        resources=resources,
        deny_all_else=members["isDenyAllElse"].boolean(False),
        allow=access["policyItems"],
        deny=access["denyPolicyItems"],
        allow_exceptions=access["allowExceptions"],
        deny_exceptions=access["denyExceptions"],
        masks=mask_items(members["dataMaskPolicyItems"], hierarchy),
        row_filters=row_filter_items(members["rowFilterPolicyItems"], hierarchy),
        schedules=schedules_of(members),
        limit=_limit(members, resources),
        conditions=conditions_of(members["conditions"]),
        zone=_zone_of(members["zoneName"], listed),
    )
    return policy, members["isEnabled"].boolean(True)


def _check_kind(members: Field, listed: Listed, on_tags: bool) -> None:
    """Refuse a policy on tags among policies on resources, and the other way round."""
    check_service_type(members["serviceType"], _TAG_TYPES if on_tags else OWN_TYPES)
    if listed.on_tags and not on_tags:
        raise members["resources"].invalid("a policy in tagPolicies must be about tags.")


def _zone_of(field: Field, listed: Listed) -> str | None:
    name = field.optional_string()
    if listed.zone is None or name in (None, listed.zone):
        return listed.zone or name
    raise field.invalid(f"the policy is listed under another zone, {listed.zone!r}.")


_TAG_TYPES: Final = frozenset({TAG_TYPE})
_ACCESS_LISTS: Final = ("policyItems", "denyPolicyItems", "allowExceptions", "denyExceptions")


def _require_effect(members: Field) -> None:
    """Refuse a policy without items that is not there for Ranger's audit either, as Ranger does."""
    used = any(list(members[name].elements()) for name in ITEM_LISTS)
    if not (used or members["isDenyAllElse"].boolean(False) or members["isAuditEnabled"].boolean(True)):
        raise members.invalid("the policy has no items.")


def _check_remarks(members: Field) -> None:
    """Check the types of what identifies or describes a policy and has no effect on decisions."""
    for name in ("guid", "createdBy", "updatedBy", "service", "description", "resourceSignature"):
        members[name].remark()
    for label in members["policyLabels"].elements():
        label.remark()
    members["version"].integer()
    members["isAuditEnabled"].boolean(True)


def _choice(field: Field, choices: tuple[int, ...], default: int) -> int:
    found = field.integer()
    if found is None:
        return default
    if found not in choices:
        raise field.invalid(f"{found} is not one of {', '.join(str(int(choice)) for choice in choices)}.")
    return found


def _limit(members: Field, resources: tuple[ResourcePattern, ...]) -> str | None:
    """Why the policy may deny but not grant."""
    return limit_of(resources[0].hierarchy)


def _role(field: Field) -> Role:
    members = field.members(_ROLE)
    if not members["isEnabled"].boolean(True):
        raise members["isEnabled"].invalid("disabled roles are not supported.", "Remove the role.")
    members["description"].remark()
    users, groups, roles = (_role_members(members[name]) for name in ("users", "groups", "roles"))
    return Role(members["name"].string(), users, groups, roles)


def _role_members(field: Field) -> frozenset[str]:
    found = set()
    for element in field.elements():
        members = element.members(frozenset({"name", "isAdmin"}))
        members["isAdmin"].boolean(False)
        found.add(members["name"].string())
    return frozenset(found)
