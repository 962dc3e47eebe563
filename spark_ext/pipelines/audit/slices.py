"""A slice of a table: some of its manifests, with what is needed to judge their files."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from catalog.iceberg.manifests import ManifestContent, ManifestListEntry, PartitionSummary
from spark_ext.pipelines.audit.facts import Facts


@dataclass(frozen=True)
class Slice:
    """Manifests of a table.

    Attributes:
        facts: what is known of the table, with the seals of these manifests.
        specs: its partition specs by id.
        schemas: its schemas, the current one first.
        listed: the manifests, as their list describes them.
    """

    facts: Facts
    specs: dict[int, PartitionSpec]
    schemas: tuple[Schema, ...]
    listed: tuple[ManifestListEntry, ...]


def encode(facts: Facts, metadata: TableMetadata, listed: Sequence[ManifestListEntry]) -> str:
    """Encode a slice for an executor."""
    paths = frozenset(each.manifest_path for each in listed)
    current = metadata.schema()
    schemas = [current, *(each for each in metadata.schemas if each.schema_id != current.schema_id)]
    document = {
        "facts": facts.document(paths),
        "specs": [each.model_dump_json() for each in metadata.partition_specs],
        "schemas": [each.model_dump_json() for each in schemas],
        "listed": [_listed(each) for each in listed],
    }
    return json.dumps(document, ensure_ascii=False)


def decode(text: str) -> Slice:
    """Decode what `encode` encoded."""
    document = json.loads(text)
    specs = [PartitionSpec.model_validate_json(each) for each in document["specs"]]
    return Slice(
        Facts.of(document["facts"]),
        {each.spec_id: each for each in specs},
        tuple(Schema.model_validate_json(each) for each in document["schemas"]),
        tuple(_entry(each) for each in document["listed"]),
    )


def _listed(entry: ManifestListEntry) -> dict[str, Any]:
    found = {**asdict(entry), "content": int(entry.content), "key_metadata": None}
    if entry.partitions is not None:
        found["partitions"] = [
            (each.contains_null, each.contains_nan, _text(each.lower_bound), _text(each.upper_bound))
            for each in entry.partitions
        ]
    return found


def _entry(fields: dict[str, Any]) -> ManifestListEntry:
    partitions = fields["partitions"]
    if partitions is not None:
        partitions = tuple(
            PartitionSummary(null, nan, _bytes(lower), _bytes(upper))
            for null, nan, lower, upper in partitions
        )
    return ManifestListEntry(
        **{**fields, "content": ManifestContent(fields["content"]), "partitions": partitions}
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
