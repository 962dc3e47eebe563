"""Plans scans in a process of its own, and prints what each took as a line of JSON.

    python -m bench.plan_once ROOT TABLE SCAN...

ROOT has a catalog with a simulated table (`bench.large_table`). A scan is `all`, `LOW:HIGH` (files of a range
of `id`) or `unclustered` (a filter on a column by which files are not ordered).
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThan

from bench.large_table import SPREAD
from bench.samples import ROWS_A_FILE
from catalog.base.identifiers import table_name
from catalog.http.plan_stream import stream
from catalog.kms.local import LocalKms
from catalog.kms.root_key import KeyFile
from catalog.planning.request import ScanRequest
from catalog.service.services import Services
from catalog.settings.kms_options import LocalKmsOptions
from tests.support.lake import ALICE, Lake, lake_settings

_SAMPLED_S = 0.002


def main() -> None:
    """Plan each scan, with the time of the processor, the size of the answer and the anonymous memory."""
    root, name, *scans = sys.argv[1:]
    settings = lake_settings(Path(root))
    options = settings.kms.options
    assert isinstance(options, LocalKmsOptions)
    assert options.key_file is not None
    kms = LocalKms(options.keystore, KeyFile(options.key_file))
    start = time.process_time()
    services = Services.open(settings, kms)
    lake = Lake(Path(root), settings, services, kms)
    opened = time.process_time() - start
    for scan in scans:
        with _watched() as memory:
            start = time.process_time()
            plan = services.planner.plan(
                lake.caller(ALICE, "spark"), table_name(["db"], name), ScanRequest(filter=_filter(scan))
            )
            planned = time.process_time()
            size = sum(len(each) for each in stream(plan))
            taken = {"planned": planned - start, "answered": time.process_time() - start}
        anonymous = max(memory)
        found = {"files": plan.files.num_rows, "bytes": size, "anonymous": anonymous, "opened": opened}
        del plan
        print(json.dumps({"scan": scan} | taken | found), flush=True)
    services.close()


def _filter(scan: str) -> BooleanExpression:
    if scan == "all":
        return AlwaysTrue()
    if scan == "unclustered":
        return _between("quantity", SPREAD // 2, SPREAD // 2 + SPREAD // 1000)
    low, high = (int(each) * ROWS_A_FILE for each in scan.split(":"))
    return _between("id", low, high)


def _between(column: str, low: int, high: int) -> BooleanExpression:
    return And(GreaterThanOrEqual(column, low), LessThan(column, high))  # type: ignore[misc]


@contextmanager
def _watched() -> Iterator[list[int]]:
    """Sample the anonymous memory of this process meanwhile."""
    found = [_anonymous()]
    done = threading.Event()

    def sample() -> None:
        while not done.wait(_SAMPLED_S * 10):
            found.append(_anonymous())

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def _anonymous() -> int:
    with Path("/proc/self/status").open(encoding="ascii") as status:
        [line] = [each for each in status if each.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
