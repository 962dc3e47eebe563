"""What a part of an audit found of one table; the parts of a table are put together on the driver."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Final, Self

from spark_ext.pipelines.items import Finding, Rule, Severity

#: Findings of one rule that a part names.
MOST: Final = 100
_SHOWN: Final = 3


@dataclass
class Partial:
    """A part of the result for one table.

    Attributes:
        table: its dotted name.
        findings: what was found.
        more: findings by rule that are not named one by one.
        counts: amounts by name.
        failed: why something could not be audited.
        used: the key versions that files are under: id and version.
        orphans: unreferenced files: some paths.
        named: how many findings of a rule this part has named itself.
    """

    table: str
    findings: list[Finding] = field(default_factory=list)
    more: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    used: set[tuple[str, int]] = field(default_factory=set)
    orphans: list[str] = field(default_factory=list)
    named: Counter[str] = field(default_factory=Counter)

    def add(self, rule: Rule, message: str | None = None, **about: object) -> None:
        """Add a finding; of one rule, no more than `MOST` are named."""
        if self.named[rule.id] >= MOST:
            self.more[rule.id] += 1
        else:
            self.named[rule.id] += 1
            self.findings.append(rule.found(self.table, message, **about))  # type: ignore[arg-type]

    def orphan(self, paths: Iterable[str], count: int, size: int) -> None:
        """Add unreferenced files, some of them by their paths."""
        self.orphans = sorted([*self.orphans, *paths])[:_SHOWN]
        self.counts["orphan-files"] += count
        self.counts["orphan-bytes"] += size

    def merge(self, other: Partial) -> None:
        """Add another part of the same table."""
        self.findings += other.findings
        self.more += other.more
        self.counts += other.counts
        self.failed += other.failed
        self.used |= other.used
        self.orphan(other.orphans, 0, 0)

    def to_json(self) -> str:
        """Encode for the driver."""
        fields = {
            "table": self.table,
            "findings": [asdict(each) for each in self.findings],
            "more": dict(self.more),
            "counts": dict(self.counts),
            "failed": self.failed,
            "used": sorted(self.used),
            "orphans": self.orphans,
        }
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Decode what `to_json` encoded."""
        fields = json.loads(text)
        findings = [
            Finding(**{**each, "severity": Severity(each["severity"])}) for each in fields["findings"]
        ]
        return cls(
            fields["table"],
            findings,
            Counter(fields["more"]),
            Counter(fields["counts"]),
            fields["failed"],
            {(pek_id, version) for pek_id, version in fields["used"]},
            fields["orphans"],
        )
