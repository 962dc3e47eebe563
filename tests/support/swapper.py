"""An attacker who exchanges what a name stands for while somebody uses it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_FORK = multiprocessing.get_context("fork")


class Swapper:
    """Puts an honest and a hostile thing in a name's place in turn, as fast as it can, until the block ends.

    It is a process of its own, so that it does not wait for the one that it attacks.
    """

    def __init__(
        self, name: Path, honest: Callable[[Path], object], hostile: Callable[[Path], object]
    ) -> None:
        self._name = name
        self._makers = (honest, hostile)
        self._swaps = _FORK.Value("q", 0, lock=False)
        self._stop = _FORK.Event()
        self._process = _FORK.Process(target=self._run, daemon=True)
        workshop = name.parents[1] / "workshop"
        workshop.mkdir()
        self._spare = (workshop / "honest", workshop / "hostile")

    @property
    def swaps(self) -> int:
        """How often it has put one thing in the other's place."""
        return self._swaps.value

    def places(self) -> tuple[Path, ...]:
        """Where the two things may be by now."""
        return self._name, *self._spare

    def _run(self) -> None:
        turn = 0
        while not self._stop.is_set():
            turn += 1
            there, next_one = 1 - turn % 2, turn % 2
            with suppress(OSError):  # the table's directory may just be removed, and what it held
                self._name.rename(self._spare[there])
            if not os.path.lexists(self._spare[next_one]):
                self._makers[next_one](self._spare[next_one])
            with suppress(OSError):
                self._spare[next_one].rename(self._name)
                self._swaps.value += 1

    def __enter__(self) -> Swapper:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._process.join()
