"""The Python client reads the vectors of what the catalog tells engines, and refuses the refused ones."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest

from catalog.client.begun import BegunWrite, Encryption
from catalog.client.plan import Plan, PlannedFile, parse
from catalog.client.settings import ParquetSettings
from policy.errors import LakewardenError, NotSupportedYet, PropertyInvalid
from tests.support.lake import Lake
from tests.support.plan_vectors import SCHEMA, as_vector, changed, stream_of, vectors
from tests.support.plans import plan as planned
from tests.support.tables import make

VECTORS = vectors()


def read(vector: Mapping[str, Any]) -> Plan:
    """A plan whose keys have been opened as well."""
    plan = parse(io.BytesIO(stream_of(vector)))
    for file in plan.files:
        for each in (file, *file.deletes):
            plan.keys(each, plan.location(each))
    return plan


def seen(plan: Plan, file: PlannedFile) -> dict[str, Any]:
    """What the client makes of a data file."""
    return alike(plan, file) | {"deletes": [deleting(plan, each) for each in file.deletes]}


def deleting(plan: Plan, file: PlannedFile) -> dict[str, Any]:
    """What the client makes of a delete file."""
    return alike(plan, file) | {"equality-ids": list(file.equality_ids)}


def alike(plan: Plan, file: PlannedFile) -> dict[str, Any]:
    """What the client makes of any file."""
    keys = plan.keys(file, plan.location(file))
    opened = (
        {}
        if keys is None
        else {"": keys.footer, **{str(each): dek for each, dek in (keys.columns or {}).items()}}
    )
    return {
        "path": file.path,
        "location": plan.location(file).canonical,
        "format": file.file_format,
        "size": file.size,
        "records": file.records,
        "algorithm": file.algorithm,
        "footer": file.footer,
        "column-keys": file.column_keys,
        "keys": {field_id: dek.reveal().hex() for field_id, dek in opened.items()},
        "absent-with-values": sorted(file.without_like),
    }


def test_every_plan_is_read_as_the_service_meant_it() -> None:
    for name, vector in VECTORS["plans"].items():
        plan = read(vector)
        assert [seen(plan, file) for file in plan.files] == vector["files"], name
        header = vector["header"]
        assert (str(plan.table_uuid), plan.snapshot_id) == (header["table-uuid"], header["snapshot-id"])
        assert (plan.valid_ms, sorted(plan.masked)) == (header["valid-ms"], header["masked"])


def test_every_refused_plan_is_refused() -> None:
    for case in VECTORS["refused"]["plans"]:
        with pytest.raises(LakewardenError) as refusal:
            read(changed(VECTORS["plans"], case))
        assert case["error"] in ("", type(refusal.value).__name__), case["about"]
        assert case["rule"] in ("", refusal.value.rule), case["about"]


def test_every_begun_write_is_read_as_the_service_meant_it() -> None:
    for name, answer in VECTORS["writes"].items():
        begun = BegunWrite.of(answer, "db.t")
        assert (begun.id, str(begun.table_uuid)) == (answer["write-id"], answer["table-uuid"])
        assert begun.directory.canonical == answer["location"]
        assert (begun.encryption is None) == (answer["encryption"] is None), name
        if begun.encryption is not None:
            assert told(begun.encryption) == {
                each: answer["encryption"][each] for each in told(begun.encryption)
            }


def told(encryption: Encryption) -> dict[str, Any]:
    """The encryption as the answer has it."""
    columns = [{"key-name": each.key_name, "field-ids": list(each.field_ids)} for each in encryption.columns]
    return {
        "algorithm": encryption.algorithm,
        "footer": encryption.footer,
        "footer-key-name": encryption.label.key_name,
        "column-keys": columns,
        "data-key-length": encryption.data_key_length,
        "digest": encryption.digest,
    }


def test_every_refused_write_is_refused() -> None:
    for case in VECTORS["refused"]["writes"]:
        with pytest.raises(LakewardenError) as refusal:
            BegunWrite.of(changed(VECTORS["writes"], case), "db.t")
        assert (type(refusal.value).__name__, refusal.value.rule) == (case["error"], case["rule"]), case[
            "about"
        ]


def test_settings_are_read_or_refused() -> None:
    answers = VECTORS["settings"]
    defaults, chosen = (ParquetSettings.of(answers[each], "db.t") for each in ("defaults", "chosen"))
    assert (defaults.target_file_size, defaults.options["compression"]) == (512 << 20, "zstd")
    assert (defaults.options["compression_level"], chosen.options["compression_level"]) == (None, 5)
    with pytest.raises(NotSupportedYet, match="file-format"):
        ParquetSettings.of(answers["orc"], "db.t")
    with pytest.raises(PropertyInvalid, match="write-property"):
        ParquetSettings.of(answers["refused"], "db.t")


def test_the_vectors_have_what_the_service_says_today(lake: Lake) -> None:
    lake.catalog().create_namespace("db")
    today = as_vector(planned(lake, make(lake)))["header"]
    for vector in VECTORS["plans"].values():
        assert vector["header"].keys() == today.keys()
        assert all(row.keys() == set(SCHEMA.names) for row in vector["rows"])
