"""The pipeline that audits tables: an item is a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pyspark.sql import SparkSession

from policy.errors import RequestInvalid
from policy.identifiers import TableName
from spark_ext.pipelines.audit import rules
from spark_ext.pipelines.audit.catalogs import OtherCatalog, Source, ThisCatalog, shown_properties
from spark_ext.pipelines.audit.facts import Facts
from spark_ext.pipelines.audit.job import audited
from spark_ext.pipelines.audit.options import Looking
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.verified import verify
from spark_ext.pipelines.items import Finding, Item, Outcome, Rule, Severity, Status
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.pipeline import Steps
from spark_ext.pipelines.threads import in_threads

#: How often a table is audited again that was written meanwhile.
_AGAIN: Final = 2
_GONE: Final = "The table was dropped or renamed since the audit was planned."
_WRITTEN: Final = "The table is written faster than it can be audited."


class Audit:
    """Audits tables.

    Args:
        tables: patterns of them.
        other: properties of another catalog to audit instead; None for this one.
        footers: the share of files whose footers are opened.
        verify: the share of files that are read whole.

    Raises:
        RequestInvalid: a share is not between 0 and 1, something is not a pattern, or the other catalog
            cannot be opened.
    """

    name = "audit"
    rules: Sequence[Rule] = rules.RULES
    changes = False
    at_a_time = 2_000

    def __init__(
        self,
        tables: str | Sequence[str] = "*",
        other: Mapping[str, str] | None = None,
        footers: float = 1.0,
        verify: float = 0.0,
    ) -> None:
        for name, share in (("footers", footers), ("verify", verify)):
            if not 0 <= share <= 1:
                raise RequestInvalid(
                    f"The share {name}={share} is not between 0 and 1.",
                    rule="share",
                    hint="Give 0.01 for one file of a hundred, and 1 for all.",
                )
        if other is not None and verify > 0:
            raise RequestInvalid(
                "Tables of another catalog are not read by the guarded reader, so verify has no effect.",
                rule="other-catalog",
                hint="Leave verify out, and verify the tables when they are adopted.",
            )
        self._source: Source = ThisCatalog(tables) if other is None else OtherCatalog(tables, other)
        self._is_other = other is not None
        self._footers, self._verify = footers, verify
        self._parameters = {
            "tables": tables if isinstance(tables, str) else list(tables),
            "other": None if other is None else shown_properties(other),
            "footers": footers,
            "verify": verify,
        }

    @property
    def parameters(self) -> Mapping[str, Any]:
        """What was asked for; of the other catalog, nothing that can be a credential."""
        return self._parameters

    def plan(self, lake: Lake) -> Iterator[Item]:
        """Plan an item for each table, from names alone."""
        return self._source.items(lake)

    def run(self, lake: Lake, group: Sequence[Item], steps: Steps) -> Iterator[Outcome]:
        """Audit the tables of a group. A table that is written meanwhile is audited again."""
        facts = self._source.facts(lake, group)
        left = [item for item in group if item.table in facts]
        yield from (Outcome.of(item, Status.LEFT, _GONE) for item in group if item.table not in facts)
        for attempt in range(_AGAIN + 1):
            parts = self._audited(lake, left, facts)
            now = self._moved(lake, left, facts, parts)
            for item in left:
                if item.table not in now:
                    yield self._outcome(item, facts[item.table], parts[item.table])
                elif now[item.table] is None:
                    yield Outcome.of(item, Status.LEFT, _GONE)
                elif attempt == _AGAIN:
                    yield Outcome.of(item, Status.LEFT, _WRITTEN)
            left = [item for item in left if now.get(item.table) is not None]
            facts = {name: each for name, each in now.items() if each is not None}
            if not left:
                return

    def _audited(self, lake: Lake, group: Sequence[Item], facts: Mapping[str, Facts]) -> dict[str, Partial]:
        parts = {item.table: Partial(item.table) for item in group}
        for part in audited(lake.spark, [facts[item.table] for item in group], self._looking(lake.spark)):
            parts[part.table].merge(part)
        if self._verify > 0 and not self._is_other:
            readable = [item for item in group if _can_be_read(facts[item.table], parts[item.table])]
            work = partial(_verified, lake, self._verify, parts)
            for outcome in in_threads(lake.spark, readable, work):
                if outcome.status is Status.FAILED:
                    parts[outcome.table].failed.append(outcome.reason or "")
        return parts

    def _moved(
        self,
        lake: Lake,
        group: Sequence[Item],
        facts: Mapping[str, Facts],
        parts: Mapping[str, Partial],
    ) -> dict[str, Facts | None]:
        """Return the tables that were written, dropped or renamed during an audit that found something."""
        doubtful = [item for item in group if _is_doubtful(parts[item.table])]
        if self._is_other or not doubtful:
            return {}
        now = self._source.facts(lake, doubtful)
        return {
            item.table: now.get(item.table)
            for item in doubtful
            if item.table not in now or now[item.table].version != facts[item.table].version
        }

    def _looking(self, spark: SparkSession) -> Looking:
        endpoint = spark.conf.get("spark.hadoop.fs.s3a.endpoint", None)
        region = spark.conf.get("spark.hadoop.fs.s3a.endpoint.region", None)
        return Looking(self._footers, self._verify, endpoint, region)

    def _outcome(self, item: Item, facts: Facts, part: Partial) -> Outcome:
        findings = (*part.findings, *_more(part), *_orphans(part), *_keys(facts, part))
        counts = {name: count for name, count in part.counts.items() if count}
        # Where the audit itself found an error, that says what the problem is.
        erroneous = any(each.severity is Severity.ERROR for each in findings)
        problem = facts.state["problem"] if self._is_other or not erroneous else None
        why = "; ".join(filter(None, (problem, *part.failed[:3]))) or None
        status = Status.DONE if why is None else Status.FAILED
        return Outcome.of(item, status, why, findings, counts)


def _is_doubtful(part: Partial) -> bool:
    return bool(part.findings or part.failed or part.counts["orphan-files"])


def _can_be_read(facts: Facts, part: Partial) -> bool:
    """Return whether a table is read: where an error was found, the reader would only say that one again."""
    found = (*part.findings, *_keys(facts, part))
    errors = {each.rule for each in found if each.severity is Severity.ERROR}
    readable = facts.is_governed and not errors - {rules.ENCRYPTION_POLICY.id}
    part.counts["not-read"] += facts.is_governed and not readable
    return readable


def _verified(lake: Lake, share: float, parts: Mapping[str, Partial], item: Item) -> Outcome:
    *namespace, name = item.table.split(".")
    verify(lake, TableName(tuple(namespace), name), share, parts[item.table])
    return Outcome.of(item)


def _more(part: Partial) -> Iterator[Finding]:
    """Sum up findings that are not named one by one."""
    by_id = {rule.id: rule for rule in rules.RULES}
    for rule_id, count in part.more.items():
        yield by_id[rule_id].found(part.table, f"{count} further places break this rule.")


def _orphans(part: Partial) -> Iterator[Finding]:
    count, size = part.counts["orphan-files"], part.counts["orphan-bytes"]
    if count:
        text = (
            f"{count} files with {size} bytes are referenced by nothing, such as {', '.join(part.orphans)}."
        )
        yield rules.ORPHANS.found(part.table, text, path=part.orphans[0], bytes=size)


def _keys(facts: Facts, part: Partial) -> Iterator[Finding]:
    """Find keys that end while files are under them, and keys that nothing is under any more."""
    # What could not be read can be under any key.
    complete = not part.failed and not any(each.severity is Severity.ERROR for each in part.findings)
    for key in facts.state["keys"]:
        name = f"PEK {key['pek-id']} version {key['version']} (master key {key['master-key-id']})"
        used = (key["pek-id"], key["version"]) in part.used
        if key["destroy-after-ms"] is not None and (used or key["in-force"]):
            yield rules.KEY_ENDING.found(part.table, f"{name} is going to be destroyed.")
        elif key["state"] in ("disabled", "destroyed") and used:
            yield rules.KEY_LOST.found(part.table, f"{name} is {key['state']}.")
        elif key["state"] in ("active", "decrypt-only") and complete and not (used or key["in-force"]):
            yield rules.KEY_UNUSED.found(part.table, f"No retained file is under {name}.")
