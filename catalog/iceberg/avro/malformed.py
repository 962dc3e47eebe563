"""The decoder's error for malformed bytes, and its translation for users.

Checks inside this package raise `Malformed`, which has the rule but not the file. The public functions run
inside of `naming`, which converts it to `MetadataInvalid` with the path.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from policy.errors import MetadataInvalid


class Malformed(Exception):
    """The bytes break a rule; caught inside this package."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


@contextmanager
def naming(path: str, what: str) -> Iterator[None]:
    """Raise `MetadataInvalid` for malformed bytes in the file `path`.

    Args:
        path: location of the file.
        what: what the file is, as in ``The manifest``.
    """
    try:
        yield
    except Malformed as problem:
        raise invalid(path, what, problem) from problem


def invalid(path: str, what: str, problem: Malformed) -> MetadataInvalid:
    """Return the error for users; arguments as of `naming`."""
    return MetadataInvalid(
        f"{what} cannot be decoded: {problem}.",
        path=path,
        rule=problem.rule,
        hint="Restore the file from a backup, or roll the table back to a snapshot that does not use it.",
    )
