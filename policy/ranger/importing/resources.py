"""Takes over the resources of policies: widened where a policy restricts, narrowed where it grants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from policy.ranger.servicedef import HIERARCHIES, LEVELS, TABLES, Level

Json = dict[str, Any]
#: Whether the resources of a policy are read, and mean in Ranger what they mean here.
Reads = Callable[[Json], bool]

ANY: Final[Json] = {"values": ["*"]}
"""Matches every value of a level."""

#: How many levels the policies of a type name.
_DEPTHS: Final[Mapping[int, int]] = {1: 3, 2: 2}


def widened(resources: object, kind: int, reads: Reads) -> Json | None:
    """Resources that contain all that these are about; None if that cannot be said.

    Args:
        resources: the resources of a policy.
        kind: the policy's type.
        reads: whether resources are read.
    """
    if not isinstance(resources, dict):
        return None
    chain = _chain(resources, kind)
    if chain is None:
        return None
    star: Json = {level.name: ANY for level in chain}
    own = {name: resources[name] for name in star if name in resources}
    return star | {name: value for name, value in own.items() if reads(star | {name: value})}


def narrowed(resources: Json, reads: Reads) -> Json | None:
    """Resources without the values that cannot be read; None if there are no others."""
    found: Json = {}
    for name, said in resources.items():
        star = dict.fromkeys(resources, ANY)
        if reads(star | {name: said}):
            found[name] = said
            continue
        if not isinstance(said, dict) or said.get("isExcludes") or not isinstance(said.get("values"), list):
            return None
        values = [each for each in said["values"] if reads(star | {name: said | {"values": [each]}})]
        if not values:
            return None
        found[name] = said | {"values": values}
    return found


def _chain(resources: Json, kind: int) -> tuple[Level, ...] | None:
    """The levels that contain what resources are about, from the top."""
    known = {name for name in resources if name in LEVELS}
    chains = (TABLES,) if kind in _DEPTHS and "tag" not in known else HIERARCHIES
    chain = next((each for each in chains if known and known <= {level.name for level in each}), None)
    if chain is None:
        return None
    depth = max(at for at, level in enumerate(chain, 1) if level.name in known)
    if known != set(resources) or not chain[depth - 1].leaf:
        depth = len(chain)
    return chain[: _DEPTHS.get(kind, depth)]
