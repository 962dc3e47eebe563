"""The keys of a plan: planning an encrypted table beside planning the same table in clear, in turns.

    python -m bench.keys

Budget: warm, 5 ms and 1 µs a file more than the table in clear, in time of the processor. And the KMS: one
unwrap a PEK and TTL, however many plans and files there are. Beside them stands what AES-GCM takes by itself
to open and seal as many keys, in one loop over bytes that are at hand.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyiceberg.expressions import AlwaysTrue
from rich.console import Console

from bench.report import Figure, at_most, figure, show
from bench.samples import root_of
from catalog.identifiers import TableName
from catalog.planning.plan import Plan, ScanRequest
from tests.support.lake import ALICE, Lake, open_lake
from tests.support.tables import ENCRYPTED, append_files, make, name_of

SIZES = (1, 1_000, 100_000)
FIXED_MS, A_FILE_US = 5.0, 1.0
_A_COMMIT = 10_000


def measure(root: Path, runs: int) -> list[Figure]:
    """Plans of tables of several sizes, encrypted and in clear."""
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
    return figures


def _compared(lake: Lake, files: int, clear: TableName, encrypted: TableName, runs: int) -> list[Figure]:
    assert _plan(lake, encrypted).files.num_rows == files
    pairs = [(_taken(lake, clear), _taken(lake, encrypted)) for _ in range(1 + runs)][1:]
    in_clear, with_keys = zip(*pairs, strict=True)
    more = [1000 * (a - b) for b, a in pairs]
    limit = FIXED_MS + files * A_FILE_US / 1000
    return [
        figure(f"plan {files:,} files in clear, warm", [1000 * each for each in in_clear], "ms"),
        figure(f"plan {files:,} encrypted files, warm", [1000 * each for each in with_keys], "ms"),
        at_most(limit, figure("  more for the keys", more, "ms")),
    ]


def _filled(lake: Lake, files: int, properties: dict[str, str]) -> TableName:
    """A table of so many files."""
    name = name_of(make(lake, properties=properties))
    for first in range(0, files, _A_COMMIT):
        append_files(lake, name, min(_A_COMMIT, files - first))
    return name


def _taken(lake: Lake, name: TableName) -> float:
    start = time.process_time()
    _plan(lake, name)
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


def _plan(lake: Lake, name: TableName) -> Plan:
    return lake.warden.planner.plan(lake.caller(ALICE, "spark"), name, ScanRequest(filter=AlwaysTrue()))


def _kms_calls(lake: Lake) -> int:
    return sum(lake.warden.kms_calls.counts().values())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        show(Console(), "Keys of plans", measure(Path(directory).resolve(), 7))
