"""Scan planning: which files of a snapshot a filter needs."""

from catalog.planning.prune import Pruner

__all__ = ["Pruner"]
