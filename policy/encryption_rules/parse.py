"""Encryption rule documents into typed rules: all of them, or nothing.

Rules:
- A document is a JSON object with ``rules``, ``tags`` or both. Names are a closed set, values have their
  type; nothing is converted, and nothing that would be without effect is passed over: a rule that asks for
  nothing, a tag that no rule names or that is assigned nowhere, an empty list.
- A rule says with ``mustEncrypt`` whether what it is about has to be encrypted; without that, what it asks
  holds for what is.
- Tags are assigned here alone. A table's own metadata says nothing about them: who writes a table writes
  that.
- Rules that nothing can satisfy together are refused (`policy.encryption_rules.contradictions`).

Source: docs/encryption-policy.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from policy.encryption.specification import Algorithm
from policy.encryption_rules.contradictions import conflict, self_conflict
from policy.encryption_rules.model import Area, Demands, EncryptionTag, Exempt, Rule
from policy.encryption_rules.names import KeyPatterns, NamePatterns
from policy.fields import Field, of_json

MAX_DOCUMENT_SIZE: Final = 16 * 1024 * 1024
"""Largest document, in bytes (in characters, where text is given)."""

MAX_RULES: Final = 1_000
"""Most rules that all documents together may have."""

_TOP: Final = frozenset({"rules", "tags"})
_ABOUT: Final = frozenset({"databases", "tables", "columns"})
_RULE: Final = _ABOUT | {
    "name",
    "description",
    "tags",
    "except",
    "mustEncrypt",
    "columnKey",
    "algorithms",
    "masterKeys",
    "minDataKeyLength",
    "plaintextFooter",
    "stockReaders",
    "partitionValues",
}
_TAG: Final = _ABOUT | {"tag", "description"}
_LENGTHS: Final = (16, 24, 32)


@dataclass(frozen=True, slots=True)
class _Placed:
    """A rule with the field that it was read from, and the tags that it names."""

    rule: Rule
    field: Field


def parse_documents(
    documents: Mapping[str, bytes | str],
) -> tuple[tuple[Rule, ...], tuple[EncryptionTag, ...]]:
    """Read rule documents.

    Args:
        documents: JSON texts by name; the name is used in messages.

    Returns:
        the rules, and where tags are assigned.

    Raises:
        PolicyInvalid: naming document, line and field of the first thing that is wrong.
    """
    containers = [_open(name, data).members(_TOP) for name, data in documents.items()]
    rule_fields = [field for top in containers for field in top["rules"].elements()]
    if len(rule_fields) > MAX_RULES:
        raise rule_fields[MAX_RULES].invalid(f"there are more than {MAX_RULES} encryption rules.")
    tags = _tags([field for top in containers for field in top["tags"].elements()])
    placed = [_Placed(_rule(field, tags), field) for field in rule_fields]
    _check_names(placed)
    _check_tags_used(tags, rule_fields)
    _check_contradictions(placed)
    assigned = (EncryptionTag(name, tuple(area for area, _ in places)) for name, places in tags.items())
    return tuple(each.rule for each in placed), tuple(assigned)


def _open(name: str, data: bytes | str) -> Field:
    top = of_json(name, data, what="Encryption rules", max_size=MAX_DOCUMENT_SIZE)
    if not _TOP.intersection(top.names()):
        raise top.invalid("the document has neither rules nor tags.", 'Write {"rules": [...]}.')
    return top


def _tags(fields: list[Field]) -> dict[str, list[tuple[Area, Field]]]:
    """Where each tag is assigned."""
    assigned: dict[str, list[tuple[Area, Field]]] = {}
    for field in fields:
        members = field.members(_TAG)
        members["description"].remark()
        columns = _patterns(members["columns"], nested=True)
        area = Area(_patterns(members["databases"]), _patterns(members["tables"]), columns)
        assigned.setdefault(members["tag"].string(), []).append((area, field))
    return assigned


def _rule(field: Field, tags: Mapping[str, list[tuple[Area, Field]]]) -> Rule:
    members = field.members(_RULE)
    members["description"].remark()
    tagged: list[Area] = []
    for tag in _filled(members["tags"]) if members["tags"].given else ():
        if tag.string() not in tags:
            raise tag.invalid(
                f"the tag {tag.string()!r} is assigned to no column.", "Assign the tag under tags."
            )
        tagged += [area for area, _ in tags[tag.string()]]
    columns = _patterns(members["columns"], nested=True) if members["columns"].given else None
    return Rule(
        name=members["name"].string(),
        document=field.document.name,
        area=Area(_patterns(members["databases"]), _patterns(members["tables"]), columns),
        tagged=tuple(tagged),
        exempt=_exempt(members["except"]),
        demands=_demands(members),
        has_columns=columns is not None or bool(tagged),
    )


def _exempt(field: Field) -> tuple[Exempt, ...]:
    return tuple(map(_exemption, _filled(field))) if field.given else ()


def _exemption(field: Field) -> Exempt:
    members = field.members(_ABOUT)
    if not any(members[name].given for name in _ABOUT):
        raise field.invalid(
            "the exception names no databases, tables or columns.", "Name some, or remove the exception."
        )
    levels = (
        _patterns(members[name]) if members[name].given else None
        for name in ("databases", "tables", "columns")
    )
    return Exempt(*levels)


def _demands(members: Field) -> Demands:
    if not members["mustEncrypt"].given:
        raise members.invalid(
            "mustEncrypt is missing.",
            "Set it to true, or to false if the rule applies only where data is encrypted.",
        )
    demands = Demands(
        must_encrypt=members["mustEncrypt"].boolean(False),
        column_key=_insisted(members["columnKey"], insisting=True),
        algorithms=_algorithms(members["algorithms"]),
        master_keys=_master_keys(members["masterKeys"]),
        min_data_key_length=_length(members["minDataKeyLength"]),
        encrypted_footer=_insisted(members["plaintextFooter"], insisting=False),
        no_stock_readers=_insisted(members["stockReaders"], insisting=False),
        no_partition_values=_insisted(members["partitionValues"], insisting=False),
    )
    if demands == Demands():
        raise members.invalid("the rule has no requirement.", "Add a requirement, or remove the rule.")
    problem = self_conflict(demands)
    if problem is not None:
        raise members.invalid(problem)
    return demands


def _insisted(field: Field, *, insisting: bool) -> bool:
    """Whether a rule insists; the other value would be without effect, since rules add up."""
    if not field.given:
        return False
    if field.boolean(insisting) != insisting:
        raise field.invalid(
            "the value has no effect, because a rule cannot allow what another rule forbids.",
            f"Write {'true' if insisting else 'false'}, or omit the field.",
        )
    return True


def _algorithms(field: Field) -> frozenset[Algorithm]:
    if not field.given:
        return frozenset(Algorithm)
    found = set()
    for element in _filled(field):
        if element.string() not in tuple(Algorithm):
            raise element.invalid(
                f"{element.string()[:80]!r} is not an algorithm.",
                f"Use one of: {', '.join(Algorithm)}.",
            )
        found.add(Algorithm(element.string()))
    if len(found) == len(Algorithm):
        raise field.invalid("the list names every algorithm, so it has no effect.")
    return frozenset(found)


def _master_keys(field: Field) -> frozenset[KeyPatterns]:
    if not field.given:
        return frozenset()
    elements = _filled(field)
    for element in elements:
        with element.located():
            KeyPatterns.of([element.string()])
    return frozenset({KeyPatterns.of(element.string() for element in elements)})


def _length(field: Field) -> int:
    length = field.integer()
    if length is None:
        return 0
    if length not in _LENGTHS:
        raise field.invalid(f"{length} is not a valid data key length in bytes.", "Use 16, 24 or 32.")
    return length


def _patterns(field: Field, *, nested: bool = False) -> NamePatterns:
    elements = _filled(field)
    for element in elements:
        with element.located():
            NamePatterns.of([element.string()], nested=nested)
    return NamePatterns.of((element.string() for element in elements), nested=nested)


def _filled(field: Field) -> tuple[Field, ...]:
    """The elements of a list that has some."""
    elements = tuple(field.elements())
    if not elements:
        raise field.invalid("the list is empty.", 'Use ["*"] to match all.')
    return elements


def _check_names(placed: list[_Placed]) -> None:
    seen: set[str] = set()
    for each in placed:
        if each.rule.name in seen:
            raise each.field["name"].invalid(f"another rule has the name {each.rule.name!r}.")
        seen.add(each.rule.name)


def _check_tags_used(tags: Mapping[str, list[tuple[Area, Field]]], rules: list[Field]) -> None:
    named = {tag for field in rules for tag in field["tags"].strings()}
    for tag, places in tags.items():
        if tag not in named:
            raise places[0][1]["tag"].invalid(
                f"no rule uses the tag {tag!r}, so it has no effect.",
                "Correct the name, or use the tag in a rule.",
            )


def _check_contradictions(placed: list[_Placed]) -> None:
    for number, later in enumerate(placed):
        for earlier in placed[: number + 1]:
            problem = conflict(earlier.rule, later.rule)
            if problem is not None:
                names = " and ".join(dict.fromkeys(repr(rule.name) for rule in (earlier.rule, later.rule)))
                raise later.field.invalid(
                    f"no table can satisfy {names}: {problem}.",
                    "Change a requirement, or add an exception so that the rules do not overlap.",
                )
