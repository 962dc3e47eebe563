"""Restrictions for Iceberg clients that enforce the REST specification's ``read-restrictions``.

- An action takes the place of a mask only if its result can be computed from the mask's result. So a user who
  reads a column through two clients learns no more than through one.
- An action of the specification takes its own place.
- Hive's masks of text keep the case of letters, or write digits and letters as one, and the specification's
  write ASCII digits and all others differently. Hive's masks of numbers keep the number of digits. So of the
  actions that show something, none can be computed. The fixed value can: the masks keep NULL, and make none.
- ``replace-with-null`` is for optional columns, as the specification says. In a required one, nothing takes
  its place.

docs/row-filters-and-masks.md has the table.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from policy.restrictions.actions import MaskAction
from policy.restrictions.model import Restriction
from policy.restrictions.wire import restrictions_json


def standard_action(action: MaskAction, *, required: bool) -> MaskAction | None:
    """The specification's action in the place of a mask; None if there is none.

    Args:
        action: what the mask does.
        required: whether the column is required.
    """
    if action is MaskAction.REPLACE_WITH_NULL and required:
        return None
    return action if action.of_iceberg else MaskAction.MASK_TO_FIXED_VALUE


def standard_restriction(restriction: Restriction, required: Collection[int]) -> Restriction | int:
    """A restriction in the specification's actions; the id of the first field that none can mask.

    Args:
        restriction: what is decided.
        required: ids of the required fields.
    """
    masks = {}
    for field_id, mask in sorted(restriction.masks.items()):
        action = standard_action(mask.action, required=field_id in required)
        if action is None:
            return field_id
        masks[field_id] = replace(mask, action=action)
    return replace(restriction, masks=masks)


def standard_json(restriction: Restriction) -> dict[str, Any] | None:
    """A restriction as ``read-restrictions`` of a ``LoadTableResult``; None for an unrestricted view."""
    found = restrictions_json(restriction) or {}
    return {name: value for name, value in found.items() if value not in (None, [])} or None
