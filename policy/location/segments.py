r"""What one name (path segment) of a location may be.

Rules, in plain words:

1. Names are bytes. A name that passes is kept exactly as it was written; nothing is decoded or trimmed.
2. A name is refused if any reader could take it for something other than one plain name below its parent.
   Readers differ: `pyarrow.fs.FileSystem.from_uri` and `java.net.URI` percent-decode, Hadoop's `Path` and
   `java.net.URI` resolve dot segments and collapse `//`, Python's `urlsplit` (in pyiceberg) deletes tab, CR
   and LF, C libraries end a string at NUL. So a name is also looked at as the most decoding of all readers
   would see it: percent-decoded until nothing changes, compatibility forms folded (NFKC).
3. Seen that way, no part of it between slashes or backslashes may be a dot segment, it may not begin with a
   slash, and no control, format or separator character and no malformed UTF-8 may appear.
4. An encoded slash inside a name passes (`ts=2020%2F01`, `url=https%3A%2F%2Fexample.com`): writers of Iceberg
   encode partition values so, and a reader that decodes it stays below the parent.
5. A percent sign that starts no escape (`100%`) passes: literal readers keep it, decoding ones fail.

The character classes are written out here instead of being asked of the runtime's Unicode tables, so that
every version and every implementation agrees.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from urllib.parse import unquote_to_bytes

ORDINARY_NAME = (
    r"[0-9A-Za-z_=](?:\.*(?:[0-9A-Za-z_=+,:@~-]"
    r"|%(?:2[0-46-9A-Da-d]|3[0-9A-Fa-f]|40"
    r"|[Cc][3-9A-Fa-f]%[89ABab][0-9A-Fa-f]|[Ee][4-9](?:%[89ABab][0-9A-Fa-f]){2}))"
    r"|%2[Ff][0-9A-Za-z_])*"
)
"""Regular expression, in the syntax that `re` and RE2 share, of names that need no closer look.

It begins with a letter, digit, `_` or `=`, and what follows an encoded slash does too; hence nothing that it
matches can decode to a dot segment. No dot stands before an encoded slash or at the end. It has no escape for
a percent sign, a dot, a backslash or a control character; those of its third line are Latin, Greek and
ideographs (U+00C0 to U+03FF, U+4000 to U+9FFF).
"""

MAX_DECODINGS = 8
"""A name that still changes after so many rounds of percent-decoding is refused."""

_ORDINARY = re.compile(ORDINARY_NAME)

_CONTROLS = r"\x00-\x1f\x7f-\x9f"
# Unicode's format characters (Cf), the block of tags, and the line and paragraph separators.
_FORMATS = (
    r"\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    r"\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e00ff"
)
_SURROGATES = r"\ud800-\udfff"
_NONCHARACTERS = r"\ufdd0-\ufdef" + "".join(rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(17))
_FORBIDDEN = re.compile(f"[{_CONTROLS}{_FORMATS}{_SURROGATES}{_NONCHARACTERS}]")

_PICTOGRAPHS = (
    r"\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    r"\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
# The two places where emoji need format characters: the joiner between two pictographs (a family), and the
# tags of a flag (Scotland). See Unicode Technical Standard 51, "Emoji Sequences".
_EMOJI_FORMATS = re.compile(
    rf"(?:(?<=[{_PICTOGRAPHS}])|(?<=[{_PICTOGRAPHS}]\ufe0f))\u200d(?=[{_PICTOGRAPHS}])"
    r"|(?<=\U0001f3f4)[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f"
)

# `%u002e` is no escape in any standard; some decoders take it all the same.
_WIDE_ESCAPE = re.compile(r"%[uU]([0-9A-Fa-f]{4})")

# Slashes and backslashes as NFKC leaves them, and confusables that best-fit conversions turn into them.
_SEPARATORS = r"/\\\u2044\u2215\u2216\u29f5\u29f8\u29f9"
# A dot segment, also when a reader trims blanks (`+` is a blank in form encoding) or cuts `;parameters` off.
_DOTS = r"[\s+]*\.{1,2}[\s+]*"
_DOT_SEGMENT = re.compile(rf"(?:^|[{_SEPARATORS}]){_DOTS}(?:$|[;{_SEPARATORS}])")
# Globbing readers expand braces, and `{x,..}` has a dot segment among its alternatives.
_DOT_ALTERNATIVE = re.compile(rf"(?:^|[,{{}}{_SEPARATORS}]){_DOTS}(?:$|[;,{{}}{_SEPARATORS}])")
_ABSOLUTE = re.compile(rf"[{_SEPARATORS}]")
_FINAL_DOT = re.compile(rf"\.(?:$|[{_SEPARATORS}])")


def forbidden_character(text: str) -> str | None:
    """The first control, format or separator character, surrogate or noncharacter of `text`, as `U+XXXX`.

    The joiners and tags inside an emoji are no such characters; anywhere else they are.
    """
    if text.isascii() and text.isprintable():
        return None
    found = _FORBIDDEN.search(text) and _FORBIDDEN.search(_EMOJI_FORMATS.sub("", text))
    return None if found is None else f"U+{ord(found[0]):04X}"


def problem_with_name(name: str) -> str | None:
    """Say what makes `name` unfit as one segment of a location, or None if it is fit.

    Args:
        name: the segment as written, without its slashes.

    Returns:
        The end of a sentence that begins with "The location", such as "has an empty path segment".
    """
    return None if _ORDINARY.fullmatch(name) else _problem_with_odd(name)


# Files of one partition share its names.
@lru_cache(maxsize=2048)
def _problem_with_odd(name: str) -> str | None:
    if not name:
        return "has an empty path segment"
    if (character := forbidden_character(name)) is not None:
        return f"has the control or format character {character}"
    decoded = decode_fully(name)
    if decoded is None:
        return "has percent-escapes that are not UTF-8 or are encoded too many times"
    return _problem_with_decoded(decoded)


def decode_fully(name: str) -> str | None:
    """See `name` as the most decoding of all readers would: NFKC and percent-decoding until nothing changes.

    Returns:
        The decoded form, for inspection only; None if it is not UTF-8 or takes more than `MAX_DECODINGS`
        rounds.
    """
    for _ in range(MAX_DECODINGS):
        folded = unicodedata.normalize("NFKC", name)
        if "%" not in folded:
            return folded
        folded = _WIDE_ESCAPE.sub(_wide_character, folded)
        try:
            decoded = unquote_to_bytes(folded).decode("utf-8")
        except UnicodeError:  # malformed or overlong UTF-8, or a surrogate written as %uD800
            return None
        if decoded == name:
            return decoded
        name = decoded
    return None


def has_final_dot(name: str) -> bool:
    """Whether a fit name, or a part of it before a slash, ends in a dot once it is decoded."""
    return _FINAL_DOT.search(decode_fully(name) or "") is not None


def is_one_name(text: str) -> bool:
    """Whether every reader takes `text` for one name, though a location may also hold encoded slashes."""
    return problem_with_name(text) is None and _ABSOLUTE.search(decode_fully(text) or "/") is None


def _wide_character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16))


def _problem_with_decoded(decoded: str) -> str | None:
    if (character := forbidden_character(decoded)) is not None:
        return f"has the encoded control or format character {character}"
    dots = _DOT_ALTERNATIVE if "{" in decoded or "}" in decoded else _DOT_SEGMENT
    if dots.search(decoded):
        return "has a dot segment, literally or after decoding"
    if _ABSOLUTE.match(decoded):
        return "has a segment that begins with a slash after decoding"
    return None
