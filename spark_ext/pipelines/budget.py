"""Limits what a run does at a time, altogether, and when.

Pure decisions: the clock is an argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, tzinfo
from typing import Final, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from policy.errors import RequestInvalid
from spark_ext.pipelines.items import Item

_WINDOW: Final = re.compile(r"(\d\d):(\d\d)-(\d\d):(\d\d)(?: ([A-Za-z_]+(?:/[A-Za-z_+\-0-9]+)*))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Window:
    """A time of day during which groups of items begin.

    Attributes:
        start: from this time on.
        end: before this time; one that is not after `start` is on the next day.
        zone: the time zone.
        text: as it was written.
    """

    start: time
    end: time
    zone: tzinfo
    text: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``22:00-06:00``, in UTC, or ``22:00-06:00 Europe/Berlin``.

        Raises:
            RequestInvalid: the text is not a window, or the zone is not known.
        """
        found = _WINDOW.fullmatch(text)
        try:
            if found is None:
                raise ValueError
            start = time(int(found[1]), int(found[2]))
            return cls(start, time(int(found[3]), int(found[4])), ZoneInfo(found[5] or "UTC"), text)
        except (ValueError, OSError, ZoneInfoNotFoundError):  # OSError: a directory of zones, such as Europe
            raise RequestInvalid(
                f"{text!r:.60} is not a time window.",
                rule="time-window",
                hint="Write 22:00-06:00, in UTC, or 22:00-06:00 Europe/Berlin.",
            ) from None

    def contains(self, now: datetime) -> bool:
        """Return whether a time, with a zone, is in the window."""
        at = now.astimezone(self.zone).time()
        if self.start < self.end:
            return self.start <= at < self.end
        return at >= self.start or at < self.end


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run can do.

    Attributes:
        items_at_a_time: items of a group; by default what fits the pipeline.
        bytes_at_a_time: bytes of a group. A group has at least one item.
        items: items of the whole run; the others are left.
        bytes: bytes of the whole run; the others are left. A run does at least one item.
        window: the time of day, such as ``22:00-06:00``; see `Window.parse`. The group under way is finished.
        pause_s: seconds of pause after each group.
        quiet_s: tables that were written more recently are left. Pipelines that change no table refuse it.

    Raises:
        RequestInvalid: a limit is not positive, or the window cannot be parsed.
    """

    items_at_a_time: int | None = None
    bytes_at_a_time: int | None = None
    items: int | None = None
    bytes: int | None = None
    window: str | None = None
    pause_s: float = 0.0
    quiet_s: float = 0.0
    parsed: Window | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        limits = (self.items_at_a_time, self.bytes_at_a_time, self.items, self.bytes)
        if any(each is not None and each < 1 for each in limits) or min(self.pause_s, self.quiet_s) < 0:
            raise RequestInvalid(
                "A limit of the budget is not positive.",
                rule="budget",
                hint="Give positive numbers, or leave the limit out.",
            )
        if self.window is not None:
            object.__setattr__(self, "parsed", Window.parse(self.window))

    def groups(self, items: Iterable[Item], at_a_time: int) -> Iterator[list[Item]]:
        """Divide items into groups, in their order.

        Args:
            items: the items.
            at_a_time: items of a group, if the budget does not say otherwise.
        """
        most, size = self.items_at_a_time or at_a_time, self.bytes_at_a_time
        group: list[Item] = []
        taken = 0
        for item in items:
            if group and (len(group) >= most or (size is not None and taken + item.bytes > size)):
                yield group
                group, taken = [], 0
            group.append(item)
            taken += item.bytes
        if group:
            yield group

    def fitting(self, group: Sequence[Item], items: int, size: int) -> list[Item]:
        """Return the beginning of a group that a run can still do; at least the first item.

        Args:
            group: the group.
            items: items that this run has done.
            size: bytes that it has done.
        """
        fitting: list[Item] = []
        for item in group:
            if fitting and self._used_up(items, size, item) is not None:
                break
            fitting.append(item)
            items, size = items + 1, size + item.bytes
        return fitting

    def exhausted(self, items: int, size: int, following: Item, now: datetime) -> str | None:
        """Return why no further group begins; None if one can.

        Args:
            items: items that this run has done.
            size: bytes that it has done.
            following: the first item of the group.
            now: the time, with a zone.
        """
        if self.parsed is not None and not self.parsed.contains(now):
            return f"The time window {self.parsed.text} is closed."
        return self._used_up(items, size, following)

    def _used_up(self, items: int, size: int, following: Item) -> str | None:
        if self.items is not None and items >= self.items:
            return f"The budget of {self.items:,} items is used up."
        if self.bytes is not None and items and size + following.bytes > self.bytes:
            return f"The budget of {self.bytes:,} bytes is used up."
        return None
