"""The restriction of one user's view of one table: which rows, and which columns through which masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from policy.decision import Reason
from policy.restrictions.actions import MaskAction
from policy.restrictions.predicate import TRUE, Predicate, columns_of


@dataclass(frozen=True, slots=True)
class ColumnMask:
    """A column's mask.

    Attributes:
        action: what is shown in the place of its values.
        policy: the name of the policy that says so; None for a mask that the table has itself.
        item: which item of the policy.
    """

    action: MaskAction
    policy: str | None = None
    item: str | None = None


@dataclass(frozen=True, slots=True)
class Restriction:
    """What a user sees of a table whose columns they can select.

    The row filter is evaluated on the values as they are. Masks apply to the rows that it keeps.

    Attributes:
        row_filter: only rows for which it is true are seen.
        masks: by field id, top-level or nested. No masked field is inside of another, or in the key of a map.
        reasons: the policies that caused it.
    """

    row_filter: Predicate = TRUE
    masks: Mapping[int, ColumnMask] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()

    def __bool__(self) -> bool:
        return self.row_filter != TRUE or bool(self.masks)

    @property
    def filters_by(self) -> frozenset[int]:
        """The columns that the row filter reads."""
        return columns_of(self.row_filter)

    @property
    def nulled(self) -> frozenset[int]:
        """The fields that are NULL for the user, and that nobody has to read: their data keys stay closed."""
        replaced = (key for key, mask in self.masks.items() if mask.action is MaskAction.REPLACE_WITH_NULL)
        return frozenset(replaced) - self.filters_by


UNRESTRICTED: Final = Restriction()
"""All rows, with their values as they are."""
