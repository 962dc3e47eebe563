"""What a plan leaves out of stored manifests by statistics of ranges, pyiceberg's evaluator leaves out too.

Manifests are written to disk and read back, and state types for their columns that need not be the table's: a
column was promoted, or the writer of the manifest lied.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from catalog.crypto.secret import SecretBytes
from catalog.iceberg.manifests import CacheFiles, DecodedManifest, StoredManifest, block_files, ranges, stored
from catalog.iceberg.manifests.stored import StoredForm
from catalog.planning import Pruner
from tests.planning.test_prune_metrics import SPECS, TYPES, files_of, filters, manifest_of, schema_of
from tests.support.made_up_files import compares_by_inequality

#: Entries of a range.
_SIZE = 3
#: Types that a manifest can state for a column of a type.
_STATED: dict[type[PrimitiveType], list[PrimitiveType]] = {
    LongType: [IntegerType(), TimestampType(), DoubleType()],
    IntegerType: [LongType(), DateType(), FloatType()],
    DoubleType: [FloatType(), LongType()],
    FloatType: [DoubleType(), IntegerType()],
    DecimalType: [DecimalType(9, 2), DecimalType(38, 2), DecimalType(24, 3), BinaryType()],
    StringType: [BinaryType()],
    BinaryType: [StringType(), FixedType(2)],
    TimestampType: [TimestamptzType(), LongType()],
}

Stores = Callable[[DecodedManifest], StoredForm]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stores:
    """Writes a manifest to disk in short ranges, and maps it."""
    monkeypatch.setattr(ranges, "RANGE_ROWS", _SIZE)
    monkeypatch.setattr(stored, "RANGE_ROWS", _SIZE)
    monkeypatch.setattr(block_files, "_MAPPED_FROM", 0)
    files = CacheFiles(tmp_path, lambda: SecretBytes(bytes(32)))

    def write(manifest: DecodedManifest) -> StoredForm:
        form = files.store("0" * 64, manifest)
        assert form is not None and form.file.mapped
        return form

    return write


def stating(files: list[DataFile], types: dict[int, PrimitiveType]) -> DecodedManifest:
    """A manifest of some files that states types of its columns."""
    plain, count = manifest_of(files), len(files)
    entries = plain.entries.append_column("status", pa.array([1] * count, pa.int32()))
    paths = pa.array([f"s3://lake/t/{number}" for number in range(count)])
    entries = entries.append_column("file_path", paths)
    return DecodedManifest(plain.header, entries, plain.statistics, types)


def planned(schema: Any, row_filter: BooleanExpression, forms: list[StoredForm]) -> list[list[bool]]:
    """Which files of manifests a plan has, as `SnapshotReader.open` and the pruner choose them."""
    pruner = Pruner(schema, SPECS, row_filter)
    found = []
    for form, kept in zip(forms, pruner.keeps_ranges([each.ranges for each in forms]), strict=True):
        chosen = [number for number, wanted in enumerate(kept.tolist()) if wanted]
        flags = iter(pruner.keeps(StoredManifest(form, chosen), 0).to_pylist())
        found.append([row // _SIZE in chosen and next(flags) for row in range(form.rows)])
    return found


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(("kind", "values"), TYPES, ids=lambda value: str(value).split("(")[0][:12])
def test_no_file_that_can_match_is_left_out(
    kind: PrimitiveType, values: st.SearchStrategy[Any], store: Stores
) -> None:
    schema = schema_of(kind)
    types = st.sampled_from([kind, kind, *_STATED.get(type(kind), [])])
    manifests = st.lists(st.lists(files_of(kind, values), min_size=1, max_size=8), min_size=1, max_size=2)

    @settings(max_examples=settings.default.max_examples // 5)
    @given(manifests, st.data())
    def check(drawn: list[list[DataFile]], data: st.DataObject) -> None:
        row_filter = data.draw(filters(kind, values))
        forms = [store(stating(files, {1: data.draw(types), 2: LongType()})) for files in drawn]
        evaluator = _InclusiveMetricsEvaluator(schema, row_filter)
        for files, found in zip(drawn, planned(schema, row_filter, forms), strict=True):
            plain = Pruner(schema, SPECS, row_filter).keeps(manifest_of(files), 0).to_pylist()
            assert found == plain, row_filter
            theirs = [file.record_count != 0 and evaluator.eval(file) for file in files]
            assert found == theirs or compares_by_inequality(row_filter), row_filter

    check()
