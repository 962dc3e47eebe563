"""Decides from counts of matching values, names, comments and tags what a column seems to hold.

The rules, from which a confidence between 0 and 1 is made. Shares are of distinct values.

| evidence | confidence |
|---|---|
| a CERTAIN detector matches a value | 0.95 |
| a CHECKED detector matches half of the values | 0.95 |
| a CHECKED detector matches 0.2 % of the values and two of them, or one of fewer than 20 | 0.7 |
| a FORMED detector matches 80 % of the values and three of them, or half of 20 or more | 0.8 |
| a WEAK detector matches 80 % of ten or more values, or all of five or more | 0.8 |
| a FORMED or WEAK detector matches half of the values | 0.3 |
| a NAMED detector matches half of the values, and a name, comment or tag suggests the data | 0.3 |
| the name of the column suggests the data | 0.6 |
| the name does, and no detector matches 5 % of 20 or more values | 0.15 |
| the comment or a tag of the column suggests the data | 0.3 |
| evidence of values and of names together | 1 - (1 - a)(1 - b) … |

A name alone is enough for the default threshold of 0.5, a comment or tag is not. The second to last rule
holds where the detectors know every form of the data (`Kind.checked`).

A name such as `isbn` tells of other numbers with check digits: FORMED and WEAK detectors then count 0.3 at
most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from spark_ext.pipelines.discover.detectors import Detector, Strength
from spark_ext.pipelines.discover.kinds import KINDS, Kind, hinted, mentioned, tells_of_other_numbers

THRESHOLD: Final = 0.5
"""The confidence from which a column is reported, if nothing else is asked for."""

_NAME: Final = 0.6
_NAME_CONTRADICTED: Final = 0.15
_REMARK: Final = 0.3
_HALF: Final = 0.3


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of a column without its values.

    Attributes:
        name: its full dotted name.
        type: its Iceberg type.
        comment: what its creator says of it; empty if nothing.
        tags: the tags that the encryption policy assigns to it.
    """

    name: str
    type: str
    comment: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Looked:
    """What was counted in the sample of a column.

    Attributes:
        values: distinct values, without NULL and empty ones.
        hits: how many of them each detector matches, by its id.
    """

    values: int = 0
    hits: Mapping[str, int] | None = None

    def of(self, detector: Detector) -> int:
        """Return how many values a detector matches."""
        return (self.hits or {}).get(detector.id, 0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A kind of data that a column seems to hold.

    Attributes:
        kind: the kind.
        confidence: between 0 and 1.
        why: the evidence, for a message; no value of the column.
    """

    kind: Kind
    confidence: float
    why: str


def verdicts(column: Described, looked: Looked, known: Iterable[Detector]) -> list[Verdict]:
    """Return what a column can hold, with confidence above 0, the most certain first."""
    by_name = hinted(column.name, column.type)
    remarked = {
        "the comment": mentioned(column.comment),
        **{f"the tag {tag!r:.80}": mentioned(tag) for tag in column.tags},
    }
    detectors, other = list(known), tells_of_other_numbers(column.name)
    found = (
        _verdict(
            kind,
            kind.id in by_name,
            [where for where, kinds in remarked.items() if kind.id in kinds and kind.fits(column.type)],
            other,
            looked,
            [each for each in detectors if each.kind == kind.id],
        )
        for kind in KINDS
    )
    return sorted((each for each in found if each.confidence > 0), key=lambda each: -each.confidence)


def _verdict(
    kind: Kind, named: bool, remarked: list[str], other: bool, looked: Looked, detectors: list[Detector]
) -> Verdict:
    weighed = [(_weight(each, looked, bool(named or remarked)), each) for each in detectors]
    value, best = max(weighed, key=lambda each: each[0], default=(0.0, None))
    parts, why = [], []
    if value and best is not None:
        ambiguous = other and not named and best.strength in (Strength.FORMED, Strength.WEAK)
        parts.append(min(value, _HALF) if ambiguous else value)
        why.append(f"{looked.of(best)} of {looked.values} distinct values match {best.id}")
    if named:
        contradicted = kind.checked and looked.values >= 20 and not _any_match(detectors, looked)
        parts.append(_NAME_CONTRADICTED if contradicted else _NAME)
        why.append("the name suggests it" + (", the values do not" if contradicted else ""))
    if remarked:
        parts.append(_REMARK)
        why.append(f"{' and '.join(remarked)} mentions it")
    return Verdict(kind, round(1 - prod(1 - each for each in parts), 4), "; ".join(why))


def _any_match(detectors: list[Detector], looked: Looked) -> bool:
    return any(looked.of(each) >= 0.05 * looked.values for each in detectors)


def _weight(detector: Detector, looked: Looked, suggested: bool) -> float:
    hits = looked.of(detector)
    share = hits / looked.values if looked.values else 0.0
    match detector.strength:
        case Strength.CERTAIN:
            return 0.95 if hits else 0.0
        case Strength.CHECKED:
            return _checked(hits, share, looked.values)
        case Strength.FORMED:
            enough = (hits >= 3 and share >= 0.8) or (looked.values >= 20 and share >= 0.5)
            return 0.8 if enough else _half(share)
        case Strength.WEAK:
            return 0.8 if _nearly_all(hits, looked.values) else _half(share)
        case Strength.NAMED:
            return _half(share) if suggested else 0.0


def _checked(hits: int, share: float, values: int) -> float:
    if share >= 0.5:
        return 0.95
    return 0.7 if (hits >= 2 and share >= 0.002) or (hits and values < 20) else 0.0


def _nearly_all(hits: int, values: int) -> bool:
    return (values >= 10 and hits >= 0.8 * values) or (values >= 5 and hits == values)


def _half(share: float) -> float:
    return _HALF if share >= 0.5 else 0.0
