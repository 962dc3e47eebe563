"""Checks the content of snapshots, and the changes of a new snapshot to its parent."""
