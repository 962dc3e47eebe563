"""Required privileges of each statement, as the catalog requires them.

Each function here follows an operation of the catalog, and requires what it requires: creation and drafts for
CREATE TABLE, commits for ALTER, lifecycle for RENAME and DROP, namespaces, the planner for what is read.
Where the catalog would look at a table's present state and that is not known, it requires every privilege
that the catalog might require.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from policy.encryption import governed as governed_names
from policy.encryption.encrypted_columns import require_column_left
from policy.identifiers import TableName, table_name
from policy.location.location import Location
from policy.privileges import tables
from policy.privileges.namespaces import check_namespace_properties, namespace_requests
from policy.privileges.operations import On, loading, renaming, required
from policy.sql_lint import changes, protection
from policy.sql_lint.context import TableFacts
from policy.sql_lint.cursor import Name
from policy.sql_lint.definitions import Definitions
from policy.sql_lint.denials import Refusal
from policy.sql_lint.needs import EveryRow
from policy.sql_lint.statements import (
    AlterColumns,
    AlterLayout,
    AlterProperties,
    AlterReference,
    CallAnalyze,
    CallChangelog,
    CallCopy,
    CallMaintenance,
    CallOnKeys,
    CallRewrite,
    ChangeRows,
    ChangeView,
    DropTable,
    DropView,
    Insert,
    Namespace,
    Query,
    RenameTable,
)
from policy.view import ColumnNames

_SYSTEM: Final = "system"
#: Procedures whose answers count or list files, so that they are refused under a row filter.
_COUNTING: Final = frozenset({"table.rewrite", "table.expire", "table.clean-up"})


@dataclass
class RequiredPrivileges(Definitions):
    """Collects what any statement needs, statement by statement."""

    def alter_properties(self, statement: AlterProperties) -> tuple[TableName, TableFacts]:
        """SET and UNSET of properties; what is known of the table afterwards."""
        name = self.names.table(statement.name)
        facts = self.known(name)
        governed, ordinary = governed_names.split(statement.updates)
        governed_names.check_count(len(statement.removals))
        tables.check_properties(ordinary, str(name))
        unset = {each for each in statement.removals if governed_names.is_governed(each)}
        removed = frozenset(governed_names.canonical_name(each) for each in unset)
        moved = tables.write_paths(ordinary)
        if statement.location is not None:
            moved.append(Location.parse(statement.location))
        self._claim(name, moved)
        on = self._on(name, facts)
        self._all(required("table.alter", on))
        said = changes.format_said(ordinary, statement.removals)
        change = changes.requested(facts, governed, removed, self.context.master_key_id, str(name), said)
        own = facts.location if facts.default_location else None
        self._change(on, change, moved, own)
        if governed or removed:
            self.assumed.append(
                "no live snapshot needs a location that the change removes from the allow-list"
            )
            self._check_keyed(change.spec, facts)
        after = changes.changed(facts, change, said) if governed or removed or said else facts
        if governed or removed:
            self._note_splits(name, after)
        if after.spec is None or after.spec != facts.spec:
            self._keep_rules(name, facts, after)
        return name, after

    def alter_columns(self, statement: AlterColumns) -> tuple[TableName, TableFacts]:
        """A change of columns; what is known of the table afterwards."""
        name = self.names.table(statement.name)
        facts = self.known(name)
        after = protection.with_columns(facts, statement)
        if facts.spec is not None and after.spec is not None:
            require_column_left(facts.spec, after.spec, str(name))
        on = self._on(name, facts)
        self._all(required("table.alter", on))
        if statement.renamed is not None and statement.renamed[0] != statement.renamed[1]:
            # A right on the new name must not be a way around a denial of the old one.
            self._selected(name, replace(facts, spec=None), {statement.renamed[0]})
            self.assumed.append("no policy denies the column under an earlier name")
        self._keep_rules(name, facts, after)
        self.assumed.append("the columns and their types allow the change")
        if statement.replaced and facts.spec is not None and facts.spec.by_column:
            self.assumed.append("at least one encrypted column remains")
        return name, after

    def alter_layout(self, statement: AlterLayout) -> tuple[TableName, TableFacts]:
        """A change of the partition fields, or of the order of writes; what is known of the table then."""
        name = self.names.table(statement.name)
        facts = self.known(name)
        on, spec = self._on(name, facts), facts.spec
        self._all(required("table.alter", on))
        self._partitioned(on, name, facts, statement.sources)
        if statement.sorted_by and (spec is None or changes.encrypted_sources(statement.sorted_by, spec)):
            self.assumed.append("no plaintext column can show the order of an encrypted one")
        self.assumed.append("the columns and their types allow the change")
        return name, changes.partitioned_by(facts, statement.sources)

    def alter_reference(self, statement: AlterReference) -> None:
        """A change of a branch or tag."""
        name = self.names.table(statement.name)
        on = self._on(name, self.known(name))
        self._all(required("table.write", on))
        if statement.takes_back:
            self._all(required("table.alter", on))
            self.assumed.append("the branch does not go back across a change of the table's encryption")

    def rename(self, statement: RenameTable) -> tuple[TableName, TableName]:
        """RENAME TO: the table, and what it is called then."""
        source = self.names.table(statement.name)
        target = self.names.beside(source, statement.target)
        facts = self.known(source)
        on = self._on(source, facts)
        self._all(renaming(on, target))
        # A right on the new name must not be a way around a denial of the old one.
        if facts.columns is not None:
            self._selected(source, replace(facts, spec=None), {(each,) for each in facts.columns})
        self.assumed.append(f"no policy denies a column of {source} under a current or earlier name")
        if protection.require_name(self.context.encryption, source, target, facts):
            self._all(required("table.unprotect", on))
        elif source.namespace != target.namespace:
            self.assumed.append(
                f"the namespace {target.database} protects its tables as the current one does"
            )
        return source, target

    def drop_table(self, statement: DropTable) -> TableName:
        """DROP TABLE; of a temporary view Spark drops the view instead."""
        if len(statement.name) == 1 and statement.name[0].lower() in self.views:
            raise Refusal(
                "view", f"{statement.name[0][:80]!a} is a temporary view.", "Drop it with DROP VIEW."
            )
        name = self.names.table(statement.name)
        self._all(required("table.drop", self._on(name, self.known(name))))
        return name

    def change_view(self, statement: ChangeView) -> tuple[TableName, TableName]:
        """CREATE VIEW, ALTER VIEW: the view, and what it is called then."""
        name = self._permanent(statement.name)
        tables.check_view_properties(statement.properties, str(name))
        facts, principal = self.known(name), self.context.principal
        target = name if statement.target is None else self.names.beside(name, statement.target)
        for operation in statement.operations:
            new = operation == "view.create"
            self._all(required(operation, On.table(principal, name) if new else self._on(name, facts)))
        if target != name:
            self._any(required("view.load", self._on(name, facts))[:1])
            self._all(required("view.create", On.table(principal, target)))
            self.assumed.append(f"no policy denies or masks a column of {name}")
        if "view.create" in statement.operations and not statement.may_exist:
            self.assumed.append(f"view {name} does not exist")
        if statement.query is not None:
            self.read(statement.query)
        return name, target

    def drop_view(self, statement: DropView) -> TableName:
        """DROP VIEW of a permanent view."""
        name = self._permanent(statement.name)
        self._all(required("view.drop", self._on(name, self.known(name))))
        return name

    def _permanent(self, name: Name) -> TableName:
        """The name of a permanent view; what has one part can be temporary."""
        if self.names.hive:
            raise Refusal("not-supported-yet", "Views of Hive are not supported.", "Use Spark for it.")
        if len(name) == 1 and name[0].lower() in self.views:
            raise Refusal("view", f"{name[0][:80]!a} is a temporary view.", "Write NAMESPACE.VIEW.")
        return self.names.table(name)

    def insert(self, statement: Insert) -> tuple[TableName, TableFacts]:
        """INSERT INTO, INSERT OVERWRITE; what is known of the table afterwards."""
        name = self.of_rows(statement.name)
        facts = self.known(name)
        self._all(required("table.write", self._on(name, facts)))
        self.read(statement.query)
        if statement.filtered is not None:
            self._filtered(statement.name, statement.filtered)
        if statement.compares:
            self._compared(name, facts)
        if statement.overwrites:
            self.needed.append(EveryRow(name, facts.owner, facts.known.everything()))
            if facts.columns is None:
                self.assumed.append(f"no policy masks a column of {name}")
        return name, self._evolved(name, facts) if statement.evolves else facts

    def change_rows(self, statement: ChangeRows) -> tuple[TableName, TableFacts]:
        """DELETE, UPDATE, MERGE, TRUNCATE; what is known of the table afterwards."""
        name = self.of_rows(statement.name)
        facts = self.known(name)
        self._all(required("table.write", self._on(name, facts)))
        self.needed.append(EveryRow(name, facts.owner, ColumnNames()))
        if statement.query is not None and statement.inserts:
            self._unmasked(name, facts, _paths_of(statement.query, statement.name))
            self.read(statement.query)
        elif statement.query is not None:
            self._unmasked(name, facts)
            self._compared(name, facts)
            self.read(statement.query)
        return name, self._evolved(name, facts) if statement.evolves else facts

    def _evolved(self, name: TableName, facts: TableFacts) -> TableFacts:
        """Columns that rows bring are added, and types widened, as by ALTER TABLE."""
        on, after = self._on(name, facts), replace(facts, columns=None, nested=None, leaves=None)
        self._all(required("table.alter", on))
        self._keep_rules(name, facts, after)
        self.assumed.append("the columns and their types allow the change")
        return after

    def _compared(self, name: TableName, facts: TableFacts) -> None:
        """The partitions of live files are compared: by delete files, and by overwrites of partitions."""
        if facts.partitions:
            spec = None if facts.spec is None else replace(facts.spec, masks=())
            self._selected(
                name, replace(facts, spec=spec), {tuple(each.split(".")) for each in facts.partitions}
            )

    def call_on_keys(self, statement: CallOnKeys) -> None:
        """CALL of rotate_key or rewrap_keys."""
        name = self._called(statement)
        facts = self.known(name)
        if facts.spec is None:
            raise Refusal(
                "state-unknown",
                "The master keys of the table are unknown.",
                "Pass --live to look it up.",
            )
        if not statement.rewraps and not facts.spec.encrypts:
            raise Refusal(
                "plaintext",
                "The table is not encrypted, so it has no key to rotate.",
                "Remove the statement.",
            )
        operation = "key.rewrap" if statement.rewraps else "key.rotate"
        self._all(required(operation, self._on(name, facts), facts.spec.key_ids()))
        if statement.rewraps:
            self.assumed.append("the table has no key under an earlier master key")

    def call_rewrite(self, statement: CallRewrite) -> None:
        """CALL of a rewrite of data files or delete files: it takes every column, and writes."""
        name = self._called(statement)
        facts = self.known(name)
        on = self._on(name, facts)
        self._all(required("table.rewrite", on))
        self._unmasked(name, facts)
        if statement.forbids:
            self._all(required("table.forbid-old-epochs", on))
            self.assumed.append("no retained snapshot keeps files of an earlier encryption epoch")

    def call_analyze(self, statement: CallAnalyze) -> None:
        """CALL of compute_table_stats: it reads columns, and changes how queries of others run."""
        name = self._called(statement)
        facts = self.known(name)
        self._all(required("table.analyze", self._on(name, facts)))
        columns = statement.columns
        self._unmasked(name, facts, None if columns is None else {(each,) for each in columns})

    def call_maintenance(self, statement: CallMaintenance) -> None:
        """CALL of a procedure that reads no rows."""
        name = self._called(statement)
        facts = self.known(name)
        on = self._on(name, facts)
        if statement.operation == "table.load":
            self._any(loading(on, facts.columns or ()))
            return
        self._all(required(statement.operation, on))
        if statement.operation in _COUNTING:
            self.needed.append(EveryRow(name, facts.owner, ColumnNames()))
        if statement.operation == "table.clean-up":
            # The answer has paths of files, which standard clients make of partition values.
            self._compared(name, facts)
        if statement.operation == "table.roll-back":
            self.assumed.append("the branch does not go back across a change of the table's encryption")
        elif statement.operation == "table.write":
            self.assumed.append("no snapshot is picked that replaces partitions")

    def call_copy(self, statement: CallCopy) -> tuple[TableName, TableFacts]:
        """CALL of add_files, snapshot or migrate; what is known of the table afterwards."""
        name = self._called(statement)
        self.code(f"Reading files by path ({statement.procedure[-1].lower()})")
        if statement.made is not None:
            full = (self.context.catalog, *name.namespace, name.name)
            return self.create_table(replace(statement.made, name=full))
        facts = self.known(name)
        self._all(required("table.write", self._on(name, facts)))
        return name, facts

    def _filtered(self, target: Name, query: Query) -> None:
        """What is compared to choose rows of a table that go: which ones did tells of the values."""
        self.read(query)
        name = self.of_rows(target)
        facts = self.known(name)
        spec = None if facts.spec is None else replace(facts.spec, masks=())
        paths = _paths_of(query, target)
        if paths:
            self._selected(name, replace(facts, spec=spec), paths)

    def _unmasked(self, name: TableName, facts: TableFacts, paths: set[Name] | None = None) -> None:
        """Columns of a table, every one by default, that are never masked: values are written or counted."""
        spec = None if facts.spec is None else replace(facts.spec, masks=())
        self._columns(name, replace(facts, spec=spec), paths)

    def call_changelog(self, statement: CallChangelog) -> Query:
        """CALL of create_changelog_view: the query of its view, which compares all columns as they are."""
        name = self._called(statement)
        table = (self.context.catalog, *name.namespace, name.name)
        return Query((table,), frozenset({0}), (), (), None, unaltered=True)

    def _called(
        self, statement: CallOnKeys | CallRewrite | CallAnalyze | CallMaintenance | CallCopy | CallChangelog
    ) -> TableName:
        """The table that a procedure is called on; the names of tables there are this catalog's."""
        catalog, given_table = self.context.catalog, statement.table
        if statement.procedure[:-1] != (catalog, _SYSTEM):
            raise Refusal(
                "procedure",
                f"{'.'.join(statement.procedure)[:80]!a} can belong to another catalog than {catalog}.",
                f"Write {catalog}.{_SYSTEM}.{statement.procedure[-1].lower()}.",
            )
        if len(given_table) > 2 and given_table[0] == catalog:
            given_table = given_table[1:]
        if len(given_table) < 2:
            raise Refusal("identifier", "The table name has no namespace.", "Write 'NAMESPACE.TABLE'.")
        return table_name(given_table[:-1], given_table[-1])

    def namespace(self, statement: Namespace) -> None:
        """An operation on a namespace; on the catalog itself nothing is required."""
        current = statement.name is None
        levels = self.names.current_namespace() if current else self.names.namespace(statement.name or ())
        if not levels:
            if statement.operation != "namespace.load":
                raise Refusal("namespace", "The catalog is not a namespace.", "Name a namespace.")
            return
        check_namespace_properties(statement.updates)
        on = On.namespace(self.context.principal, levels)
        self._all(namespace_requests(statement.operation, on, statement.updates, statement.removals))
        if statement.operation == "namespace.drop":
            self.assumed.append("no property of the namespace protects its tables")
        if statement.cascades:
            self.assumed.append("the namespace is empty, because CASCADE does not drop tables")


def _paths_of(query: Query, table: Name) -> set[Name]:
    """The columns of a table that a query names."""
    own = frozenset(number for number, each in enumerate(query.tables) if each == table)
    return {each.path for each in query.columns if each.tables & own}
