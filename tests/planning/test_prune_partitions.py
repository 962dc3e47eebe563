"""Pruning by partition keeps what pyiceberg's evaluators keep, for manifests and for files."""

from __future__ import annotations

import datetime as dt
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNull,
    LessThan,
    Not,
    NotEqualTo,
    NotIn,
    NotNull,
    Or,
    StartsWith,
)
from pyiceberg.expressions.visitors import (
    bind,
    expression_evaluator,
    inclusive_projection,
    manifest_evaluator,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, NestedField, StringType, UUIDType

from catalog.iceberg.manifests import (
    DecodedManifest,
    ManifestListEntry,
    decode_manifest,
    decode_manifest_list,
)
from catalog.iceberg.transform_terms import term_of
from catalog.planning import Pruner
from policy.errors import MetadataInvalid
from tests.support.manifest_samples import (
    SCHEMA,
    SPEC,
    container,
    entry_bytes,
    entry_schema,
    sample_file,
    write_sample,
    write_sample_list,
)

BUCKET = term_of("id", "bucket[8]")
PATH = "s3://lake/t/metadata/m.avro"
SPECS = {SPEC.spec_id: SPEC}
DAY = dt.datetime(1970, 1, 1) + dt.timedelta(days=19002)
FILTERS: list[BooleanExpression] = [
    AlwaysTrue(),
    AlwaysFalse(),
    EqualTo("region", "eu"),
    EqualTo("region", "us"),
    NotEqualTo("region", "eu"),
    StartsWith("region", "e"),
    IsNull("region"),
    NotNull("region"),
    LessThan("ts", DAY.isoformat()),
    GreaterThan("ts", DAY.isoformat()),
    In("ts", {DAY.isoformat(), (DAY + dt.timedelta(days=1)).isoformat()}),
    And(EqualTo("region", "eu"), GreaterThan("ts", DAY.isoformat())),
    Or(IsNull("region"), LessThan("ts", "1999-01-01T00:00:00")),
    LessThan("ts", "1999-01-01T00:00:00"),
]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[DecodedManifest, ManifestListEntry, Any]:
    directory = tmp_path_factory.mktemp("prune")
    files = [
        sample_file(n, lower_bounds=None, upper_bounds=None, null_value_counts=None, value_counts=None)
        for n in range(40)
    ]
    data, manifest = write_sample(directory, 40, files=files)
    raw_list = write_sample_list(directory, [manifest])
    entry = decode_manifest_list(raw_list, path=PATH, format_version=2)[0]
    return decode_manifest(data, path=PATH), entry, (manifest, files)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("row_filter", FILTERS, ids=str)
@pytest.mark.parametrize("bound", [False, True])
def test_the_same_files_and_manifests_are_kept(
    sample: Any, row_filter: BooleanExpression, bound: bool
) -> None:
    decoded, entry, (manifest, files) = sample
    projected = inclusive_projection(SCHEMA, SPEC)(row_filter)
    evaluate = expression_evaluator(Schema(*SPEC.partition_type(SCHEMA).fields), projected, True)
    pruner = Pruner(SCHEMA, SPECS, bind(SCHEMA, row_filter, True) if bound else row_filter)
    assert pruner.keeps(decoded, 3).to_pylist() == [evaluate(file.partition) for file in files]
    assert pruner.keeps_manifest(entry) == manifest_evaluator(SPEC, SCHEMA, projected)(manifest)


def test_partitions_of_columns_that_may_not_be_used_prove_nothing(sample: Any) -> None:
    decoded, entry, _ = sample
    row_filter = EqualTo("region", "us")
    assert not Pruner(SCHEMA, SPECS, row_filter).keeps_manifest(entry)
    pruner = Pruner(SCHEMA, SPECS, row_filter, usable_field_ids=frozenset({1, 3}))
    assert pruner.keeps_manifest(entry)
    assert all(pruner.keeps(decoded, 3).to_pylist())


def test_uuids_are_compared_as_uuids(tmp_path: Path) -> None:
    """pyiceberg's evaluator compares a UUID with bytes, and so would skip the very file that matches."""
    schema = Schema(NestedField(1, "u", UUIDType()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "u"), spec_id=3)
    files = [
        sample_file(n, partition=Record(uuid.UUID(int=n)), lower_bounds=None, upper_bounds=None)
        for n in (0, 1)
    ]
    decoded = decode_manifest(write_sample(tmp_path, 2, schema=schema, spec=spec, files=files)[0], path=PATH)
    pruner = Pruner(schema, {3: spec}, EqualTo("u", uuid.UUID(int=1).bytes))
    assert pruner.keeps(decoded, 3).to_pylist() == [False, True]


def test_buckets_are_pruned(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "s", StringType()))
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(8), "b"), spec_id=3)
    files = [sample_file(n, partition=Record(n), lower_bounds=None, upper_bounds=None) for n in range(8)]
    decoded = decode_manifest(write_sample(tmp_path, 8, schema=schema, spec=spec, files=files)[0], path=PATH)
    wanted = BucketTransform(8).transform(StringType())("x")
    assert Pruner(schema, {3: spec}, EqualTo("s", "x")).keeps(decoded, 3).to_pylist() == [
        n == wanted for n in range(8)
    ]


def test_transforms_of_a_column_are_pruned_by_the_same_transform_alone(tmp_path: Path) -> None:
    """Bounds of a column say nothing of its buckets, nor do other buckets."""
    schema = Schema(NestedField(1, "id", IntegerType(), required=True))
    ends = {1: to_bytes(IntegerType(), 1_000)}
    files = [sample_file(n, partition=Record(n), lower_bounds=ends, upper_bounds=ends) for n in range(8)]
    for buckets, kept in ((8, [2, 3]), (16, list(range(8)))):
        spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(buckets), "b"), spec_id=3)
        data, manifest = write_sample(tmp_path, 8, schema=schema, spec=spec, files=files)
        (entry,) = decode_manifest_list(write_sample_list(tmp_path, [manifest]), path=PATH, format_version=2)
        for row_filter in (In(BUCKET, [2, 3, 9]), Not(NotIn(BUCKET, [2, 3, 9]))):
            pruner = Pruner(schema, {3: spec}, row_filter)
            found = pruner.keeps(decode_manifest(data, path=PATH), 3).to_pylist()
            assert [place for place, keeps in enumerate(found) if keeps] == kept
            assert pruner.keeps_manifest(entry)
        assert Pruner(schema, {3: spec}, EqualTo(BUCKET, 9)).keeps_manifest(entry) == (buckets == 16)
        for impossible in (IsNull(BUCKET), EqualTo(BUCKET, 2**40)):
            assert not any(
                Pruner(schema, {3: spec}, impossible).keeps(decode_manifest(data, path=PATH), 3).to_pylist()
            )


def test_a_manifest_of_an_unknown_spec_is_refused(sample: Any) -> None:
    decoded, entry, _ = sample
    pruner = Pruner(SCHEMA, {}, EqualTo("region", "eu"))
    with pytest.raises(MetadataInvalid, match="partition spec 3"):
        pruner.keeps(decoded, 3, path=PATH)
    with pytest.raises(MetadataInvalid, match="partition spec 3"):
        pruner.keeps_manifest(entry)


def test_a_manifest_without_its_partition_fields_is_refused() -> None:
    decoded = decode_manifest(container(entry_schema(), [(1, entry_bytes())]), path=PATH)
    with pytest.raises(MetadataInvalid, match="lacks a partition field"):
        Pruner(SCHEMA, SPECS, EqualTo("region", "eu")).keeps(decoded, 3, path=PATH)


def test_partition_values_of_another_type_are_refused(tmp_path: Path) -> None:
    data, _ = write_sample(tmp_path, 2)
    other = Schema(NestedField(2, "region", UUIDType()), NestedField(3, "ts", SCHEMA.find_type("ts")))
    pruner = Pruner(other, SPECS, LessThan("region", uuid.UUID(int=1).bytes))
    with pytest.raises(MetadataInvalid, match="values whose types differ"):
        pruner.keeps(decode_manifest(data, path=PATH), 3, path=PATH)


def test_summaries_of_another_spec_or_type_are_refused(sample: Any) -> None:
    _, entry, _ = sample
    pruner = Pruner(SCHEMA, SPECS, GreaterThan("ts", DAY.isoformat()))
    for broken in (entry.partitions[:1], (entry.partitions[0], entry.partitions[0])):
        changed = {name: getattr(entry, name) for name in entry.__slots__} | {"partitions": broken}
        with pytest.raises(MetadataInvalid):
            pruner.keeps_manifest(ManifestListEntry(**changed))


def test_a_filter_on_an_unknown_column_is_an_error() -> None:
    with pytest.raises(ValueError, match="nope"):
        Pruner(SCHEMA, SPECS, EqualTo("nope", 1))
