"""Iceberg manifest lists and manifests: decodes untrusted bytes into Arrow within limits; writes them."""

from catalog.iceberg.avro.limits import DEFAULT_LIMITS, DecodeLimits
from catalog.iceberg.manifests.cache import ManifestCache
from catalog.iceberg.manifests.cache_files import CacheFiles
from catalog.iceberg.manifests.inheritance import check_agreement, inherit, inherit_each
from catalog.iceberg.manifests.manifest import (
    DecodedManifest,
    ManifestHeader,
    decode_manifest,
    decode_manifests,
)
from catalog.iceberg.manifests.manifest_list import (
    ManifestContent,
    ManifestListEntry,
    PartitionSummary,
    decode_manifest_list,
)
from catalog.iceberg.manifests.ranges import RangeStatistics
from catalog.iceberg.manifests.rows import data_files, manifest_entries
from catalog.iceberg.manifests.statistics import FieldStatistics
from catalog.iceberg.manifests.stored import StoredForm, StoredManifest

__all__ = [
    "DEFAULT_LIMITS",
    "CacheFiles",
    "DecodeLimits",
    "DecodedManifest",
    "FieldStatistics",
    "ManifestCache",
    "ManifestContent",
    "ManifestHeader",
    "ManifestListEntry",
    "PartitionSummary",
    "RangeStatistics",
    "StoredForm",
    "StoredManifest",
    "check_agreement",
    "data_files",
    "decode_manifest",
    "decode_manifest_list",
    "decode_manifests",
    "inherit",
    "inherit_each",
    "manifest_entries",
]
