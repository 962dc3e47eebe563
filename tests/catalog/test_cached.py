"""A cached property is computed once for an instance, and holds up no other instance."""

from __future__ import annotations

import threading

from catalog.base.cached import CachedProperty


class Slow:
    """Its value is ready when an event is set."""

    def __init__(self, ready: threading.Event) -> None:
        self.ready = ready
        self.begun = threading.Event()
        self.computed = 0

    @CachedProperty
    def value(self) -> int:
        """Compute it."""
        self.begun.set()
        assert self.ready.wait(20)
        self.computed += 1
        return self.computed


def test_a_slow_instance_holds_up_no_other_one() -> None:
    waiting, other = Slow(threading.Event()), Slow(threading.Event())
    thread = threading.Thread(target=lambda: waiting.value, daemon=True)
    thread.start()
    assert waiting.begun.wait(20)
    other.ready.set()
    assert other.value == other.value == 1
    waiting.ready.set()
    thread.join(20)
    assert waiting.value == 1


def test_the_class_shows_the_property() -> None:
    assert Slow.value.__doc__ == "Compute it."
