"""Runs a pipeline: plans its items, does them in groups, records each group, and continues where a run ended.

- A group is recorded when it has ended. A driver that is killed loses the group under way, which the next run
  does again; no group is recorded twice.
- While the catalog does not answer, the group waits and is tried again, for about two minutes. An error that
  concerns all items then ends the run. What is left is reported, and the next run goes on with it.
- A dry run plans, changes nothing, and records nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pyspark.errors import PySparkException

from policy.errors import LakewardenError
from spark_ext.pipelines.budget import Budget
from spark_ext.pipelines.failures import passes, reason
from spark_ext.pipelines.items import Item, Outcome, Status
from spark_ext.pipelines.journal import Journal
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.pipeline import Pipeline
from spark_ext.pipelines.progress import Tell, progress
from spark_ext.pipelines.report import Report, RunState
from spark_ext.pipelines.writers import written_recently

#: Seconds before a group is tried again, while a part that is needed does not answer.
_PATIENCE_S: Final = (1, 2, 4, 8, 15, 30, 60)
#: Findings of a run that its report names.
_MOST_FINDINGS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Running:
    """How a pipeline is run.

    Attributes:
        budget: what it does at a time, altogether, and when.
        dry_run: plan only.
        fresh: begin a new run, and do not continue the last one with the same parameters.
        show: show progress, and a summary at the end.
    """

    budget: Budget = field(default_factory=Budget)
    dry_run: bool = False
    fresh: bool = False
    show: bool = True


class _Clock:
    """The time, and waiting; tests replace it."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def run(pipeline: Pipeline, lake: Lake, running: Running, clock: _Clock | None = None) -> Report:
    """Run a pipeline, and report what was done, found and left.

    Args:
        pipeline: the pipeline.
        lake: where it works.
        running: how.
        clock: the time.

    Raises:
        LakewardenError, PySparkException: nothing can be planned or recorded.
    """
    with progress(running.show) as tell:
        if running.dry_run:
            report = Report.of_plan(pipeline.name, pipeline.rules, pipeline.plan(lake))
        else:
            journal = Journal(lake, pipeline.name, pipeline.parameters, fresh=running.fresh)
            report = _Run(pipeline, lake, running.budget, journal, tell, clock or _Clock()).report()
    if running.show:
        report.show()
    return report


class _Run:
    """One run of a pipeline, by this process."""

    def __init__(
        self, pipeline: Pipeline, lake: Lake, budget: Budget, journal: Journal, tell: Tell, clock: _Clock
    ) -> None:
        self._pipeline = pipeline
        self._lake = lake
        self._budget = budget
        self._journal = journal
        self._tell = tell
        self._clock = clock
        self._outcomes: dict[str, Outcome] = {}
        self._began = time.monotonic()

    def report(self) -> Report:
        """Do what is left, record how the run ended, and report."""
        items = list(self._pipeline.plan(self._lake))
        left = [item for item in items if item.key not in self._journal.done]
        why = self._groups(left, len(items))
        outcomes = [self._outcome(item, why) for item in items]
        complete = all(each.status is Status.DONE for each in outcomes)
        self._journal.end(complete=complete, why=why)
        findings, counts = self._journal.findings(_MOST_FINDINGS)
        return Report(
            pipeline=self._pipeline.name,
            rules=tuple(self._pipeline.rules),
            run_id=self._journal.run_id,
            state=RunState.COMPLETE if complete else RunState.INCOMPLETE,
            reason=why,
            continued=self._journal.continued,
            seconds=time.monotonic() - self._began,
            outcomes=tuple(outcomes),
            findings=tuple(findings),
            found=counts,
        )

    def _outcome(self, item: Item, why: str | None) -> Outcome:
        known = self._outcomes.get(item.key) or self._journal.done.get(item.key)
        return known or Outcome.of(item, Status.LEFT, why)

    def _groups(self, left: Sequence[Item], total: int) -> str | None:
        """Do items group by group; return why the run ended before the last one."""
        done, size = 0, 0
        for group in self._budget.groups(left, self._pipeline.at_a_time):
            why = self._budget.exhausted(done, size, self._clock.now())
            if why is not None:
                return why
            if self._budget.items is not None:
                group = group[: self._budget.items - done]
            why = self._group(group)
            if why is not None:
                return why
            done, size = done + len(group), size + sum(item.bytes for item in group)
            self._tell(self._pipeline.name, total - len(left) + done, total)
            self._clock.sleep(self._budget.pause_s)
        return None

    def _group(self, group: Sequence[Item]) -> str | None:
        """Do a group, and record it; return why the run ends, if it does."""
        outcomes: dict[str, Outcome] = {}
        problem: LakewardenError | PySparkException | None = None
        for wait in (*_PATIENCE_S, None):
            rest = [item for item in group if item.key not in outcomes]
            try:
                for each in self._work(rest):
                    outcomes[each.item] = each
                problem = None
                break
            except (LakewardenError, PySparkException) as error:
                problem = error
                if wait is None or not passes(error):
                    break
                self._clock.sleep(wait)
        self._outcomes |= outcomes
        if outcomes:
            self._journal.group(list(outcomes.values()))
        return None if problem is None else reason(problem)

    def _work(self, group: Sequence[Item]) -> Iterator[Outcome]:
        """Do a group, but for tables that are being written where the budget spares them."""
        quiet = self._budget.quiet_s
        busy: dict[str, str] = {}
        if self._pipeline.changes and quiet:
            busy = written_recently(self._lake, {item.table for item in group}, quiet, self._clock.now())
        for item in group:
            if item.table in busy:
                yield Outcome.of(item, Status.LEFT, busy[item.table])
        rest = [item for item in group if item.table not in busy]
        if rest:
            yield from self._pipeline.run(self._lake, rest, self._journal)
