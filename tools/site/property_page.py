"""Writes the reference of governed table properties as Markdown.

Names, other names and closed lists of values come from the code. A test finds a property without text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policy.encryption import governed
from policy.privileges.namespaces import PROTECTING

_SHOWN: Final = "The value, of tables that it can load."


@dataclass(frozen=True)
class Text:
    """What the reference says of a property.

    Attributes:
        meaning: one sentence or two.
        default: in a table that does not set it.
        changes: what a change needs, beside `alter` on the table.
        seen: what a standard client sees.
        values: of a property without a closed list of values.
    """

    meaning: str
    default: str
    changes: str
    seen: str = _SHOWN
    values: str = ""


_NOTHING: Final = "nothing more"
_LESS: Final = "`unprotect` for a downgrade"

PROPERTIES: Final[Mapping[str, Text]] = {
    governed.ALLOWED_PATHS: Text(
        "The locations that files of the table can be read from. The list in force applies to every "
        "snapshot. See [locations](locations.md).",
        "the table's location",
        "`rwstorage` on each added location outside of the table's default location. A list that breaks "
        "retained snapshots also needs the option `force`.",
        "The value. A commit with a file outside of it is 403 (`LocationNotAllowed`).",
        "a comma-separated list, or a JSON array if a path has a comma; with an empty list, nothing can be "
        "read",
    ),
    governed.MECHANISM: Text(
        "Whether files are encrypted, each with a data key that a key of the table wraps (a PEK). "
        "See [encryption](encryption.md).",
        "`plaintext`; `envelope` if another encryption property is set",
        "`unprotect` from `envelope` to `plaintext`; `use` on the master key for `envelope`",
        "`plaintext`. With `envelope`, the table is 403 (`standard-client`), unless "
        "`encryption.standard-clients` is `load`.",
    ),
    governed.MASTER_KEY_ID: Text(
        "The master key in the KMS that wraps the PEK of the footer and of columns without column keys.",
        "the setting `kms.default_master_key_id`",
        "`use` on the key; `unprotect` on a table that is encrypted",
        values="an id of at most 255 ASCII letters, digits and `_ . / + = -`, or an ARN",
    ),
    governed.ALGORITHM: Text(
        "The algorithm of new files: the first two of [Parquet](parquet-encryption.md), the last of "
        "[ORC](orc.md).",
        "`AES_GCM_V1` for Parquet, `ORC_AES_CTR` for ORC",
        _LESS,
    ),
    governed.DATA_KEY_LENGTH: Text(
        "The length of data keys in bytes. ORC has no 24.",
        "`32`",
        "`unprotect` for shorter keys",
    ),
    governed.COLUMNS: Text(
        "[Column keys](column-keys.md): a master key for each group of columns. Without "
        "`encryption.plaintext-columns`, the other columns are then plaintext.",
        "none: one key for all columns",
        "`use` on each new key; `unprotect` for a downgrade",
        values="`KEY:COLUMN,COLUMN;KEY:COLUMN`; nested columns with dots",
    ),
    governed.PLAINTEXT_COLUMNS: Text(
        "The [columns that stay plaintext](encryption.md#plaintext-columns). All others are encrypted, "
        "also those that are added later.",
        "none",
        "`unprotect` for each column more",
        values="`COLUMN,COLUMN`; nested columns with dots; empty for no column",
    ),
    governed.PARTITION_VALUES: Text(
        "Whether encrypted columns can be [partition sources](encryption.md#partition-by-encrypted-columns). "
        "Partition values are plaintext in manifests and paths.",
        "`refuse`",
        "`unprotect` for `plaintext`, at CREATE too",
        "`plaintext`, if it is set and the client can load the table.",
    ),
    governed.FOOTER: Text(
        "Whether footers of [Parquet files](parquet-encryption.md) are encrypted, or plaintext and signed. "
        "A plaintext footer shows names, types and sizes of all columns.",
        "`encrypted`",
        "`unprotect` for `plaintext`",
    ),
    governed.MASKS: Text(
        "What users without `select` on a column see instead of an error ([masks](encryption.md#masks)). "
        "Parquet has `nullify` alone.",
        "none: an error",
        "`unprotect` for masks that show hashes or parts of values",
        values="`nullify:COLUMN;sha256:COLUMN;redact:COLUMN`",
    ),
    governed.STOCK_READERS: Text(
        "Whether files also carry what [standard Parquet readers](stock-readers.md) need to get keys from "
        "the KMS endpoint of the catalog.",
        "`false`",
        "`unprotect` for `true`, at CREATE too",
    ),
    governed.STANDARD_CLIENTS: Text(
        "Whether [standard clients](encryption.md#standard-clients) can load the encrypted table. They can "
        "then browse it and change its schema, and append no rows.",
        "what the namespace says, else the setting `standard_clients`",
        "`unprotect` for `load`, and to remove `refuse`",
        "`load`. With `refuse`, the table is 403 (`standard-client`).",
    ),
    governed.VERIFY_DIGEST: Text(
        "When a file is compared with the [digest](orc.md#digests) of its bytes.",
        "`never` for Parquet, `always` for ORC",
        "`unprotect` for less often",
    ),
    governed.ORC_KEY_PROVIDER: Text(
        "Accepted in ORC tables, so that statements written for Hive work. Keys come from the catalog all "
        "the same.",
        "none",
        _NOTHING,
        values="`hadoop`",
    ),
    governed.HADOOP_KEY_PROVIDER: Text(
        "Accepted in ORC tables, so that statements written for Hive work. Keys come from the catalog all "
        "the same.",
        "none",
        _NOTHING,
        values="the address of a Hadoop KMS",
    ),
    governed.PEK_ID: Text(
        "The ids of the PEKs of new files.",
        "set by the catalog",
        "read only: no user can set or remove it",
        values="ids, separated by commas",
    ),
}

#: Properties of a namespace that govern its tables.
NAMESPACE_PROPERTIES: Final[Mapping[str, tuple[str, str]]] = {
    "lakewarden.unsealed": (
        "Whether metadata can be read that did not come through the catalog "
        "([unsealed metadata](operations.md#unsealed-metadata)).",
        "the setting `unsealed_metadata`",
    ),
    governed.STANDARD_CLIENTS: (
        "Whether standard clients can load encrypted tables that do not have the property.",
        "the setting `standard_clients`",
    ),
}


def page() -> str:
    """Each property, then the other names, then those of namespaces."""
    return "\n".join((*_properties(), *_aliases(), *_namespaces()))


def values(name: str) -> str:
    """The values of a property, as Markdown."""
    return ", ".join(f"`{each}`" for each in governed.CHOICES.get(name, ())) or PROPERTIES[name].values


def _properties() -> Iterator[str]:
    for name, text in PROPERTIES.items():
        yield f"## `{name}`\n\n{text.meaning}\n"
        yield "| | |\n|---|---|"
        yield f"| Values | {values(name)} |"
        yield f"| Default | {text.default} |"
        yield f"| A change needs | {_needs(name, text)} |"
        yield f"| A standard client sees | {text.seen} |"
        yield ""


def _needs(name: str, text: Text) -> str:
    if name == governed.PEK_ID:
        return text.changes
    return "`alter` on the table" + ("" if text.changes == _NOTHING else f", and {text.changes}")


def _aliases() -> Iterator[str]:
    yield "## Other names\n"
    yield "These names mean the same. Two names with values that contradict each other are refused.\n"
    yield "| name | means |\n|---|---|"
    for name, aliases in governed.NAMES.items():
        yield from (f"| `{alias}` | `{name}` |" for alias in aliases)
    yield (
        "\n`parquet.encryption.plaintext.footer` is `true` for `plaintext` and `false` for `encrypted`. "
        "Each name can have the prefix `option.`, which Spark adds.\n"
    )


def _namespaces() -> Iterator[str]:
    yield "## Properties of namespaces\n"
    yield (
        "A change needs `alter` on the namespace. The first value, and removing the property, also need "
        "`unprotect` on it.\n"
    )
    yield "| property | values | default | meaning |\n|---|---|---|---|"
    for name, allowed in PROTECTING.items():
        meaning, default = NAMESPACE_PROPERTIES[name]
        yield f"| `{name}` | {', '.join(f'`{each}`' for each in allowed)} | {default} | {meaning} |"
    yield ""
