"""Which mask a field gets from a policy's mask type, and which fields no mask of a type can be on."""

from __future__ import annotations

from policy.errors import PolicyInvalid
from policy.restrictions.actions import MaskAction, action_of, takes
from policy.restrictions.columns import SchemaField
from policy.restrictions.model import ColumnMask

RULE = "mask"
"""The rule of a refusal."""


def mask_of(mask_type: str, field: SchemaField, policy: str, item: str) -> ColumnMask:
    """The mask of a field.

    Args:
        mask_type: of the policy's item; not ``MASK_NONE``.
        field: the field.
        policy, item: where it is said.

    Raises:
        PolicyInvalid: the field is the key of a map, has a type that the mask does not take, or is required
            and would be NULL.
    """
    action = action_of(mask_type, field.type)
    said = f"the mask {mask_type} cannot be on the column {field.name!r}"
    if field.in_key:
        raise _refused(f"{said}, the key of a map", "Mask the map or its values.")
    if not takes(action, field.type):
        raise _refused(f"{said}, type {field.type}", f"Use {_instead(field)}.")
    if action is MaskAction.REPLACE_WITH_NULL and field.required:
        raise _refused(
            f"{said}, which is required and so is never NULL",
            f"Make the column optional, or use {_instead(field)}.",
        )
    return ColumnMask(action, policy, item)


def strictest(masks: list[ColumnMask], field: SchemaField) -> ColumnMask:
    """The mask of a field that has several, because it had other names.

    It is NULL, unless all do the same; the fixed value where the field is required.
    """
    first = masks[0]
    if all(each.action is first.action for each in masks):
        return first
    hidden = MaskAction.MASK_TO_FIXED_VALUE if field.required else MaskAction.REPLACE_WITH_NULL
    return ColumnMask(hidden, first.policy, first.item)


def _instead(field: SchemaField) -> str:
    """What masks a field that is required, or that an action does not take."""
    nested = field.type == "struct"
    return "a mask on each field in it" if nested else MaskAction.MASK_TO_FIXED_VALUE.value


def _refused(problem: str, hint: str) -> PolicyInvalid:
    return PolicyInvalid(f"{problem}.", rule=RULE, hint=hint)
