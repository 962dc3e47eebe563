"""Decides what a caller is permitted to do, and records the decision."""
