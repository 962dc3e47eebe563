"""Policies in Apache Ranger's model and JSON, evaluated in Ranger's order."""

from policy.ranger.evaluate import MaskRule
from policy.ranger.policy_set import PolicySet

__all__ = ["MaskRule", "PolicySet"]
