"""Encryption rules: what must be encrypted, and how."""

from policy.encryption_rules.model import Column, ColumnName, Requirement, TableFacts, Violation, column_key
from policy.encryption_rules.remedies import Remedy, remedy_of
from policy.encryption_rules.ruleset import EncryptionRules, enforce

__all__ = [
    "Column",
    "ColumnName",
    "EncryptionRules",
    "Remedy",
    "Requirement",
    "TableFacts",
    "Violation",
    "column_key",
    "enforce",
    "remedy_of",
]
