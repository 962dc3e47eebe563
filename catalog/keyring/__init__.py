"""The keys of a table that are in use."""
