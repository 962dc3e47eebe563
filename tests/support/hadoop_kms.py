"""The Hadoop KMS back end over the catalog's own door, as the behaviour suite uses it."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import SecretStr

from catalog.kms.hadoop import HadoopKms
from catalog.settings.kms_options import HadoopKmsOptions
from tests.support.kms_backends import Backend
from tests.support.kms_endpoint import make_key
from tests.support.lake import ALICE, Lake, open_lake, policy
from tests.support.service import Service, running

#: The catalog that keeps its keys in this KMS.
CLIENT = "other-catalog"
_KEYS = ("lake", "pii")
#: Each answer waits for a record in the trail; longer than options may say, for a machine that is busy.
_PATIENCE_S = 30.0


def policies(allowed: set[str]) -> list[dict[str, Any]]:
    """Alice looks after the keys; the other catalog may use and release these."""
    made = [policy("alice", {"key": ["door/*"]}, {ALICE: ["use", "release", "rotate", "destroy"]})]
    for name in sorted(allowed):
        made.append(policy(f"use-{name}", {"key": [f"door/{name}"]}, {CLIENT: ["use", "release"]}))
    return made


def client_of(service: Service) -> HadoopKms:
    """The back end with a token of the other catalog's."""
    port = service.url.rpartition(":")[2]
    options = HadoopKmsOptions(
        url=f"kms://http@127.0.0.1:{port}/kms", token=SecretStr(service.token(CLIENT, "kms"))
    )
    return HadoopKms(options.model_copy(update={"request_timeout_s": _PATIENCE_S}))


@contextmanager
def hadoop(_: Path) -> Iterator[Backend]:
    """A Hadoop KMS: the KMS endpoint of a catalog."""
    lake = _lake()
    lake.set_policies(policies(set(_KEYS)))
    with ExitStack() as services:
        service = services.enter_context(running(lake))
        yield _backend(lake, service, services)


@cache
def _lake() -> Lake:
    """The catalog behind the KMS endpoint: one for the whole process, since making it takes longest."""
    opened = ExitStack()
    atexit.register(opened.close)
    directory = Path(opened.enter_context(TemporaryDirectory(prefix="door-")))
    lake = opened.enter_context(open_lake(directory, policies=policies(set()), KMS_ENDPOINT__ENABLED="true"))
    for name in _KEYS:
        make_key(lake, name)
    return lake


def _backend(lake: Lake, service: Service, services: ExitStack) -> Backend:
    allowed = set(_KEYS)

    def disable(name: str) -> None:
        allowed.discard(name)
        lake.set_policies(policies(allowed))

    def enable(name: str) -> None:
        allowed.add(name)
        lake.set_policies(policies(allowed))

    return Backend(
        client_of(service),
        *_KEYS,
        again=lambda: client_of(service),
        disable=disable,
        enable=enable,
        rotate=lambda name: lake.services.kms_endpoint.roll(lake.caller(ALICE), name),
        version_of=lambda wrapped: wrapped[2 : 2 + wrapped[1]],
        stop=services.close,
    )
