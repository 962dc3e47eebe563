"""Compares loads with a storage credential, kept or new, with loads without one, over HTTP in one run.

The STS is moto's on this machine: a new credential costs what it takes to ask it, without a network.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final
from unittest.mock import patch

import httpx

from bench.report import Figure, figure
from bench.samples import root_of
from catalog.storage_access.credential_cache import CredentialCache
from tests.support.guarded_store import ROLE
from tests.support.http_calls import SCHEMA
from tests.support.moto_server import moto_s3
from tests.support.service import open_service

_WARM: Final = 5
_ASKED: Final = {"X-Iceberg-Access-Delegation": "vended-credentials"}


def measure(root: Path, requests: int) -> list[Figure]:
    """Load one table of 200, each with a location of its own, in the three ways."""
    with moto_s3() as moto:
        sts = {"S3__STS__ROLE_ARN": ROLE, "S3__STS__ENDPOINT": moto.endpoint}
        with open_service(root_of(root, "credentials"), s3=moto, **sts) as service:
            service.lake.catalog().create_namespace("db")
            tables = f"{service.prefix}/namespaces/db/tables"
            with service.client() as client:
                for number in range(200):
                    client.post(tables, json={"name": f"t{number}", "schema": SCHEMA}).raise_for_status()
                plain = _loads(client, f"{tables}/t7", requests, {})
                kept = _loads(client, f"{tables}/t7", requests, _ASKED)
                with patch.object(CredentialCache, "get", lambda _, _key, issue: issue()):
                    new = _loads(client, f"{tables}/t7", requests, _ASKED)
    return [
        figure("load without a credential, p50", plain, "ms"),
        figure("load with a credential that is kept, p50", kept, "ms"),
        figure("load with a new credential, p50", new, "ms"),
    ]


def _loads(client: httpx.Client, path: str, count: int, headers: dict[str, str]) -> list[float]:
    """The milliseconds of each load."""
    taken = []
    for _ in range(count + _WARM):
        start = time.perf_counter()
        client.get(path, headers=headers).raise_for_status()
        taken.append((time.perf_counter() - start) * 1000)
    return taken[_WARM:]
