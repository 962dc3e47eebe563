"""Checks the origin of files that a client adds to an encrypted table.

The catalog issues data keys for one write, and accepts new files only with that write (`catalog.writes`). A
client that commits directly can add files only by a cherry-pick: files that a retained snapshot added and
that were never in the branch. An entry that was once in a manifest is no proof: the file can have been
deleted since.

- The new snapshot names the source snapshot in `source-snapshot-id`, as Iceberg's `cherrypick_snapshot` does.
- The source is not an ancestor of the new snapshot, and no ancestor picked it. To determine this, the
  ancestors back to the source's time have to be retained. The source is not a cherry-pick itself.
- The cherry-pick adds all files that the source added, unchanged, under its own sequence number, and removes
  all files that the source removed. A part of them, such as new versions of rows without the deletes of the
  old ones, would duplicate rows.
- The source is an append, or replaced whole partitions. Iceberg picks no other change: a rewrite would
  restore rows that were deleted from its files on the branch since.
- Keys are under the versions in force. Files under earlier versions have to be rewrapped first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.snapshots import Operation, Snapshot

from catalog.base.errors import CommitConflict
from catalog.envelope.key_metadata_columns import read_forms
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest, SnapshotReader
from catalog.snapshot_checks.branches import lineage, reaches_behind
from catalog.snapshot_checks.carried import other_file
from catalog.snapshot_checks.entries import ADDED, DELETED
from catalog.snapshot_checks.identities import identities
from policy.errors import EncryptionPolicyViolation

#: Iceberg's property for the snapshot that a cherry-pick applies again (`SOURCE_SNAPSHOT_ID_PROP`).
_SOURCE: Final = "source-snapshot-id"
#: Iceberg's property of a snapshot that replaces whole partitions (`REPLACE_PARTITIONS_PROP`).
_REPLACES: Final = "replace-partitions"
_RULE: Final = "added-file-origin"
#: No 64-bit number has this many digits.
_DIGITS: Final = 20


def source_id(snapshot: Snapshot) -> int | None:
    """Return the id of the snapshot that a cherry-pick applies again; None for any other snapshot."""
    said = None if snapshot.summary is None else snapshot.summary.additional_properties.get(_SOURCE)
    return int(said) if said is not None and said.isdecimal() and len(said) < _DIGITS else None


def require_current_keys(table: LoadedTable, added: pa.Table) -> None:
    """Refuse picked files whose keys have earlier versions than the ones in force.

    Raises:
        CommitConflict: a file has an earlier version. A cherry-pick after a rewrap succeeds.
        DecryptionRefused: key metadata that is malformed.
    """
    in_force = {ref.pek_id: ref.version for ref in table.governed.epochs.current.peks}
    for form in read_forms(added["key_metadata"], added["file_path"]):
        for entry in form.metadata.entries:
            ref = entry.bound.pek
            if ref.version < in_force.get(ref.pek_id, 0):
                raise CommitConflict(
                    f"The cherry-pick adds files under version {ref.version} of a key, but "
                    f"version {in_force[ref.pek_id]} is in force.",
                    table=table.name,
                    rule="rewrap-first",
                    hint="Rewrap first: create a branch at the snapshot, run `lakewarden key rewrap`, "
                    "then cherry-pick the rows from the branch.",
                )


def check_picked(
    reader: SnapshotReader,
    table: LoadedTable,
    snapshot: Snapshot,
    known: Mapping[int, Snapshot],
    fresh: Sequence[OpenManifest],
) -> None:
    """Check that a retained snapshot that never reached the branch added the files that a client adds.

    Args:
        reader: reads manifests.
        table: the table, sealed; it encrypts.
        snapshot: the new snapshot.
        known: the snapshots that existed before it, by id.
        fresh: its new manifests.

    Raises:
        EncryptionPolicyViolation: no snapshot did.
    """
    added = [(each, _entries(each, ADDED, snapshot.snapshot_id)) for each in fresh]
    if not any(entries.num_rows for _, entries in added):
        return
    source = next(
        (each for each in table.metadata.snapshots if each.snapshot_id == source_id(snapshot)), None
    )
    if source is None:
        raise _refused(
            table,
            snapshot,
            "A standard client adds files to an encrypted table, and no retained snapshot added these files.",
        )
    _require_new_to_branch(table, snapshot, source, known)
    listed = [
        each for each in reader.manifests(table, source) if each.added_snapshot_id == source.snapshot_id
    ]
    made = list(reader.open(table, listed))
    _require_whole(table, snapshot, source, made, fresh)
    if not all(_is_numbered(entries, snapshot) for _, entries in added):
        raise _refused(
            table, snapshot, "The cherry-pick adds files with a sequence number other than its own."
        )
    was_added = [(each, _entries(each, ADDED, source.snapshot_id)) for each in made]
    for spec_id in {each.listed.partition_spec_id for each in (*made, *fresh)}:
        before, after = _of_spec(was_added, spec_id), _of_spec(added, spec_id)
        path = other_file(before, after)
        if sum(each.num_rows for each in before) > sum(each.num_rows for each in after):
            raise _refused(
                table, snapshot, f"The cherry-pick omits files that snapshot {source.snapshot_id} added."
            )
        if path is not None:
            raise _refused(
                table,
                snapshot,
                f"Snapshot {source.snapshot_id} did not add this file, or added it with other values.",
                path,
            )


def _require_whole(
    table: LoadedTable,
    snapshot: Snapshot,
    source: Snapshot,
    made: Sequence[OpenManifest],
    fresh: Sequence[OpenManifest],
) -> None:
    said = source.summary
    if said is None or not (
        said.operation is Operation.APPEND
        or (said.operation is Operation.OVERWRITE and said.additional_properties.get(_REPLACES) == "true")
    ):
        raise _refused(
            table,
            snapshot,
            f"Snapshot {source.snapshot_id} neither appends files nor replaces whole partitions.",
        )
    kept = _removed(made, source.snapshot_id) - _removed(fresh, snapshot.snapshot_id)
    if kept:
        raise _refused(
            table, snapshot, f"The cherry-pick keeps files that snapshot {source.snapshot_id} removed."
        )


def _removed(manifests: Sequence[OpenManifest], snapshot_id: int) -> set[str]:
    removed: set[str] = set()
    for each in manifests:
        removed.update(identities(_entries(each, DELETED, snapshot_id)).to_pylist())
    return removed


def _is_numbered(added: pa.Table, snapshot: Snapshot) -> bool:
    own = pc.equal(added["sequence_number"], snapshot.sequence_number or 0)
    return bool(pc.all(own, min_count=0).as_py())


def _of_spec(parts: Sequence[tuple[OpenManifest, pa.Table]], spec_id: int) -> list[pa.Table]:
    return [entries for each, entries in parts if each.listed.partition_spec_id == spec_id]


def _require_new_to_branch(
    table: LoadedTable, snapshot: Snapshot, source: Snapshot, known: Mapping[int, Snapshot]
) -> None:
    below = lineage(snapshot.parent_snapshot_id, known)
    if source_id(source) is not None:
        raise _refused(table, snapshot, f"Snapshot {source.snapshot_id} is itself a cherry-pick.")
    if any(source.snapshot_id in (each.snapshot_id, source_id(each)) for each in below):
        raise _refused(
            table,
            snapshot,
            f"The branch contains the files of snapshot {source.snapshot_id}, or contained them before.",
        )
    if not reaches_behind(below, source):
        raise _refused(
            table,
            snapshot,
            "The catalog cannot determine whether the branch contained the files of snapshot "
            f"{source.snapshot_id}: snapshots below it have expired.",
        )


def _entries(manifest: OpenManifest, status: int, snapshot_id: int) -> pa.Table:
    """Return the entries of one status that a snapshot wrote."""
    entries = manifest.entries
    mine = pc.and_(pc.equal(entries["status"], status), pc.equal(entries["snapshot_id"], snapshot_id))
    return entries.filter(mine)


def _refused(
    table: LoadedTable, snapshot: Snapshot, message: str, path: str | None = None
) -> EncryptionPolicyViolation:
    return EncryptionPolicyViolation(
        message,
        table=table.name,
        snapshot=snapshot.snapshot_id,
        path=path,
        rule=_RULE,
        hint="Write encrypted tables with the Spark plugin or the Python client, or cherry-pick a snapshot.",
    )
