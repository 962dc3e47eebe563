"""Encryption rules: what must be encrypted, and how."""

from policy.encryption_rules.model import Ask, Column, ColumnName, TableFacts, Violation, column_key
from policy.encryption_rules.ruleset import EncryptionRules

__all__ = ["Ask", "Column", "ColumnName", "EncryptionRules", "TableFacts", "Violation", "column_key"]
