"""Proposes policies for what was found: encryption rules, and masking policies of Ranger's model.

Two documents are written, to be reviewed by a person. Nothing is put into force.

- A rule for each kind of data encrypts the columns that have a tag; the tag is assigned table by table.
- A masking policy for each table and mask shows the values to the group `READERS` alone.
- In names that patterns cannot say, ``?`` stands for a character, such as for ``*`` and control characters.

Sources: docs/encryption-policy.md, docs/row-filters-and-masks.md.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from catalog.base.identifiers import TableName
from policy.encryption_rules import EncryptionRules
from policy.encryption_rules.names import MAX_PATTERN_LENGTH
from policy.ranger.policy_set import PolicySet
from spark_ext.pipelines.discover.columns import Leaf
from spark_ext.pipelines.discover.kinds import KINDS, Kind

RULES_FILE: Final = "discovered-encryption-rules.json"
MASKS_FILE: Final = "discovered-masks.json"
#: The group that sees the values, in the proposal.
READERS: Final = "personal-data-readers"

#: Masks that are functions of texts.
_OF_TEXT: Final = frozenset({"MASK_HASH", "MASK_SHOW_LAST_4"})
_FIXED: Final = "mask-to-fixed-value"


@dataclass(frozen=True, slots=True)
class Found:
    """A plaintext column with data of some kind.

    Attributes:
        table: the table.
        leaf: the column.
        kind: the kind.
    """

    table: TableName
    leaf: Leaf
    kind: Kind

    @property
    def masked(self) -> tuple[str, str]:
        """What is proposed to be masked, and the mask: for keys of a map, which have none, the map."""
        column, proposed = self.leaf.described, self.kind.mask
        if self.leaf.key_of is not None:
            return self.leaf.key_of, _FIXED
        if column.type == "string" and proposed in _OF_TEXT:
            return column.name, proposed
        return column.name, _FIXED if self.leaf.required else "MASK_NULL"


def encryption_rules(found: Iterable[Found]) -> dict[str, Any]:
    """Return a document of encryption rules."""
    places: dict[tuple[str, TableName], list[str]] = defaultdict(list)
    for each in found:
        places[each.kind.id, each.table].append(_pattern(each.leaf.described.name))
    used = {kind for kind, _ in places}
    return {
        "rules": [
            {
                "name": f"discovered: {kind.what}",
                "databases": ["*"],
                "tables": ["*"],
                "tags": [f"discovered-{kind.id}"],
                "mustEncrypt": True,
            }
            for kind in KINDS
            if kind.id in used
        ],
        "tags": [
            {
                "tag": f"discovered-{kind}",
                "databases": [_pattern(".".join(table.namespace))],
                "tables": [_pattern(table.name)],
                "columns": sorted(set(columns)),
            }
            for (kind, table), columns in sorted(
                places.items(), key=lambda each: (each[0][0], str(each[0][1]))
            )
        ],
    }


def masking_policies(found: Iterable[Found]) -> dict[str, Any]:
    """Return a document of masking policies."""
    masked: dict[tuple[TableName, str], set[str]] = defaultdict(set)
    for table, columns in _masks(found).items():
        for column, mask in columns.items():
            masked[table, mask].add(_pattern(column))
    return {
        "policies": [
            {
                "name": f"discovered: {table} {mask}",
                "service": "lakewarden",
                "policyType": 1,
                "resources": {
                    "database": {"values": [_pattern(".".join(table.namespace))]},
                    "table": {"values": [_pattern(table.name)]},
                    "column": {"values": sorted(columns)},
                },
                "dataMaskPolicyItems": [_item(READERS, "MASK_NONE"), _item("public", mask)],
            }
            for (table, mask), columns in sorted(
                masked.items(), key=lambda each: (str(each[0][0]), each[0][1])
            )
        ]
    }


def _masks(found: Iterable[Found]) -> dict[TableName, dict[str, str]]:
    """Return a mask for each column: that of the first kind, in the order of `KINDS`."""
    masks: dict[TableName, dict[str, str]] = defaultdict(dict)
    for each in sorted(found, key=lambda one: KINDS.index(one.kind)):
        masks[each.table].setdefault(*each.masked)
    return {table: _outermost(columns) for table, columns in masks.items()}


def _outermost(columns: dict[str, str]) -> dict[str, str]:
    """Leave out what is in another masked column."""
    return {
        name: mask
        for name, mask in columns.items()
        if not any(name.startswith(f"{other}.") for other in columns)
    }


def _item(group: str, mask: str) -> dict[str, Any]:
    return {
        "groups": [group],
        "accesses": [{"type": "select"}],
        "dataMaskInfo": {"dataMaskType": mask},
    }


def _pattern(name: str) -> str:
    """Return a pattern for a name: the name, as far as patterns can say it."""
    text = "".join("?" if each in "*?{}" or not each.isprintable() else each for each in name)
    text = text if text.strip() else "?" * len(text)
    return text if len(text) <= MAX_PATTERN_LENGTH else f"{text[: MAX_PATTERN_LENGTH - 1]}*"


def write(found: Sequence[Found], directory: Path) -> tuple[Path, ...]:
    """Write the documents to a directory, in place of those of an earlier run.

    What the project's own parsers do not accept is not written.

    Raises:
        PolicyInvalid: a document is not accepted, such as for more policies than one can have.
        OSError: the directory cannot be written to.
    """
    rules, masks = encryption_rules(found), masking_policies(found)
    texts = {RULES_FILE: _text(rules), MASKS_FILE: _text(masks)}
    EncryptionRules.parse({RULES_FILE: texts[RULES_FILE]})
    PolicySet.parse({MASKS_FILE: texts[MASKS_FILE]})
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    return tuple(directory / name for name in texts)


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
