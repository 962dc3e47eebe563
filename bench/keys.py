"""The keys of a plan: plans an encrypted table and the same table in plaintext, in turns.

    python -m bench.keys

Budget: warm, 5 ms and 1 µs a file more than the table in plaintext, in time of the processor; 5 µs a file
    more where a filter goes by sealed bounds. And the KMS: one unwrap a PEK and TTL, however many plans and
    files are there. Beside them stands what AES-GCM takes by itself to open and seal as many keys, in one
    loop over bytes that are at hand.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, LessThan
from rich.console import Console

from bench.report import Figure, at_most, figure, show
from bench.samples import root_of
from catalog.base.identifiers import TableName
from catalog.planning.plan import Plan
from catalog.planning.request import ScanRequest
from tests.support.lake import ALICE, Lake, open_lake
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of, ten_ids

SIZES = (1, 1_000, 100_000)
#: Files of the tables that are filtered by a column with bounds, and what sealed ones may cost for each.
FILTERED, A_BOUND_US = 10_000, 5.0
FIXED_MS, A_FILE_US = 5.0, 1.0
_A_COMMIT = 10_000


def measure(root: Path, runs: int) -> list[Figure]:
    """Plans of tables of several sizes, encrypted and in plaintext."""
    figures = []
    with open_lake(root_of(root, "keys"), CACHE__MANIFEST_BYTES=1 << 30, KMS__PEK_TTL_S=3600) as lake:
        lake.catalog().create_namespace("db")
        for size in SIZES:
            clear, encrypted = _filled(lake, size, {}), _filled(lake, size, ENCRYPTED)
            before = _kms_calls(lake)
            figures += _compared(lake, size, clear, encrypted, runs)
            figures.append(figure("  calls to the KMS meanwhile", [_kms_calls(lake) - before], "calls", "0"))
            alone = [1000 * _ciphers_alone(size) for _ in range(runs)]
            figures.append(figure("  AES-GCM by itself", alone, "ms"))
        figures += _filtered(lake, runs)
    return figures


def _filtered(lake: Lake, runs: int) -> list[Figure]:
    """Plans with a filter that one file in a hundred passes, by bounds in plaintext and by sealed ones."""
    clear, sealed = (_described(lake, FILTERED, each) for each in ({}, ENCRYPTED))
    some = LessThan("id", 10 * FILTERED // 100)
    assert _plan(lake, sealed, some).files.num_rows == FILTERED // 100
    pairs = [(_taken(lake, clear, some), _taken(lake, sealed, some)) for _ in range(1 + runs)][1:]
    in_plaintext, with_keys = zip(*pairs, strict=True)
    more = [1_000_000 * (b - a) / FILTERED for a, b in pairs]
    return [
        figure(
            f"plan {FILTERED:,} files, 1 % match, bounds in plaintext", [1000 * a for a in in_plaintext], "ms"
        ),
        figure(f"plan {FILTERED:,} files, 1 % match, bounds sealed", [1000 * b for b in with_keys], "ms"),
        at_most(A_BOUND_US, figure("  more for sealed bounds, a file", more, "µs")),
    ]


def _described(lake: Lake, files: int, properties: dict[str, str]) -> TableName:
    """A table of files with ten ids each, no id twice, and names of one length."""
    name = name_of(make(lake, properties=properties))
    engine = Engine.begin(lake, name)
    engine.append(*(engine.file(**ten_ids(10 * number)) for number in range(files)))
    return name


def _compared(lake: Lake, files: int, clear: TableName, encrypted: TableName, runs: int) -> list[Figure]:
    assert _plan(lake, encrypted).files.num_rows == files
    pairs = [(_taken(lake, clear), _taken(lake, encrypted)) for _ in range(1 + runs)][1:]
    in_plaintext, with_keys = zip(*pairs, strict=True)
    more = [1000 * (a - b) for b, a in pairs]
    limit = FIXED_MS + files * A_FILE_US / 1000
    return [
        figure(f"plan {files:,} files in plaintext, warm", [1000 * each for each in in_plaintext], "ms"),
        figure(f"plan {files:,} encrypted files, warm", [1000 * each for each in with_keys], "ms"),
        at_most(limit, figure("  more for the keys", more, "ms")),
    ]


def _filled(lake: Lake, files: int, properties: dict[str, str]) -> TableName:
    """A table of so many files."""
    name = name_of(make(lake, properties=properties))
    for first in range(0, files, _A_COMMIT):
        append_files(lake, name, min(_A_COMMIT, files - first))
    return name


def _taken(lake: Lake, name: TableName, row_filter: BooleanExpression | None = None) -> float:
    start = time.process_time()
    _plan(lake, name, row_filter)
    return time.process_time() - start


def _ciphers_alone(count: int) -> float:
    """Seconds of the processor to open and seal so many keys of 32 bytes."""
    opening, sealing, aad, plain = AESGCM(os.urandom(32)), AESGCM(os.urandom(32)), bytes(90), bytearray(32)
    nonces = [number.to_bytes(12) for number in range(count)]
    sealed = [opening.encrypt(nonce, bytes(32), aad) for nonce in nonces]
    start = time.process_time()
    for nonce, each in zip(nonces, sealed, strict=True):
        opening.decrypt_into(nonce, each, aad, plain)
        sealing.encrypt(nonce, plain, aad)
    return time.process_time() - start


def _plan(lake: Lake, name: TableName, row_filter: BooleanExpression | None = None) -> Plan:
    request = ScanRequest(filter=row_filter or AlwaysTrue())
    return lake.services.planner.plan(lake.caller(ALICE, "spark"), name, request)


def _kms_calls(lake: Lake) -> int:
    return sum(lake.services.kms_calls.counts().values())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        show(Console(), "Keys of plans", measure(Path(directory).resolve(), 7))
