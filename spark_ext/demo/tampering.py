"""Attacks step by step: swaps, damages and replaces encrypted files, and revokes a key."""

from __future__ import annotations

import time
from typing import Final

from spark_ext.demo.attacker import flipped, forged, in_place_of, overwritten
from spark_ext.demo.lake import PEK_TTL_S
from spark_ext.demo.outcome import expect
from spark_ext.demo.people import ANN, EVE, MASTER_KEY, OLGA
from spark_ext.demo.stage import ENCRYPTED, FLIGHTS, Stage
from spark_ext.demo.stock_encryption import StockEncryption

#: Reads every byte of every column.
_CHECKSUM: Final = f"SELECT bit_xor(xxhash64(*)) FROM lake.{ENCRYPTED}"


def tamper(stage: Stage) -> None:
    """Change files and revoke a key. Each is refused, and everything is restored."""
    stage.screen.chapter("Eve changes encrypted files, and Ann revokes a key")
    stage.screen.say(
        "Eve operates the storage, and can write every directory. After each change, Olga computes a "
        f"checksum over all columns of {ENCRYPTED}. The comparison is PyArrow's Parquet encryption on the "
        "same flights."
    )
    stock = StockEncryption(stage.directory / "stock-encryption", stage.flights.flights)
    before = _checksum(stage)
    change_files(stage, stock)
    revoke(stage, stock)
    expect(_checksum(stage) == before, "all is as it was")


def change_files(stage: Stage, stock: StockEncryption) -> None:
    """Overwrite a data file of the encrypted table three times, each time with as many bytes as it had."""
    other, target = sorted(stage.data_files(ENCRYPTED), key=lambda path: path.stat().st_size)
    original, plaintext = target.read_bytes(), forged(stage.data_files(FLIGHTS)[0])
    for what, by_stock, content, refusal in (
        (
            "A data file swapped for another one of the table",
            stock.swapped(),
            in_place_of(original, other.read_bytes()),
            "DecryptionRefused (file-authentic)",
        ),
        (
            "A data file with one bit flipped",
            stock.flipped(),
            flipped(original),
            "DecryptionRefused (file-authentic)",
        ),
        (
            "An encrypted file replaced by a plaintext file",
            stock.replaced_by_plaintext(),
            in_place_of(original, plaintext),
            "DecryptionRefused (plaintext-file)",
        ),
    ):
        stage.screen.say(f"{what}:")
        with overwritten(target, content):
            stage.attempt(what, EVE, by_stock, lambda: _shown_checksum(stage), refusal=refusal)


def revoke(stage: Stage, stock: StockEncryption) -> None:
    """Disable a master key."""
    stage.screen.say(
        f"Ann disables the master key. This takes effect within {PEK_TTL_S} seconds in this demonstration, "
        "and within 60 seconds by default."
    )
    stage.lake.administer(ANN, "master-keys/disable", {"id": MASTER_KEY})
    time.sleep(PEK_TTL_S)
    stage.attempt(
        "A query after the key was revoked",
        OLGA,
        stock.revoked(),
        lambda: _shown_checksum(stage),
        refusal="KeyNotUsable (master-key)",
    )
    stage.screen.say("Ann enables it again, and the query works.")
    stage.lake.administer(ANN, "master-keys/enable", {"id": MASTER_KEY})


def _checksum(stage: Stage) -> int:
    return stage.number(OLGA, _CHECKSUM)


def _shown_checksum(stage: Stage) -> str:
    return f"checksum {_checksum(stage):,}"
