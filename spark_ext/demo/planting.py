"""Attacks step by step: adds foreign files to a table in three different ways, then in the supported way."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyiceberg.catalog.sql import SqlCatalog

from spark_ext.demo import stock
from spark_ext.demo.attacker import ForeignFile, edited_in_place, planted
from spark_ext.demo.outcome import Answer, expect
from spark_ext.demo.people import ANN, MALLORY, SAM
from spark_ext.demo.stage import FLIGHTS, OWN_ROWS, PICKS, Stage
from spark_ext.demo.tables import literal

_LIST = "read.allowed.data.paths"


def plant(stage: Stage) -> None:
    """Three ways in, each of them refused."""
    stage.screen.chapter("Mallory puts another team's files into her own table")
    stage.screen.say(
        f"Mallory has no right on {FLIGHTS}. But she can write the directory of her own table, {PICKS}: with "
        "stock tools she writes a manifest there that names operations' files. She never has to open them: "
        "the engine, which may read all of storage, would do that for her."
    )
    foreign = stage.foreign_files(FLIGHTS, stage.flights.rows)
    commit_by_standard_client(stage, foreign)
    commit_to_pointer_store(stage, foreign)
    edit_in_place(stage, foreign)


def commit_by_standard_client(stage: Stage, foreign: Sequence[ForeignFile]) -> None:
    """The commit comes to the catalog."""
    stage.screen.say("The first way: she commits the manifest with a standard client, pyiceberg.")
    client = stage.lake.standard_client(MALLORY)
    updates = planted(client.load_table(PICKS), foreign)
    with _stock_lake(stage) as catalog:
        stock.commit(catalog, PICKS, updates)
        answer = _foreign_rows(stage, stock.read(catalog.load_table(PICKS)), OWN_ROWS)

    def commit() -> str:
        stock.commit(client, PICKS, updates)
        return "committed"

    stage.attempt(
        "Another table's files, committed by a standard client",
        MALLORY,
        answer,
        commit,
        refusal="LocationNotAllowed (allowed-paths)",
    )


def commit_to_pointer_store(stage: Stage, foreign: Sequence[ForeignFile]) -> None:
    """The commit goes past the catalog, into the database that holds the tables' pointers."""
    stage.screen.say("The second way: she commits straight to the pointer store, behind the catalog's back.")
    with stock.stock_catalog(stage.lake.settings.catalog.name, stage.lake.database_url) as catalog:
        stock.commit(catalog, PICKS, planted(catalog.load_table(PICKS), foreign))
        answer = _foreign_rows(stage, stock.read(catalog.load_table(PICKS)), OWN_ROWS)
    stage.attempt(
        "The same, committed straight to the pointer store",
        MALLORY,
        answer,
        lambda: _counted(stage),
        refusal="MetadataUnsealed (unsealed)",
    )
    stage.screen.say(
        "Ann, who looks after the catalog, puts the pointer back on the metadata that was sealed last."
    )
    stage.lake.administer(ANN, f"tables/{PICKS.replace('.', '/')}/restore")
    expect(stage.count(MALLORY, PICKS) == OWN_ROWS, f"{PICKS} has its own rows again")


def edit_in_place(stage: Stage, foreign: Sequence[ForeignFile]) -> None:
    """Nothing is committed; the bytes of a manifest that is in use are written over."""
    stage.screen.say(
        "The third way: she commits nothing, and writes over the manifest that her table uses already."
    )
    mine = stage.lake.table(MALLORY, PICKS)
    with edited_in_place(mine, foreign):
        answer = _foreign_rows(stage, stock.read_at(mine.metadata_location), 0)
        stage.attempt(
            "The same, in a manifest that was edited in place",
            MALLORY,
            answer,
            lambda: _counted(stage),
            refusal="MetadataTampered (seal)",
        )
    stage.screen.say("The manifest's bytes are put back.")
    expect(stage.count(MALLORY, PICKS) == OWN_ROWS, f"{PICKS} has its own rows again")


def widen(stage: Stage) -> None:
    """The list of allowed locations is changed by the one whom a policy authorizes, and by nobody else."""
    stage.screen.chapter("Who may say where a table is read from")
    own = stage.lake.table(MALLORY, PICKS).location()
    theirs = stage.foreign_files(FLIGHTS, 0)[0].path.partition("/data/")[0]
    wider = json.dumps([own, theirs])
    statement = f"ALTER TABLE lake.{PICKS} SET TBLPROPERTIES ('{_LIST}' = {literal(wider)})"
    with _stock_lake(stage) as catalog:
        catalog.load_table(PICKS).transaction().set_properties({_LIST: wider}).commit_transaction()
        answer = Answer("accepted: a property like any other")

    def alter(who: str) -> str:
        stage.run(who, statement)
        return "done"

    stage.screen.say(
        f"Mallory owns {PICKS}, and adds operations' directory to the list of where it is read from."
    )
    what = f"ALTER TABLE … SET {_LIST}"
    stage.attempt(what, MALLORY, answer, lambda: alter(MALLORY), refusal="NotAuthorized (policy-no-match)")
    stage.screen.say("Sam is a steward: a policy lets him share what lies in operations' directory.")
    stage.attempt(what, SAM, answer, lambda: alter(SAM), refusal=None)
    _commit_allowed(stage)


def _commit_allowed(stage: Stage) -> None:
    stage.screen.say("Now the same commit by the same standard client is accepted, and the query works.")
    client = stage.lake.standard_client(MALLORY)
    foreign = stage.foreign_files(FLIGHTS, stage.flights.rows)
    stock.commit(client, PICKS, planted(client.load_table(PICKS), foreign))
    rows = stage.count(MALLORY, PICKS)
    stage.screen.say(f"{rows:,} rows: her own {OWN_ROWS}, and {FLIGHTS}.")
    expect(rows == OWN_ROWS + stage.flights.rows, "the shared rows are read beside her own")


@contextmanager
def _stock_lake(stage: Stage) -> Iterator[SqlCatalog]:
    """A stock catalog, in a database of its own, that knows Mallory's table as it is now."""
    file = stage.directory / "stock-catalog.db"
    file.unlink(missing_ok=True)
    with stock.stock_catalog("stock", f"sqlite:///{file}") as catalog:
        catalog.create_namespace(PICKS.partition(".")[0])
        catalog.register_table(PICKS, stage.lake.table(MALLORY, PICKS).metadata_location)
        yield catalog


def _counted(stage: Stage) -> str:
    return f"{stage.count(MALLORY, PICKS):,} rows"


def _foreign_rows(stage: Stage, read: stock.StockRows, own: int) -> Answer:
    """What a stock reader got; among it everything that is not hers."""
    expect(read.total == own + stage.flights.rows, "a stock reader returns every row of the other team")
    sample = ", ".join(str(value) for value in list(read.sample.values())[:6])
    stage.screen.say(f"A stock reader returns {read.total - own:,} rows of {FLIGHTS}; one of them: {sample}.")
    return Answer(f"{read.total - own:,} rows of {FLIGHTS}")
