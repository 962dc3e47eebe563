"""Evaluates the conditions of policies and items: a closed part of what Ranger's conditions can say."""

from policy.ranger.conditions.condition import Condition
from policy.ranger.conditions.truth import Truth, Unknown

__all__ = ["Condition", "Truth", "Unknown"]
