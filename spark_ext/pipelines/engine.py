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
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypedDict, Unpack
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from catalog.base.progress import Tell
from catalog.cli import output
from policy.errors import LakewardenError, RequestInvalid
from spark_ext.pipelines.budget import Budget
from spark_ext.pipelines.descriptions import described
from spark_ext.pipelines.failures import concerns_all, passes, reason
from spark_ext.pipelines.items import Finding, Item, Outcome, Status
from spark_ext.pipelines.journal import Journal
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.pipeline import Pipeline
from spark_ext.pipelines.report import Report, RunState
from spark_ext.pipelines.writers import written_recently

#: Seconds before a group is tried again, while a part that is needed does not answer.
_PATIENCE_S: Final = (1, 2, 4, 8, 15, 30, 60)
#: Findings of a run that its report names.
_MOST_FINDINGS: Final = 20_000


Problem = LakewardenError | PySparkException


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
    with (
        output.progress(f"{pipeline.name}: planning", shown=shown, lines=True) as tell,
        described(lake.spark, pipeline.name),
    ):
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
        #: Tables that this run has begun to change, so that its own commits do not count as writers'.
        self._changing: set[str] = set()
        self._began = time.monotonic()

    def report(self) -> Report:
        """Do what is left, record how the run ended, and report."""
        items = list(self._pipeline.plan(self._lake))
        left = [item for item in items if item.key not in self._journal.done]
        why = self._groups(left, len(items))
        outcomes = [self._outcome(item, why) for item in items]
        complete = all(each.status is Status.DONE for each in outcomes)
        try:
            self._journal.end(complete=complete, why=why)
            findings, counts = self._journal.findings(_MOST_FINDINGS)
        except (LakewardenError, PySparkException) as error:
            if why is None or not _is_away(error):
                raise
            # What this process found is all that can be told while the catalog is away.
            findings, counts = self._found()
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

    def _found(self) -> tuple[list[Finding], dict[str, int]]:
        found = [each for outcome in self._outcomes.values() for each in outcome.findings]
        return found[:_MOST_FINDINGS], dict(Counter(each.rule for each in found))

    def _outcome(self, item: Item, why: str | None) -> Outcome:
        known = self._outcomes.get(item.key) or self._journal.done.get(item.key)
        return known or Outcome.of(item, Status.LEFT, why)

    def _groups(self, left: Sequence[Item], total: int) -> str | None:
        """Do items group by group; return why the run ended before the last one."""
        done, size = 0, 0
        self._tell(f"{self._pipeline.name}: items", total - len(left), total)
        for group in self._budget.groups(left, self._pipeline.at_a_time):
            why = self._budget.exhausted(done, size, group[0], self._clock.now())
            if why is not None:
                return why
            fitting = self._budget.fitting(group, done, size)
            why = self._group(fitting)
            if why is not None:
                return why
            done, size = done + len(fitting), size + sum(item.bytes for item in fitting)
            self._tell(f"{self._pipeline.name}: items", total - len(left) + done, total)
            if len(fitting) < len(group):
                return self._budget.exhausted(done, size, group[len(fitting)], self._clock.now())
            self._clock.sleep(self._budget.pause_s)
        return None

    def _group(self, group: Sequence[Item]) -> str | None:
        """Do a group, and record it; return why the run ends, if it does."""
        outcomes: dict[str, Outcome] = {}

        def work(again: bool) -> None:
            for each in self._work([item for item in group if item.key not in outcomes]):
                outcomes[each.item] = each

        problem = self._patiently(work)
        unrecorded = self._record(list(outcomes.values())) if outcomes else None
        if unrecorded is None:
            self._outcomes |= outcomes
        error = problem or unrecorded
        return None if error is None else reason(error)

    def _record(self, outcomes: Sequence[Outcome]) -> Problem | None:
        """Record a group; return why it could not be recorded, if the catalog is away."""
        group_id = uuid4().hex
        problem = self._patiently(lambda again: self._journal.group(outcomes, group_id, again=again))
        if problem is not None and not _is_away(problem):
            raise problem
        return problem

    def _patiently(self, work: Callable[[bool], None]) -> Problem | None:
        """Do work, and wait while a part that is needed does not answer; return the error that stays.

        Args:
            work: is told whether an earlier attempt failed.
        """
        again = False
        for wait in (*_PATIENCE_S, None):
            try:
                work(again)
                return None
            except (LakewardenError, PySparkException) as error:
                if wait is None or not passes(error):
                    return error
            self._clock.sleep(wait)
            again = True
        raise AssertionError("The last attempt has ended.")

    def _work(self, group: Sequence[Item]) -> Iterator[Outcome]:
        """Do a group, but for tables that are being written where the budget spares them."""
        quiet = self._budget.quiet_s
        busy: dict[str, str] = {}
        if quiet:
            tables = {item.table for item in group if item.table} - self._changing
            busy = written_recently(self._lake, tables, quiet, self._clock.now())
            self._changing |= tables - busy.keys()
        for item in group:
            if item.table in busy:
                yield Outcome.of(item, Status.LEFT, busy[item.table])
        rest = [item for item in group if item.table not in busy]
        if rest:
            yield from self._pipeline.run(self._lake, rest, self._journal)


def _is_away(error: Problem) -> bool:
    """Return whether the catalog, or a part that it needs, does not answer or refuses the user."""
    return concerns_all(error) or passes(error)
