"""What decides a request, and what the answer would be if something were different."""

from policy.explain.changes import Change, Explanation, Without, explain
from policy.explain.considered import Book, Considered

__all__ = ["Book", "Change", "Considered", "Explanation", "Without", "explain"]
