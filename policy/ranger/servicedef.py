"""Lakewarden's service definition in Ranger's terms: resources, their hierarchies, and access types.

Rules:
- A policy names the levels of one hierarchy from its top, without a gap, down to a level that can be a leaf.
- ``all`` implies every access type of the hierarchy.
- The names of Ranger's Hive service (``index``, ``udf``, ``hiveservice``, …) are known, so that an export of
  it is understood. Nothing here asks for them; a policy about functions can deny on its database, as it does
  in Ranger, but grants nothing.
- An access type that a policy's resource does not have is unknown, because a denial of it would be without
  effect.

Source: Ranger's service definition of Hive (resources, matcher options, implied grants), and
docs/architecture.md, "Policies".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from policy.privileges.requests import ACCESS_TYPES, ALL
from policy.restrictions.actions import ICEBERG_ACTIONS


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a resource hierarchy.

    Attributes:
        name: as in policies: ``database``.
        leaf: whether a policy may end at this level.
        case_sensitive: whether names are compared letter by letter; database, table, column and engine names
            are not, as in Ranger's Hive service; key names are, as in Ranger's KMS service.
        excludes: whether a policy may say ``isExcludes``.
        location: whether values are locations, which may be ``isRecursive`` and have equal spellings.
    """

    name: str
    leaf: bool = True
    case_sensitive: bool = False
    excludes: bool = False
    location: bool = False


_DATABASE: Final = Level("database", excludes=True)
_TABLE: Final = Level("table", excludes=True)
_COLUMN: Final = Level("column", excludes=True)

TABLES: Final = (_DATABASE, _TABLE, _COLUMN)
FUNCTIONS: Final = (_DATABASE, Level("udf", excludes=True))
TAGS: Final = (Level("tag", case_sensitive=True),)
"""What policies on tags are about; no request asks for it."""

HIERARCHIES: Final[tuple[tuple[Level, ...], ...]] = (
    TABLES,
    FUNCTIONS,
    (Level("url", case_sensitive=True, location=True),),
    (Level("storage-type", leaf=False), Level("storage-url", case_sensitive=True, location=True)),
    (Level("key", case_sensitive=True),),
    (Level("engine"),),
    (Level("service"),),
    (Level("hiveservice", case_sensitive=True),),
    (Level("global", case_sensitive=True),),
    TAGS,
)

LEVELS: Final[Mapping[str, Level]] = {level.name: level for chain in HIERARCHIES for level in chain}
"""Every level by its name."""

OWN_TYPES: Final = frozenset({"lakewarden", "hive"})
"""Types of services whose policies on resources are understood; an absent type counts as ours."""

TAG_TYPE: Final = "tag"
"""The type of services whose policies are on tags."""

OTHER_TYPES: Final = frozenset(
    {
        "abfs",
        "atlas",
        "elasticsearch",
        "gds",
        "hbase",
        "hdfs",
        "kafka",
        "kms",
        "knox",
        "kudu",
        "kylin",
        "nestedstructure",
        "nifi",
        "nifi-registry",
        "ozone",
        "polaris",
        "presto",
        "schema-registry",
        "solr",
        "sqoop",
        "storm",
        "trino",
        "wasb",
        "yarn",
    }
)
"""Types of Ranger's other services: what a policy on tags says of their access types is not about us."""

MASK_NONE: Final = "MASK_NONE"
MASK_NULL: Final = "MASK_NULL"
MASK_CUSTOM: Final = "CUSTOM"

MASK_TYPES: Final = frozenset(
    {
        "MASK",
        "MASK_SHOW_LAST_4",
        "MASK_SHOW_FIRST_4",
        "MASK_HASH",
        MASK_NULL,
        MASK_NONE,
        "MASK_DATE_SHOW_YEAR",
        *(each.value for each in ICEBERG_ACTIONS),
    }
)
"""Ranger's mask types other than ``CUSTOM``, and the actions of the Iceberg REST specification."""

_HIVE_ACCESS: Final = frozenset(
    {
        "select",
        "update",
        "create",
        "drop",
        "alter",
        "index",
        "lock",
        "read",
        "write",
        "refresh",
        "repladmin",
        "serviceadmin",
        "tempudfadmin",
        "rwstorage",
        ALL,
    }
)
_HIVE_ROOTS: Final = frozenset({"database", "url", "storage-type", "hiveservice", "global"})


def hierarchy_of(names: frozenset[str]) -> tuple[Level, ...] | None:
    """The first hierarchy whose top levels are exactly `names`, ending at a leaf; None if there is none."""
    for chain in HIERARCHIES:
        used = chain[: len(names)]
        if names and {level.name for level in used} == names and used[-1].leaf:
            return chain
    return None


def limit_of(hierarchy: tuple[Level, ...]) -> str | None:
    """Why a policy on this hierarchy may deny but not grant; None if it may grant."""
    return "it is about functions, which the catalog does not serve" if hierarchy == FUNCTIONS else None


def access_types_of(hierarchy: tuple[Level, ...]) -> frozenset[str]:
    """The access types that a policy on this hierarchy may name, in lower case."""
    if hierarchy == TAGS:
        return frozenset().union(*(access_types_of(each) for each in HIERARCHIES if each != TAGS))
    names = tuple(level.name for level in hierarchy)
    own = ACCESS_TYPES.get(names, frozenset())
    return own | (_HIVE_ACCESS if names[0] in _HIVE_ROOTS else {ALL})
