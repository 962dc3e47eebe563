"""Makes the metadata tables `manifests` and `all_manifests` from manifest lists.

Source: Apache Iceberg, `ManifestsTable`, `AllManifestsTable`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionField
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, PrimitiveType, UnknownType

from catalog.iceberg.manifests import ManifestContent, ManifestListEntry
from catalog.iceberg.manifests.manifest_list import PartitionSummary
from catalog.metadata_tables.sight import Sight

Row = Mapping[str, Any]


class ManifestRows:
    """The rows of manifests.

    Args:
        metadata: of the table.
        sight: what of its columns is shown.
    """

    def __init__(self, metadata: TableMetadata, sight: Sight) -> None:
        self._metadata = metadata
        self._sight = sight

    def rows(self, listed: Iterable[ManifestListEntry], reference: int | None = None) -> Iterator[Row]:
        """Return a row for each manifest of a snapshot.

        Args:
            listed: the manifests.
            reference: the snapshot, for `all_manifests`.
        """
        for each in listed:
            counts = (each.added_files_count, each.existing_files_count, each.deleted_files_count)
            none = (0, 0, 0)
            data = counts if each.content is ManifestContent.DATA else none
            deletes = counts if each.content is ManifestContent.DELETES else none
            yield {
                "content": int(each.content),
                "path": each.manifest_path,
                "length": each.manifest_length,
                "partition_spec_id": each.partition_spec_id,
                "added_snapshot_id": each.added_snapshot_id,
                **_counted("data", data),
                **_counted("delete", deletes),
                "partition_summaries": self._summaries(each),
                "reference_snapshot_id": reference,
                "key_metadata": None,
            }

    def _summaries(self, listed: ManifestListEntry) -> list[Row] | None:
        if listed.partitions is None:
            # Iceberg requires them in `manifests`, and shows an unpartitioned manifest without any.
            return []
        spec = self._metadata.specs().get(listed.partition_spec_id)
        fields = () if spec is None else spec.fields
        kinds: Iterable[IcebergType] = ()
        if spec is not None:
            kinds = (each.field_type for each in spec.partition_type(self._metadata.schema()).fields)
        named = list(zip(fields, kinds, strict=True))
        return [self._summary(*each) for each in zip(named, listed.partitions, strict=False)]

    def _summary(self, named: tuple[PartitionField, IcebergType], summary: PartitionSummary) -> Row:
        field, kind = named
        if field.source_id not in self._sight.columns:
            return _HIDDEN
        lower, upper = (self._text(field, kind, each) for each in (summary.lower_bound, summary.upper_bound))
        return {
            "contains_null": summary.contains_null,
            "contains_nan": summary.contains_nan,
            "lower_bound": lower,
            "upper_bound": upper,
        }

    def _text(self, field: PartitionField, kind: IcebergType, bound: bytes | None) -> str | None:
        """Return a bound as people read it; None if it does not have its type, or its column was dropped."""
        if bound is None:
            return "null"
        if not isinstance(kind, PrimitiveType) or isinstance(kind, UnknownType):
            return None
        source = self._metadata.schema().find_type(field.source_id)
        try:
            return field.transform.to_human_string(source, from_bytes(kind, bound))
        except (ValueError, ArithmeticError, TypeError, struct.error):
            return None


_HIDDEN: Row = dict.fromkeys(("contains_null", "contains_nan", "lower_bound", "upper_bound"))


def _counted(what: str, counts: tuple[int | None, ...]) -> dict[str, int | None]:
    names = (f"{state}_{what}_files_count" for state in ("added", "existing", "deleted"))
    return dict(zip(names, counts, strict=True))
