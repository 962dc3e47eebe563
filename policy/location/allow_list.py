"""The locations that a table may be read from (`read.allowed.data.paths`), and the one question about them.

Rules, in plain words:

1. A path passes if it can be parsed without ambiguity and an entry contains it, by whole segments.
2. What cannot be parsed is refused with the rule `location-invalid`, what is outside with `allowed-paths`.
3. An entry is a directory (or bucket) or a single file; the list does not know which, and need not.
4. The empty list allows nothing.
5. The property is a comma-separated list, or a JSON array of strings when a path has a comma.
6. The vectorized form gives the same answers as the scalar one: what a conservative regular expression proves
   harmless is decided in Arrow, everything else by the scalar form, for a directory once where its answer
   does not depend on the name in it. Of a few paths each is decided by the scalar form, which is faster.

Source: docs/architecture.md; the vectors in tests/vectors/locations.json name what each reader does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from policy import strict_json
from policy.decision import Decision, Reason
from policy.errors import LocationInvalid, PropertyInvalid
from policy.location.location import Location
from policy.location.schemes import SCHEMES, SchemeRules
from policy.location.segments import ORDINARY_NAME

PROPERTY: Final = "read.allowed.data.paths"
MAX_ENTRIES: Final = 1000
"""More entries than this are refused."""

_BLANKS = " \t\r\n"
_MAX_PROPERTY_CHARACTERS: Final = 4_000_000
# RE2 leaves its fast automaton when a pattern grows too large, so entries are matched in batches.
_BATCH = 128
# Rows at a time: what is kept of them in between stays small.
_ROWS = 1 << 17
# Patterns are compiled for each column, which takes as long as comparing this number of paths one by one.
_FEW = 8
_SHORT_NAME = min(rules.max_name_bytes for rules in SCHEMES)
_SHORT_PATH = min(rules.max_path_bytes for rules in SCHEMES)
_LIST_HINT = "Write locations separated by commas, or a JSON array of strings if a path contains a comma."
_NO_OBJECT = Decision.deny(Reason("location-invalid", "The location names a bucket, not an object."))
_OUTSIDE = Decision.deny(Reason("allowed-paths", f"The location is outside of every entry of `{PROPERTY}`."))


@dataclass(frozen=True)
class AllowList:
    """An immutable list of allowed locations.

    Attributes:
        entries: the locations, in the order given, each once.
    """

    entries: tuple[Location, ...]

    @classmethod
    def of(cls, locations: Iterable[str | Location]) -> AllowList:
        """Build a list from locations or their texts.

        Raises:
            LocationInvalid: a text is no valid location.
            PropertyInvalid: a single string instead of a collection, or more than `MAX_ENTRIES`.
        """
        if isinstance(locations, str):
            raise _invalid("is one string instead of a collection", "Use AllowList.parse for a text.")
        given = list(islice(locations, MAX_ENTRIES + 1))
        if len(given) > MAX_ENTRIES:
            raise _invalid(f"has more than {MAX_ENTRIES} entries", "List common parent directories instead.")
        parsed = (item if isinstance(item, Location) else Location.parse(item) for item in given)
        return cls(tuple(dict.fromkeys(parsed)))

    @classmethod
    def parse(cls, property_text: str) -> AllowList:
        """Parse the value of the table property.

        Args:
            property_text: a comma-separated list (blanks around commas are ignored) or a JSON array of
                strings; an empty text or array is the empty list.

        Raises:
            LocationInvalid: an entry is no valid location.
            PropertyInvalid: the text is no list, has an empty entry, or is too long.
        """
        if len(property_text) > _MAX_PROPERTY_CHARACTERS:
            raise _invalid(
                f"is longer than {_MAX_PROPERTY_CHARACTERS} characters",
                "List common parent directories instead.",
            )
        text = property_text.strip(_BLANKS)
        if text.startswith("["):
            return cls.of(_json_entries(text))
        return cls.of(_comma_entries(text))

    def to_property(self) -> str:
        """The list as the value of the table property, in canonical locations; `parse` gives it back."""
        names = [entry.canonical for entry in self.entries]
        if names and not any("," in name for name in names):
            return ",".join(names)
        return json.dumps(names, ensure_ascii=False)

    def covers(self, location: Location) -> bool:
        """Whether some entry contains `location`, be it a file, a directory or a bucket."""
        return f"{location.canonical}/".startswith(self._prefixes)

    def decide(self, path: str | Location) -> Decision:
        """Decide whether the object at `path` may be read. Never raises for a bad path.

        Args:
            path: full location of a file, as it stands in a manifest.
        """
        try:
            location = path if isinstance(path, Location) else Location.parse(path)
        except LocationInvalid as invalid:
            return Decision.deny(Reason("location-invalid", invalid.message))
        if not location.name:
            return _NO_OBJECT
        if not self.covers(location):
            return _OUTSIDE
        below = f"{location.canonical}/"
        return next(grant for prefix, grant in self._grants if below.startswith(prefix))

    def decide_many(self, paths: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
        """Decide every path of an Arrow column, with the answers that `decide` would give.

        Args:
            paths: locations as strings, dictionary-encoded or not. Nulls and malformed text are refused.

        Returns:
            One boolean a path, never null: true where the path may be read.

        Raises:
            TypeError: the column does not hold strings.
        """
        chunks = paths.chunks if isinstance(paths, pa.ChunkedArray) else [paths]
        slices = (c.slice(start, _ROWS) for c in map(_strings, chunks) for start in range(0, len(c), _ROWS))
        return pa.concat_arrays([pa.array([], pa.bool_()), *map(self._decide_slice, slices)])

    def allows_directories(self, directories: Iterable[str]) -> bool:
        """Whether every file with an ordinary name in these directories may be read.

        With the directories of `shared_directories`, the answer is true only if `decide_many` permits all of
        the paths that they are of.
        """
        return all(self._decide_directory(each.encode()) for each in directories)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the property, in hexadecimal: lists with one digest decide alike."""
        return hashlib.sha256(self.to_property().encode()).hexdigest()

    @cached_property
    def _prefixes(self) -> tuple[str, ...]:
        return tuple(f"{entry.canonical}/" for entry in self.entries)

    @cached_property
    def _grants(self) -> tuple[tuple[str, Decision], ...]:
        return tuple(zip(self._prefixes, map(_grant, self.entries), strict=True))

    @cached_property
    def _patterns(self) -> tuple[_Patterns, ...]:
        return tuple(
            _Patterns(rules, batch)
            for rules in SCHEMES
            for batch in _batches([entry for entry in self.entries if entry.scheme == rules.name])
        )

    def _decide_slice(self, paths: pa.Array) -> pa.BooleanArray:
        if len(paths) <= _FEW:
            return self._decide_each(paths)
        harmless = pa.repeat(False, len(paths))
        for patterns in self._patterns:
            harmless = pc.or_(harmless, patterns.harmless(paths))
        doubtful = pc.invert(harmless)
        rest = paths.filter(doubtful)
        if len(rest) == 0:
            return harmless
        return pc.replace_with_mask(harmless, doubtful, self._decide_with_care(rest))

    def _decide_with_care(self, paths: pa.Array) -> pa.BooleanArray:
        """The scalar form for all paths that spell the beginning of some entry; the others are outside."""
        candidates = pa.repeat(False, len(paths))
        for patterns in self._patterns:
            candidates = pc.or_(candidates, patterns.candidates(paths))
        return pc.replace_with_mask(
            candidates, candidates, self._decide_by_directory(paths.filter(candidates))
        )

    def _decide_by_directory(self, paths: pa.Array) -> pa.BooleanArray:
        """Each directory once, then each path on which its directory does not decide; all have a slash."""
        halves = pc.split_pattern(paths, "/", max_splits=1, reverse=True)
        directories, names = pc.list_element(halves, 0).dictionary_encode(), pc.list_element(halves, 1)
        verdicts = pa.array(map(self._decide_directory, _as_bytes(directories.dictionary)), pa.bool_())
        answers = pc.if_else(_ordinary(names, paths), verdicts.take(directories.indices), None)
        open_ones = pc.is_null(answers)
        return pc.replace_with_mask(answers, open_ones, self._decide_each(paths.filter(open_ones)))

    def _decide_each(self, paths: pa.Array) -> pa.BooleanArray:
        found = paths.cast(pa.large_binary()).to_pylist()
        return pa.array([raw is not None and self._decide_bytes(raw) for raw in found], pa.bool_())

    def _decide_directory(self, raw: bytes) -> bool | None:
        """The answer for every ordinary name in a directory; none if it depends on the name."""
        try:
            child = Location.parse(f"{raw.decode('utf-8')}/x")
        except (LocationInvalid, UnicodeDecodeError):
            return False
        return True if child.canonical.removesuffix("x").startswith(self._prefixes) else None

    def _decide_bytes(self, raw: bytes) -> bool:
        try:
            return self.decide(raw.decode("utf-8")).allowed
        except UnicodeDecodeError:  # a hostile file can put any bytes into a string column
            return False


def shared_directories(paths: pa.ChunkedArray, most: int) -> tuple[str, ...] | None:
    """The directories of some paths, if the names in them are ordinary, so that their directories decide.

    Args:
        paths: locations, as they stand in a manifest.
        most: the greatest number of directories.

    Returns:
        None if there are more, or if a path needs a closer look.
    """
    halves = pc.split_pattern(paths, "/", max_splits=1, reverse=True)
    if not pc.all(pc.equal(pc.list_value_length(halves), 2), min_count=0, skip_nulls=False).as_py():
        return None
    directories = pc.list_element(halves, 0).unique()
    if len(directories) > most:
        return None
    ordinary = _ordinary(pc.list_element(halves, 1), paths)
    if not pc.all(ordinary, min_count=0, skip_nulls=False).as_py():
        return None
    return tuple(directories.to_pylist())


class _Patterns:
    """RE2 patterns for a batch of entries of one scheme.

    `harmless` is sufficient for a grant: the literal entry, then ordinary names only, so short that no bound
    can be broken. `candidates` is necessary for one: a granted path spells the entry byte for byte, but for
    the case of a host.
    """

    def __init__(self, rules: SchemeRules, entries: list[Location]) -> None:
        spelled = "|".join(rules.spellings)
        roots = [_root(entry) for entry in entries]
        slashes = "//" if rules.authority is not None else "(?://)?"
        head = f"^(?:{spelled}):{slashes}"
        deep = [_literal(text) for text, entry in zip(roots, entries, strict=True) if entry.segments]
        flat = [_literal(text) for text, entry in zip(roots, entries, strict=True) if not entry.segments]
        names = f"(?:/{ORDINARY_NAME})"
        tails = [f"(?:{'|'.join(deep)}){names}*"] * bool(deep) + [f"(?:{'|'.join(flat)}){names}+"] * bool(
            flat
        )
        self._harmless = f"{head}(?:{'|'.join(tails)})/?$"
        spelt = [_any_host(entry) if rules.folds_authority else _literal(_root(entry)) for entry in entries]
        self._candidates = f"{head}(?:{'|'.join(spelt)})(?:/|$)"
        self._characters = rules.ordinary_characters

    def harmless(self, paths: pa.Array) -> pa.BooleanArray:
        found = pc.match_substring_regex(paths, self._harmless)
        short = pc.less_equal(pc.binary_length(paths), self._characters)
        return pc.fill_null(pc.and_(found, short), False)

    def candidates(self, paths: pa.Array) -> pa.BooleanArray:
        return pc.fill_null(pc.match_substring_regex(paths, self._candidates), False)


def _grant(entry: Location) -> Decision:
    return Decision.allow(Reason("allowed-paths", f"The location is in the entry {entry} of `{PROPERTY}`."))


def _root(entry: Location) -> str:
    return entry.canonical.removeprefix(f"{entry.scheme}://")


def _any_host(entry: Location) -> str:
    path = _root(entry).removeprefix(entry.authority)
    return f"(?i:{_literal(entry.authority)}){_literal(path)}"


def _literal(text: str) -> str:
    # A location has no backslash, so it cannot end the quotation.
    return rf"\Q{text}\E"


def _batches(entries: list[Location]) -> Iterator[list[Location]]:
    for start in range(0, len(entries), _BATCH):
        yield entries[start : start + _BATCH]


def _ordinary(names: pa.Array, paths: pa.Array) -> pa.BooleanArray:
    """Where the last name needs no closer look, and neither it nor the path can break a scheme's bound."""
    found = pc.match_substring_regex(names, f"^{ORDINARY_NAME}$")
    short_name = pc.less_equal(pc.binary_length(names), _SHORT_NAME)
    return pc.and_(found, pc.and_(short_name, pc.less_equal(pc.binary_length(paths), _SHORT_PATH)))


def _strings(chunk: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(chunk.type):
        chunk = chunk.dictionary_decode()
    if pa.types.is_null(chunk.type) or pa.types.is_string_view(chunk.type):
        return chunk.cast(pa.large_string())
    if not (pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type)):
        raise TypeError(f"paths must be a column of strings, not of {chunk.type}")
    return chunk


def _as_bytes(paths: pa.Array) -> Iterator[bytes]:
    return (scalar.as_py() for scalar in paths.cast(pa.large_binary()))


def _comma_entries(text: str) -> list[str]:
    if not text:
        return []
    entries = [entry.strip(_BLANKS) for entry in text.split(",")]
    if not all(entries):
        raise _invalid("has an empty entry between commas", _LIST_HINT)
    return entries


def _json_entries(text: str) -> list[str]:
    entries = strict_json.parse(
        text, what=f"The list of allowed locations (`{PROPERTY}`)", error=PropertyInvalid
    )
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise _invalid("is not a JSON array of strings", _LIST_HINT)
    return entries


def _invalid(problem: str, hint: str) -> PropertyInvalid:
    return PropertyInvalid(
        f"The list of allowed locations (`{PROPERTY}`) {problem}.", rule="allowed-paths", hint=hint
    )
