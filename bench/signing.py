"""Measures the CPU of a signed request to S3: judging the caller, deciding, signing; then with its record.

Budget: 2 ms of CPU of the whole process with the audit record, which every request has. Each record is
committed by itself here; of concurrent requests, several are committed together. Nothing is read from S3
after the first request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from unittest.mock import patch

from bench import samples
from bench.report import Figure, figure
from bench.samples import root_of
from catalog.audit.outcomes import Outcome, following
from catalog.snapshot_checks.added_files import AddedFiles
from catalog.storage_access.s3_requests import Asked
from tests.support.lake import ALICE, Lake
from tests.support.moto_server import REGION, moto_s3
from tests.support.service import open_service
from tests.support.tables import named

_FILES: Final = 1_000
_BATCH: Final = 50


def measure(root: Path, batches: int) -> list[Figure]:
    """Sign requests for a table of 1,000 files: reads of a data file, and creations of one."""
    with (
        moto_s3() as moto,
        open_service(root_of(root, "signing"), s3=moto, S3__SIGNING="true") as service,
    ):
        lake = service.lake
        lake.catalog().create_namespace("db")
        # Only names are signed: the data files are named, and not there.
        with patch.object(AddedFiles, "check"), patch.object(samples, "_lay_down"):
            table = samples.make_table(lake.catalog(), "db.t", _FILES, 100)
        base = f"{moto.endpoint}/{table.location().removeprefix('s3://')}"
        file = next(iter(table.scan().plan_files())).file.file_path.removeprefix("s3://")
        asked = {
            "GET": Asked("GET", REGION, f"{moto.endpoint}/{file}", {"Range": ["bytes=0-9"]}),
            "PUT": Asked("PUT", REGION, f"{base}/data/new.parquet", {}),
        }
        found = []
        for method, each in asked.items():
            alone, whole = (_signing(lake, each, recorded=recorded) for recorded in (False, True))
            found += [
                figure(f"signature of {method}, {_FILES:,} files", _cpu(alone, batches), "ms"),
                figure("  with its audit record", _cpu(whole, batches), "ms", "2"),
            ]
        return found


def _signing(lake: Lake, asked: Asked, *, recorded: bool) -> Callable[[], None]:
    """Return a signature as the service makes it."""
    services = lake.services
    assert services.signing is not None
    sign = services.signing.sign

    def one() -> None:
        caller, outcome = lake.caller(ALICE), Outcome("POST sign", changes=False)
        with following(outcome):
            sign(caller, named("t"), asked)
        if recorded:
            services.authorizer.succeeded(caller, outcome)

    return one


def _cpu(one: Callable[[], None], batches: int) -> list[float]:
    """Return the milliseconds of CPU of each, batch by batch."""
    one()
    taken = []
    for _ in range(batches):
        start = time.process_time()
        for _ in range(_BATCH):
            one()
        taken.append((time.process_time() - start) / _BATCH * 1000)
    return taken
