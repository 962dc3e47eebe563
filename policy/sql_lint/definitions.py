"""Required privileges of CREATE TABLE and REPLACE TABLE, and what statements that change a table keep.

They follow the catalog: creation and drafts for CREATE TABLE, writes that replace their table for REPLACE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from policy.encryption import governed as governed_names
from policy.encryption import requested
from policy.encryption.encrypted_columns import resolve_columns
from policy.encryption.file_formats import WRITE_FORMAT, FileFormat, written_format
from policy.encryption.specification import EncryptionSpec
from policy.identifiers import TableName, slug
from policy.key_groups import splits
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.privileges import tables
from policy.privileges.operations import On, changing, required
from policy.sql_lint import changes, protection
from policy.sql_lint.context import TableFacts
from policy.sql_lint.cursor import Name
from policy.sql_lint.denials import Refusal
from policy.sql_lint.needs import Needs
from policy.sql_lint.statements import CreateTable, DescribeTable, ReplaceTable
from policy.write_properties import check_format_version

#: The sort order and the identifier fields of a new table, as Spark prints them in SHOW CREATE TABLE.
_LAYOUT: Final = frozenset({"identifier-fields", "sort-order"})


@dataclass
class Definitions(Needs):
    """Collects what statements need that define a table."""

    def create_table(self, statement: CreateTable) -> tuple[TableName, TableFacts]:
        """CREATE TABLE; what is known of the table afterwards."""
        source = self._source(statement.like)
        if source is not None:
            statement = self._like(statement, source)
        name, principal = self.names.table(statement.name), self.context.principal
        governed, ordinary = self._split(statement.properties)
        tables.check_properties(ordinary, str(name))
        check_format_version(ordinary, str(name), with_rows=statement.query is not None)
        location = None if statement.location is None else Location.parse(statement.location)
        claimed = [*tables.write_paths(ordinary), *([location] if location else [])]
        self._claim(name, claimed)
        change = requested.for_new_table(
            governed,
            location,
            self.context.master_key_id,
            str(name),
            file_format=written_format(ordinary),
        )
        facts = changes.made(statement, change, location, principal.name, hive=self.names.hive)
        if source is not None:
            facts = changes.like(facts, source)
        self._all(required("table.create", On.table(principal, name)))
        self._change(self._on(name, facts), change, claimed)
        protection.require_new(self.context.encryption, name, facts)
        changes.check_sources(statement, change.spec, facts, str(name))
        self._note_splits(name, facts)
        if statement.like is not None:
            self.describe_table(DescribeTable(statement.like))
        if statement.query is not None:
            self.read(statement.query)
            if governed_names.ALLOWED_PATHS in governed:
                self._require_own_place(name, change.allowed, location)
        if statement.may_exist:
            # An existing table stays as it is, and its owner's.
            return name, self.known(name)
        if self._exists(name):
            raise Refusal("table-exists", f"Table {name} already exists.", "Use another name.")
        self.assumed.append(f"table {name} does not exist")
        return name, facts

    def replace_table(self, statement: ReplaceTable) -> tuple[TableName, TableFacts]:
        """REPLACE TABLE, CREATE OR REPLACE TABLE; what is known of the table afterwards."""
        definition = statement.definition
        name = self.names.table(definition.name)
        if name in self.facts and self.facts[name] is None:
            if not statement.creates:
                raise Refusal("no-such-table", f"Table {name} does not exist.", "Write CREATE OR REPLACE.")
            return self.create_table(definition)
        before = self.known(name)
        governed, ordinary = self._split(definition.properties)
        tables.check_properties(ordinary, str(name))
        check_format_version(ordinary, str(name), with_rows=definition.query is not None)
        location = None if definition.location is None else Location.parse(definition.location)
        moved = [*tables.write_paths(ordinary), *([location] if location else [])]
        self._claim(name, moved)
        on = self._on(name, before)
        self._all(required("table.replace", on))
        if statement.creates and not self._exists(name):
            self._all(required("table.create", On.table(self.context.principal, name)))
        said = changes.format_said(ordinary, ())
        asked = changes.requested(before, governed, frozenset(), self.context.master_key_id, str(name), said)
        change, after = changes.replaced(before, asked, definition, governed, location, str(name))
        self._change(on, change, moved, before.location if before.default_location else None)
        self._keep_rules(name, before, after)
        self._partitioned(on, name, after, definition.sources)
        if definition.columns is not None and after.spec is not None:
            changes.check_sources(definition, after.spec, after, str(name))
        self._note_splits(name, after)
        if definition.query is not None:
            self.read(definition.query)
        if governed_names.ALLOWED_PATHS in governed:
            self._require_own_place(name, change.allowed, after.location)
        return name, after

    def _split(self, properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
        """Governed and ordinary properties, without those that say how Spark's new table is sorted."""
        governed, ordinary = governed_names.split(properties)
        if not self.names.hive and not _LAYOUT.isdisjoint(ordinary):
            self.assumed.append("no plaintext column can show the order of an encrypted one")
            ordinary = {name: value for name, value in ordinary.items() if name not in _LAYOUT}
        return governed, ordinary

    def _partitioned(self, on: On, name: TableName, facts: TableFacts, sources: Iterable[Name]) -> None:
        """A table that exists gets these columns as partition sources."""
        spec, sources = facts.spec, tuple(sources)
        unnamed = facts.columns is None or facts.nested is None
        if sources and (spec is None or (spec.by_column and unnamed)):
            self.assumed.append("no encrypted column is a partition source")
        elif sources and spec is not None:
            changes.check_encrypted_sources(sources, spec, facts, str(name))
            if changes.encrypted_sources(sources, spec):
                self._all(required("table.unprotect", on))

    def _source(self, like: Name | None) -> TableFacts | None:
        """What is known of the table that Spark makes another one like; Hive takes only its columns over."""
        if like is None:
            return None
        if len(like) == 1 and like[0].lower() in self.views:
            raise Refusal("view", f"{like[0][:80]!a} is a temporary view.", "Name a table.")
        return None if self.names.hive else self.known(self.names.table(like))

    def _like(self, statement: CreateTable, source: TableFacts) -> CreateTable:
        """The statement with what it takes over: the encryption and the file format of the source."""
        if source.spec is None:
            raise Refusal(
                "state-unknown",
                "The encryption of the table that the new one is like is unknown.",
                "Pass --live to look it up.",
            )
        governed, properties = governed_names.split(statement.properties)
        if source.spec.encrypts:
            kept = source.spec.to_properties()
            for name, value in governed.items():
                if name != governed_names.ALLOWED_PATHS and kept.get(name) != value:
                    raise Refusal(
                        "create-table-like",
                        f"{name} differs from that of the other table, which is encrypted.",
                        "Leave it out, and alter the new table.",
                    )
            governed = {**governed, **kept}
        elif source.partitions and governed:
            self.assumed.append("no encrypted column is a partition source")
        known = source.file_format
        own = {} if known is None or known is FileFormat.AVRO else {WRITE_FORMAT: known.value}
        return replace(statement, properties={**own, **properties, **governed})

    def _claim(self, name: TableName, locations: Iterable[Location]) -> None:
        """Where a statement puts a table or its writers, no other table lies."""
        for each in locations:
            tables.check_table_location(each, str(name))
            self.assumed.append(f"no other table's location overlaps {each}")

    def _keep_rules(self, name: TableName, before: TableFacts, after: TableFacts) -> None:
        """A change keeps the encryption rules; one that takes a table out of their reach drops encryption."""
        protection.require_change(self.context.encryption, name, before, after)

    def _change(
        self, on: On, change: requested.Requested, moved: Iterable[Location], own: Location | None = None
    ) -> None:
        """What a creation or change brings."""
        self._all(changing(on, change, moved, own))
        self.assumed += [f"the KMS has the master key {key_id}" for key_id in change.new_keys]

    def _check_keyed(self, spec: EncryptionSpec, facts: TableFacts) -> None:
        """Columns that get keys are there, as far as it is known which are."""
        if not spec.encrypts:
            return
        self.assumed.append(
            "no encrypted column is a partition source, and no plaintext column shows their order"
        )
        if not spec.by_column:
            return
        if facts.columns is None or facts.nested is None:
            self.assumed.append("the table has every column that its properties name")
        else:
            names = [*facts.columns, *facts.nested]
            resolve_columns(spec, {name: number for number, name in enumerate(names, start=1)})

    def _note_splits(self, name: TableName, facts: TableFacts) -> None:
        """Tell which key groups the policies split; of columns that are not known, by what is named alone."""
        spec = facts.spec
        if spec is None or not spec.columns:
            return
        known = {*(facts.columns or ()), *(facts.nested or ())}
        groups = {
            group.key_id: {
                *group.columns,
                *(each for each in known if any(each.startswith(f"{outer}.") for outer in group.columns)),
            }
            for group in spec.columns
        }
        where = (name.database, name.name)
        found = splits(self.context.policies, where, groups, self.context.now, owner=facts.owner)
        self.notes += found.notes

    def _require_own_place(self, name: TableName, allowed: AllowList, location: Location | None) -> None:
        """What is written with a table's creation has to be readable: its list covers its own place."""
        warehouse = self.context.warehouse
        place = location or (warehouse and warehouse.child(*map(slug, name.namespace)))
        if place is None:
            self.assumed.append("the allow-list covers the location that the catalog chooses")
        elif not allowed.covers(place):
            raise Refusal(
                "allowed-paths",
                "The allow-list does not cover the table's own location, so its data could not be read.",
                "Add the location to read.allowed.data.paths.",
            )
