"""The users of the demonstration, and the policies for them.

Olga's team, operations, owns the flights, and can read files by path. Mallory's team, marketing, owns a small
table of its own. Sam, a steward, can share what lies in operations' directory. Ann looks after the catalog.
Eve runs the storage, and is nobody to the catalog. The engine acts for its users, and can have keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

OLGA: Final = "olga"
MALLORY: Final = "mallory"
SAM: Final = "sam"
EVE: Final = "eve"
ANN: Final = "ann"
PEOPLE: Final = (OLGA, MALLORY, SAM, ANN)
ENGINE: Final = "spark"

#: The master key of operations' tables.
MASTER_KEY: Final = "operations"


def policies(catalog: str, warehouse: str) -> dict[str, Any]:
    """The policy document of the story, in Apache Ranger's model.

    Args:
        catalog: the catalog's name.
        warehouse: the location of its warehouse.
    """
    operations = f"{warehouse}/operations"
    grants: list[tuple[str, Mapping[str, Sequence[str]], str, Sequence[str]]] = [
        ("operations: own tables", _tables("operations"), OLGA, ("all",)),
        ("operations: own master key", {"key": [MASTER_KEY]}, OLGA, ("use",)),
        ("marketing: own tables", _tables("marketing"), MALLORY, ("all",)),
        ("stewards: marketing's tables", _tables("marketing"), SAM, ("select", "alter")),
        ("stewards: share what operations has", _storage(operations), SAM, ("rwstorage",)),
        ("administrators: repair tables", _tables("*"), ANN, ("alter",)),
        ("administrators: the service", {"service": [catalog]}, ANN, ("admin", "audit")),
        ("pipelines: their records", _tables("lakewarden_ops"), ANN, ("all",)),
        ("pipelines: records of operations", _tables("lakewarden_ops"), OLGA, ("select", "update")),
        ("pipelines: their code in the engine", {"engine": [ENGINE]}, ANN, ("code",)),
        ("engines", {"engine": [ENGINE]}, ENGINE, ("act",)),
        ("operations: read files by path", {"engine": [ENGINE]}, OLGA, ("code",)),
    ]
    return {"policies": [_policy(catalog, *grant) for grant in grants]}


def _tables(database: str) -> dict[str, Sequence[str]]:
    return {"database": [database], "table": ["*"], "column": ["*"]}


def _storage(location: str) -> dict[str, Sequence[str]]:
    return {"storage-type": ["iceberg"], "storage-url": [location]}


def _policy(
    service: str, name: str, resources: Mapping[str, Sequence[str]], user: str, accesses: Sequence[str]
) -> dict[str, Any]:
    values = {
        resource: {"values": list(each), "isRecursive": resource == "storage-url"}
        for resource, each in resources.items()
    }
    granted = [{"type": access, "isAllowed": True} for access in accesses]
    items = [{"users": [user], "accesses": granted}]
    return {"name": name, "service": service, "resources": values, "policyItems": items}
