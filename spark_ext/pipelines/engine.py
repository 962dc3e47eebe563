"""Runs a pipeline: plans its items, does them in groups, records each group, and continues where a run ended.

- A group is recorded when it has ended. A driver that is killed loses the group under way, which the next run
  does again; no group is recorded twice.
- While the catalog does not answer, the group waits and is tried again, for about two minutes. An error that
  concerns all items then ends the run. What is left is reported, and the next run goes on with it.
- A dry run plans, changes nothing, and records nothing.

The function of a pipeline makes the pipeline, and runs it:

    def audit(spark: SparkSession, tables: str = "*", **options: Unpack[Options]) -> Report:
        return run(Audit(tables), spark, **options)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypedDict, Unpack

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from policy.errors import LakewardenError, RequestInvalid
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


class Options(TypedDict, total=False):
    """How a pipeline is run; what every pipeline's function takes.

    Attributes:
        catalog: the name that SQL knows the catalog by; by default the session's current catalog.
        budget: what the run does at a time, altogether, and when; by default without limits.
        dry_run: plan only; nothing is changed or recorded.
        fresh: begin a new run, and do not continue the last one with the same parameters.
        show: show progress, and a summary at the end; by default true.
    """

    catalog: str | None
    budget: Budget
    dry_run: bool
    fresh: bool
    show: bool


class Clock:
    """The time, and waiting; tests replace it."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def run(
    pipeline: Pipeline, spark: SparkSession, clock: Clock | None = None, **options: Unpack[Options]
) -> Report:
    """Run a pipeline, and report what was done, found and left.

    Args:
        pipeline: the pipeline.
        spark: a session with the catalog.
        clock: the time.
        options: see `Options`.

    Raises:
        RequestInvalid: a limit of the budget has no effect on the pipeline.
        LakewardenError, PySparkException: nothing can be planned or recorded.
    """
    budget = options.get("budget", Budget())
    _require_effect(pipeline, budget)
    lake, shown = Lake(spark, options.get("catalog")), options.get("show", True)
    with progress(shown) as tell:
        if options.get("dry_run", False):
            report = Report.of_plan(pipeline.name, pipeline.rules, pipeline.plan(lake))
        else:
            journal = Journal(lake, pipeline.name, pipeline.parameters, fresh=options.get("fresh", False))
            report = _Run(pipeline, lake, budget, journal, tell, clock or Clock()).report()
    if shown:
        report.show()
    return report


def _require_effect(pipeline: Pipeline, budget: Budget) -> None:
    if budget.quiet_s and not pipeline.changes:
        raise RequestInvalid(
            f"The pipeline {pipeline.name} changes no table, so quiet_s={budget.quiet_s:g} has no effect.",
            rule="budget",
            hint="Leave out quiet_s (--quiet).",
        )


class _Run:
    """One run of a pipeline, by this process."""

    def __init__(
        self, pipeline: Pipeline, lake: Lake, budget: Budget, journal: Journal, tell: Tell, clock: Clock
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
        if quiet:
            busy = written_recently(
                self._lake, {item.table for item in group if item.table}, quiet, self._clock.now()
            )
        for item in group:
            if item.table in busy:
                yield Outcome.of(item, Status.LEFT, busy[item.table])
        rest = [item for item in group if item.table not in busy]
        if rest:
            yield from self._pipeline.run(self._lake, rest, self._journal)
