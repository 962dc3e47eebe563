"""A table's keys in use."""
