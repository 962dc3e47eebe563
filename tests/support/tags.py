"""Documents of tags in the JSON of Ranger's tag download."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Json = dict[str, Any]


def service_tags(tagged: Iterable[Json]) -> Json:
    """A document of resources with tags.

    Args:
        tagged: each with its `resource` by levels and its `tags`, by name or as Ranger's JSON has them.
    """
    tags: Json = {}
    resources, assigned = [], {}
    for number, each in enumerate(tagged, start=1):
        resources.append({"id": number, "resourceElements": each["resource"]})
        ids = [str(len(tags) + place) for place, _ in enumerate(each["tags"], start=1)]
        said = ({"type": tag} if isinstance(tag, str) else tag for tag in each["tags"])
        tags |= dict(zip(ids, said, strict=True))
        assigned[str(number)] = [int(one) for one in ids]
    return {"tags": tags, "serviceResources": resources, "resourceToTagIds": assigned}


def tagged(*names: str, tags: Iterable[str | Json]) -> Json:
    """A database, table or column with its tags."""
    levels = zip(("database", "table", "column"), names, strict=False)
    return {"resource": {level: {"values": [name]} for level, name in levels}, "tags": list(tags)}
