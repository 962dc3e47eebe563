"""Which table properties the catalog governs, how they may be spelled, and what their values mean.

Rules:
- A governed property has one canonical name. The older and foreign names in `_ALIASES` mean the same, and so
  does each with ``option.`` in front, because Spark hands OPTIONS to a catalog twice.
- Spellings that agree are one; spellings that contradict each other are an error that names both.
- Everything else under a governed prefix is refused, and so is every name that a person could take for a
  governed one: other letter case, confusable letters, invisible characters, spaces, a slip of the pen. Such
  a name would otherwise be kept as an ordinary property, and a table that its owner believes to be protected
  would not be.
- `encryption.pek-id` is set by the catalog alone.
- Names come from people who may have no right at all: judging one costs microseconds whatever it looks like,
  and one request brings at most `MAX_PROPERTIES`.

Source: docs/table-properties.md.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from policy.confusables import equal_but_foreign, skeleton_of
from policy.encryption import governed_values as values
from policy.errors import PropertyInvalid

ALLOWED_PATHS = "read.allowed.data.paths"
MECHANISM = "encryption.mechanism"
MASTER_KEY_ID = "encryption.master-key-id"
ALGORITHM = "encryption.algorithm"
DATA_KEY_LENGTH = "encryption.data-key-length"
COLUMNS = "encryption.columns"
PLAINTEXT_COLUMNS = "encryption.plaintext-columns"
PARTITION_VALUES = "encryption.partition-values"
FOOTER = "encryption.footer"
MASKS = "encryption.masks"
STOCK_READERS = "encryption.stock-readers"
STANDARD_CLIENTS = "encryption.standard-clients"
VERIFY_DIGEST = "encryption.verify-digest"
PEK_ID = "encryption.pek-id"
ORC_KEY_PROVIDER = "orc.key.provider"
HADOOP_KEY_PROVIDER = "hadoop.security.key.provider.path"
FOREIGN_KEY_PROVIDERS = (ORC_KEY_PROVIDER, HADOOP_KEY_PROVIDER)

_UNIFORM_KEY = "parquet.encryption.uniform.key"
_OPTION = "option."
_MAX_CACHED_CHARACTERS = 512

#: Most properties that one request, or one table, may have.
MAX_PROPERTIES = 1_000

#: How much two names have in common that one of them is taken for a slip of the pen: twice the characters
#: that both have in the same order, by the characters of both.
_NEAR = 0.9

Normalise = Callable[[str, object], str]


def _closed(allowed: Mapping[str, str]) -> Normalise:
    return lambda name, value: values.one_of(name, value, allowed)


#: The values of properties that have a closed list of them.
CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        MECHANISM: ("plaintext", "envelope"),
        ALGORITHM: ("AES_GCM_V1", "AES_GCM_CTR_V1", "ORC_AES_CTR"),
        DATA_KEY_LENGTH: ("16", "24", "32"),
        PARTITION_VALUES: ("plaintext", "refuse"),
        FOOTER: ("encrypted", "plaintext"),
        STOCK_READERS: ("true", "false"),
        STANDARD_CLIENTS: ("load", "refuse"),
        VERIFY_DIGEST: ("never", "first-read", "always"),
    }
)


def _chosen(name: str) -> Normalise:
    return _closed(values.words(*CHOICES[name]))


_PARQUET_ALGORITHMS = _closed(values.words("AES_GCM_V1", "AES_GCM_CTR_V1"))
_PLAINTEXT_FOOTER = _closed(MappingProxyType({"true": "plaintext", "false": "encrypted"}))


def _paths(name: str, value: object) -> str:
    """Any text: `policy.location.allow_list` reads the list, and refuses what it cannot read."""
    if not isinstance(value, str):
        raise values.refused(name, "the value is not a string.", "Set the list of locations as a string.")
    return value


def _columns(name: str, value: object) -> str:
    return values.groups_text(values.column_groups(name, value))


def _plaintext_columns(name: str, value: object) -> str:
    return ",".join(values.column_names(name, value))


def _masks(name: str, value: object) -> str:
    return values.groups_text(values.mask_groups(name, value))


def _provider(name: str, value: object) -> str:
    text = values.checked_text(name, value)
    if not text.strip(" "):
        raise values.refused(name, "the value is empty.", "Set the key provider, or omit the property.")
    return text


# Each spelling: the canonical name, and the reader of its value.
_CANONICAL: Mapping[str, Normalise] = MappingProxyType(
    {
        ALLOWED_PATHS: _paths,
        MECHANISM: _chosen(MECHANISM),
        MASTER_KEY_ID: values.master_key_id,
        ALGORITHM: _chosen(ALGORITHM),
        DATA_KEY_LENGTH: _chosen(DATA_KEY_LENGTH),
        COLUMNS: _columns,
        PLAINTEXT_COLUMNS: _plaintext_columns,
        PARTITION_VALUES: _chosen(PARTITION_VALUES),
        FOOTER: _chosen(FOOTER),
        MASKS: _masks,
        STOCK_READERS: _chosen(STOCK_READERS),
        STANDARD_CLIENTS: _chosen(STANDARD_CLIENTS),
        VERIFY_DIGEST: _chosen(VERIFY_DIGEST),
        ORC_KEY_PROVIDER: _provider,
        HADOOP_KEY_PROVIDER: _provider,
    }
)
_ALIASES: Mapping[str, tuple[str, Normalise]] = MappingProxyType(
    {
        "encryption.key-id": (MASTER_KEY_ID, values.master_key_id),
        "orc.encrypt": (COLUMNS, _columns),
        "orc.mask": (MASKS, _masks),
        "parquet.encryption.column.keys": (COLUMNS, _columns),
        "parquet.encryption.footer.key": (MASTER_KEY_ID, values.master_key_id),
        _UNIFORM_KEY: (MASTER_KEY_ID, values.master_key_id),
        "parquet.encryption.plaintext.footer": (FOOTER, _PLAINTEXT_FOOTER),
        "parquet.encryption.algorithm": (ALGORITHM, _PARQUET_ALGORITHMS),
    }
)
_SPELLINGS: Mapping[str, tuple[str, Normalise]] = MappingProxyType(
    {**{name: (name, read) for name, read in _CANONICAL.items()}, **_ALIASES}
)
#: Every governed property by its canonical name, with the other names that mean the same.
NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        name: tuple(alias for alias, (canonical, _) in _ALIASES.items() if canonical == name)
        for name in (*_CANONICAL, PEK_ID)
    }
)
_KNOWN = (*_SPELLINGS, PEK_ID)
_SEPARATORS = re.compile("[._-]")
_RUN_TOGETHER = MappingProxyType({_SEPARATORS.sub("", name): name for name in _KNOWN})
_RESERVED = (
    "lakewarden",
    "encryption",
    "read.allowed",
    "parquet.encryption",
    "parquet.crypto",
    "orc.key",
    "hadoop.security",
)


@dataclass(frozen=True, slots=True)
class _Given:
    """One spelling as the client gave it."""

    name: str
    value: str


def is_governed(name: str) -> bool:
    """Whether a property name belongs to the catalog: governed, reserved, or easily taken for either.

    Exactly the names that `split` never leaves among the ordinary properties.
    """
    return _without_option(name) in _KNOWN or _confusable_name(name) is not None


def is_confusable_with(name: str, known: str) -> bool:
    """Whether a person could take a name for another one: itself, other letter case, confusable letters,
    invisible characters, other separators, a slip of the pen.

    Args:
        name: as it was given.
        known: in ASCII and small letters.
    """
    skeleton = skeleton_of(name[:_MAX_CACHED_CHARACTERS])
    return _SEPARATORS.sub("", skeleton) == _SEPARATORS.sub("", known) or _resembles(skeleton, known)


def canonical_name(name: str) -> str:
    """The canonical name behind a spelling, for example to remove a property.

    Raises:
        PropertyInvalid: the name is read only, unknown or a confusable, or is not governed at all.
    """
    bare = _without_option(name)
    if bare == PEK_ID:
        raise PropertyInvalid(
            f"{name} is read-only: only the catalog sets it.",
            rule="property-read-only",
            hint="Omit the property.",
        )
    if bare in _SPELLINGS:
        return _SPELLINGS[bare][0]
    known = _confusable_name(name)
    hint = "Set or remove it as an ordinary table property." if known is None else _right_name(name, known)
    raise PropertyInvalid(f"{_shown(name)} is not a governed property.", rule="property-name", hint=hint)


def split(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Parts a client's properties into governed ones and the rest.

    Returns:
        The governed ones under their canonical names with values in normal form, and all others untouched.

    Raises:
        PropertyInvalid: too many of them, a name that is refused, a value that cannot be read, or two
            spellings that contradict each other.
    """
    check_count(len(properties))
    given: dict[str, _Given] = {}
    rest: dict[str, str] = {}
    for name, value in properties.items():
        if not is_governed(name):
            rest[name] = value
            continue
        canonical = canonical_name(name)
        read = _SPELLINGS[_without_option(name)][1]
        _agree(given, canonical, _Given(name, read(name, value)))
    _refuse_uniform_with_columns(properties, given)
    return {canonical: found.value for canonical, found in given.items()}, rest


def check_count(count: int) -> None:
    """Refuse more properties than one request, or one table, may have, before any of them is judged.

    Raises:
        PropertyInvalid: `count` is more than `MAX_PROPERTIES`.
    """
    if count > MAX_PROPERTIES:
        raise PropertyInvalid(
            f"There are {count} properties. At most {MAX_PROPERTIES} are allowed.",
            rule="property-count",
            hint="Remove unused properties.",
        )


def _agree(given: dict[str, _Given], canonical: str, new: _Given) -> None:
    known = given.setdefault(canonical, new)
    if known.value != new.value:
        raise contradiction(known.name, new.name)


def contradiction(first: str, second: str) -> PropertyInvalid:
    """The one error for two properties that cannot both hold."""
    return PropertyInvalid(
        f"Properties {first} and {second} contradict each other.",
        rule="property-contradiction",
        hint="Set only one of them.",
    )


def _refuse_uniform_with_columns(properties: Mapping[str, str], given: Mapping[str, _Given]) -> None:
    """A uniform key says that there are no column keys, and that all columns are encrypted."""
    uniform = next((name for name in properties if _without_option(name) == _UNIFORM_KEY), None)
    for name in (COLUMNS, PLAINTEXT_COLUMNS):
        if uniform is not None and name in given:
            raise contradiction(uniform, given[name].name)


def _without_option(name: str) -> str:
    while name.startswith(_OPTION):
        name = name[len(_OPTION) :]
    return name


def _shown(name: str) -> str:
    """A name fit for an error message: bounded, invisible characters made visible."""
    return ascii(name[:80])


def _confusable_name(name: str) -> str | None:
    """None for an ordinary name, else the name that is meant; empty where only the prefix is certain."""
    return (
        _find_confusable(name) if len(name) <= _MAX_CACHED_CHARACTERS else _find_confusable.__wrapped__(name)
    )


@lru_cache(maxsize=4096)
def _find_confusable(name: str) -> str | None:
    skeleton = _without_option(skeleton_of(name))
    known = _RUN_TOGETHER.get(_SEPARATORS.sub("", skeleton))
    known = known or next((known for known in _KNOWN if _resembles(skeleton, known)), None)
    if known is None and any(_under(skeleton, prefix) for prefix in _RESERVED):
        return ""
    return known


def _right_name(name: str, known: str) -> str:
    """The hint for a refused name; made for the one name that is refused, since this search is slow."""
    skeleton = _without_option(skeleton_of(name[:_MAX_CACHED_CHARACTERS]))
    known = known or next(iter(difflib.get_close_matches(skeleton, _KNOWN, n=1, cutoff=0.6)), "")
    return f"Did you mean {known}?" if known else f"The governed properties are {', '.join(_CANONICAL)}."


def _resembles(skeleton: str, known: str) -> bool:
    both = len(skeleton) + len(known)
    if 2 * min(len(skeleton), len(known)) < _NEAR * both:
        return False
    return equal_but_foreign(skeleton, known) or 2 * _in_common(skeleton, known) >= _NEAR * both


def _in_common(skeleton: str, known: str) -> int:
    """Length of the longest common subsequence, in one step for each character of `skeleton`.

    Bit i of `open_places` says that character i of `known` is not matched yet (H. Hyyrö, "Bit-parallel
    LCS-length computation revisited", 2004).
    """
    places = _places(known)
    open_places = (1 << len(known)) - 1
    for character in skeleton:
        matched = open_places & places.get(character, 0)
        open_places = (open_places + matched) | (open_places - matched)
    return len(known) - (open_places & ((1 << len(known)) - 1)).bit_count()


@lru_cache(maxsize=256)
def _places(known: str) -> Mapping[str, int]:
    """By character of a known name: in which places it stands, as bits."""
    return {each: sum(1 << i for i, character in enumerate(known) if character == each) for each in known}


def _under(skeleton: str, prefix: str) -> bool:
    head, following = skeleton[: len(prefix)], skeleton[len(prefix) : len(prefix) + 1]
    return following in ("", ".") and equal_but_foreign(head, prefix)
