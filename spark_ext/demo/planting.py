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
    """Add foreign files in three ways, each of which is refused."""
    stage.screen.chapter("Mallory puts another team's files into her own table")
    stage.screen.say(
        f"Mallory has no permission on {FLIGHTS}, but she can write the directory of her own table, {PICKS}. "
        "With standard tools, she writes a manifest there that names operations' files. She does not open "
        "them herself: the engine can read all of storage, and would open them for her."
    )
    foreign = stage.foreign_files(FLIGHTS, stage.flights.rows)
    commit_by_standard_client(stage, foreign)
    commit_to_pointer_store(stage, foreign)
    edit_in_place(stage, foreign)


def commit_by_standard_client(stage: Stage, foreign: Sequence[ForeignFile]) -> None:
    """Commit through the catalog."""
    stage.screen.say("Attempt 1: she commits the manifest with a standard client, pyiceberg.")
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
    """Commit without the catalog, to the database of the metadata pointers."""
    stage.screen.say("Attempt 2: she commits directly to the pointer store, without the catalog.")
    with stock.stock_catalog(stage.lake.settings.catalog.name, stage.lake.database_url) as catalog:
        stock.commit(catalog, PICKS, planted(catalog.load_table(PICKS), foreign))
        answer = _foreign_rows(stage, stock.read(catalog.load_table(PICKS)), OWN_ROWS)
    stage.attempt(
        "The same, committed directly to the pointer store",
        MALLORY,
        answer,
        lambda: _counted(stage),
        refusal="MetadataUnsealed (unsealed)",
    )
    stage.screen.say(
        "Ann, the catalog's administrator, sets the pointer back to the metadata that was sealed last."
    )
    stage.lake.administer(ANN, f"tables/{PICKS.replace('.', '/')}/restore")
    expect(stage.count(MALLORY, PICKS) == OWN_ROWS, f"{PICKS} has its own rows again")


def edit_in_place(stage: Stage, foreign: Sequence[ForeignFile]) -> None:
    """Overwrite the bytes of a manifest in use, without a commit."""
    stage.screen.say("Attempt 3: she commits nothing, and overwrites a manifest that her table already uses.")
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
    stage.screen.say("The manifest's bytes are restored.")
    expect(stage.count(MALLORY, PICKS) == OWN_ROWS, f"{PICKS} has its own rows again")


def widen(stage: Stage) -> None:
    """Change the allow-list: only a user whom a policy authorizes can."""
    stage.screen.chapter("Change the locations that a table can be read from")
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

    stage.screen.say(f"Mallory owns {PICKS}, and adds operations' directory to its allow-list.")
    what = f"ALTER TABLE … SET {_LIST}"
    stage.attempt(what, MALLORY, answer, lambda: alter(MALLORY), refusal="NotAuthorized (policy-no-match)")
    stage.screen.say("Sam is a data steward: a policy permits sharing files in operations' directory.")
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
    """A standard catalog in a separate database, with the current state of Mallory's table."""
    file = stage.directory / "stock-catalog.db"
    file.unlink(missing_ok=True)
    with stock.stock_catalog("stock", f"sqlite:///{file}") as catalog:
        catalog.create_namespace(PICKS.partition(".")[0])
        catalog.register_table(PICKS, stage.lake.table(MALLORY, PICKS).metadata_location)
        yield catalog


def _counted(stage: Stage) -> str:
    return f"{stage.count(MALLORY, PICKS):,} rows"


def _foreign_rows(stage: Stage, read: stock.StockRows, own: int) -> Answer:
    """Describe the rows that a standard reader returns, with those of the other team."""
    expect(read.total == own + stage.flights.rows, "a standard reader returns every row of the other team")
    sample = ", ".join(str(value) for value in list(read.sample.values())[:6])
    stage.screen.say(f"A standard reader returns {read.total - own:,} rows of {FLIGHTS}, such as {sample}.")
    return Answer(f"{read.total - own:,} rows of {FLIGHTS}")
