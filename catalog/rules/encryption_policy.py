"""Checks tables and their changes by the encryption rules in force.

`policy.encryption_rules` decides. This module collects the facts of a table for the decision.

- A table's columns are those of its current schema and of its snapshots' schemas, because each snapshot is
  read with its own schema, on any branch. For a change, only the new snapshots count: earlier ones are not
  checked by rules that were added later.
- A column is identified by its field id. Every name counts that a schema of the table has for the column or
  for a struct around it, so that a rename does not take the column out of a rule.
- The refusal names columns, so it comes after authorization.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from catalog.base.identifiers import TableName
from catalog.reading.loading import LoadedTable
from policy.decision import Decision, Reason
from policy.encryption.specification import EncryptionSpec
from policy.encryption_rules import Column, ColumnName, EncryptionRules, TableFacts, column_key, enforce


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of checking a change by the rules.

    Attributes:
        decision: whether the change fits the rules.
        downgrades: whether it takes the table or a column out of the scope of a rule.
    """

    decision: Decision
    downgrades: bool

    def enforce(self, table: str) -> None:
        """Raise if the rules are violated.

        Raises:
            EncryptionPolicyViolation: the message names the rules, and what to do.
        """
        enforce(self.decision, table)


_UNTOUCHED: Final = Verdict(
    Decision.allow(Reason("encryption-rules", "Neither columns nor encryption change.")), downgrades=False
)


class EncryptionPolicy:
    """Checks tables by the encryption rules in force.

    Args:
        rules: returns the rules in force.
    """

    def __init__(self, rules: Callable[[], EncryptionRules]) -> None:
        self._rules = rules

    def of_new(self, name: TableName, metadata: TableMetadata, spec: EncryptionSpec) -> Verdict:
        """Check a table that is created or registered."""
        facts = facts_of(name, metadata, spec, _in_use(metadata))
        return Verdict(self._rules().decide(facts), downgrades=False)

    def of_change(self, table: LoadedTable, metadata: TableMetadata, spec: EncryptionSpec) -> Verdict:
        """Check a change of a table's metadata or encryption."""
        name, base, rules = table.record.name, table.metadata, self._rules()
        if not rules.rules or _same_columns(table, metadata, spec):
            return _UNTOUCHED
        known = _snapshot_ids(base)
        before = facts_of(name, base, table.governed.spec, _in_use(base, known))
        after = facts_of(name, metadata, spec, _in_use(metadata, known))
        return Verdict(rules.decide_change(before, after), rules.downgraded(before, after))

    def of_name(self, table: LoadedTable, target: TableName) -> Verdict:
        """Check a change of a table's name."""
        metadata, spec = table.metadata, table.governed.spec
        schemas = _in_use(metadata)
        before, after = (facts_of(name, metadata, spec, schemas) for name in (table.record.name, target))
        rules = self._rules()
        return Verdict(rules.decide_name(before, after), rules.downgraded(before, after))


def facts_of_table(table: LoadedTable) -> TableFacts:
    """Return the facts of a table, from all schemas that it can be read with."""
    return facts_of(table.record.name, table.metadata, table.governed.spec, _in_use(table.metadata))


def facts_of(
    name: TableName, metadata: TableMetadata, spec: EncryptionSpec, schemas: Iterable[Schema]
) -> TableFacts:
    """Return the facts that the rules are checked against.

    Args:
        name: the table's name.
        metadata: its metadata; every schema in it counts for the names of columns.
        spec: its encryption, which names columns of the current schema.
        schemas: the schemas whose columns are checked, the current one first.
    """
    history = _history(metadata)
    names: dict[int, dict[ColumnName, None]] = {}
    for schema in schemas:
        for node in _nodes(schema):
            if node.is_leaf:
                known = names.setdefault(node.field_id, {})
                known.update(dict.fromkeys((node.name, *history[node.field_id], *node.once_named(history))))
    current = {node.field_id: node.name.full for node in _nodes(metadata.schema())}
    columns = (
        Column(
            field_id,
            _today_first(known),
            column_key(spec, current.get(field_id)),
            field_id in current,
        )
        for field_id, known in sorted(names.items())
    )
    return TableFacts(name.database, name.name, tuple(columns), spec)


def _history(metadata: TableMetadata) -> dict[int, dict[ColumnName, None]]:
    """Return every name of a field of any kind in the table's schemas."""
    history: dict[int, dict[ColumnName, None]] = {}
    for schema in metadata.schemas:
        for node in _nodes(schema):
            history.setdefault(node.field_id, {})[node.name] = None
    return history


def _today_first(names: Iterable[ColumnName]) -> tuple[ColumnName, ...]:
    """Return the current name, then the others in an order that does not depend on the schemas' order."""
    today, *others = names
    return today, *sorted(others, key=lambda name: (name.full, name.short))


def _same_columns(table: LoadedTable, metadata: TableMetadata, spec: EncryptionSpec) -> bool:
    """Return whether a commit leaves columns and encryption unchanged, as most do."""
    base = table.metadata
    if spec != table.governed.spec or len(metadata.schemas) != len(base.schemas):
        return False
    # Most schemas are identical objects, and wide ones take long to compare.
    pairs = zip(metadata.schemas, base.schemas, strict=True)
    return all(after is before or after == before for after, before in pairs) and _named_schemas(
        metadata, _snapshot_ids(base)
    ) == {base.current_schema_id}


def _in_use(metadata: TableMetadata, passed_over: frozenset[int] = frozenset()) -> list[Schema]:
    """Return the current schema, and those of snapshots except the excluded ones."""
    named = _named_schemas(metadata, passed_over)
    return [metadata.schema(), *(each for each in metadata.schemas if each.schema_id in named)]


def _named_schemas(metadata: TableMetadata, passed_over: frozenset[int]) -> set[int]:
    named = {each.schema_id for each in metadata.snapshots if each.snapshot_id not in passed_over}
    return {metadata.current_schema_id, *(each for each in named if each is not None)}


def _snapshot_ids(metadata: TableMetadata) -> frozenset[int]:
    return frozenset(each.snapshot_id for each in metadata.snapshots)


@dataclass(frozen=True, slots=True)
class _Node:
    """A field of a schema, at any depth.

    Attributes:
        field_id: its id.
        name: its name in that schema.
        is_leaf: whether it holds values.
        above: the fields that contain it.
    """

    field_id: int
    name: ColumnName
    is_leaf: bool
    above: tuple[_Node, ...]

    def once_named(self, history: Mapping[int, Iterable[ColumnName]]) -> Iterator[ColumnName]:
        """Yield its names with an earlier name of a parent."""
        for outer in self.above:
            full, short = (
                self.name.full[len(outer.name.full) :],
                self.name.short[len(outer.name.short) :],
            )
            for before in history[outer.field_id]:
                yield ColumnName(before.full + full, before.short + short)


def _nodes(schema: Schema) -> Iterator[_Node]:
    """Yield every field, including those of structs, lists and maps."""
    for field in schema.fields:
        yield from _inside(field.field_type, field.field_id, ColumnName(field.name, field.name), ())


def _inside(type_: IcebergType, field_id: int, name: ColumnName, above: tuple[_Node, ...]) -> Iterator[_Node]:
    node = _Node(field_id, name, not isinstance(type_, StructType | ListType | MapType), above)
    yield node
    around = (*above, node)
    match type_:
        case StructType(fields=fields):
            for field in fields:
                inner = ColumnName(f"{name.full}.{field.name}", f"{name.short}.{field.name}")
                yield from _inside(field.field_type, field.field_id, inner, around)
        case ListType():
            inner = ColumnName(f"{name.full}.element", name.short)
            yield from _inside(type_.element_type, type_.element_id, inner, around)
        case MapType():
            key, value = (ColumnName(f"{name.full}.{part}", name.short) for part in ("key", "value"))
            yield from _inside(type_.key_type, type_.key_id, key, around)
            yield from _inside(type_.value_type, type_.value_id, value, around)
