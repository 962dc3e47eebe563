"""Makes policies, users and tables as a large company has them, for access reports."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from policy.access import Thing
from policy.principal import Principal
from policy.privileges.requests import Resource
from policy.ranger import PolicySet

Json = dict[str, Any]

SELECT: Final = [{"type": "select"}]
_COLUMNS: Final = (*(f"c{number}" for number in range(8)), "card", "email")
_DEPARTMENTS: Final = 20
_TAGS: Final = ("PII", "CARD", "SECRET")


@dataclass(frozen=True)
class Sample:
    """What a set of policies has.

    Attributes:
        users, groups, tables, namespaces: how many there are.
        own: whether half of the tables have a policy of their own.
        macros: whether there are policies with ``{USER}`` and ``{OWNER}``.
        conditions: whether policies have conditions.
        tags: whether there are policies on tags.
        changed: whether every fiftieth policy is for another group.
    """

    users: int = 10_000
    groups: int = 300
    tables: int = 10_000
    namespaces: int = 100
    own: bool = False
    macros: bool = False
    conditions: bool = False
    tags: bool = False
    changed: bool = False

    def people(self) -> list[Principal]:
        """The users, each in three groups and one for everybody."""
        chosen = random.Random(1)
        return [
            Principal(_user(number), frozenset({"staff", *(self._group(chosen) for _ in range(3))}))
            for number in range(self.users)
        ]

    def things(self) -> list[Thing]:
        """The namespaces, tables and locations."""
        chosen = random.Random(2)
        found = [Thing(Resource.database(self._namespace(each))) for each in range(self.namespaces)]
        for number in range(self.tables):
            owner = _user(chosen.randrange(self.users // 20))
            location = f"s3://lake/{self._namespace(number)}/{_table(number)}"
            table = Resource.table(self._namespace(number), _table(number))
            found.append(Thing(table, owner, lambda: _COLUMNS))
            found += [Thing(Resource.storage(location), owner), Thing(Resource.url(location))]
        return found

    def parsed(self, before: PolicySet | None = None) -> PolicySet:
        """The policies, read."""
        return PolicySet.parse({name: json.dumps(each) for name, each in self.documents().items()}, before)

    def changes(self) -> Sample:
        """The same policies, of which some are changed."""
        return replace(self, changed=True)

    def documents(self) -> dict[str, Json]:
        """The documents by name."""
        policies = [*self._of_namespaces()]
        policies += self._of_tables() if self.own else ()
        policies += self._by_macros() if self.macros else ()
        policies += self._on_tags() if self.tags else ()
        if self.changed:
            policies = [
                self._regrouped(each) if place % 50 == 7 else each for place, each in enumerate(policies)
            ]
        departments = {_user(each): {"dept": f"d{each % _DEPARTMENTS}"} for each in range(self.users)}
        return {
            "policies": {"policies": policies},
            "users": {"userAttrMapping": departments},
            **({"tags": self._tagged()} if self.tags else {}),
        }

    def _of_namespaces(self) -> Iterator[Json]:
        for number in range(self.namespaces):
            chosen = random.Random(f"n{number}")
            about = _about(self._namespace(number), "*")
            readers = [self._group(chosen) for _ in range(3)]
            items = [_item(readers, "select"), _item([self._group(chosen)], "select", "update", "alter")]
            if self.conditions:
                items[0]["conditions"] = [_expression(f"USER.dept != 'd{number % _DEPARTMENTS}'")]
            yield {"name": f"namespace {number}", "resources": about, "policyItems": items}
            yield {"name": f"place {number}"} | self._place(number, readers)
            column = _about(self._namespace(number), "*", "card")
            mask = {**_item(readers, "select"), "dataMaskInfo": {"dataMaskType": "MASK_HASH"}}
            yield {
                "name": f"mask {number}",
                "policyType": 1,
                "resources": column,
                "dataMaskPolicyItems": [mask],
            }
            text = {"rowFilterInfo": {"filterExpr": f"c0 = {number}"}}
            rows = {**_item([self._group(chosen)], "select"), **text}
            tables = {level: about[level] for level in ("database", "table")}
            yield {
                "name": f"rows {number}",
                "policyType": 2,
                "resources": tables,
                "rowFilterPolicyItems": [rows],
            }

    def _place(self, number: int, groups: list[str]) -> Json:
        place = {"values": [f"s3://lake/{self._namespace(number)}"], "isRecursive": True}
        return {"resources": {"url": place}, "policyItems": [_item(groups, "read")]}

    def _of_tables(self) -> Iterator[Json]:
        for number in range(0, self.tables, 2):
            chosen = random.Random(f"t{number}")
            about = _about(self._namespace(number), _table(number))
            items = [_item([self._group(chosen), self._group(chosen)], "select")]
            if self.conditions and number % 10 == 0:
                items[0]["conditions"] = [_expression("RES._ownerUser == USER._name || USER.dept == 'd1'")]
            denied = [_item([self._group(chosen)], "select")] if number % 8 == 0 else []
            yield {
                "name": f"table {number}",
                "resources": about,
                "policyItems": items,
                "denyPolicyItems": denied,
            }

    def _by_macros(self) -> Iterator[Json]:
        owner = {"users": ["{OWNER}"], "accesses": [{"type": each} for each in ("select", "update", "drop")]}
        yield {"name": "owners", "resources": _about("*", "*"), "policyItems": [owner]}
        user = {"users": ["{USER}"], "accesses": SELECT}
        yield {"name": "homes", "resources": _about("home_{USER}", "*"), "policyItems": [user]}
        yield {"name": "own tables", "resources": _about("*", "*_{USER}"), "policyItems": [user]}
        place = {"url": {"values": ["s3://lake/home/{USER}"], "isRecursive": True}}
        item = {"users": ["{USER}"], "accesses": [{"type": "read"}]}
        yield {"name": "home places", "resources": place, "policyItems": [item]}

    def _on_tags(self) -> Iterator[Json]:
        for tag in _TAGS:
            denied = _item(["staff"], "hive:select")
            excused = _item([f"g{len(tag)}"], "hive:select")
            if self.conditions:
                excused["conditions"] = [_expression("USER.dept == 'd3' && !HAS_TAG('SECRET')")]
            yield {
                "name": f"tag {tag}",
                "resources": {"tag": {"values": [tag]}},
                "denyPolicyItems": [denied],
                "denyExceptions": [excused],
            }

    def _tagged(self) -> Json:
        """Columns with tags: of each tenth table, one of each type."""
        tags = {str(place): {"type": name} for place, name in enumerate(_TAGS)}
        assigned = [(number, place) for number in range(0, self.tables, 10) for place in range(len(_TAGS))]
        resources = [
            {
                "id": position,
                "resourceElements": _about(self._namespace(number), _table(number), _COLUMNS[-1 - place]),
            }
            for position, (number, place) in enumerate(assigned)
        ]
        ids = {str(position): [place] for position, (_, place) in enumerate(assigned)}
        return {"tags": tags, "serviceResources": resources, "resourceToTagIds": ids}

    def _regrouped(self, policy: Json) -> Json:
        changed = json.loads(json.dumps(policy))
        for name in ("policyItems", "dataMaskPolicyItems", "rowFilterPolicyItems", "denyPolicyItems"):
            for item in changed.get(name, []):
                if item.get("groups"):
                    item["groups"] = ["g11", *item["groups"][1:]]
        return changed

    def _group(self, chosen: random.Random) -> str:
        return f"g{chosen.randrange(self.groups)}"

    def _namespace(self, number: int) -> str:
        return f"n{number % self.namespaces}"


def _user(number: int) -> str:
    return f"u{number}"


def _table(number: int) -> str:
    return f"t{number}_u{number % 700}"


def _about(database: str, table: str, column: str = "*") -> Json:
    names = {"database": database, "table": table, "column": column}
    return {level: {"values": [name]} for level, name in names.items()}


def _item(groups: list[str], *accesses: str) -> Json:
    return {"groups": groups, "accesses": [{"type": each} for each in accesses]}


def _expression(text: str) -> Json:
    return {"type": "expression", "values": [text]}
