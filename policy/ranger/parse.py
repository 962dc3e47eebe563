"""Ranger's policy JSON into typed policies: all of a document, or nothing of it.

Rules:
- Accepted: what Ranger's export writes (``{"policies": [...], ...}``), what its plugins download (service
  policies without tags, zones and deltas), one policy, a list of policies; with ``"roles": [...]`` beside, or
  alone.
- What would have no effect, and so grant more than it seems to, is refused: unknown names, unknown access
  types, items for nobody, items of another policy type, one page of a longer list, policies of another
  service type.
- What could be meant in two ways is refused: two policies of one name or id, two roles of one name, roles
  that contain each other.
- What can be read but not evaluated (some conditions, security zones) is kept and marked; the evaluation lets
  it deny, never grant.
- A document of attributes of users and groups (`policy.ranger.users`) is told from the others by its form.
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
from policy.ranger.items import (
    ITEM_LISTS,
    access_items,
    conditions_of,
    mask_items,
    require_unused,
    row_filter_items,
)
from policy.ranger.matching import LevelPattern, ResourcePattern
from policy.ranger.model import NORMAL, OVERRIDE, Policy, PolicyType
from policy.ranger.patterns import Pattern
from policy.ranger.roles import Role, find_cycle
from policy.ranger.schedules import schedules_of
from policy.ranger.servicedef import FUNCTIONS, LEVELS, SERVICE_TYPES, TABLES, Level, hierarchy_of
from policy.ranger.users import NO_USERS, UserStore, is_user_store, user_store
from policy.strict_json import PathStep

POLICIES: Final = "ranger"
"""Documents of policies and roles."""

USERS: Final = "users"
"""Documents of attributes of users and groups."""

NO_KINDS: Final[Mapping[str, str]] = MappingProxyType({})

MAX_DOCUMENT_SIZE: Final = 64 * 1024 * 1024
"""Largest policy document, in bytes (in characters, where text is given)."""

_BASE: Final = frozenset(
    {"id", "guid", "isEnabled", "createdBy", "updatedBy", "createTime", "updateTime", "version"}
)
_POLICY: Final = _BASE | {
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
_ROLE: Final = _BASE | {"name", "description", "options", "users", "groups", "roles", "createdByUser"}
_CONTAINER: Final = frozenset(
    {
        "policies",
        "roles",
        "metaDataInfo",
        "startIndex",
        "pageSize",
        "totalCount",
        "resultSize",
        "sortType",
        "sortBy",
        "queryTimeMS",
        "serviceName",
        "serviceId",
        "policyVersion",
        "policyUpdateTime",
        "serviceDef",
        "auditMode",
        "tagPolicies",
        "securityZones",
        "policyDeltas",
        "serviceConfig",
    }
)
_RESOURCE_LEVELS: Final = {PolicyType.MASK: TABLES, PolicyType.ROW_FILTER: TABLES[:2]}


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
    """A document that was read: its policies, its roles with where they stand, or its users."""

    policies: tuple[_PolicyRead, ...]
    roles: tuple[tuple[Role, tuple[PathStep, ...]], ...]
    users: UserStore | None = None

    @property
    def kind(self) -> str:
        """`POLICIES` or `USERS`."""
        return POLICIES if self.users is None else USERS


@dataclass(frozen=True, slots=True)
class Memory:
    """What was read of documents before. What is the same need not be read again.

    What a policy means depends on its JSON alone, and what a document means on its bytes alone.

    Attributes:
        documents: by the SHA-256 of their content, and whether that was text.
        policies: by the SHA-256 of their JSON.
    """

    documents: Mapping[tuple[bool, bytes], _DocumentRead]
    policies: Mapping[bytes, _PolicyRead]


NO_MEMORY: Final = Memory({}, {})


@dataclass(frozen=True, slots=True)
class Contents:
    """What a set of documents says.

    Attributes:
        policies: the enabled policies, in their order.
        disabled: those that are read as strictly and have no effect.
        roles: the roles by name.
        users: attributes of users and groups.
        memory: what need not be read again.
    """

    policies: tuple[Policy, ...]
    disabled: tuple[Policy, ...]
    roles: Mapping[str, Role]
    users: UserStore = NO_USERS
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
    known = {name: role for name, (role, _, _) in roles.items()}
    cycle = find_cycle(known)
    if cycle is not None:
        _, document, path = roles[cycle[0]]
        members = _at(document, documents[document], path)["roles"]
        raise members.invalid(f"the roles {' → '.join(cycle)} contain each other.")
    by_digest = {each.digest: each for found in read.values() for each in found.policies}
    memory = Memory(read, by_digest)
    return Contents(tuple(policies[True]), tuple(policies[False]), known, users, memory)


def kind_of(document: str, data: bytes | str) -> str:
    """The kind of a document by its form: `POLICIES` or `USERS`.

    Raises:
        PolicyInvalid: it is not strict JSON.
    """
    return USERS if is_user_store(_top(document, data)) else POLICIES


def _joined(users: UserStore, more: UserStore, document: str, data: bytes | str) -> UserStore:
    twice = users.given_twice(more)
    if twice is not None:
        raise _at(document, data, twice).invalid(f"another document has attributes of {twice[1]!r}, too.")
    return users.joined(more)


def _digest(data: bytes | str) -> bytes:
    content = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).digest()


def _document(document: str, data: bytes | str, before: Memory, pause: Callable[[], None]) -> _DocumentRead:
    top = _top(document, data, pause)
    if is_user_store(top):
        return _DocumentRead((), (), user_store(top))
    listed, roles = _parts(top, pause)
    policies = []
    # What was read is freed one by one: all at once, it would take longer than a slice.
    listed.reverse()
    while listed:
        pause()
        policies.append(_policy_read(listed.pop(), before))
    return _DocumentRead(tuple(policies), tuple((_role(field), field.path) for field in roles))


def _policy_read(field: Field, before: Memory) -> _PolicyRead:
    """Read a policy, unless the same was read before."""
    digest = _digest(json.dumps(field.value))
    known = before.policies.get(digest)
    if known is not None:
        return replace(known, path=field.path)
    policy, enabled = _policy(field)
    place = (field["service"].value, field["zoneName"].value or None)
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


def _parts(top: Field, pause: Callable[[], None]) -> tuple[list[Field], list[Field]]:
    """The policies and the roles in a document, whatever its form."""
    if isinstance(top.value, list):
        return _elements(top, pause), []
    names = top.names()
    if "resources" in names:
        return [top], []
    if not {"policies", "roles"} & set(names):
        raise top.invalid("the document is neither a policy nor a list of policies or roles.")
    container = top.members(_CONTAINER)
    policies, roles = (_elements(container[name], pause) for name in ("policies", "roles"))
    _check_whole(container, max(len(policies), len(roles)))
    return policies, roles


def _elements(field: Field, pause: Callable[[], None]) -> list[Field]:
    found = []
    for each in field.elements():
        pause()
        found.append(each)
    return found


def _check_whole(container: Field, listed: int) -> None:
    """Refuse a container that leaves out, or keeps elsewhere, policies that may deny."""
    total = container["totalCount"].integer() or 0
    if total > listed:
        raise container["totalCount"].invalid(
            f"the document has {listed} of {total} entries.",
            "Export all entries into one document.",
        )
    for name in ("metaDataInfo", "serviceDef", "serviceConfig"):
        if container[name].given:
            container[name].names()
    for name in ("policyDeltas", "securityZones"):
        if container[name].value:
            raise container[name].invalid(f"{name} are not supported.")
    tagged = container["tagPolicies"]
    if tagged.given and tagged.names() and tagged["policies"].value:
        raise tagged["policies"].invalid("policies on tags are not supported.")
    _check_service_type(container["serviceDef"]["name"])


def _check_service_type(field: Field) -> None:
    found = field.optional_string()
    if found is not None and found not in SERVICE_TYPES:
        raise field.invalid(
            f"the service type {found!r} is not supported.",
            f"Export policies of these types only: {', '.join(sorted(SERVICE_TYPES))}.",
        )


def _policy(field: Field) -> tuple[Policy, bool]:
    """The policy in `field`, and whether it is enabled."""
    members = field.members(_POLICY)
    name = members["name"].string()
    kind = PolicyType(_choice(members["policyType"], tuple(PolicyType), PolicyType.ACCESS))
    _check_remarks(members)
    resources = _resource_sets(members, kind)
    hierarchy = resources[0].hierarchy
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
        masks=mask_items(members["dataMaskPolicyItems"]),
        row_filters=row_filter_items(members["rowFilterPolicyItems"]),
        schedules=schedules_of(members),
        limit=_limit(members, resources),
        conditions=conditions_of(members["conditions"]),
    )
    return policy, members["isEnabled"].boolean(True)


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
    _check_service_type(members["serviceType"])


def _choice(field: Field, choices: tuple[int, ...], default: int) -> int:
    found = field.integer()
    if found is None:
        return default
    if found not in choices:
        raise field.invalid(f"{found} is not one of {', '.join(str(int(choice)) for choice in choices)}.")
    return found


def _limit(members: Field, resources: tuple[ResourcePattern, ...]) -> str | None:
    """Why the policy may deny but not grant."""
    zone = members["zoneName"].optional_string()
    if zone is not None:
        return f"it belongs to the security zone {zone!r}, and zones are not evaluated"
    if any(resource.hierarchy == FUNCTIONS for resource in resources):
        return "it is about functions, which the catalog does not serve"
    return None


def _resource_sets(members: Field, kind: PolicyType) -> tuple[ResourcePattern, ...]:
    first = _resources(members["resources"])
    sets = (first, *(_resources(more) for more in members["additionalResources"].elements()))
    if any(found.hierarchy != first.hierarchy for found in sets):
        raise members["additionalResources"].invalid(
            "additionalResources must use the same hierarchy as resources."
        )
    wanted = _RESOURCE_LEVELS.get(kind)
    for found in sets:
        if wanted is not None and found.hierarchy[: len(found.patterns)] != wanted:
            names = ", ".join(level.name for level in wanted)
            raise members["resources"].invalid(
                f"a policy of type {int(kind)} must name exactly these levels: {names}."
            )
    return sets


def _resources(field: Field) -> ResourcePattern:
    names = field.names()
    for name in names:
        if name not in LEVELS:
            raise field[name].invalid(
                f"the resource {name[:80]!r} is unknown.", f"Use one of: {', '.join(sorted(LEVELS))}."
            )
    hierarchy = hierarchy_of(frozenset(names))
    if hierarchy is None:
        raise field.invalid("the resources are not the top levels of one hierarchy.")
    patterns = tuple(_level_pattern(field[level.name], level) for level in hierarchy[: len(names)])
    return ResourcePattern(hierarchy, patterns)


def _level_pattern(field: Field, level: Level) -> LevelPattern:
    members = field.members(frozenset({"values", "isExcludes", "isRecursive"}))
    excludes = members["isExcludes"].boolean(False)
    recursive = members["isRecursive"].boolean(False)
    if excludes and not level.excludes:
        raise members["isExcludes"].invalid(f"isExcludes is not supported for a {level.name}.")
    if recursive and not level.location:
        raise members["isRecursive"].invalid(f"isRecursive is not supported for a {level.name}.")
    patterns = [_pattern(value, level, recursive) for value in members["values"].elements()]
    if not patterns:
        raise members["values"].invalid("a resource must have at least one value.", "Use * to match all.")
    return LevelPattern.of(patterns, excludes)


def _pattern(field: Field, level: Level, recursive: bool) -> Pattern:
    value = field.string()
    with field.located():
        return Pattern.of(value, level, recursive)


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
