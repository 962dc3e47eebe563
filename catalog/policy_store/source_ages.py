"""Decides whether policies of a source are too old to decide anything.

- Each source has an age of its own, which it reached when it last confirmed its policies, in any process. A
  source that was never asked, or whose age is not known, is too old.
- Between two looks at the database, the age goes by a clock that only goes forward. A look that shows the
  same confirmation never makes it younger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from catalog.policy_store.source_states import SourceState
from policy.errors import StateUnavailable

_NEVER: Final = float("-inf")


class SourceAges:
    """The ages of the policy sources of a process; thread-safe.

    Args:
        states: reads the states of sources (`SourceStates.of`).
        max_ages_s: seconds for which a confirmation counts, by source.
        clock: seconds that only go forward.

    Raises:
        StateUnavailable: the database does not answer.
    """

    def __init__(
        self,
        states: Callable[[Iterable[str]], Sequence[SourceState]],
        max_ages_s: Mapping[str, float],
        clock: Callable[[], float],
    ) -> None:
        self._states = states
        self._max_ages_s = dict(max_ages_s)
        self._clock = clock
        self._seen: Sequence[SourceState] = ()
        self._seen_at = clock()
        #: By source: the confirmation, and until when it counts.
        self._until: dict[str, tuple[int | None, float]] = {}
        self._first_end = float("inf")
        self.look()

    @property
    def last(self) -> Sequence[SourceState]:
        """Return the states at the last look."""
        return self._seen

    @property
    def is_closed(self) -> bool:
        """Return whether the policies of a source are too old."""
        return self._clock() >= self._first_end

    def age_s(self, state: SourceState) -> float | None:
        """Return the age of a state of the last look, in seconds; None if it is not known."""
        return None if state.age_s is None else state.age_s + self._clock() - self._seen_at

    def max_age_s(self, state: SourceState) -> float:
        """Return the age from which nothing is decided, in seconds."""
        return self._max_ages_s[state.name]

    def look(self) -> None:
        """Read the states of the sources.

        Raises:
            StateUnavailable: the database does not answer.
        """
        if not self._max_ages_s:
            return
        started = self._clock()
        seen = self._states(self._max_ages_s)
        self._until = {each.name: self._end_of(each, started) for each in seen}
        self._seen, self._seen_at = seen, started
        self._first_end = min(end for _, end in self._until.values())

    def refusal(self) -> StateUnavailable:
        """Return the error of a request while the policies of a source are too old."""
        now = self._clock()
        names = ", ".join(name for name, (_, end) in sorted(self._until.items()) if now >= end)
        return StateUnavailable(
            f"The policies of the source {names} are too old: Ranger did not confirm them for too long.",
            rule="policy-source-age",
            hint="Run `lakewarden policy sources` on the catalog's host for the reason, and "
            "`lakewarden policy sync` when Ranger answers again.",
        )

    def _end_of(self, state: SourceState, started: float) -> tuple[int | None, float]:
        """Return the confirmation of a source, and until when it counts."""
        end = _NEVER if state.age_s is None else started + self._max_ages_s[state.name] - state.age_s
        confirmed_ms, known = self._until.get(state.name, (None, _NEVER))
        return state.confirmed_ms, min(end, known) if state.confirmed_ms == confirmed_ms else end
