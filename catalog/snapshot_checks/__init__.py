"""Checks what snapshots name, and what a new snapshot changes of its parent."""
