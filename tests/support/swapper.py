"""An attacker who exchanges what a name stands for while a reader uses it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_FORK = multiprocessing.get_context("fork")
# Linux: two names change places in one step, so that neither is missing in between.
_renameat2 = ctypes.CDLL(None).renameat2
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


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
        self._spare = name.parents[1] / "spare"

    @property
    def swaps(self) -> int:
        """How often it has put one thing in the other's place."""
        return self._swaps.value

    def places(self) -> tuple[Path, Path]:
        """Where the two things are, in either order."""
        return self._name, self._spare

    def _run(self) -> None:
        names = [os.fsencode(each) for each in self.places()]
        turned = 0
        while not self._stop.is_set():
            with suppress(OSError):  # the table's directory may just be removed
                self._make(turned)
            for _ in range(100):
                if _renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) != 0:
                    break
                turned = 1 - turned
                self._swaps.value += 1

    def _make(self, turned: int) -> None:
        """What is missing of the two things, in the places where they should be by now."""
        for place, which in ((self._name, turned), (self._spare, 1 - turned)):
            if not os.path.lexists(place):
                self._makers[which](place)

    def __enter__(self) -> Swapper:
        self._make(0)
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._process.join()
