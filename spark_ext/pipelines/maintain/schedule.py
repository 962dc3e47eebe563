"""Decides which tasks are due: no I/O.

A task is due if it was never done, or not since the time that the policy gives. The records of pipelines say
when it was done last (`lakewarden_ops.runs`), and not the table's snapshots: a task that finds nothing to do
leaves no snapshot, and neither do expiry and the removal of orphans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from catalog.rules.file_deletion import GC_ENABLED
from spark_ext.pipelines.maintain.document import Entry, Kind, Task

#: A daily run does not come late by the time that the last one took.
_EARLY: Final = 0.9
#: Tasks that delete files, which a table can forbid.
_DELETING: Final = frozenset({Kind.EXPIRE, Kind.ORPHANS})


@dataclass(frozen=True, slots=True)
class Due:
    """A task that is due.

    Attributes:
        task: the task.
        since: when it was done last, as a text without spaces; ``never`` if it was not.
        why: why it is due, for people.
    """

    task: Task
    since: str
    why: str


def due(
    entry: Entry, last: Mapping[Kind, datetime], properties: Mapping[str, str], now: datetime, *, empty: bool
) -> Iterator[Due]:
    """Yield the tasks of a table that are due, in the order in which they are done.

    Args:
        entry: what the policy says of the table.
        last: when each task was done last.
        properties: of the table.
        now: the time, with a zone.
        empty: whether the table has no snapshot, so that there is nothing to do but to remove orphans.
    """
    if entry.window is not None and not entry.window.contains(now):
        return
    forbidden = properties.get(GC_ENABLED, "true").lower() != "true"
    for task in entry.tasks:
        if (forbidden and task.kind in _DELETING) or (empty and task.kind is not Kind.ORPHANS):
            continue
        done = last.get(task.kind)
        if done is None:
            yield Due(task, "never", "It was never done.")
        elif now - done >= timedelta(seconds=task.every * _EARLY):
            at = done.astimezone(UTC).isoformat(timespec="seconds")
            yield Due(task, at, f"It was done at {at}, and is to be done every {_shown(task.every)}.")


def _shown(seconds: int) -> str:
    return str(timedelta(seconds=seconds))
