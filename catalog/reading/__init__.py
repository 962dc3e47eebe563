"""Reads trusted tables and snapshots, and refuses all others."""
