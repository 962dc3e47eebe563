"""Step by step: encrypted files are swapped, damaged and replaced, and a key is revoked."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from spark_ext.demo.attacker import flipped, overwritten
from spark_ext.demo.lake import PEK_TTL_S
from spark_ext.demo.outcome import Answer, expect
from spark_ext.demo.people import ANN, EVE, MASTER_KEY, OLGA
from spark_ext.demo.stage import ENCRYPTED, FLIGHTS, Stage
from spark_ext.demo.stock_encryption import StockEncryption

#: Reads every byte of every column.
_CHECKSUM: Final = f"SELECT bit_xor(xxhash64(*)) FROM lake.{ENCRYPTED}"


def tamper(stage: Stage) -> None:
    """Three changes to files of the encrypted table, each of them refused."""
    stage.screen.chapter("Eve changes encrypted files")
    stage.screen.say(
        "Eve runs the storage, and can write every directory in it. Each time, Olga computes a checksum over "
        f"all columns of {ENCRYPTED}. The stock stack is Parquet encryption as PyArrow has it, on the same "
        "flights."
    )
    stock = StockEncryption(stage.directory / "stock-encryption", stage.flights.flights)
    before = _checksum(stage)
    first, second = stage.data_files(ENCRYPTED)[:2]
    _replace(stage, "A data file swapped for another one of the table", stock.swapped(), second.read_bytes())
    _replace(stage, "A bit of a data file flipped", stock.flipped(), flipped(first.read_bytes()))
    plaintext = stage.data_files(FLIGHTS)[0].read_bytes()
    _replace(
        stage, "A plaintext file in the place of an encrypted one", stock.replaced_by_plaintext(), plaintext
    )
    expect(_checksum(stage) == before, "the files are as they were")
    revoke(stage, stock)
    expect(_checksum(stage) == before, "the key can be used again")


def revoke(stage: Stage, stock: StockEncryption) -> None:
    """A master key is disabled."""
    stage.screen.say(
        f"Ann disables the master key. The catalog of this demonstration keeps keys for {PEK_TTL_S} seconds, "
        "so that it takes effect while we wait; the default is 60."
    )
    stage.lake.administer(ANN, "master-keys/disable", {"id": MASTER_KEY})
    time.sleep(PEK_TTL_S)
    stage.attempt(
        "A query after the key was revoked",
        OLGA,
        stock.revoked(),
        lambda: f"checksum {_checksum(stage)}",
        refusal="KeyNotUsable",
    )
    stage.screen.say("Ann enables it again, and the query works.")
    stage.lake.administer(ANN, "master-keys/enable", {"id": MASTER_KEY})


def _replace(stage: Stage, what: str, stock: Answer, content: bytes) -> None:
    stage.screen.say(f"{what}:")
    path: Path = stage.data_files(ENCRYPTED)[0]
    with overwritten(path, content):
        stage.attempt(what, EVE, stock, lambda: f"checksum {_checksum(stage)}", refusal="DecryptionRefused")


def _checksum(stage: Stage) -> int:
    return stage.number(OLGA, _CHECKSUM)
