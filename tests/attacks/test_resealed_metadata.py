"""Metadata put behind the catalog's back, and what may become of it by loading or resealing it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemoveSchemasUpdate,
    SetCurrentSchemaUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)

from catalog.base.identifiers import table_name
from policy.errors import LocationNotAllowed, NotAuthorized, PropertyInvalid, RequestInvalid
from tests.attacks.traps import OpenWatch
from tests.support.attacker import OWN_ROWS, Attacker, Siege, entry
from tests.support.lake import ALICE, BOB

MINE = table_name(["bobs"], "mine")


def reseal(siege: Siege, user: str = BOB) -> None:
    siege.lake.services.registration.reseal(siege.lake.caller(user), MINE)


@pytest.mark.parametrize(
    "change",
    [
        lambda siege: SetLocationUpdate(location=siege.victim.location),
        lambda siege: SetPropertiesUpdate(updates={"write.data.path": siege.victim.location}),
        lambda siege: SetPropertiesUpdate(updates={"write.metadata.path": siege.victim.location}),
    ],
    ids=["location", "data path", "metadata path"],
)
def test_foreign_directory_resealed(siege: Siege, change: Callable[[Siege], TableUpdate]) -> None:
    siege.attacker.commit_behind(change(siege))
    with pytest.raises(NotAuthorized):
        reseal(siege)
    assert siege.lake.services.loader.load(MINE).seal is None


@pytest.mark.parametrize("name", ["py-io-impl", "s3.endpoint", "io-impl", "write.py-location-provider.impl"])
def test_reader_configuration_resealed(siege: Siege, name: str) -> None:
    siege.attacker.commit_behind(SetPropertiesUpdate(updates={name: "evil"}))
    with pytest.raises(PropertyInvalid):
        reseal(siege)


def test_reader_configuration_in_unsealed_metadata_is_not_shown(siege: Siege) -> None:
    siege.attacker.commit_behind(
        SetPropertiesUpdate(updates={"py-io-impl": "evil.Io", "S3.endpoint": "http://evil", "owner": "bob"})
    )
    shown = siege.attacker.loaded().shown_metadata.properties
    assert shown["owner"] == "bob"
    assert not {"py-io-impl", "S3.endpoint"} & shown.keys()


def test_unsealed_metadata_with_a_foreign_file_is_not_loaded(siege: Siege, watch: OpenWatch) -> None:
    siege.attacker.commit_behind(*siege.attacker.appending(entry(siege.secret_file())))
    watch.opened()  # the attacker's own looks at the victim's files
    with pytest.raises(LocationNotAllowed):
        siege.lake.catalog(BOB).load_table("bobs.mine")
    assert watch.opened() == []


def test_own_changes_resealed(siege: Siege) -> None:
    siege.attacker.commit_behind(SetPropertiesUpdate(updates={"comment": "mine"}))
    reseal(siege)
    siege.lake.catalog(BOB).load_table("bobs.mine").append(OWN_ROWS)
    assert siege.lake.services.loader.load(MINE).seal is not None


def test_schema_of_an_encrypted_table_forgotten(siege: Siege) -> None:
    catalog = siege.lake.catalog(ALICE)
    catalog.create_table("bobs.vault", OWN_ROWS.schema, properties={"encryption.mechanism": "envelope"})
    vault = Attacker(siege.lake, "bobs.vault", ALICE)
    schema = vault.metadata.schema()
    narrowed = schema.model_copy(update={"fields": schema.fields[:1], "schema_id": 1})
    vault.commit(AddSchemaUpdate(schema=narrowed), SetCurrentSchemaUpdate(schema_id=1))
    with pytest.raises(RequestInvalid):
        vault.commit(RemoveSchemasUpdate(schema_ids=[0]))
