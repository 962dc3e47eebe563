"""Reads tables and snapshots that can be trusted, and refuses the others."""
