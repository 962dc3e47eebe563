"""Runs tasks one at a time, and lets a seed choose at each boundary which of them goes on.

A task is a thread that holds the baton while it runs. At a boundary (before a transaction, after it, at an
access to storage or a KMS, at a crash point) it hands the baton back, and the seed chooses the next holder.
So the same seed gives the same interleaving, and `trace` tells it.

A task inside of a write transaction keeps the baton: others would wait for its lock, and not at a boundary.
Threads that are no tasks (the writer of the audit log, pools) run by themselves; a task waits for them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

#: A task that does not come to a boundary for so long waits for one that does not run.
_STUCK_S = 60.0
NO_FAULTS: Mapping[str, float] = MappingProxyType({})


class Stuck(AssertionError):
    """A task waits for something outside of the boundaries."""


@dataclass
class _Task:
    name: str
    thread: threading.Thread | None = None
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    done: bool = False
    error: BaseException | None = None
    in_transaction: int = 0


class Scheduler:
    """Gives the baton to one task at a time.

    Args:
        seed: of all choices.
        faults: by kind of fault, the part of the places for it at which one is drawn.
    """

    def __init__(self, seed: int, faults: Mapping[str, float] = NO_FAULTS) -> None:
        self.rng = random.Random(seed)
        self.trace: list[str] = []
        self._faults = faults
        self._local = threading.local()
        self._back = threading.Semaphore(0)

    def run(self, tasks: Sequence[tuple[str, Callable[[], None]]]) -> None:
        """Run tasks to their end.

        Raises:
            Stuck: a task does not come to a boundary.
            BaseException: what a task raised.
        """
        waiting = [self._begin(name, act) for name, act in tasks]
        while waiting:
            task = self.rng.choice(waiting)
            task.turn.release()
            if not self._back.acquire(timeout=_STUCK_S):
                raise Stuck(f"{task.name} does not come to a boundary; the last ones: {self.trace[-5:]}")
            if task.error is not None:
                raise task.error
            if task.done:
                waiting.remove(task)

    @property
    def steps(self) -> int:
        """How many boundaries were passed: the time of histories."""
        return len(self.trace)

    def boundary(self, name: str) -> None:
        """Hand the baton back; returns when this task has it again."""
        task = self._task()
        if task is None or task.in_transaction:
            return
        self.trace.append(f"{task.name} {name}")
        self._back.release()
        task.turn.acquire()

    def fails(self, kind: str) -> bool:
        """Draw whether a fault of a kind happens to the task that runs."""
        task = self._task()
        if task is None or task.in_transaction or self.rng.random() >= self._faults.get(kind, 0.0):
            return False
        self.trace.append(f"{task.name} fault: {kind}")
        return True

    def enter(self) -> None:
        """Keep the baton from now on: a transaction begins that locks others out."""
        if (task := self._task()) is not None:
            task.in_transaction += 1

    def leave(self) -> None:
        """Give it away again from now on."""
        task = self._task()
        if task is not None and task.in_transaction:
            task.in_transaction -= 1

    def _task(self) -> _Task | None:
        task: _Task | None = getattr(self._local, "task", None)
        return task

    def _begin(self, name: str, act: Callable[[], None]) -> _Task:
        task = _Task(name)

        def run() -> None:
            self._local.task = task
            task.turn.acquire()
            try:
                act()
            except BaseException as error:  # noqa: BLE001 - raised again by the main thread
                task.error = error
            task.done = True
            self._back.release()

        task.thread = threading.Thread(target=run, name=f"simulated-{name}", daemon=True)
        task.thread.start()
        return task
