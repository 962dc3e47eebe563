"""A catalog of many tables, and many policies for many users, made without a request for each.

Tables are rows as a creation writes them, without files: lists, claims and policies look at rows alone. Half
of the tables are in one namespace, and the others are spread over namespaces of 100.

Of ten policies, four are about one table, one is about a database, one is about tables that begin alike,
one is about locations, one has a row filter and two have masks. One in a hundred denies, and one in a
thousand has a schedule. Each is for two groups and a user.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import Connection, insert

from catalog.base.identifiers import TableName
from catalog.db.schema import iceberg_namespace_properties, iceberg_tables, lw_binding, lw_governed, lw_table
from catalog.state.name_lists import name_values
from catalog.state.seals import SealState
from catalog.state.table_state import TableState
from policy.principal import Principal

BIG: Final = "big"
_A_NAMESPACE: Final = 100
_BATCH: Final = 1_000
_GROUPS_OF_A_USER: Final = 10
_TO: Final = [{"type": "select", "isAllowed": True}]
_SCHEDULE: Final = [{"startTime": "2020/01/01 00:00:00", "timeZone": "UTC"}]


@dataclass(frozen=True)
class Size:
    """How much of everything there is."""

    tables: int
    policies: int
    users: int
    groups: int

    @property
    def namespaces(self) -> int:
        """How many namespaces there are beside the big one."""
        return max(1, self.tables // 2 // _A_NAMESPACE)

    def user(self, number: int) -> Principal:
        """A user with ten groups; the same one each time."""
        chosen = random.Random(number)
        groups = frozenset(f"g{chosen.randrange(self.groups)}" for _ in range(_GROUPS_OF_A_USER))
        return Principal(f"u{number}", groups)

    def name(self, number: int) -> tuple[str, str]:
        """Namespace and name of a table."""
        if number % 2:
            return BIG, f"t{number:06d}"
        return f"db{number // 2 % self.namespaces:04d}", f"{_WORDS[number % len(_WORDS)]}_{number:06d}"


_WORDS: Final = ("sales", "orders", "people", "events", "stock", "web", "risk")


def fill(connection: Connection, catalog: str, warehouse: str, size: Size) -> None:
    """Add the namespaces and tables."""
    names = [BIG, *(f"db{number:04d}" for number in range(size.namespaces))]
    connection.execute(
        insert(iceberg_namespace_properties),
        [
            {"catalog_name": catalog, "namespace": each, "property_key": "exists", "property_value": "true"}
            for each in names
        ],
    )
    for first in range(0, size.tables, _BATCH):
        last = min(first + _BATCH, size.tables)
        rows = [_rows(catalog, warehouse, *size.name(number)) for number in range(first, last)]
        for position, table in enumerate((lw_table, lw_binding, iceberg_tables, lw_governed)):
            connection.execute(insert(table), [each[position] for each in rows])


def _rows(catalog: str, warehouse: str, namespace: str, name: str) -> tuple[dict[str, Any], ...]:
    table_id, uuid = str(uuid4()), UUID(int=random.getrandbits(128), version=4)
    location = f"{warehouse}/{namespace}/{name}-{uuid}"
    table = {
        "id": table_id,
        "catalog": catalog,
        "table_uuid": str(uuid),
        "namespace": namespace,
        "name": name,
        "owner": "alice",
        "location": location,
        "default_location": True,
        "state": TableState.ACTIVE,
        "created_ms": 1,
    }
    binding = {"catalog": catalog, "table_id": table_id} | name_values(TableName((namespace,), name))
    pointer = {
        "catalog_name": catalog,
        "table_namespace": namespace,
        "table_name": name,
        "metadata_location": f"{location}/metadata/00000-{uuid}.metadata.json",
        "iceberg_type": "TABLE",
    }
    governed = {
        "table_id": table_id,
        "version": 1,
        "state": SealState.CURRENT,
        "allowed_paths": f'["{location}"]',
        "properties": "{}",
        "regimes": "[]",
        "author": "alice",
        "created_ms": 1,
    }
    return table, binding, pointer, governed


def policies(size: Size) -> Iterator[dict[str, Any]]:
    """Return the policies; the same ones each time."""
    chosen = random.Random(1)
    for number in range(size.policies):
        yield _policy(size, number, *size.name(chosen.randrange(size.tables)), chosen)


def _policy(size: Size, number: int, database: str, table: str, chosen: random.Random) -> dict[str, Any]:
    groups = [f"g{chosen.randrange(size.groups)}" for _ in range(2)]
    users, kind = [f"u{chosen.randrange(size.users)}"], number % 10
    item: dict[str, Any] = {"groups": groups, "users": users, "accesses": _TO}
    items, more = "policyItems", dict[str, Any]()
    about = {"database": [database], "table": [table], "column": ["*"]}
    if kind == 4:
        about["table"] = ["*"]
    elif kind == 5:
        about["table"] = [f"{table.split('_')[0]}_*"] if "_" in table else [f"{table[:5]}*"]
    elif kind == 6:
        about = {"storage-type": ["iceberg"], "storage-url": [f"s3://lake-{number % 50}/{database}/{table}"]}
        item["accesses"] = [{"type": "rwstorage", "isAllowed": True}]
    elif kind == 7:
        about = {"database": [database], "table": [table]}
        items, more = "rowFilterPolicyItems", {"policyType": 2}
        item["rowFilterInfo"] = {"filterExpr": f"c1 > {number} and c2 = current_user()"}
    elif kind >= 8:
        about["column"] = [f"c{number % 20}"]
        items, more = "dataMaskPolicyItems", {"policyType": 1}
        item["dataMaskInfo"] = {"dataMaskType": "MASK_HASH"}
    if number % 100 == 1:
        items = "denyPolicyItems"
    if number % 1000 == 2:
        more["validitySchedules"] = _SCHEDULE
    resources = {
        level: {"values": values} | ({"isRecursive": True} if level == "storage-url" else {})
        for level, values in about.items()
    }
    return {
        "id": number,
        "name": f"p{number}",
        "service": "lake",
        "resources": resources,
        items: [item],
        **more,
    }


class Zipf:
    """Numbers below a limit, of which each is drawn as often as Zipf's law says."""

    def __init__(self, below: int, seed: int) -> None:
        self._numbers, self._chosen = range(below), random.Random(seed)
        self._weights = list(accumulate(1 / (rank + 1) for rank in self._numbers))

    def draw(self, count: int) -> list[int]:
        """Draw some numbers."""
        return self._chosen.choices(self._numbers, cum_weights=self._weights, k=count)
