"""Checks a history: is there one order of all operations that explains every answer?

A table is a list to which elements are appended, and a register (its note). Each answer that shows a table
shows the whole list in order, so that states are ordered by their length, and no search is needed (as for
list-append in Elle, and unlike registers in Porcupine): a history is linearizable if

- what is read is always a prefix of one list, in which each element is once;
- each acknowledged append is in the list, no refused one is; one of unknown outcome is, or is not;
- no operation takes effect before it begins or after it ends: an operation that ended before another one
  began stands before it in the order of states.

The order of two reads of the same length does not matter. Metadata versions order notes in the same way.
Names are checked by themselves: after an acknowledged drop nobody sees the table, and after an acknowledged
creation everybody does, until somebody asks for the drop.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.soak.history import Kind, Operation, Outcome, State

#: Kinds of operations that change a table.
_CHANGES: Final = (Kind.APPEND, Kind.ALTER)


@dataclass(frozen=True)
class Finding:
    """What no order explains.

    Attributes:
        rule: the rule that is broken.
        where: the table, its UUID or name.
        what: the operations or elements concerned.
    """

    rule: str
    where: str
    what: str


def check(operations: Sequence[Operation]) -> list[Finding]:
    """Check a history; return everything that cannot have happened."""
    by_table: dict[str, list[Operation]] = defaultdict(list)
    by_name: dict[str, list[Operation]] = defaultdict(list)
    for each in operations:
        if each.state is not None:
            by_table[each.state.table].append(each)
        by_name[each.name].append(each)
    tables_of = {name: _tables(found) for name, found in by_name.items()}
    findings: list[Finding] = []
    for name, found in by_name.items():
        findings += check_name(name, found)
        changes = [each for each in found if each.kind in _CHANGES]
        for table in tables_of[name]:
            findings += check_list(table, by_table[table], changes)
            findings += check_versions(table, by_table[table], changes)
        findings += _changes_of(name, by_name[name], tables_of[name], by_table)
    return findings


def _tables(operations: Iterable[Operation]) -> list[str]:
    return list(dict.fromkeys(each.state.table for each in operations if each.state is not None))


def _changes_of(
    name: str,
    operations: Sequence[Operation],
    tables: Sequence[str],
    by_table: Mapping[str, Sequence[Operation]],
) -> list[Finding]:
    """Each acknowledged append is in a table of its name, and no refused one is in any."""
    seen = {
        element for table in tables for each in by_table[table] for element in each.state.elements
    }  # fmt: skip
    appends = [each for each in operations if each.kind is Kind.APPEND]
    told = {each.value: each.outcome for each in appends}
    findings = [
        Finding("refused-append-took-effect", name, str(each.value))
        for each in appends
        if each.outcome is Outcome.REFUSED and each.value in seen
    ]
    findings += [
        Finding("acknowledged-append-lost", name, str(each.value))
        for each in appends
        if each.outcome is Outcome.OK and each.value not in seen
    ]
    return findings + [
        Finding("element-of-nobody", name, element) for element in sorted(seen) if element not in told
    ]


def check_list(table: str, shown: Sequence[Operation], changes: Sequence[Operation]) -> list[Finding]:
    """Check the list of one table.

    Args:
        table: its UUID.
        shown: operations whose answer shows it.
        changes: all appends by its name.
    """
    whole = max((each.state.elements for each in shown if each.state.ordered), key=len, default=())
    findings = [
        Finding("element-twice", table, element) for element, count in Counter(whole).items() if count > 1
    ]
    findings += [
        Finding("not-a-prefix", table, _named(each)) for each in shown if not _is_prefix(each.state, whole)
    ]
    if findings:
        return findings
    place = {element: number for number, element in enumerate(whole)}
    levels: list[tuple[Operation, float]] = [
        (each, place[each.value] + 0.5)
        for each in changes
        if each.kind is Kind.APPEND and each.value in place
    ]
    levels += [(each, float(len(each.state.elements))) for each in shown if each.kind is not Kind.APPEND]
    findings += in_order("list-order", table, levels)
    # An append that shows the table shows itself last: the answer is of the moment of the append.
    return findings + [
        Finding("append-shows-another-state", table, str(each.value))
        for each in shown
        if each.kind is Kind.APPEND
        and each.outcome is Outcome.OK
        and each.state.elements[-1:] != (each.value,)
    ]


def _is_prefix(state: State, whole: tuple[str, ...]) -> bool:
    first = whole[: len(state.elements)]
    return state.elements == first if state.ordered else sorted(state.elements) == sorted(first)


def check_versions(table: str, shown: Sequence[Operation], changes: Sequence[Operation]) -> list[Finding]:
    """Check the metadata of one table: each version is one state, and versions go forward in real time."""
    states: dict[int, tuple[str | None, str | None, int]] = {}
    findings: list[Finding] = []
    levels: list[tuple[Operation, float]] = []
    for each in shown:
        version = each.state.version
        if version is None:
            continue
        state = (each.state.location, each.state.note, len(each.state.elements))
        if states.setdefault(version, state) != state:
            findings.append(Finding("two-states-of-a-version", table, f"version {version}"))
        levels.append((each, version if each.kind is Kind.READ else version - 0.5))
    made = Counter(
        each.state.version for each in shown if each.kind in _CHANGES and each.state.version is not None
    )
    findings += [
        Finding("two-commits-of-a-version", table, f"version {version}")
        for version, count in made.items()
        if count > 1
    ]
    findings += in_order("version-order", table, levels)
    return findings + _check_notes(table, shown, changes, {v: s[1] for v, s in states.items()})


def _check_notes(
    table: str,
    shown: Sequence[Operation],
    changes: Sequence[Operation],
    notes: Mapping[int, str | None],
) -> list[Finding]:
    """A note is what somebody set and was not refused; who was told that it is set sees it."""
    told = {each.value: each.outcome for each in changes if each.kind is Kind.ALTER}
    findings = [
        Finding("note-of-nobody", table, f"{note} in version {version}")
        for version, note in notes.items()
        if note is not None and told.get(note, Outcome.REFUSED) is Outcome.REFUSED
    ]
    findings += [
        Finding("acknowledged-note-lost", table, str(each.value))
        for each in shown
        if each.kind is Kind.ALTER and each.outcome is Outcome.OK and each.state.note != each.value
    ]
    made = {each.value: each.state.version for each in shown if each.kind is Kind.ALTER}
    current: str | None = None
    for version in sorted(notes):
        note = notes[version]
        # It can change only to a note of this version, or of unknown outcome.
        if note != current and made.get(note, version) not in (version, None):
            findings.append(Finding("note-came-back", table, f"{note} in version {version}"))
        current = note
    return findings


def in_order(rule: str, where: str, levels: Iterable[tuple[Operation, float]]) -> list[Finding]:
    """Check that operations that do not overlap stand in the order of their levels.

    Args:
        rule: the name of the rule.
        where: the table.
        levels: operations, with their place in the order of states.
    """
    events: list[tuple[float, int, Operation, float]] = []
    for each, level in levels:
        events.append((each.start, 1, each, level))
        if each.outcome is Outcome.OK:
            events.append((each.end, 0, each, level))
    findings: list[Finding] = []
    highest: tuple[float, Operation] | None = None
    for _, begins, each, level in sorted(events, key=lambda event: (event[0], event[1])):
        if not begins:
            if highest is None or level > highest[0]:
                highest = (level, each)
        elif highest is not None and level < highest[0]:
            findings.append(Finding(rule, where, f"{_named(each)} began after {_named(highest[1])} ended"))
    return findings


def check_name(name: str, operations: Sequence[Operation]) -> list[Finding]:
    """Check which table a name has: each creation and drop takes effect once, and between them it is seen."""
    findings: list[Finding] = []
    drops = [each for each in operations if each.kind is Kind.DROP and each.outcome is not Outcome.REFUSED]
    creations = [each for each in operations if each.kind is Kind.CREATE and each.outcome is Outcome.OK]
    reads = [each for each in operations if each.kind is Kind.READ and each.outcome is Outcome.OK]
    for read in reads:
        if read.state is None:
            findings += _missing(name, read, creations, drops)
    return findings + _seen_after_its_end(name, operations, drops)


def _missing(
    name: str, read: Operation, creations: Iterable[Operation], drops: Sequence[Operation]
) -> list[Finding]:
    """Nothing was found: no table was there from before the read until after it."""
    there = [
        each
        for each in creations
        if each.end < read.start and not any(_can_follow(drop, each, read.end) for drop in drops)
    ]
    return [Finding("created-table-is-missing", name, _named(read)) for _ in there[:1]]


def _can_follow(drop: Operation, creation: Operation, until: float) -> bool:
    """Whether a drop can have taken effect after a creation and before a time."""
    still = drop.outcome is Outcome.UNKNOWN or drop.end > creation.start
    return still and drop.start < until


def _seen_after_its_end(
    name: str, operations: Sequence[Operation], drops: Sequence[Operation]
) -> list[Finding]:
    """A table that was seen before a drop, or the creation of another one, is not seen after it."""
    shows = [each for each in operations if each.state is not None and each.outcome is Outcome.OK]
    first: dict[str, float] = {}
    for each in shows:
        first[each.state.table] = min(each.end, first.get(each.state.table, each.end))
    ends: list[tuple[Operation, str | None]] = [
        (drop, None) for drop in drops if drop.outcome is Outcome.OK
    ]  # fmt: skip
    ends += [(each, each.state.table) for each in shows if each.kind is Kind.CREATE]
    return [
        Finding("ended-table-is-seen", name, _named(each))
        for each in shows
        for change, other in ends
        if other != each.state.table and first[each.state.table] < change.start and change.end < each.start
    ]


def check_audit(operations: Iterable[Operation], recorded: Callable[[str], bool]) -> list[Finding]:
    """Check that each granted request is in the audit log.

    Args:
        operations: the history.
        recorded: whether the log has a grant of a request id.
    """
    return [
        Finding("acknowledged-without-a-record", each.name, _named(each))
        for each in operations
        if each.outcome is Outcome.OK and each.request_id is not None and not recorded(each.request_id)
    ]


def _named(operation: Operation) -> str:
    state = operation.state
    of = "" if state is None else f" of {len(state.elements)} elements, version {state.version}"
    return f"{operation.kind} {operation.value or ''}{of} [{operation.start:.3f}, {operation.end:.3f}]"
