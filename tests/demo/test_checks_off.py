"""Turn a check off, and the demonstration fails: it cannot pass on a catalog that does not check."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.authorization.authorizer import Authorizer
from catalog.kms import local
from catalog.maintenance import census
from catalog.reading.loading import TableLoader
from catalog.reading.snapshots import SnapshotReader
from catalog.snapshot_checks import entries, inspection
from catalog.state import seals
from spark_ext.demo import planting, tampering
from spark_ext.demo.outcome import Unexpected
from spark_ext.demo.stage import FLIGHTS, Stage
from spark_ext.demo.stock_encryption import StockEncryption


@pytest.fixture
def stock_encryption(stage: Stage) -> StockEncryption:
    return StockEncryption(stage.directory / "stock", stage.flights.flights)


def _off(*arguments: Any, **named: Any) -> None:
    """A check that lets everything pass."""


def test_the_catalogs_part_of_the_story_passes(stage: Stage) -> None:
    planting.plant(stage)
    planting.widen(stage)
    assert [each.seen.text for each in stage.ledger.attempts] == [
        "LocationNotAllowed (allowed-paths)",
        "MetadataUnsealed (unsealed)",
        "MetadataTampered (seal)",
        "NotAuthorized (policy-no-match)",
        "done",
    ]


def test_paths_of_a_commit_not_checked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "check_paths", _off)
    with pytest.raises(Unexpected, match=r"expected LocationNotAllowed .*, but the answer was: committed"):
        planting.commit_by_standard_client(stage, stage.foreign_files(FLIGHTS, stage.flights.rows))


def test_unsealed_metadata_not_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where unsealed metadata is allowed, the paths of a plan are still checked."""
    monkeypatch.setattr(TableLoader, "_check_unsealed", _off)
    with pytest.raises(
        Unexpected, match=r"expected MetadataUnsealed .*, but the answer was: LocationNotAllowed"
    ):
        planting.commit_to_pointer_store(stage, stage.foreign_files(FLIGHTS, stage.flights.rows))


def test_paths_of_a_plan_not_checked(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TableLoader, "_check_unsealed", _off)
    monkeypatch.setattr(SnapshotReader, "require_inside", _off)
    for module in (census, entries):
        monkeypatch.setattr(module, "refuse_outside", _off)
    with pytest.raises(Unexpected, match=r"expected MetadataUnsealed .*, but the answer was: 1,003 rows"):
        planting.commit_to_pointer_store(stage, stage.foreign_files(FLIGHTS, stage.flights.rows))


def test_digests_not_compared(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "check_digest", lambda data, *_, **__: seals.Digest.of(data))
    with pytest.raises(
        Unexpected, match=r"expected MetadataTampered .*, but the answer was: LocationNotAllowed"
    ):
        planting.edit_in_place(stage, stage.foreign_files(FLIGHTS, stage.flights.rows))


@pytest.mark.nightly
def test_revoked_key_is_refused(encrypted: Stage, stock_encryption: StockEncryption) -> None:
    tampering.revoke(encrypted, stock_encryption)
    assert [each.seen.text for each in encrypted.ledger.attempts] == ["KeyNotUsable (master-key)"]


@pytest.mark.nightly
def test_disabled_keys_not_refused(
    encrypted: Stage, stock_encryption: StockEncryption, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_usable", local._known)
    with pytest.raises(Unexpected, match=r"expected KeyNotUsable .*, but the answer was: checksum"):
        tampering.revoke(encrypted, stock_encryption)


def test_rights_not_required(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Authorizer, "require", _off)
    with pytest.raises(Unexpected, match=r"by mallory: expected NotAuthorized .*, but the answer was: done"):
        planting.widen(stage)
