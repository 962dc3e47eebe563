"""Earlier versions of a table's keys, brought back by a user who writes the table."""

from __future__ import annotations

import pytest

from catalog.base.identifiers import table_name
from policy.errors import DecryptionRefused, MetadataTampered
from tests.support.attacker import EXISTING, OWN_ROWS, Attacker, again, entry
from tests.support.lake import ALICE, Lake

NAME = table_name(["db"], "vault")


@pytest.fixture
def vault(lake: Lake) -> Attacker:
    """An encrypted table with a file under version 1 of its key, which has a version 2 by now."""
    alice = lake.catalog(ALICE)
    alice.create_namespace("db")
    alice.create_table(str(NAME), OWN_ROWS.schema, properties={"encryption.mechanism": "envelope"})
    vault = Attacker(lake, str(NAME), ALICE)
    vault.write_encrypted()
    lake.services.key_rotation.rotate(lake.caller(ALICE), NAME)
    return vault


def test_a_file_is_not_added_under_an_earlier_version(lake: Lake, vault: Attacker) -> None:
    """Its key metadata is the catalog's own, and opens; but new files are under the version in force."""
    known = vault.entries()[0].data_file
    before = vault.pointer()
    with pytest.raises(DecryptionRefused) as refused:
        vault.commit(*vault.appending(entry(known)))
    assert refused.value.rule == "pek"
    assert vault.pointer() == before


def test_a_file_is_not_carried_over_under_an_earlier_version(lake: Lake, vault: Attacker) -> None:
    """What was rewrapped stays rewrapped: the form of before is another one, though it holds the same key."""
    known = vault.entries()[0]
    lake.services.key_rewrap.rewrap(lake.caller(ALICE), NAME)
    now = vault.entries()[0]
    assert now.data_file.key_metadata != known.data_file.key_metadata
    before = vault.pointer()
    with pytest.raises(MetadataTampered) as refused:
        vault.commit(*vault.replacing(again(known, EXISTING)))
    assert refused.value.rule == "carried-file"
    assert vault.pointer() == before
