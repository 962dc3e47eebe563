"""Files of an encrypted table under an older partition spec, which would show values of a column."""

from __future__ import annotations

import pytest
from pyiceberg.manifest import ManifestEntry
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from policy.errors import MetadataTampered
from tests.support.attacker import EXISTING, Attacker, data_file, entry, new_id, updates, write_entries
from tests.support.lake import ALICE, Lake
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, named

_BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))


@pytest.fixture
def owner(lake: Lake) -> Attacker:
    """A table that was partitioned by a column, and has a file that encrypts this column since."""
    lake.catalog(ALICE).create_namespace("db")
    table = lake.catalog(ALICE).create_table("db.t", SCHEMA, partition_spec=_BY_NAME)
    with table.update_spec() as update:
        update.remove_field("name")
    owner = Attacker(lake, "db.t", ALICE)
    owner.commit_properties(ENCRYPTED)
    engine = Engine.begin(lake, named("t"))
    engine.append(engine.file(spec_id=owner.metadata.default_spec_id))
    return owner


def commit_under_older_spec(owner: Attacker, *entries: ManifestEntry) -> None:
    """Commit a manifest of the older spec in the place of those that there are."""
    snapshot_id = new_id()
    older = owner.metadata.model_copy(update={"default_spec_id": 0})
    path = f"{owner.location}/metadata/{snapshot_id}-m0.avro"
    manifest = write_entries(older, path, entries, snapshot_id)
    owner.commit(*updates(owner.snapshot([manifest], snapshot_id)))


#: A partition that tells a value.
_SECRET = Record("secret")


def test_new_file_under_an_older_spec(owner: Attacker) -> None:
    new = data_file(f"{owner.location}/data/{'0' * 32}.parquet", partition=_SECRET)
    with pytest.raises(MetadataTampered) as refused:
        commit_under_older_spec(owner, entry(new))
    assert refused.value.rule == "new-manifest"


def test_file_carried_over_into_an_older_spec(owner: Attacker) -> None:
    (known,) = owner.entries()
    file = data_file(known.data_file.file_path, partition=_SECRET, key_metadata=known.data_file.key_metadata)
    moved = entry(
        file,
        EXISTING,
        snapshot_id=known.snapshot_id,
        sequence_number=known.sequence_number,
        file_sequence_number=known.file_sequence_number,
    )
    with pytest.raises(MetadataTampered) as refused:
        commit_under_older_spec(owner, moved)
    assert refused.value.rule == "carried-file"
