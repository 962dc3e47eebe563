r"""Locations: where a file or directory lies, parsed once into a type that everything else takes.

Rules, in plain words:

1. A location is `scheme`, `authority` (bucket, container and account, or host; nothing for local files) and
   path, fully written out. A missing or unknown scheme, one in capitals, and a relative path are refused:
   readers complete those from their own settings (fsspec opens `FILE:/a` below the working directory).
2. Byte-literal: names are compared as bytes. What is ambiguous is refused, never repaired. What a name may be
   stands in `policy.location.segments`, what sets schemes apart in `policy.location.schemes`.
3. A literal query, fragment or backslash is refused: pyiceberg, PyArrow and Iceberg's S3FileIO cut the
   first two off and open another object. Encoded (`%3F`, `%23`, `%5C`) they are parts of a name.
4. A `file` location has no host. `file://localhost/a` means `/a` to RFC 8089, and the *relative* path
   `localhost/a` to pyiceberg and fsspec.
5. An authority has no user or password, and is nothing that readers disagree about.
6. Equal by meaning: spellings of a scheme (`s3`, `s3a`, `s3n`); `file:/x` and `file:///x`; the case of a
   host; with or without one trailing slash.
7. Containment is by whole segments: `/a/t1` does not contain `/a/t10`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from policy.errors import LocationInvalid
from policy.location.schemes import SCHEMES, SchemeRules
from policy.location.segments import (
    ORDINARY_NAME,
    decode_fully,
    forbidden_character,
    has_final_dot,
    problem_with_name,
)

MAX_LOCATION_CHARACTERS: Final = 4200
"""Longest location, in characters: the longest path of local files, and somewhat more."""

_SHOWN_CHARACTERS = 300
_HINT = "Write the location in full, such as s3://bucket/warehouse/t1 or file:///warehouse/t1."


_BY_SPELLING = {
    spelling: (rules, rules.ordinary, rules.ordinary_characters)
    for rules in SCHEMES
    for spelling in rules.spellings
}
_ORDINARY = re.compile(ORDINARY_NAME)
_DRIVE = re.compile(r"[A-Za-z][:|]")
# What may be a user and password. A container before an account is none, nor is the port of a Hadoop host.
_NO_CREDENTIALS = r"^(?!(?:abfss?|wasbs?)://[^/:@]*@[^/:@]*(?:/|$)|(?:hdfs|viewfs)://[^/:@]*:[0-9]*(?:/|$))"
_CREDENTIALS = re.compile(rf"{_NO_CREDENTIALS}([^:/]*:)//[^/]*[:@].*", re.DOTALL)
# The same where scheme or slashes are not written as they should be.
_MISPLACED = re.compile(
    rf"{_NO_CREDENTIALS}((?>(?:[^:/\\@]*:){{0,8}}(?=[/\\])|[^:/\\@]*:|))((?>[/\\]*))[^:/\\@]*(?:@|:.*@).*",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Location:
    """One file, object or directory, by its full name. It cannot be built from an invalid text.

    Two locations are equal if their canonical forms are.

    Attributes:
        scheme: canonical scheme, such as `s3`, `abfss` or `file`.
        authority: the bucket, `container@host`, or host and port; empty for local files.
        canonical: the one spelling, such as `s3://bucket/a/b` or `file:///a/b`, without a trailing slash.
        original: the text that was parsed.
    """

    scheme: str
    authority: str
    canonical: str
    original: str

    def __init__(self, text: str) -> None:
        scheme, authority, path = _split_ordinary(text) or _split_with_care(text)
        put = object.__setattr__
        put(self, "scheme", scheme)
        put(self, "authority", authority)
        put(self, "canonical", f"{scheme}://{authority}{path}")
        put(self, "original", text)

    @classmethod
    def parse(cls, text: str) -> Location:
        """Parse a location.

        Args:
            text: a full location, such as `s3a://bucket/warehouse/t1/data/f.parquet`.

        Raises:
            LocationInvalid: the text is malformed or ambiguous, or its scheme is not known.
        """
        return cls(text)

    @property
    def segments(self) -> tuple[str, ...]:
        """The names from the root down, exactly as written; empty for a whole bucket."""
        return tuple(self.canonical[len(self.scheme) + 3 + len(self.authority) :].split("/")[1:])

    @property
    def name(self) -> str:
        """The last segment; empty for a whole bucket."""
        return self.canonical[len(self.scheme) + 3 + len(self.authority) :].rpartition("/")[2]

    def contains(self, other: Location) -> bool:
        """Whether `other` is this location or lies below it, by whole segments."""
        return f"{other.canonical}/".startswith(f"{self.canonical}/")

    def overlaps(self, other: Location) -> bool:
        """Whether one of the two contains the other."""
        return self.contains(other) or other.contains(self)

    def child(self, *segments: str) -> Location:
        """The location below this one by the given names, each one segment.

        Raises:
            LocationInvalid: a name has a slash, or cannot be part of a location.
        """
        for segment in segments:
            if not segment or "/" in segment:
                _refuse(
                    segment,
                    "has a path segment that is empty or contains a slash",
                    "Pass each segment as one name.",
                )
        text = "/".join((self.canonical, *segments))
        return self._below(text) if self._is_plain_below(text, segments) else Location(text)

    def _is_plain_below(self, text: str, segments: tuple[str, ...]) -> bool:
        """Return whether the names need no closer look. A scheme with rules for a first name has no root."""
        bound = _BY_SPELLING[self.scheme][2]
        short = len(text) - len(self.scheme) - 1 <= bound and self.canonical.isascii()
        return short and all(map(_ORDINARY.fullmatch, segments))

    def _below(self, text: str) -> Location:
        made, put = object.__new__(Location), object.__setattr__
        put(made, "scheme", self.scheme)
        put(made, "authority", self.authority)
        put(made, "canonical", text)
        put(made, "original", text)
        return made

    def __eq__(self, other: object) -> bool:
        return self.canonical == other.canonical if isinstance(other, Location) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __str__(self) -> str:
        return self.canonical

    def __repr__(self) -> str:
        return f"Location({self.canonical!r})"


def shown(text: str) -> str:
    """A refused location as messages may show it: one line, cut short, without credentials or query."""
    before, mark, _ = text.partition("?")
    text = _MISPLACED.sub(r"\1\2***", _CREDENTIALS.sub(r"\1//***", before)) + mark
    return printable(text, _SHOWN_CHARACTERS)


def printable(text: str, longest: int) -> str:
    """A text of any origin as messages may show it: one line, cut after `longest` characters."""
    cut = text if len(text) <= longest else f"{text[:longest]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def _split_ordinary(text: str) -> tuple[str, str, str] | None:
    """Scheme, authority and path of a plainly harmless location; None if it takes a closer look."""
    if not isinstance(text, str):
        return None
    scheme, _, rest = text.partition(":")
    rules, ordinary, characters = _BY_SPELLING.get(scheme, (None, None, 0))
    if rules is None or ordinary is None or len(rest) > characters:
        return None
    found = ordinary.fullmatch(rest)
    return None if found is None else (rules.name, _authority(rules, found[1]), found[2])


def _split_with_care(text: str) -> tuple[str, str, str]:
    """Scheme, authority and path of any location, every rule checked; the path has no trailing slash."""
    _check_text(text)
    rules, rest = _split_scheme(text)
    authority, path = _split_authority(text, rules, rest)
    path = path.removesuffix("/")
    if path != path.rstrip():
        _refuse(
            text,
            "ends in whitespace",
            "Remove the whitespace. Readers disagree on whether it is part of the name.",
        )
    if path:
        _check_path(text, rules, path[1:])
    elif not rules.root_allowed:
        _refuse(text, "names the root of a whole host", "Name a directory below it.")
    return rules.name, _authority(rules, authority), path


def _authority(rules: SchemeRules, written: str) -> str:
    """The one spelling of a valid authority, which is ASCII; a container has no capitals to lose."""
    return written.lower() if rules.folds_authority else written


def _check_text(text: str) -> None:
    if not isinstance(text, str) or not text:
        _refuse(text if isinstance(text, str) else "", "is missing or not a string", _HINT)
    if len(text) > MAX_LOCATION_CHARACTERS:
        _refuse(text, f"is longer than {MAX_LOCATION_CHARACTERS} characters", "Use a shorter path.")
    if (character := forbidden_character(text)) is not None:
        _refuse(text, f"has the control or format character {character}", "Rename the file or directory.")
    for delimiter, meaning in (("\\", "backslash"), ("?", "query"), ("#", "fragment")):
        if delimiter in text:
            _refuse(
                text,
                f"has a {meaning} ({delimiter})",
                "Percent-encode the character, or rename the file or directory.",
            )


def _split_scheme(text: str) -> tuple[SchemeRules, str]:
    scheme, colon, rest = text.partition(":")
    if not colon or "/" in scheme:
        _refuse(text, "has no scheme", _HINT)
    if scheme not in _BY_SPELLING:
        known = ", ".join(sorted(_BY_SPELLING))
        _refuse(text, "has an unsupported scheme", f"Use one of {known}, in lower case.")
    return _BY_SPELLING[scheme][0], rest


def _split_authority(text: str, rules: SchemeRules, rest: str) -> tuple[str, str]:
    authority, slash, path = (
        rest.removeprefix("//").partition("/") if rest.startswith("//") else ("", "", rest)
    )
    path = f"{slash}{path}"
    if re.fullmatch(rules.authority or "", authority) is None:
        _refuse(text, "has an invalid bucket or host", rules.authority_hint)
    if path and not path.startswith("/"):
        _refuse(text, "has a relative path", _HINT)
    return authority, path


def _check_path(text: str, rules: SchemeRules, path: str) -> None:
    size = len(path.encode())
    if size > rules.max_path_bytes:
        _refuse(text, f"has a path of more than {rules.max_path_bytes} bytes", "Use a shorter path.")
    names = path.split("/")
    for name in names:
        if (problem := problem_with_name(name)) is not None:
            _refuse(text, problem, "Rename the file or directory.")
        if size > rules.max_name_bytes < len(name.encode()):
            _refuse(text, f"has a name of more than {rules.max_name_bytes} bytes", "Use a shorter name.")
        if not rules.final_dots and has_final_dot(name):
            _refuse(text, "has a name that ends in a dot", "Rename it. Some Azure clients drop the dot.")
    first = decode_fully(names[0]) or ""
    if rules.drive_letters and _DRIVE.match(first):
        _refuse(text, "begins with a drive letter", "Write the path without a drive letter.")
    if rules.reserved is not None and first.partition("/")[0] == rules.reserved:
        _refuse(text, f"begins with {rules.reserved}", "Use the ordinary path of the file.")


def _refuse(text: str, problem: str, hint: str) -> NoReturn:
    raise LocationInvalid(f"The location {problem}.", path=shown(text), rule="location-invalid", hint=hint)
