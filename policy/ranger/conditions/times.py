"""Times in the expressions of conditions.

Rules:
- A time that a tag says is ``2030/01/31``, or ``2030-01-31T23:59:59.000Z`` as Apache Atlas writes it, in GMT.
- The ends of a span are ``2030/01/31``, ``2030/01/31 23:59`` or ``2030/01/31 23:59:59``, in a named time zone
  or in GMT. It has its start and not its end, and no start or end that is all it has.

Source: RangerRequestScriptEvaluator and RangerTimeRangeChecker. Different from Ranger, which takes the
machine's time zone where none is given, GMT where it is unknown, and passes over what follows the date.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from policy.ranger.conditions.truth import Truth, Unknown
from policy.ranger.validity import parse_zone

_OF_TAGS: Final = {
    "%Y/%m/%d": re.compile(r"\d{4}/\d{1,2}/\d{1,2}"),
    "%Y-%m-%dT%H:%M:%S.%fZ": re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z"),
}
_OF_SPANS: Final = {
    "%Y/%m/%d": re.compile(r"\d{4}/\d{1,2}/\d{1,2}"),
    "%Y/%m/%d %H:%M": re.compile(r"\d{4}/\d{1,2}/\d{1,2} \d{1,2}:\d{2}"),
    "%Y/%m/%d %H:%M:%S": re.compile(r"\d{4}/\d{1,2}/\d{1,2} \d{1,2}:\d{2}:\d{2}"),
}


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time.

    Attributes:
        start: its first moment; None for no beginning.
        end: the first moment after it; None for no end.
        after_start: whether the start itself is outside.
    """

    start: datetime | None
    end: datetime | None
    after_start: bool = False

    def has(self, now: datetime) -> bool:
        """Whether a moment is in it."""
        moment = now.astimezone(UTC)
        if self.start is not None and (moment < self.start or (self.after_start and moment == self.start)):
            return False
        return self.end is None or moment < self.end


def span_of(function: str, arguments: Sequence[str]) -> Span:
    """The span of ``isAccessTimeAfter``, ``isAccessTimeBefore`` or ``isAccessTimeBetween``.

    Raises:
        ValueError: for a time or a time zone that is not understood.
    """
    count = 2 if function == "isAccessTimeBetween" else 1
    zone = parse_zone(arguments[count] if arguments[count:] else None)
    ends = [_moment(text, _OF_SPANS).replace(tzinfo=zone).astimezone(UTC) for text in arguments[:count]]
    if function == "isAccessTimeAfter":
        return Span(ends[0], None, after_start=True)
    return Span(None, ends[0]) if function == "isAccessTimeBefore" else Span(ends[0], ends[1])


def has_passed(text: str, now: datetime, *, including: bool = True) -> Truth:
    """Whether a time that a tag says has passed, or is now if that is included."""
    try:
        moment = _moment(text, _OF_TAGS).replace(tzinfo=UTC)
    except ValueError:
        # Without the value: users who are refused do not see the attributes of tags.
        return Unknown("the attribute of the tag is not a date in the form 2030/01/31")
    return moment < now or (including and moment == now)


def _moment(text: str, forms: dict[str, re.Pattern[str]]) -> datetime:
    for form, pattern in forms.items():
        if text.isascii() and pattern.fullmatch(text):
            return datetime.strptime(text, form)
    raise ValueError(f"{text[:40]!r} is not a time in the form 2030/01/31 23:59:59")
