"""Commits of any client: read, opened, checked, authorized and landed."""
