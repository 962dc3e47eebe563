"""Skips files that cannot hold rows matching a filter.

Each of four steps skips only what provably does not match:

1. whole manifests, by the partition summaries in the manifest list;
2. ranges of the entries of manifests that are stored in decoded form, by statistics of the ranges;
3. files, by their partition, evaluated once for each distinct partition tuple;
4. files, by their column statistics, for all files of a manifest at once (see `metrics`).

The statistics of some columns can be excluded, because the principal cannot read these columns. A condition
on such a column counts as true in all steps, since partitions reveal as much as statistics.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    Or,
    UnboundPredicate,
)
from pyiceberg.expressions.visitors import (
    BooleanExpressionVisitor,
    bind,
    expression_evaluator,
    extract_field_ids,
    manifest_evaluator,
    rewrite_not,
    visit,
)
from pyiceberg.manifest import ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from catalog.iceberg.avro.arrow import FIELD_ID
from catalog.iceberg.bounds import Mask
from catalog.iceberg.column_metrics import may_match
from catalog.iceberg.manifests import DecodedManifest, FieldStatistics, ManifestListEntry, RangeStatistics
from catalog.iceberg.manifests.ranges import side_by_side
from catalog.iceberg.manifests.rows import partition_rows
from catalog.iceberg.transform_terms import Projection
from catalog.iceberg.transforms import exact_spec
from policy.errors import MetadataInvalid


class Pruner:
    """Prunes the manifests of a table by one filter.

    Args:
        schema: the schema that the filter's names refer to.
        specs: the table's partition specs by id.
        row_filter: the filter, bound to the schema or not.
        case_sensitive: how its names are matched.
        usable_field_ids: columns whose statistics and partition values may be used; None means all.

    Raises:
        ValueError: the filter names a column that the schema does not have.
    """

    def __init__(
        self,
        schema: Schema,
        specs: Mapping[int, PartitionSpec],
        row_filter: BooleanExpression,
        *,
        case_sensitive: bool = True,
        usable_field_ids: frozenset[int] | None = None,
    ) -> None:
        self._schema = schema
        self._specs = {number: exact_spec(spec) for number, spec in specs.items()}
        self._case_sensitive = case_sensitive
        self._bound = visit(rewrite_not(row_filter), _Prepared(schema, case_sensitive, usable_field_ids))
        self._columns = frozenset(extract_field_ids(self._bound))
        self._partition_filters: dict[int, BooleanExpression] = {}

    @property
    def columns(self) -> frozenset[int]:
        """Return the usable columns of the filter."""
        return self._columns

    def may_match(self, statistics: Mapping[int, FieldStatistics], rows: int) -> Mask:
        """Return one flag per file: whether it can hold matching rows, by its column statistics.

        Args:
            statistics: by column id, those of `columns`.
            rows: how many files there are.
        """
        return may_match(self._bound, statistics, rows)

    @property
    def prunes(self) -> bool:
        """Return whether there is a condition that can leave out files."""
        return not isinstance(self._bound, AlwaysTrue)

    def keeps_ranges(self, manifests: Sequence[RangeStatistics]) -> Sequence[Mask]:
        """Return which ranges of entries can hold matching rows: for each manifest one flag a range."""
        types = {field_id: self._schema.find_type(field_id) for field_id in self._columns}
        parts = [(each.count, each.of_types(types)) for each in manifests]
        kept = self.may_match(side_by_side(parts, self._columns), sum(each.count for each in manifests))
        return np.split(kept, np.cumsum([each.count for each in manifests])[:-1])

    def keeps_manifest(self, entry: ManifestListEntry) -> bool:
        """Return whether a manifest can list files with matching rows.

        Raises:
            MetadataInvalid: the manifest is of an unknown partition spec, or summarized by another.
        """
        spec = self._spec(entry.partition_spec_id, entry.manifest_path)
        if entry.partitions and len(entry.partitions) != len(spec.fields):
            raise MetadataInvalid(
                f"The manifest list has partition summaries of {len(entry.partitions)} fields; the "
                f"spec has {len(spec.fields)}.",
                path=entry.manifest_path,
                rule="partition-spec",
            )
        evaluate = manifest_evaluator(spec, self._schema, self._partition_filter(spec), self._case_sensitive)
        try:
            return evaluate(cast(ManifestFile, entry))
        except (ValueError, TypeError, struct.error) as problem:
            raise MetadataInvalid(
                "The manifest list has partition bounds that do not fit the types of spec "
                f"{entry.partition_spec_id}.",
                path=entry.manifest_path,
                rule="partition-bounds",
            ) from problem

    def keeps(self, decoded: DecodedManifest, spec_id: int, *, path: str | None = None) -> pa.BooleanArray:
        """Return one flag per entry of a manifest, never null: whether it can hold matching rows.

        Args:
            decoded: the manifest.
            spec_id: id of its partition spec, as the manifest list says.
            path: its location, for the error.

        Raises:
            MetadataInvalid: the partition values are not of the manifest's spec.
        """
        keep = np.asarray(pc.not_equal(decoded.entries["record_count"], 0))
        if isinstance(self._bound, AlwaysTrue) or not keep.any():
            return pa.array(keep)
        keep = keep & self._partitions(decoded, spec_id, path)
        if not keep.any():
            return pa.array(keep)
        return pa.array(keep & self.may_match(decoded.stats(self._columns), len(keep)))

    def _spec(self, spec_id: int, path: str | None) -> PartitionSpec:
        spec = self._specs.get(spec_id)
        if spec is None:
            raise MetadataInvalid(
                f"The table has no partition spec {spec_id}.", path=path, rule="partition-spec"
            )
        return spec

    def _partition_filter(self, spec: PartitionSpec) -> BooleanExpression:
        if spec.spec_id not in self._partition_filters:
            projection = Projection(self._schema, spec, self._case_sensitive)
            self._partition_filters[spec.spec_id] = visit(self._bound, projection)
        return self._partition_filters[spec.spec_id]

    def _partitions(self, decoded: DecodedManifest, spec_id: int, path: str | None) -> Mask:
        """Evaluate the filter's projection once for each distinct tuple of its fields."""
        spec = self._spec(spec_id, path)
        expression = self._partition_filter(spec)
        if isinstance(expression, AlwaysTrue):
            return np.ones(len(decoded), np.bool_)
        column = decoded.entries["partition"].combine_chunks()
        schema = Schema(*spec.partition_type(self._schema).fields)
        evaluate = expression_evaluator(schema, expression, self._case_sensitive)
        wanted = sorted(extract_field_ids(bind(schema, expression, self._case_sensitive)))
        if not wanted:
            return np.full(len(column), evaluate(Record()), np.bool_)
        stored = _by_field_id(column)
        if not set(wanted) <= stored.keys():
            raise _partition_mismatch(path, "lacks a partition field of its spec")
        codes, firsts = _distinct([stored[field_id] for field_id in wanted])
        rows = {field_id: stored[field_id].take(pa.array(firsts)) for field_id in wanted}
        try:
            verdicts = [evaluate(record) for record in _records(schema, rows)]
        except (TypeError, AttributeError) as problem:
            raise _partition_mismatch(
                path, "has partition values whose types differ from its spec"
            ) from problem
        return np.array(verdicts, np.bool_)[codes]


class _Prepared(BooleanExpressionVisitor[BooleanExpression]):
    """Binds unbound predicates, and replaces conditions on columns that are not usable by true."""

    def __init__(self, schema: Schema, case_sensitive: bool, usable: frozenset[int] | None) -> None:
        self._schema = schema
        self._case_sensitive = case_sensitive
        self._usable = usable

    def visit_true(self) -> BooleanExpression:
        return AlwaysTrue()

    def visit_false(self) -> BooleanExpression:
        return AlwaysFalse()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        raise ValueError("negations are rewritten before conditions are taken out")

    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return And(left_result, right_result)

    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return Or(left_result, right_result)

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        return self._checked(predicate.bind(self._schema, self._case_sensitive))

    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        return self._checked(predicate)

    def _checked(self, bound: BooleanExpression) -> BooleanExpression:
        if self._usable is None or extract_field_ids(bound) <= self._usable:
            return bound
        return AlwaysTrue()


def _by_field_id(partitions: pa.StructArray) -> dict[int, pa.Array]:
    return {
        int(kind.metadata[FIELD_ID.encode()]): partitions.field(index)
        for index, kind in enumerate(partitions.type)
    }


def _records(schema: Schema, values: Mapping[int, pa.Array]) -> Iterator[Record]:
    """Return partition tuples in the order of the schema. Fields that the filter does not use are null."""
    taken = pa.StructArray.from_arrays(list(values.values()), [str(field_id) for field_id in values])
    order = list(values)
    places = [order.index(field.field_id) if field.field_id in values else None for field in schema.fields]
    for row in partition_rows(taken, uuid_as_bytes=True):
        yield Record(*(None if place is None else row[place] for place in places))


def _distinct(columns: list[pa.Array]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the tuple number of each row, and the first row of each tuple."""
    codes = np.zeros(len(columns[0]), np.int64)
    firsts = codes[:1]
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        combined = codes * (len(encoded.dictionary) + 1) + np.asarray(encoded.indices)
        _, firsts, codes = np.unique(combined, return_index=True, return_inverse=True)
    return codes, firsts


def _partition_mismatch(path: str | None, problem: str) -> MetadataInvalid:
    return MetadataInvalid(f"The manifest {problem}.", path=path, rule="partition-spec")
