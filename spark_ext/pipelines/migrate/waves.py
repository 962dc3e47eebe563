"""Divides tables into waves, and decides when no further table is begun: no I/O.

The first waves are small, so that what is wrong with a migration shows on few tables. A wave in which too
many tables fail, or all of them, is the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from policy.errors import RequestInvalid
from spark_ext.pipelines.items import Item, Outcome, Status


@dataclass(slots=True)
class Waves:
    """The waves of one run.

    Args:
        sizes: the number of tables in the first waves. The last wave has all others.
        stop_after_failures: as many failed tables of one wave end the run; all of a smaller wave do so, too.

    Raises:
        RequestInvalid: a number is below 1.
    """

    sizes: Sequence[int]
    stop_after_failures: int
    _wave: int = 0
    _ended: int = 0
    _failed: int = 0
    _fatal: bool = False

    def __post_init__(self) -> None:
        if min((*self.sizes, self.stop_after_failures)) < 1:
            raise RequestInvalid(
                f"Waves of {list(self.sizes)} tables that end with {self.stop_after_failures} failures are "
                "not possible.",
                rule="waves",
                hint="Give numbers from 1.",
            )

    @property
    def stopped(self) -> str | None:
        """Return why no further table is begun; None if more are."""
        if self._failed < min(self.stop_after_failures, self._size()) and not self._fatal:
            return None
        return f"Not begun: {self._failed} tables of wave {self._wave + 1} failed, so the run stopped there."

    def take(self, items: Sequence[Item], most: int) -> Sequence[Item]:
        """Return the first items, up to a number and all of one wave. All end before the next call."""
        if self._ended >= self._size():
            self._wave, self._ended, self._failed = self._wave + 1, 0, 0
        return items[: min(most, self._size() - self._ended)]

    def ended(self, outcome: Outcome, *, fatal: bool) -> None:
        """Count what became of an item; a fatal failure ends the run alone."""
        self._ended += 1
        self._failed += outcome.status is Status.FAILED
        self._fatal |= fatal

    def _size(self) -> int:
        """Return the number of tables in this wave; all for the last one."""
        return self.sizes[self._wave] if self._wave < len(self.sizes) else 2**63
