"""Policies in Apache Ranger's model and JSON, evaluated in Ranger's order."""

from policy.ranger.evaluate import FilterRule, MaskRule
from policy.ranger.policy_set import PolicySet

__all__ = ["FilterRule", "MaskRule", "PolicySet"]
