"""Locations: parsed once, compared by segment, and the list of those that a table can be read from."""
