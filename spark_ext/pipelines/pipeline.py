"""What the engine needs to know of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from spark_ext.pipelines.items import Item, Outcome, Rule
from spark_ext.pipelines.lake import Lake


class Steps(Protocol):
    """What was done to an item so far, in this run and before it was interrupted."""

    def of(self, item: Item) -> Mapping[str, Mapping[str, Any]]:
        """Return the data of each step that was recorded for an item, by the step's name."""

    def record(self, item: Item, step: str, data: Mapping[str, Any]) -> None:
        """Record a step of an item durably, before the next one begins; JSON values without secrets."""


class Pipeline(Protocol):
    """A job over many tables.

    Attributes:
        name: one word, such as ``audit``.
        rules: what its findings can name.
        changes: whether it changes tables.
        at_a_time: items of a group, if the budget does not say otherwise.
    """

    name: str
    rules: Sequence[Rule]
    changes: bool
    at_a_time: int

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What was asked for, as JSON values without secrets. Only the same parameters continue a run."""

    def plan(self, lake: Lake) -> Iterator[Item]:
        """Plan the work list, in an order that stays the same.

        Raises:
            LakewardenError: the catalog refuses, or nothing can be planned.
        """

    def run(self, lake: Lake, group: Sequence[Item], steps: Steps) -> Iterator[Outcome]:
        """Do a group of items, and tell what became of each, in any order.

        Called again for an item whose outcome was not recorded: doing an item twice equals doing it once.

        Raises:
            LakewardenError, PySparkException: something that concerns all items. The run ends, and those
                without an outcome are left.
        """
