"""Values of properties that writers read are checked when they are set."""

from __future__ import annotations

import pytest

from policy.errors import PropertyInvalid
from policy.privileges.tables import WRITE_PATHS, refuse_location_property
from policy.write_properties import check_write_properties
from policy.write_settings import delete_settings, write_settings
from tests.support.vectors import each_row


@each_row(
    ("name", "value"),
    [
        ("write.parquet.compression-codec", "banana"),
        ("write.parquet.compression-codec", ""),
        ("write.orc.compression-codec", "brotli"),
        ("write.distribution-mode", "x"),
        ("write.merge.distribution-mode", "spread"),
        ("write.delete.mode", "never"),
        ("write.metadata.compression-codec", "zstd"),
        ("write.target-file-size-bytes", "0"),
        ("write.target-file-size-bytes", "-1"),
        ("write.target-file-size-bytes", "1e9"),
        ("write.target-file-size-bytes", "9" * 5000),
        ("write.parquet.page-size-bytes", str(2**31)),
        ("write.parquet.compression-level", "23"),
        ("write.spark.fanout.enabled", "perhaps"),
    ],
)
def test_a_value_that_no_writer_can_follow_is_refused_with_those_that_it_can(name: str, value: str) -> None:
    with pytest.raises(PropertyInvalid) as refusal:
        check_write_properties({name: value}, "db.t")
    assert (refusal.value.rule, refusal.value.table) == ("write-property", "db.t")
    assert name in refusal.value.message and (refusal.value.hint or "").startswith("Use ")


def test_values_that_writers_follow_and_properties_that_they_do_not_read_are_taken() -> None:
    taken = {
        "write.parquet.compression-codec": "ZSTD",
        "write.distribution-mode": "none",
        "write.merge.mode": "merge-on-read",
        "write.target-file-size-bytes": "1048576",
        "write.metadata.compression-codec": "gzip",
        "owner.codec": "banana",
    }
    check_write_properties(taken, "db.t")


@each_row("known", WRITE_PATHS)
def test_a_write_path_in_another_case_is_refused(known: str) -> None:
    refuse_location_property([known], "db.t")
    for name in (known.upper(), known.title(), f" {known}"):
        with pytest.raises(PropertyInvalid, match="property-name"):
            refuse_location_property([name], "db.t")


def test_settings_are_iceberg_s_defaults_where_a_table_says_nothing() -> None:
    settings = write_settings({"owner": "ann"}, "db.t")
    assert (settings["format"], settings["codec"], settings["distribution"]) == ("parquet", "zstd", "hash")
    assert (settings["target-file-size"], settings["row-group-size"]) == (512 << 20, 128 << 20)
    assert (settings["bloom-filters"], settings["codec-level"], settings["fan-out"]) == ([], None, False)


def test_settings_are_those_of_the_properties() -> None:
    bloom = "write.parquet.bloom-filter"
    given = {
        "write.format.default": "ORC",
        "write.parquet.compression-codec": "GZIP",
        "write.parquet.compression-level": " 5",
        f"{bloom}-enabled.column.a.b": "TRUE",
        f"{bloom}-fpp.column.a.b": "0.5",
        f"{bloom}-ndv.column.a.b": "1000",
        f"{bloom}-enabled.column.c": "false",
    }
    settings = write_settings(given, "db.t")
    assert (settings["format"], settings["codec"], settings["codec-level"]) == ("orc", "gzip", 5)
    assert settings["bloom-filters"] == [{"column": "a.b", "false-positives": 0.5, "distinct": 1000}]
    snappy = write_settings(given | {"write.parquet.compression-codec": "snappy"}, "db.t")
    assert snappy["codec-level"] is None


@each_row(
    ("name", "value"),
    [
        ("write.format.default", "avro"),
        ("write.parquet.dict-size-bytes", str(2**31)),
        ("write.parquet.bloom-filter-max-bytes", str(1 << 28)),
        ("write.parquet.bloom-filter-enabled.column.a", "perhaps"),
        ("write.parquet.bloom-filter-fpp.column.a", "1"),
        ("write.parquet.bloom-filter-fpp.column.a", "nan"),
        ("write.parquet.bloom-filter-ndv.column.a", "few"),
    ],
)
def test_a_property_that_a_table_had_before_it_was_checked_refuses_a_write(name: str, value: str) -> None:
    given = {"write.parquet.bloom-filter-enabled.column.a": "true", name: value}
    with pytest.raises(PropertyInvalid, match="write-property"):
        write_settings(given, "db.t")


@each_row(
    ("given", "file_format", "granularity"),
    [
        ({}, "parquet", "file"),
        ({"write.format.default": "ORC"}, "orc", "file"),
        (
            {
                "write.format.default": "orc",
                "write.delete.format.default": "parquet",
                "write.delete.granularity": "PARTITION",
            },
            "parquet",
            "partition",
        ),
    ],
)
def test_delete_files_have_the_format_of_data_files_unless_a_table_says_another(
    given: dict[str, str], file_format: str, granularity: str
) -> None:
    assert delete_settings(given, "db.t") == {"format": file_format, "granularity": granularity}


@each_row("name", ["write.format.default", "write.delete.format.default", "write.delete.granularity"])
def test_delete_files_as_no_writer_writes_them_are_refused(name: str) -> None:
    with pytest.raises(PropertyInvalid, match="write-property"):
        delete_settings({name: "csv"}, "db.t")
