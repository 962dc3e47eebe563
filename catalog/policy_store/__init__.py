"""Policies and encryption rules in force: where they are kept, who changes them, what they say of tables."""
