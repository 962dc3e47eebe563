"""Audits what a table's metadata.json and manifest lists say, and names what is left to look at.

A file is opened if its path is in the allowed locations. Its bytes are read once, and parsed if they are
those that were sealed. Of a table that the catalog does not govern, the location in its metadata stands for
the allowed locations, as after its adoption.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.base.gathering import gathered
from catalog.iceberg.manifests import ManifestListEntry, decode_manifest_list
from catalog.iceberg.manifests.sealed_files import Digest, check_carried_record, check_digest
from catalog.iceberg.metadata import MAX_BYTES, parse_metadata
from policy.errors import (
    LakewardenError,
    LocationInvalid,
    MetadataInvalid,
    MetadataTampered,
    UnsupportedFormatVersion,
)
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.write_properties import COMMITTED_FORMAT_VERSIONS
from spark_ext.pipelines.audit import rules
from spark_ext.pipelines.audit.facts import FOREIGN, POINTERLESS, Facts
from spark_ext.pipelines.audit.options import Looking
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.reading import fetch, readable
from spark_ext.pipelines.audit.rows import Kind, files, texts
from spark_ext.pipelines.audit.slices import encode

#: The largest size that is compared. Metadata can state any number.
_LARGEST: Final = 2**63 - 1
_PLACES: Final = ("write.data.path", "write.metadata.path", "write.object-storage.path")


@dataclass
class _Named:
    """The files that metadata names, and their sizes; `needed` says that a listing has to have one.

    Metadata files that are read need no listing: that they are missing is found then.
    """

    paths: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    needed: list[int] = field(default_factory=list)

    def add(self, path: str, size: int, *, needed: bool = True) -> None:
        try:
            self.paths.append(Location.parse(path).canonical)
        except LocationInvalid:
            return
        self.sizes.append(min(max(size, 0), _LARGEST))
        self.needed.append(int(needed))


def survey(looking: Looking, facts: Facts) -> Iterator[pa.RecordBatch]:
    """Audit the metadata of one table; yields rows (`rows.Kind`)."""
    found, rows = Partial(facts.table), list[pa.RecordBatch]()
    try:
        _check_state(facts, found)
        metadata = _metadata(looking, facts, found)
        if metadata is not None:
            rows += _Survey(looking, facts, found).rows(*metadata)
    except LakewardenError as error:
        found.failed.append(str(error))
    yield from rows
    yield texts(Kind.PART, facts.table, [found.to_json()])


def _check_state(facts: Facts, found: Partial) -> None:
    state = facts.state
    if state["standing"] == POINTERLESS:
        found.add(rules.POINTER_MISSING)
    elif not facts.is_governed and state["standing"] != FOREIGN:
        found.add(rules.UNGOVERNED)
    elif facts.is_governed and facts.seal is None:
        found.add(rules.UNSEALED, path=facts.pointer)
    for each in state["violations"]:
        found.add(rules.ENCRYPTION_POLICY, each)
    if state["location"] is not None:
        own = Location.parse(state["location"])
        for name, location in facts.others:
            if own.overlaps(location):
                text = f"The table's location overlaps the location of {name}."
                found.add(rules.OVERLAP, text, path=location.canonical)


def _metadata(looking: Looking, facts: Facts, found: Partial) -> tuple[TableMetadata, int] | None:
    """Read the metadata that the pointer names; return it and the length of the file."""
    path = facts.pointer
    if path is None:
        return None
    # Of a table that the catalog does not govern, the metadata itself says what is allowed.
    is_readable = readable(facts, path, "metadata.json", found) if facts.is_governed else _parses(path, found)
    if not is_readable:
        return None
    data = fetch(looking.storage, path, "metadata.json", found, MAX_BYTES)
    if data is None:
        return None
    try:
        if facts.seal is not None:
            check_digest(data, facts.seal, what="table metadata", path=path, table=facts.table)
        metadata = parse_metadata(data, path=path, table=facts.table)
    except MetadataTampered as error:
        found.add(rules.SEAL_BROKEN, error.message, path=path)
        return None
    except UnsupportedFormatVersion as error:
        found.add(rules.FORMAT_VERSION, error.message, path=path)
        return None
    except MetadataInvalid as error:
        found.add(rules.INVALID_METADATA, error.message, path=path)
        return None
    return metadata, len(data)


def _parses(path: str, found: Partial) -> bool:
    try:
        Location.parse(path)
    except LocationInvalid as error:
        found.add(rules.INVALID_PATH, f"The metadata.json: {error.message}", path=path)
        return False
    return True


class _Survey:
    """The survey of one table whose metadata was read."""

    def __init__(self, looking: Looking, facts: Facts, found: Partial) -> None:
        self._looking = looking
        self._facts = facts
        self._found = found
        self._named = _Named()
        self._lists: set[str] = set()
        self._manifests: dict[str, ManifestListEntry] = {}

    def rows(self, metadata: TableMetadata, length: int) -> Iterator[pa.RecordBatch]:
        """Audit the metadata and its manifest lists; yields what is left to look at."""
        if not self._place(metadata):
            return
        self._check(metadata)
        assert self._facts.pointer is not None
        self._named.add(self._facts.pointer, length, needed=False)
        for log in metadata.metadata_log:
            # Earlier metadata is history: no reader needs it.
            self._named.add(log.metadata_file, 0, needed=False)
            readable(self._facts, log.metadata_file, "earlier metadata.json", self._found)
        self._statistics(metadata)
        refs = {ref.snapshot_id: name for name, ref in metadata.refs.items()}
        for snapshot in metadata.snapshots:
            self._snapshot(metadata, snapshot, refs.get(snapshot.snapshot_id))
        yield from self._slices(metadata)
        named, table = self._named, self._facts.table
        yield from files(Kind.NAMED, table, named.paths, named.sizes, named.needed)
        yield texts(Kind.PLACE, table, self._places(metadata))

    def _place(self, metadata: TableMetadata) -> bool:
        """Take the location in the metadata for the allowed one, if the catalog does not govern the table."""
        if self._facts.is_governed:
            return True
        try:
            own = Location.parse(metadata.location)
        except LocationInvalid as error:
            self._found.add(rules.INVALID_PATH, f"The location: {error.message}", path=metadata.location)
            return False
        self._facts = self._facts.allowing(AllowList((own,)))
        assert self._facts.pointer is not None
        return readable(self._facts, self._facts.pointer, "metadata.json", self._found)

    def _check(self, metadata: TableMetadata) -> None:
        facts, found = self._facts, self._found
        if facts.uuid is not None and metadata.table_uuid != facts.uuid:
            found.add(rules.WRONG_UUID, path=facts.pointer)
        if metadata.format_version not in COMMITTED_FORMAT_VERSIONS:
            text = f"The table has format version {metadata.format_version}, which cannot be committed to."
            found.add(rules.FORMAT_VERSION, text)
        known = {each.snapshot_id for each in metadata.snapshots}
        for name, ref in metadata.refs.items():
            found.counts["refs"] += 1
            if ref.snapshot_id not in known:
                found.add(rules.BROKEN_REF, ref=name, snapshot=ref.snapshot_id)

    def _statistics(self, metadata: TableMetadata) -> None:
        for each in (*metadata.statistics, *metadata.partition_statistics):
            path = each.statistics_path
            if readable(self._facts, path, "statistics file", self._found):
                self._named.add(path, each.file_size_in_bytes)
            if self._facts.ever_encrypted:
                text = "A statistics file of an encrypted table is in plaintext."
                self._found.add(rules.PLAINTEXT_STATISTICS, text, path=path, snapshot=each.snapshot_id)

    def _snapshot(self, metadata: TableMetadata, snapshot: Snapshot, ref: str | None) -> None:
        """Read the manifest list of a snapshot."""
        facts, found, path = self._facts, self._found, snapshot.manifest_list
        found.counts["snapshots"] += 1
        if not path:
            text = "The snapshot has no manifest list: an old form of format version 1."
            found.add(rules.FORMAT_VERSION, text, snapshot=snapshot.snapshot_id, ref=ref)
            return
        if path in self._lists or not readable(facts, path, "manifest list", found):
            return
        self._lists.add(path)
        self._named.add(path, 0, needed=False)
        data = fetch(self._looking.storage, path, "manifest list", found)
        if data is None or not sealed(facts, path, data, "manifest list", found):
            return
        try:
            listed = decode_manifest_list(data, path=path, format_version=metadata.format_version)
        except MetadataInvalid as error:
            about = {"path": path, "snapshot": snapshot.snapshot_id, "ref": ref}
            found.add(rules.INVALID_METADATA, error.message, **about)
            return
        seen = Counter(entry.manifest_path for entry in listed)
        for twice in (each for each, count in seen.items() if count > 1):
            about = {"path": twice, "snapshot": snapshot.snapshot_id, "ref": ref}
            found.add(rules.LISTED_TWICE, "The manifest list lists a manifest twice.", **about)
        for entry in listed:
            self._manifest(entry, snapshot.snapshot_id, ref)

    def _manifest(self, entry: ManifestListEntry, snapshot_id: int, ref: str | None) -> None:
        path = entry.manifest_path
        known = self._manifests.get(path)
        if known is not None:
            if known != entry:
                text = "Two manifest lists describe a manifest differently."
                self._found.add(rules.MANIFEST_RECORD, text, path=path, snapshot=snapshot_id, ref=ref)
            return
        if not readable(self._facts, path, "manifest", self._found):
            return
        self._manifests[path] = entry
        self._named.add(path, entry.manifest_length, needed=False)
        carried = self._facts.sealed.get(path)
        if self._facts.seal is not None and carried is not None:
            try:
                check_carried_record(entry, carried, self._facts.table)
            except MetadataTampered as error:
                about = {"path": path, "snapshot": snapshot_id, "ref": ref}
                self._found.add(rules.MANIFEST_RECORD, error.message, **about)

    def _slices(self, metadata: TableMetadata) -> Iterator[pa.RecordBatch]:
        entries = sorted(self._manifests.values(), key=lambda each: each.manifest_path)
        self._found.counts["manifests"] += len(entries)
        for part in gathered(entries, _entries, self._looking.together):
            text = encode(self._facts, metadata, part)
            yield texts(Kind.SLICE, self._facts.table, [text], sum(map(_entries, part)))

    def _places(self, metadata: TableMetadata) -> list[str]:
        """Return the locations to list, as JSON; none lies in another one."""
        wanted = [metadata.location, *(metadata.properties.get(name) for name in _PLACES)]
        places: list[Location] = []
        for text in filter(None, wanted):
            try:
                place = Location.parse(text)
            except LocationInvalid as error:
                self._found.add(rules.INVALID_PATH, f"A location: {error.message}", path=text)
                continue
            if not self._facts.allowed.covers(place):
                self._found.add(
                    rules.FOREIGN_PATH, "A location of the table is not an allowed one.", path=text
                )
            elif not any(each.contains(place) for each in places):
                places = [*(each for each in places if not place.contains(each)), place]
        return [json.dumps(self._place_document(each)) for each in places]

    def _place_document(self, place: Location) -> dict[str, Any]:
        state = self._facts.state
        return {
            "place": place.canonical,
            "own": state["location"],
            "shared": state["shared"] or not self._facts.is_governed,
            "writes": state["writes"],
            "before": self._facts.garbage_before_ms,
        }


def _entries(entry: ManifestListEntry) -> int:
    counts = (entry.added_files_count, entry.existing_files_count, entry.deleted_files_count)
    return sum(count or 0 for count in counts)


def sealed(facts: Facts, path: str, data: bytes, what: str, found: Partial) -> bool:
    """Compare a manifest list or manifest with its seal; return whether it can be parsed."""
    known = facts.sealed.get(path)
    if known is None:
        if facts.seal is not None:
            found.add(rules.SEAL_MISSING, f"The {what} has no seal.", path=path)
        return facts.seal is None
    if Digest.of(data) != known.digest:
        found.add(rules.SEAL_BROKEN, f"The {what} does not match its seal.", path=path)
        return False
    return True
