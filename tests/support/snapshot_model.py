"""A naive model of what makes a commit acceptable: sets and loops, written from the rules alone.

A commit is a difference of snapshots (docs/threat-model.md, "Commits"). Nothing of the catalog is imported,
so that a mistake there is not made here again. Every rule that a commit breaks adds what the refusal can be;
no refusal at all means that the commit has to be accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

ADDED, EXISTING, DELETED = 1, 0, 2
DATA, DELETES = 0, 1

#: What a refusal is: the state is another than the client thinks; a permission is missing; the rest.
CONFLICT, FORBIDDEN, REFUSED = "conflict", "forbidden", "refused"

Stats = tuple[tuple[str, tuple[tuple[int, Any], ...]], ...]


@dataclass(frozen=True)
class File:
    """What a manifest says of a file; content is 0 for data, 1 and 2 for position and equality deletes."""

    path: str
    content: int = 0
    format: str = "PARQUET"
    partition: tuple[Any, ...] = ()
    records: int = 1
    size: int = 1
    key: bytes | None = None
    offsets: tuple[int, ...] | None = None
    equality_ids: tuple[int, ...] | None = None
    referenced: str | None = None
    stats: Stats = ()

    @property
    def place(self) -> str:
        """The path, the same for its spellings."""
        return "/" + self.path.partition(":")[2].lstrip("/")

    @property
    def identity(self) -> str:
        """What no snapshot has twice: the path, since no file here is a deletion vector."""
        return self.place


@dataclass(frozen=True)
class Row:
    """An entry of a manifest; numbers that are None are inherited."""

    status: int
    file: File
    snapshot_id: int | None = None
    number: int | None = None
    file_number: int | None = None


@dataclass(frozen=True)
class Summary:
    """What a list says of the values of a partition field."""

    has_null: bool
    lower: Any
    upper: Any


@dataclass(frozen=True)
class Listed:
    """A manifest as a list describes it."""

    path: str
    length: int
    spec: int
    content: int
    number: int
    min_number: int
    snapshot_id: int
    files: tuple[int, int, int]
    rows: tuple[int, int, int]
    summaries: tuple[Summary, ...] | None


@dataclass(frozen=True)
class Manifest:
    """The bytes of a manifest, decoded: its entries and its length."""

    path: str
    length: int
    spec: int
    content: int
    entries: tuple[Row, ...]


@dataclass(frozen=True)
class Live:
    """An entry with its numbers."""

    file: File
    snapshot_id: int
    number: int
    file_number: int
    spec: int

    def without_stats(self) -> Live:
        return replace(self, file=replace(self.file, stats=()))


@dataclass(frozen=True)
class Snap:
    """A snapshot, and what its list says."""

    id: int
    parent: int | None
    number: int
    listed: tuple[Listed, ...]
    list_path: str = ""
    source: int | None = None


@dataclass(frozen=True)
class Proposal:
    """A commit: snapshots in order, where refs are in the end (None: gone), snapshots that expire.

    A write session's snapshot holds files that the session has keys for.
    """

    snapshots: tuple[Snap, ...] = ()
    refs: Mapping[str, tuple[str, int] | None] = field(default_factory=dict)
    expired: tuple[int, ...] = ()
    by_session: bool = False


@dataclass
class History:
    """A table: its snapshots and refs, and the entries of every manifest that was ever written."""

    snapshots: dict[int, Snap] = field(default_factory=dict)
    refs: dict[str, tuple[str, int]] = field(default_factory=dict)
    manifests: dict[str, Manifest] = field(default_factory=dict)
    last_number: int = 0
    #: From which sequence number on files are encrypted; None if never.
    encrypted_from: int | None = None
    #: Key metadata under earlier versions of the key.
    old_keys: set[bytes] = field(default_factory=set)
    #: Key metadata under versions of the key that are disabled.
    unusable: set[bytes] = field(default_factory=set)
    #: The last sequence number under an earlier version of the key; 0 if there is none.
    outdated: int = 0

    def live(self, snapshot: Snap | None) -> list[Live]:
        """The live entries of a snapshot."""
        if snapshot is None:
            return []
        return [each for listed in snapshot.listed for each in self.live_in(listed)]

    def live_in(self, listed: Listed) -> list[Live]:
        return [live for row, live in self.rows_of(listed) if row.status != DELETED]

    def rows_of(self, listed: Listed) -> Iterator[tuple[Row, Live]]:
        """The entries of a manifest with what they inherit; a number that cannot be inherited is -1."""
        for row in self.manifests[listed.path].entries:
            inherited = listed.number if row.status == ADDED else -1
            number = inherited if row.number is None else row.number
            file_number = inherited if row.file_number is None else row.file_number
            snapshot_id = listed.snapshot_id if row.snapshot_id is None else row.snapshot_id
            yield row, Live(row.file, snapshot_id, number, file_number, listed.spec)

    def head(self, ref: str = "main") -> Snap | None:
        """The snapshot that a ref is at."""
        return self.snapshots[self.refs[ref][1]] if ref in self.refs else None

    def accept(self, proposal: Proposal) -> None:
        """Make a commit part of the history."""
        for snapshot in proposal.snapshots:
            self.snapshots[snapshot.id] = snapshot
            self.last_number = max(self.last_number, snapshot.number)
        for name, ref in proposal.refs.items():
            if ref is None:
                self.refs.pop(name, None)
            else:
                self.refs[name] = ref
        for gone in proposal.expired:
            del self.snapshots[gone]
            for snapshot in list(self.snapshots.values()):
                if snapshot.parent == gone:
                    self.snapshots[snapshot.id] = replace(snapshot, parent=None)

    def check(self, proposal: Proposal, rights: frozenset[str]) -> set[str]:
        """What the refusal of a commit can be; nothing if it has to be accepted."""
        found: set[str] = set()
        known = dict(self.snapshots)
        last = self.last_number
        for snapshot in proposal.snapshots:
            found |= set(self._faults(snapshot, known, last))
            if not proposal.by_session:
                found |= set(self._foreign_faults(snapshot, known))
            known[snapshot.id] = snapshot
            last = max(last, snapshot.number)
        return found | set(self._moves(proposal, known, rights))

    def _faults(self, snapshot: Snap, known: Mapping[int, Snap], last: int) -> Iterator[str]:
        parent = None if snapshot.parent is None else known.get(snapshot.parent)
        if snapshot.parent is not None and parent is None:
            yield CONFLICT
        yield from self._number_faults(snapshot, last)
        before = {} if parent is None else {each.path: each for each in parent.listed}
        new = [each for each in snapshot.listed if each.path not in before]
        if len({each.path for each in snapshot.listed}) != len(snapshot.listed):
            yield REFUSED
        if any(each != before[each.path] for each in snapshot.listed if each.path in before):
            yield REFUSED
        for listed in new:
            yield from self._record_faults(snapshot, listed)
        kept = {each.path for each in snapshot.listed}
        dropped = [live for path, each in before.items() if path not in kept for live in self.live_in(each)]
        rows = [pair for listed in new for pair in self.rows_of(listed)]
        yield from _carried_faults(dropped, [(row, live) for row, live in rows if row.status != ADDED])
        added = [live for row, live in rows if row.status == ADDED]
        yield from self._added_faults(snapshot, self.live(parent), added)

    def _number_faults(self, snapshot: Snap, last: int) -> Iterator[str]:
        if snapshot.number > last + 1:
            yield REFUSED
            yield CONFLICT
        if snapshot.number <= last and (snapshot.parent is not None or self.encrypted_from is not None):
            yield CONFLICT
            if snapshot.parent is None:
                yield REFUSED

    def _record_faults(self, snapshot: Snap, listed: Listed) -> Iterator[str]:
        manifest = self.manifests[listed.path]
        rows = list(self.rows_of(listed))
        live = [each for row, each in rows if row.status != DELETED]
        true = true_counts(manifest.entries)
        least = min((each.number for each in live), default=None)
        if (
            (listed.snapshot_id, listed.number) != (snapshot.id, snapshot.number)
            or (listed.length, listed.spec, listed.content)
            != (manifest.length, manifest.spec, manifest.content)
            or (listed.files, listed.rows) != true
            or (least is not None and not 0 <= listed.min_number <= least)
            or not _contains(listed.summaries, [each.file.partition for each in live])
            or any(each.number < 0 or each.file_number < 0 for _, each in rows)
        ):
            yield REFUSED

    def _added_faults(self, snapshot: Snap, live: list[Live], added: list[Live]) -> Iterator[str]:
        before = {each.file.identity for each in live}
        times = Counter(each.file.identity for each in added)
        if any(identity in before or count > 1 for identity, count in times.items()):
            yield REFUSED
        for each in added:
            wrong = each.snapshot_id != snapshot.id or each.file_number != snapshot.number
            if wrong or not 0 <= each.number <= snapshot.number:
                yield REFUSED

    def _foreign_faults(self, snapshot: Snap, known: Mapping[int, Snap]) -> Iterator[str]:
        """In an encrypted table, files come from a write session or from a snapshot that is picked."""
        added = [each.file for each in self.added_by(snapshot)]
        if self.encrypted_from is None:
            if any(each.key is not None for each in added):
                yield REFUSED
            return
        picked = self.snapshots.get(snapshot.source or 0)
        offered = [] if picked is None else [each.file for each in self.added_by(picked)]
        if any(each not in offered or each.key is None for each in added):
            yield REFUSED
        if added and picked is not None and not self._is_new(picked, snapshot.parent, known):
            yield REFUSED
        if added and picked is not None and self._removes(picked):
            yield REFUSED
        if added and picked is not None and picked.number <= self.outdated:
            yield CONFLICT

    def _is_new(self, picked: Snap, parent: int | None, known: Mapping[int, Snap]) -> bool:
        """Whether a branch is known never to have had the files that are picked."""
        below = [known[each] for each in ([] if parent is None else ancestors(parent, known))]
        if picked.source is not None or any(picked.id in (each.id, each.source) for each in below):
            return False
        return not below or any(each.number < picked.number for each in below)

    def _removes(self, picked: Snap) -> bool:
        """Whether a snapshot is an overwrite, of which only whole partitions can be picked."""
        own = [each for each in picked.listed if each.snapshot_id == picked.id]
        return any(row.status == DELETED for listed in own for row, _ in self.rows_of(listed))

    def added_by(self, snapshot: Snap) -> list[Live]:
        """What a snapshot added."""
        own = [each for each in snapshot.listed if each.snapshot_id == snapshot.id]
        return [live for listed in own for row, live in self.rows_of(listed) if row.status == ADDED]

    def _moves(self, proposal: Proposal, known: Mapping[int, Snap], rights: frozenset[str]) -> Iterator[str]:
        for name, ref in proposal.refs.items():
            before = self.refs.get(name)
            is_branch = before is not None and before[0] == "branch"
            head = known[before[1]] if before is not None and is_branch else None
            if head is None and name != "main":
                continue
            to_branch = ref is not None and ref[0] == "branch"
            below = (
                [known[each] for each in ancestors(ref[1], known)] if ref is not None and to_branch else []
            )
            if head in below:
                continue
            back = next((each for each in below if each.id in self.snapshots), None)
            if head is not None and "alter" not in rights:
                yield FORBIDDEN
            if self._drops(head, back) and "unprotect" not in rights:
                yield FORBIDDEN
            if self.is_unreadable(back):
                yield REFUSED

    def is_unreadable(self, snapshot: Snap | None) -> bool:
        """Whether a file of a snapshot needs a key that cannot be used."""
        return any(each.file.key in self.unusable for each in self.live(snapshot))

    def _drops(self, head: Snap | None, back: Snap | None) -> bool:
        """Whether a rollback drops protection.

        Encryption began between what comes back and the head, or a file comes back in plaintext or under an
        earlier key version.
        """
        if self.encrypted_from is None or back is None:
            return False
        last = self.last_number + 1 if head is None else head.number
        if back.number < self.encrypted_from <= last:
            return True
        return bool(self._outdated(back) - self._outdated(head))

    def _outdated(self, snapshot: Snap | None) -> set[tuple[str, bytes | None]]:
        files = {(each.file.path, each.file.key) for each in self.live(snapshot)}
        return {(path, key) for path, key in files if key is None or key in self.old_keys}


def ancestors(snapshot_id: int, known: Mapping[int, Snap]) -> list[int]:
    """A snapshot and what it descends from."""
    found: list[int] = []
    each: int | None = snapshot_id
    while each is not None and each in known and each not in found:
        found.append(each)
        each = known[each].parent
    return found


def true_counts(entries: Iterable[Row]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Files and rows that are added, carried over and removed."""
    by_status = {status: [row.file.records for row in entries if row.status == status] for status in range(3)}
    order = (ADDED, EXISTING, DELETED)
    files = (len(by_status[order[0]]), len(by_status[order[1]]), len(by_status[order[2]]))
    rows = (sum(by_status[order[0]]), sum(by_status[order[1]]), sum(by_status[order[2]]))
    return files, rows


def _carried_faults(dropped: list[Live], carried: list[tuple[Row, Live]]) -> Iterator[str]:
    """What is dropped is carried over or removed, each once, and nothing else is."""
    left = list(dropped)
    for row, each in carried:
        match = next((old for old in left if _is_carried(old, row, each)), None)
        if match is None:
            yield REFUSED
        else:
            left.remove(match)
    if left:
        yield REFUSED


def _is_carried(old: Live, row: Row, new: Live) -> bool:
    if row.status == DELETED:  # it names the snapshot that removes it
        new = replace(new, snapshot_id=old.snapshot_id)
    told, known = dict(new.file.stats), dict(old.file.stats)
    same = all(known.get(name) == value for name, value in told.items())
    return same and new.without_stats() == old.without_stats()


def _contains(summaries: tuple[Summary, ...] | None, partitions: list[tuple[Any, ...]]) -> bool:
    """Whether summaries leave out no partition."""
    if summaries is None:
        return True
    if any(len(each) != len(summaries) for each in partitions):
        return False
    in_range: Callable[[Summary, Any], bool] = lambda summary, value: (  # noqa: E731
        summary.has_null
        if value is None
        else summary.lower is not None
        and summary.upper is not None
        and summary.lower <= value <= summary.upper
    )
    return all(
        in_range(summary, value)
        for partition in partitions
        for summary, value in zip(summaries, partition, strict=True)
    )


def planned(lives: Iterable[Live]) -> Counter[str]:
    """The data files that a plan of live entries has, by path."""
    return Counter(each.file.path for each in lives if each.file.content == DATA)
