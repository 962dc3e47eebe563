"""Audits the entries of manifests: paths, encryption, statistics, delete files; vectorized."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from catalog.base.gathering import gathered
from catalog.envelope.key_metadata import KeyMetadata
from catalog.envelope.key_metadata_columns import Form, Rows, read_forms, stated
from catalog.iceberg.manifests import (
    DecodedManifest,
    ManifestListEntry,
    decode_manifests,
    inherit,
)
from catalog.iceberg.manifests.descriptions import check_described
from catalog.iceberg.manifests.shown_statistics import shown_fields
from catalog.iceberg.manifests.statistics import described_fields
from catalog.iceberg.manifests.statuses import DELETED, alive
from catalog.iceberg.partition_values import ShownPartitions
from policy.encryption.epochs import Epochs, check_sealed_file
from policy.errors import DecryptionRefused, LakewardenError, MetadataInvalid
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.location.spelling import respelled
from spark_ext.pipelines.audit import rules
from spark_ext.pipelines.audit.facts import Facts
from spark_ext.pipelines.audit.files import FileCheck
from spark_ext.pipelines.audit.options import Looking
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.reading import fetch
from spark_ext.pipelines.audit.rows import Kind, files, texts
from spark_ext.pipelines.audit.slices import Slice, decode
from spark_ext.pipelines.audit.survey import sealed

_EQUALITY_DELETES: Final = 2
_READ: Final = ("PARQUET", "ORC")
#: Bytes of manifests that are decoded together.
_TOGETHER: Final = 8 << 20


def audit_slices(looking: Looking, slices: Iterable[str]) -> Iterator[pa.RecordBatch]:
    """Audit the manifests of slices; yields the files that they name, and parts of the result.

    Manifests are decoded together: each alone takes several times as long where they are small.
    """
    works = [_Work(looking, decode(text)) for text in slices]
    fetched = ((work, entry, data) for work in works for entry, data in work.fetch())
    for batch in gathered(fetched, lambda each: len(each[2]), _TOGETHER):
        files = [(entry.manifest_path, data) for _, entry, data in batch]
        for index, decoded in decode_manifests(files):
            work, entry, _ = batch[index]
            work.audit(entry, decoded)
    for work in works:
        yield from work.rows()


class _Work:
    """The work on one slice."""

    def __init__(self, looking: Looking, part: Slice) -> None:
        self._looking = looking
        self._part = part
        self._facts = part.facts
        self._found = Partial(part.facts.table)
        #: The files by path and stated size, each with 1 if it is live. Entries of one path can contradict.
        self._named: dict[tuple[str, int], int] = {}
        self._files = FileCheck(looking, part)
        self._others = _foreign_places(part.facts)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Return the files that the manifests name, and the part of the result.

        Those files have to be there that are live in a manifest.
        """
        paths, sizes = [path for path, _ in self._named], [size for _, size in self._named]
        yield from files(Kind.NAMED, self._facts.table, paths, sizes, list(self._named.values()))
        yield texts(Kind.PART, self._facts.table, [self._found.to_json()])

    def fetch(self) -> Iterator[tuple[ManifestListEntry, bytes]]:
        """Read the manifests; yields those that can be parsed."""
        for entry in self._part.listed:
            try:
                data = self._fetch(entry)
            except LakewardenError as error:
                self._found.failed.append(str(error))
                continue
            if data is not None:
                yield entry, data

    def _fetch(self, entry: ManifestListEntry) -> bytes | None:
        path, found = entry.manifest_path, self._found
        data = fetch(self._looking.storage, path, "manifest", found)
        if data is None or not sealed(self._facts, path, data, "manifest", found):
            return None
        if len(data) != entry.manifest_length:
            text = f"The manifest has {len(data)} bytes, but its list states {entry.manifest_length}."
            found.add(rules.FILE_SIZE, text, path=path)
        return data

    def audit(self, entry: ManifestListEntry, decoded: DecodedManifest | MetadataInvalid) -> None:
        """Audit a manifest."""
        try:
            self._audit(entry, decoded)
        except LakewardenError as error:
            self._found.failed.append(str(error))

    def _audit(self, entry: ManifestListEntry, decoded: DecodedManifest | MetadataInvalid) -> None:
        found = self._found
        try:
            if isinstance(decoded, MetadataInvalid):
                raise decoded
            entries = inherit(decoded, entry)
            self._check_record(entry, entries, found)
        except MetadataInvalid as error:
            found.add(rules.INVALID_METADATA, error.message, path=entry.manifest_path)
            return
        self._entries(entry, decoded, entries, found)

    def _check_record(self, entry: ManifestListEntry, entries: pa.Table, found: Partial) -> None:
        spec = self._part.specs.get(entry.partition_spec_id)
        if spec is None:
            text = f"The manifest has the partition spec {entry.partition_spec_id}, which is unknown."
            found.add(rules.INVALID_METADATA, text, path=entry.manifest_path)
            return
        schema = self._part.schemas[0]
        shown = ShownPartitions(self._part.specs, schema, frozenset(schema.field_ids))
        shown.texts(entries["partition"].combine_chunks(), entry)
        try:
            check_described(entry, entries, spec, self._facts.table)
        except MetadataInvalid as error:
            found.add(rules.MANIFEST_RECORD, error.message, path=entry.manifest_path)

    def _entries(
        self, entry: ManifestListEntry, decoded: DecodedManifest, entries: pa.Table, found: Partial
    ) -> None:
        live = pc.not_equal(entries["status"], DELETED)
        files, statistics = alive(entries), decoded.statistics.filter(live)
        found.counts["entries"] += files.num_rows
        inside = self._check_paths(files, found)
        self._name(files.filter(inside), 1)
        gone = entries.filter(pc.invert(live))
        self._name(gone.filter(self._facts.allowed.decide_many(gone["file_path"])), 0)
        self._check_formats(files, found)
        _check_once(files, found)
        files, statistics = files.filter(inside), statistics.filter(inside)
        epochs = self._facts.epochs
        if epochs is None:
            keyed = files["file_path"].filter(pc.is_valid(files["key_metadata"]))
            for path in keyed.to_pylist():
                text = "The file has key metadata that this catalog did not write."
                found.add(rules.WRONG_ENCRYPTION, text, path=path)
        elif self._check_epochs(epochs, files, found):
            shown = shown_fields(files, statistics, epochs, described_fields)
            if shown:
                text = f"The manifest has plaintext statistics of encrypted columns (field {min(shown)})."
                found.add(rules.PLAINTEXT_STATISTICS, text, path=entry.manifest_path)
        self._files.check(files, statistics, found)

    def _check_paths(self, files: pa.Table, found: Partial) -> pa.BooleanArray:
        """Add paths outside of the allowed locations, and those in other tables; return which are inside."""
        paths = files["file_path"]
        inside = self._facts.allowed.decide_many(paths)
        for path in paths.filter(pc.invert(inside)).to_pylist():
            decision = self._facts.allowed.decide(path)
            invalid = decision.reasons[0].rule == "location-invalid"
            found.add(rules.INVALID_PATH if invalid else rules.FOREIGN_PATH, decision.explanation, path=path)
        for path in paths.filter(pc.ends_with(paths, "/")).to_pylist():
            found.add(rules.INVALID_PATH, "The path names a directory.", path=path)
        for table, place in self._others:
            for path in paths.filter(place.decide_many(paths)).to_pylist():
                found.add(rules.IN_OTHER_TABLE, f"The file lies in the location of {table}.", path=path)
        return inside

    def _name(self, files: pa.Table, live: int) -> None:
        paths = files["file_path"]
        names = pc.coalesce(respelled(paths), paths.combine_chunks())
        for key in zip(names.to_pylist(), files["file_size_in_bytes"].to_pylist(), strict=True):
            self._named[key] = max(live, self._named.get(key, 0))

    def _check_formats(self, files: pa.Table, found: Partial) -> None:
        formats = pc.utf8_upper(files["file_format"])
        other = pc.invert(pc.is_in(formats, value_set=pa.array(_READ)))
        for row in files.filter(other).select(["file_path", "file_format"]).to_pylist():
            text = f"The file has the format {row['file_format']}, which is not read here."
            found.add(rules.UNSUPPORTED_FILE, text, path=row["file_path"])
        deletes = files.filter(pc.not_equal(files["content"], 0))
        if deletes.num_rows:
            self._check_deletes(deletes, found)

    def _check_deletes(self, deletes: pa.Table, found: Partial) -> None:
        known = {field_id for schema in self._part.schemas for field_id in schema.field_ids}
        columns = ["file_path", "content", "equality_ids", "referenced_data_file"]
        for row in deletes.select(columns).to_pylist():
            path, referenced = row["file_path"], row["referenced_data_file"]
            ids = set(row["equality_ids"] or ())
            if row["content"] == _EQUALITY_DELETES and (not ids or not ids <= known):
                text = "An equality delete file compares columns that the table never had, or none."
                found.add(rules.DELETE_FILE, text, path=path)
            if referenced is not None and not self._facts.allowed.decide(referenced).allowed:
                text = "A delete file deletes from a file outside of the table's allowed locations."
                found.add(rules.DELETE_FILE, text, path=path)

    def _check_epochs(self, epochs: Epochs, files: pa.Table, found: Partial) -> bool:
        """Check files against the epochs of their sequence numbers; return whether an epoch encrypts."""
        if not self._facts.ever_encrypted and files["key_metadata"].null_count == files.num_rows:
            return False
        files = _well_formed(files, found)
        forms = read_forms(files["key_metadata"], files["file_path"])
        found.used |= {
            (str(each.bound.pek.pek_id), each.bound.pek.version)
            for form in forms
            for each in form.metadata.entries
        }
        for rows, message in _misfits(epochs, files, forms):
            for path in files["file_path"].take(pa.array(rows)).to_pylist():
                found.add(rules.WRONG_ENCRYPTION, message, path=path)
        return self._facts.ever_encrypted


def _check_once(files: pa.Table, found: Partial) -> None:
    """Find files that a manifest lists twice. Deletion vectors of one file differ in their offsets."""
    paths = files.filter(pc.is_null(files["content_offset"]))["file_path"]
    if len(pc.unique(paths)) == len(paths):
        return
    counted = pc.value_counts(paths)
    for path in counted.filter(pc.greater(counted.field("counts"), 1)).field("values").to_pylist():
        found.add(rules.LISTED_TWICE, "The manifest lists the file twice.", path=path)


def _misfits(epochs: Epochs, files: pa.Table, forms: list[Form]) -> Iterator[tuple[Rows, str]]:
    """Yield the rows of files that are not as their epochs say, and why."""
    numbers = files["file_sequence_number"].to_numpy()
    for rows, keys, deletes in stated(files, forms):
        for number in np.unique(numbers[rows]).tolist():
            decision = check_sealed_file(epochs, int(number), keys, deletes=deletes)
            if not decision.allowed:
                yield rows[numbers[rows] == number], decision.explanation


def _well_formed(files: pa.Table, found: Partial) -> pa.Table:
    """Return the files whose key metadata can be parsed, and that have a sequence number."""
    try:
        read_forms(files["key_metadata"], files["file_path"])
    except DecryptionRefused:
        keep = [_parses(row, found) for row in files.select(["file_path", "key_metadata"]).to_pylist()]
        files = files.filter(pa.array(keep, pa.bool_()))
    known = pc.is_valid(files["file_sequence_number"])
    for path in files["file_path"].filter(pc.invert(known)).to_pylist():
        found.add(rules.WRONG_ENCRYPTION, "The file's sequence number is unknown.", path=path)
    return files.filter(known)


def _parses(row: dict[str, object], found: Partial) -> bool:
    data = row["key_metadata"]
    if not isinstance(data, bytes):
        return True
    try:
        KeyMetadata.parse(data)
    except DecryptionRefused as error:
        found.add(rules.WRONG_ENCRYPTION, error.message, path=row["file_path"])
        return False
    return True


def _foreign_places(facts: Facts) -> list[tuple[str, AllowList]]:
    """Return the other tables whose locations do not contain this table's, which is an overlap."""
    own = facts.state["location"]
    mine = None if own is None else Location.parse(own)
    return [
        (name, AllowList((place,)))
        for name, place in facts.others
        if mine is None or not place.contains(mine)
    ]
