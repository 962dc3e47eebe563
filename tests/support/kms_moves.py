"""A catalog with three KMSs, whose keys move from one to the next, and their administrators' side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog.cli.session import open_kms
from catalog.kms.clients import KmsKey
from catalog.service.services import Services
from tests.support.lake import ALICE, Lake, lake_settings, open_lake
from tests.support.moto_kms import MotoKms, moto_kms
from tests.support.moto_server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from tests.support.transit_server import TransitKey, TransitServer, transit_server

#: The name of the key in Vault.
VAULT_KEY = "lake-2"


@dataclass
class KmsLake:
    """A catalog whose main KMS is local, beside AWS KMS and Vault.

    Attributes:
        lake: the catalog.
        moto: AWS KMS.
        transit: Vault.
        stop_transit: ends it.
        overrides: the settings of the two.
    """

    lake: Lake
    moto: MotoKms
    transit: TransitServer
    stop_transit: Callable[[], None]
    overrides: dict[str, Any]

    @property
    def aws_key(self) -> KmsKey:
        """The key in AWS KMS."""
        return KmsKey("aws", self.moto.lake)

    @property
    def vault_key(self) -> KmsKey:
        """The key in Vault."""
        return KmsKey("vault", VAULT_KEY)


def aws_options(moto: MotoKms, section: str) -> dict[str, str]:
    """The settings of a section for AWS KMS."""
    return {
        f"{section}__KIND": "aws",
        f"{section}__OPTIONS__REGION": REGION,
        f"{section}__OPTIONS__ENDPOINT": moto.endpoint,
        f"{section}__OPTIONS__ACCESS_KEY_ID": ACCESS_KEY_ID,
        f"{section}__OPTIONS__SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
    }


def vault_options(server: TransitServer, section: str) -> dict[str, str]:
    """The settings of a section for Vault."""
    return {
        f"{section}__KIND": "vault",
        f"{section}__OPTIONS__URL": server.url,
        f"{section}__OPTIONS__TOKEN": server.token(),
    }


@contextmanager
def open_kms_lake(root: Path, **overrides: Any) -> Iterator[KmsLake]:
    """Open a catalog with three KMSs in an empty directory."""
    with moto_kms() as moto, transit_server() as (transit, stop):
        transit.keys[VAULT_KEY] = TransitKey(derived=True)
        others = {
            **aws_options(moto, "OTHER_KMS__AWS"),
            **vault_options(transit, "OTHER_KMS__VAULT"),
            "OTHER_KMS__AWS__CALLS__ATTEMPTS": 1,
            "OTHER_KMS__VAULT__CALLS__ATTEMPTS": 1,
            # No circuit breaker opens, so that no test waits until one closes.
            "OTHER_KMS__VAULT__CALLS__FAILURES": 1000,
            **overrides,
        }
        with open_lake(root, **others) as lake:
            yield KmsLake(lake, moto, transit, stop, others)


@contextmanager
def opened_with(lake: Lake, **overrides: Any) -> Iterator[Lake]:
    """The same catalog, opened beside with the settings of another KMS."""
    settings = lake_settings(lake.root, **overrides)
    kms = open_kms(settings.kms)
    other = Lake(lake.root, settings, Services.open(settings, kms), kms)  # type: ignore[arg-type]
    try:
        yield other
    finally:
        other.services.close()


def assign(lake: Lake, master_key_id: str, key: KmsKey) -> KmsKey:
    """Let a master key id stand for a KMS key; the one before."""
    return lake.services.master_key_moves.assign(master_key_id, key, ALICE)


def move_all(lake: Lake, master_key_id: str, limit: int = 2) -> int:
    """Move all keys in batches, none of which may fail; how many moved."""
    moved, after = 0, None
    while True:
        done = lake.services.master_key_moves.move(master_key_id, after=after, limit=limit)
        assert done.failed == ()
        moved, after = moved + done.moved, done.last
        if after is None:
            return moved


def needs(lake: Lake, kms: str, kms_key_id: str | None = None) -> set[tuple[str, str]]:
    """What still needs a KMS: kind and name."""
    return {(str(each.by), each.name) for each in lake.services.kms_needs.of(kms, kms_key_id)}
