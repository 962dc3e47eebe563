"""Shared by every package of the catalog: errors, identifiers, crash points for tests."""
