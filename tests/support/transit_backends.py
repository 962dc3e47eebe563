"""The Transit back end as the behaviour suite uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from catalog.kms.vault import VaultKms
from catalog.settings.kms_options import VaultKmsOptions
from tests.support.kms_backends import Backend
from tests.support.transit_server import TransitKey, TransitServer, transit_server


def client(server: TransitServer, **options: Any) -> VaultKms:
    """A client with a token for all keys, unless the options give another identity."""
    if not {"token", "token_file", "role_id"} & set(options):
        options["token"] = server.token()
    return VaultKms.connect(VaultKmsOptions.model_validate({"url": server.url, **options}))


def version_of(wrapped: bytes) -> int:
    """The version of the Transit key that a wrapped key names."""
    end = 3 + wrapped[2]
    return int.from_bytes(wrapped[end : end + 4], "big")


@contextmanager
def transit(_: Path) -> Iterator[Backend]:
    """Our own server of Transit."""
    with transit_server() as (server, stop):
        server.keys = {name: TransitKey(derived=True) for name in ("lake", "pii")}

        yield Backend(
            client(server),
            "lake",
            "pii",
            again=lambda: client(server),
            disable=server.denied.add,
            enable=server.denied.discard,
            rotate=lambda name: server.keys[name].versions.append(TransitKey(True).versions[0]),
            version_of=version_of,
            stop=stop,
        )
