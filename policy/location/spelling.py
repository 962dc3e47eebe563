"""Spells the locations of an Arrow column canonically.

The plugin compares canonical spellings as text; only this package parses locations.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from policy.location.location import Location
from policy.location.schemes import SCHEMES

_ALIASES: Final = {
    rules.name: "|".join(each for each in rules.spellings if each != rules.name)
    for rules in SCHEMES
    if len(rules.spellings) > 1
}
_CANONICAL: Final = "^(?:{})/.*[^/]$".format(
    "|".join(f"{rules.name}://{'[^/A-Z]*' if rules.folds_authority else '[^/]*'}" for rules in SCHEMES)
)


def respelled(paths: pa.ChunkedArray) -> pa.Array:
    """Return the canonical spelling of each path that is spelled otherwise, and null for the others.

    Args:
        paths: strings, each a valid location of an object.
    """
    odd = pc.invert(pc.match_substring_regex(paths, _CANONICAL)).combine_chunks()
    if not odd.true_count:
        return pa.nulls(len(odd), paths.type)
    named = paths.combine_chunks().filter(odd)
    for name, aliases in _ALIASES.items():
        named = pc.replace_substring_regex(named, f"^(?:{aliases}):", f"{name}:")
    rest = pc.invert(pc.match_substring_regex(named, _CANONICAL))
    parsed = [Location.parse(each).canonical for each in named.filter(rest).to_pylist()]
    spelled = pc.replace_with_mask(named, rest, pa.array(parsed, named.type))
    return pc.replace_with_mask(pa.nulls(len(odd), named.type), odd, spelled)
