"""Snapshots that a client could send: honest differences of a parent, and forgeries of them.

A draft is what a client is about to write. Hypothesis draws what is done to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from tests.support.snapshot_files import Writer, write_list
from tests.support.snapshot_model import (
    ADDED,
    DATA,
    DELETED,
    DELETES,
    EXISTING,
    File,
    History,
    Listed,
    Manifest,
    Row,
    Snap,
    Summary,
    true_counts,
)

PARTS: Final = ("a", "b", None)


@dataclass
class DraftManifest:
    """A new manifest, and what its list is to say otherwise than the truth."""

    spec: int
    content: int
    entries: list[Row]
    told: dict[str, Any] = field(default_factory=dict)


@dataclass
class Draft:
    """A snapshot before its files are written."""

    id: int
    parent: int | None
    number: int
    carried: list[Listed] = field(default_factory=list)
    new: list[DraftManifest] = field(default_factory=list)
    source: int | None = None


@dataclass
class Workshop:
    """Where drafts are made and written.

    Attributes:
        history: the table.
        writer: writes its manifests.
        location: where the table lies.
        specs: the sources of each partition spec, `id` and `part`, by its id.
        deletes: whether delete files can be added.
    """

    history: History
    writer: Writer
    location: str
    specs: dict[int, tuple[str, ...]]
    deletes: bool
    _numbers: Iterator[int] = field(default_factory=lambda: count(1), repr=False)

    def next(self) -> int:
        """A number that was not taken before; the same in each run, so that failures can be repeated."""
        return next(self._numbers)

    def file(self, draw: DataObject, spec: int, content: int = 0) -> File:
        """A file that is new; its bytes lie in storage."""
        number, part = draw.draw(st.integers(0, 3)), draw.draw(st.sampled_from(PARTS))
        values = {"id": number, "part": part}
        kind = "data" if content == 0 else "deletes"
        path = f"{self.location}/data/{kind}-{self.next():032x}.parquet"
        size = draw.draw(st.integers(1, 5))
        bare = Path(path.removeprefix("file://"))
        bare.parent.mkdir(parents=True, exist_ok=True)
        bare.write_bytes(bytes(size))
        return File(
            path=path,
            content=content,
            partition=tuple(values[source] for source in self.specs[spec]),
            records=draw.draw(st.integers(1, 9)),
            size=size,
            offsets=draw.draw(st.sampled_from([None, (4,)])),
            stats=draw.draw(st.sampled_from([(), _STATS])) if content == 0 and self.specs[spec] else (),
        )

    def honest(self, draw: DataObject, parent: Snap | None) -> Draft:
        """A difference of a parent: files added, some manifests rewritten, some files removed."""
        draft = self.empty(parent)
        draft.carried = [] if parent is None else list(parent.listed)
        entries: dict[tuple[int, int], list[Row]] = {}
        for listed in draw.draw(_some(draft.carried)):
            draft.carried.remove(listed)
            for live in self.history.live_in(listed):
                status = draw.draw(st.sampled_from([EXISTING, EXISTING, DELETED]))
                numbers = (draft.id if status == DELETED else live.snapshot_id, live.number, live.file_number)
                file = live.file
                if draw.draw(st.sampled_from([False] * 4 + [True])):
                    file = replace(file, stats=())
                entries.setdefault((listed.spec, listed.content), []).append(Row(status, file, *numbers))
        for _ in range(draw.draw(st.integers(0, 2))):
            spec = draw.draw(st.sampled_from(sorted(self.specs)))
            content = draw.draw(st.sampled_from([0, 0, 0, 1])) if self.deletes else 0
            number = draw.draw(st.sampled_from([None, None, None, draft.number, 1]))
            row = Row(ADDED, self.file(draw, spec, content), draw.draw(st.sampled_from([None, draft.id])))
            row = replace(row, number=number if number is None or number <= draft.number else None)
            entries.setdefault((spec, DATA if content == 0 else DELETES), []).append(row)
        for (spec, content), rows in entries.items():
            for part in _split(draw, rows):
                draft.new.append(DraftManifest(spec, content, part))
        return draft

    def empty(self, parent: Snap | None) -> Draft:
        """A draft that has nothing yet."""
        number = self.history.last_number + 1
        return Draft(1_000_000 + 2 * self.next(), None if parent is None else parent.id, number)

    def write(self, draft: Draft) -> Snap:
        """Write the files of a draft."""
        listed = list(draft.carried)
        for each in draft.new:
            path = f"{self.location}/metadata/{self.next()}-m0.avro"
            manifest = self.writer.manifest(path, each.spec, each.content, tuple(each.entries))
            self.history.manifests[path] = manifest
            listed.append(replace(self.listed(draft, manifest), **each.told))
        path = f"{self.location}/metadata/snap-{draft.id}-{self.next()}.avro"
        snapshot = Snap(draft.id, draft.parent, draft.number, tuple(listed), path, draft.source)
        write_list(snapshot)
        return snapshot

    def listed(self, draft: Draft, manifest: Manifest) -> Listed:
        """What is true of a manifest of a draft."""
        files, rows = true_counts(manifest.entries)
        live = [row for row in manifest.entries if row.status != DELETED]
        numbers = [draft.number if row.number is None else row.number for row in live]
        return Listed(
            path=manifest.path,
            length=manifest.length,
            spec=manifest.spec,
            content=manifest.content,
            number=draft.number,
            min_number=min(numbers, default=draft.number),
            snapshot_id=draft.id,
            files=files,
            rows=rows,
            summaries=tuple(
                _summary([row.file.partition[place] for row in live])
                for place in range(len(self.specs[manifest.spec]))
            ),
        )


def _summary(values: Sequence[Any]) -> Summary:
    said = [each for each in values if each is not None]
    return Summary(len(said) < len(values), min(said, default=None), max(said, default=None))


def _some(of: Sequence[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(of), unique=True, max_size=3) if of else st.just([])


def _split(draw: DataObject, rows: list[Row]) -> list[list[Row]]:
    """The same rows in one manifest or in two."""
    at = draw.draw(st.integers(0, len(rows)))
    return [part for part in (rows[:at], rows[at:]) if part]


_STATS: Final = (
    ("value_counts", ((1, 9),)),
    ("lower_bounds", ((1, bytes(8)),)),
    ("upper_bounds", ((1, b"\x09" + bytes(7)),)),
)
_WIDER: Final = (("upper_bounds", ((1, b"\xff" + bytes(7)),)),)

# Forgeries. Each changes a draft in place, and answers whether there was something to change.

Forgery = Callable[[Workshop, Draft, DataObject], bool]


def alter_carried_record(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """A record of the parent's list is carried over with another value."""
    if not draft.carried:
        return False
    place = draw.draw(st.integers(0, len(draft.carried) - 1))
    draft.carried[place] = replace(draft.carried[place], **_other_record(draft.carried[place], draft, draw))
    return True


def alter_new_record(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """A new record says what is not true of its manifest."""
    if not draft.new:
        return False
    each = draw.draw(st.sampled_from(draft.new))
    manifest = Manifest("", 0, each.spec, each.content, tuple(each.entries))
    true = shop.listed(draft, manifest)
    each.told = _other_record(true, draft, draw)
    if "length" in each.told:
        each.told["length"] = 17
    if "min_number" in each.told and all(row.status == DELETED for row in each.entries):
        each.told = {}  # nothing is live, so that there is no number to be too high
    return True


def _other_record(true: Listed, draft: Draft, draw: DataObject) -> dict[str, Any]:
    others: list[dict[str, Any]] = [
        {"length": true.length + 1},
        {"content": 1 - true.content},
        {"number": true.number + 1},
        {"number": max(true.number - 1, 0)},
        {"min_number": true.min_number + 1},
        {"snapshot_id": draft.id ^ 1},
    ]
    for place in range(3):
        for name in ("files", "rows"):
            counts = getattr(true, name)
            changed = list(counts)
            changed[place] += draw.draw(st.sampled_from([1, 100]))
            others.append({name: tuple(changed)})
            if counts[place]:
                changed[place] = 0
                others.append({name: tuple(changed)})
    for place, summary in enumerate(true.summaries or ()):
        narrower = [replace(summary, lower=None, upper=None), replace(summary, has_null=False)]
        if summary.upper is not None and not isinstance(summary.upper, bytes):
            narrower += [
                replace(summary, upper=_less(summary.lower)),
                replace(summary, lower=_more(summary.upper)),
            ]
        for each in narrower:
            told = list(true.summaries or ())
            told[place] = each
            others.append({"summaries": tuple(told)})
    return draw.draw(st.sampled_from(others))


def _less(value: Any) -> Any:
    return value - 1 if isinstance(value, int) else ""


def _more(value: Any) -> Any:
    return value + 1 if isinstance(value, int) else value + "~"


def alter_carried_entry(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """An entry that is carried over or removed says one thing otherwise."""
    found = _entries(draft, EXISTING, DELETED)
    if not found:
        return False
    manifest, row = draw.draw(st.sampled_from(found))
    file = row.file
    others = [
        replace(row, number=(row.number or 0) + draw.draw(st.sampled_from([-1, 1]))),
        replace(row, file_number=(row.file_number or 0) + draw.draw(st.sampled_from([-1, 1]))),
        replace(row, file=replace(file, path=file.path + "x")),
        replace(row, file=replace(file, path=file.path.replace("file:///", "file:/"))),
        replace(row, file=replace(file, format="ORC" if file.format == "PARQUET" else "PARQUET")),
        replace(row, file=replace(file, records=file.records + 1)),
        replace(row, file=replace(file, size=file.size + 1)),
        replace(row, file=replace(file, key=None if file.key else b"\xa1key")),
        replace(row, file=replace(file, offsets=(5,))),
        replace(row, file=replace(file, referenced=file.path)),
        replace(row, file=replace(file, equality_ids=(2,))),
        replace(row, file=replace(file, stats=_WIDER)),
    ]
    if file.key:
        others.append(replace(row, file=replace(file, key=file.key[:-1] + bytes([file.key[-1] ^ 1]))))
    if row.status == EXISTING:
        others.append(replace(row, snapshot_id=(row.snapshot_id or 0) ^ 1))
        others.append(replace(row, snapshot_id=None))
    if file.content:
        others.append(replace(row, file=replace(file, content=3 - file.content)))
    if file.partition:
        swapped = "b" if file.partition[0] == "a" else "a"
        others.append(replace(row, file=replace(file, partition=(swapped, *file.partition[1:]))))
    other = draw.draw(st.sampled_from(others))
    manifest.entries[manifest.entries.index(row)] = other
    return True


def move_to_another_spec(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """An entry is carried over under another partition spec."""
    found = [each for each in _entries(draft, EXISTING, DELETED) if len(shop.specs) > 1]
    if not found:
        return False
    manifest, row = draw.draw(st.sampled_from(found))
    spec = draw.draw(st.sampled_from([each for each in shop.specs if each != manifest.spec]))
    values = {"id": 1, "part": "a"} | dict(zip(shop.specs[manifest.spec], row.file.partition, strict=True))
    file = replace(row.file, partition=tuple(values[source] for source in shop.specs[spec]))
    manifest.entries.remove(row)
    draft.new.append(DraftManifest(spec, manifest.content, [replace(row, file=file)]))
    _drop_empty(draft)
    return True


def double_an_entry(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """An entry stands twice, in one manifest or in two, or is carried over and removed at once."""
    found = _entries(draft, EXISTING, DELETED, ADDED)
    if not found:
        return False
    manifest, row = draw.draw(st.sampled_from(found))
    if row.status != ADDED:
        row = replace(row, status=draw.draw(st.sampled_from([EXISTING, DELETED])))
    if draw.draw(st.booleans()):
        manifest.entries.append(row)
    else:
        draft.new.append(DraftManifest(manifest.spec, manifest.content, [row]))
    return True


def leave_an_entry_out(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """An entry of a manifest that is dropped is neither carried over nor removed."""
    found = _entries(draft, EXISTING, DELETED)
    if not found:
        return False
    manifest, row = draw.draw(st.sampled_from(found))
    manifest.entries.remove(row)
    _drop_empty(draft)
    return True


def drop_a_manifest(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """A manifest of the parent is not listed any more."""
    if not draft.carried:
        return False
    draft.carried.remove(draw.draw(st.sampled_from(draft.carried)))
    return True


def add_a_live_file(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """A file of the parent is added again, under its own name or another spelling of it."""
    parent = shop.history.snapshots.get(draft.parent or 0)
    found = shop.history.live(parent)
    if not found:
        return False
    live = draw.draw(st.sampled_from(found))
    path = draw.draw(st.sampled_from([live.file.path, live.file.path.replace("file:///", "file:/")]))
    content = DATA if live.file.content == 0 else DELETES
    draft.new.append(DraftManifest(live.spec, content, [Row(ADDED, replace(live.file, path=path), draft.id)]))
    return True


def add_with_wrong_numbers(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """A file that is added names another snapshot, or a number that is not its snapshot's."""
    found = _entries(draft, ADDED)
    if not found:
        return False
    manifest, row = draw.draw(st.sampled_from(found))
    others = [
        replace(row, snapshot_id=draft.id ^ 1),
        replace(row, number=draft.number + 1),
        replace(row, file_number=draft.number - 1),
        replace(row, file_number=draft.number + 1),
    ]
    manifest.entries[manifest.entries.index(row)] = draw.draw(st.sampled_from(others))
    return True


def add_unknown_key(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """A file comes without a write session, with the key metadata of another file or with none."""
    keys = [live.file.key for each in shop.history.snapshots.values() for live in shop.history.live(each)]
    spec = max(shop.specs)
    file = replace(shop.file(draw, spec), key=draw.draw(st.sampled_from([None, b"\xa1", *keys])))
    draft.new.append(DraftManifest(spec, DATA, [Row(ADDED, file)]))
    return bool(file.key) or shop.history.encrypted_from is not None


def add_a_removed_file(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """A file of another snapshot, which the parent does not have, is added as if it were new."""
    parent = shop.history.snapshots.get(draft.parent or 0)
    mine = {live.file.identity for live in shop.history.live(parent)}
    elsewhere = [live for known in shop.history.snapshots.values() for live in shop.history.live(known)]
    found = [live for live in elsewhere if live.file.identity not in mine]
    if not found:
        return False
    live = draw.draw(st.sampled_from(found))
    content = DATA if live.file.content == 0 else DELETES
    draft.new.append(DraftManifest(live.spec, content, [Row(ADDED, live.file)]))
    return True


def bring_an_old_manifest_back(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """A manifest of another snapshot, which the parent does not list, is listed as it was there."""
    found = _elsewhere(shop.history, draft)
    if not found:
        return False
    draft.carried.append(draw.draw(st.sampled_from(found)))
    return True


def swap_for_old_manifests(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """The whole list of another snapshot comes back."""
    found = [each for each in shop.history.snapshots.values() if each.id != draft.parent]
    if not found:
        return False
    draft.carried = list(draw.draw(st.sampled_from(found)).listed)
    draft.new = draw.draw(st.sampled_from([[], draft.new]))
    return True


def forget_the_parent(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """A snapshot says that it has no parent, and lists what its parent has."""
    draft.parent = None
    return True


def claim_another_parent(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """A snapshot names a parent that is unknown, or another than it was made of."""
    known = list(shop.history.snapshots)
    draft.parent = draw.draw(st.sampled_from([draft.id ^ 1, *known]))
    return True


def take_a_wrong_number(shop: Workshop, draft: Draft, draw: DataObject) -> bool:
    """A snapshot has a sequence number that was used, or leaves some out."""
    draft.number = max(draft.number + draw.draw(st.sampled_from([-2, -1, 1, 1000])), 1)
    for manifest in draft.new:
        manifest.entries = [
            replace(row, number=None) if row.status == ADDED else row for row in manifest.entries
        ]
    return True


FORGERIES: Final[tuple[Forgery, ...]] = (
    alter_carried_record,
    alter_new_record,
    alter_carried_entry,
    move_to_another_spec,
    double_an_entry,
    leave_an_entry_out,
    drop_a_manifest,
    add_a_live_file,
    add_with_wrong_numbers,
    add_unknown_key,
    add_a_removed_file,
    bring_an_old_manifest_back,
    swap_for_old_manifests,
    forget_the_parent,
    claim_another_parent,
    take_a_wrong_number,
)


def _entries(draft: Draft, *statuses: int) -> list[tuple[DraftManifest, Row]]:
    return [(each, row) for each in draft.new for row in each.entries if row.status in statuses]


def _drop_empty(draft: Draft) -> None:
    draft.new = [each for each in draft.new if each.entries]


def _elsewhere(history: History, draft: Draft) -> list[Listed]:
    mine = {each.path for each in draft.carried}
    parent = history.snapshots.get(draft.parent or 0)
    mine |= set() if parent is None else {each.path for each in parent.listed}
    listed = [each for known in history.snapshots.values() for each in known.listed]
    return [each for each in dict.fromkeys(listed) if each.path not in mine]
