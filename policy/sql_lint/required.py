"""Required privileges of each statement, as the catalog requires them.

Each function here follows an operation of the catalog, and requires what it requires: creation and drafts for
CREATE TABLE, commits for ALTER, lifecycle for RENAME and DROP, namespaces, the planner for what is read.
Where the catalog would look at a table's present state and that is not known, it requires every privilege
that the catalog might require.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from policy.encryption import governed as governed_names
from policy.encryption import requested
from policy.encryption.downgrade import could_downgrade
from policy.encryption.encrypted_columns import check_sources, require_column_left, resolve_columns
from policy.encryption.file_formats import WRITE_FORMAT, FileFormat, written_format
from policy.encryption.specification import EncryptionSpec
from policy.errors import EncryptionPolicyViolation, UnsupportedFormatVersion
from policy.identifiers import TableName, slug, table_name
from policy.key_groups import splits
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.privileges import tables
from policy.privileges.namespaces import check_namespace_properties, namespace_requests
from policy.privileges.operations import On, changing, renaming, required
from policy.sql_lint import protection
from policy.sql_lint.context import TableFacts
from policy.sql_lint.denials import Refusal
from policy.sql_lint.reading_needs import ReadingNeeds
from policy.sql_lint.statements import (
    AlterColumns,
    AlterProperties,
    CallOnKeys,
    CallRewrite,
    Column,
    CreateTable,
    DescribeTable,
    DropTable,
    Insert,
    Namespace,
    RenameTable,
)

_FORMAT_VERSION: Final = "format-version"
_WRITTEN: Final = "2"
_SYSTEM: Final = "system"
#: By the access type that a statement about a namespace needs first.
_ON_NAMESPACES: Final = {
    "create": "namespace.create",
    "_any": "namespace.load",
    "alter": "namespace.update",
    "drop": "namespace.drop",
}


@dataclass
class RequiredPrivileges(ReadingNeeds):
    """Collects what any statement needs, statement by statement."""

    def create_table(self, statement: CreateTable) -> tuple[TableName, TableFacts]:
        """CREATE TABLE; what is known of the table afterwards."""
        name = self.names.table(statement.name)
        governed, ordinary = governed_names.split(statement.properties)
        _check_ordinary(ordinary, str(name))
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
        facts = self._made(statement, change, location)
        self._all(required("table.create", On.table(self.context.principal, name)))
        self._change(self._on(name, facts), change, claimed)
        protection.require_new(self.context.encryption, name, facts)
        _check_columns(statement, change.spec, facts, str(name))
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

    def alter_properties(self, statement: AlterProperties) -> tuple[TableName, TableFacts]:
        """SET and UNSET of properties; what is known of the table afterwards."""
        name = self.names.table(statement.name)
        facts = self.known(name)
        governed, ordinary = governed_names.split(statement.updates)
        governed_names.check_count(len(statement.removals))
        _check_ordinary(ordinary, str(name), new=False)
        unset = {each for each in statement.removals if governed_names.is_governed(each)}
        removed = frozenset(governed_names.canonical_name(each) for each in unset)
        moved = tables.write_paths(ordinary)
        if statement.location is not None:
            moved.append(Location.parse(statement.location))
        self._claim(name, moved)
        on = self._on(name, facts)
        self._all(required("table.alter", on))
        said = _format_said(ordinary, statement.removals)
        change = self._next(facts, governed, removed, str(name), said)
        own = facts.location if facts.default_location else None
        self._change(on, change, moved, own)
        if governed or removed:
            self.assumed.append(
                "no live snapshot needs a location that the change removes from the allow-list"
            )
            self._check_keyed(change.spec, facts)
        after = _with(facts, change, said) if governed or removed or said else facts
        if governed or removed:
            self._note_splits(name, after)
        if after.spec is None or after.spec != facts.spec:
            self._keep_rules(on, name, facts, after)
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
        self._keep_rules(on, name, facts, after)
        self.assumed.append("the columns and their types allow the change")
        if statement.replaced and facts.spec is not None and facts.spec.columns:
            self.assumed.append("at least one column of encryption.columns remains")
        return name, after

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

    def insert(self, statement: Insert) -> None:
        """INSERT INTO."""
        name = self.names.table(statement.name)
        self._all(required("table.write", self._on(name, self.known(name))))
        self.read(statement.query)

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
        """CALL of rewrite_data_files: it reads every column, and writes."""
        name = self._called(statement)
        facts = self.known(name)
        on = self._on(name, facts)
        self._all(required("table.rewrite", on))
        # Rows that are rewritten are never masked.
        unmasked = None if facts.spec is None else replace(facts.spec, masks=())
        self._columns(name, replace(facts, spec=unmasked), None)
        if statement.forbids:
            self._all(required("table.forbid-old-epochs", on))
            self.assumed.append("no retained snapshot keeps files of an earlier encryption epoch")

    def _called(self, statement: CallOnKeys | CallRewrite) -> TableName:
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
            if statement.access != "_any":
                raise Refusal("namespace", "The catalog is not a namespace.", "Name a namespace.")
            return
        check_namespace_properties(statement.updates)
        on = On.namespace(self.context.principal, levels)
        operation = _ON_NAMESPACES[statement.access]
        self._all(namespace_requests(operation, on, statement.updates, statement.removals))
        if statement.access == "drop":
            self.assumed.append("no property of the namespace protects its tables")
        if statement.cascades:
            self.assumed.append("the namespace is empty, because CASCADE does not drop tables")

    def _claim(self, name: TableName, locations: Iterable[Location]) -> None:
        """Where a statement puts a table or its writers, no other table lies."""
        for each in locations:
            tables.check_table_location(each, str(name))
            self.assumed.append(f"no other table's location overlaps {each}")

    def _keep_rules(self, on: On, name: TableName, before: TableFacts, after: TableFacts) -> None:
        """A change keeps the encryption rules; what takes a column out of their reach needs `unprotect`."""
        if protection.require_change(self.context.encryption, name, before, after):
            self._all(required("table.unprotect", on))

    def _change(
        self, on: On, change: requested.Requested, moved: Iterable[Location], own: Location | None = None
    ) -> None:
        """What a creation or change brings."""
        self._all(changing(on, change, moved, own))
        self.assumed += [f"the KMS has the master key {key_id}" for key_id in change.new_keys]

    def _next(
        self,
        facts: TableFacts,
        governed: Mapping[str, str],
        removed: frozenset[str],
        table: str,
        said: FileFormat | None,
    ) -> requested.Requested:
        """What governs an existing table next; where its present state is not known, at its widest."""
        key = self.context.master_key_id
        place_counts = governed_names.ALLOWED_PATHS in removed
        place = facts.location or (None if place_counts else _ANYWHERE)
        if facts.allowed is not None and facts.spec is not None and place is not None:
            written = said or facts.file_format
            return requested.for_change(
                facts.allowed, facts.spec, governed, removed, place, key, table, file_format=written
            )
        if place_counts:
            raise Refusal(
                "state-unknown",
                "The statement resets the allow-list to the table's location, which is unknown.",
                "Pass --live to look it up, or set read.allowed.data.paths.",
            )
        return _widest(governed, removed, key, table, said)

    def _check_keyed(self, spec: EncryptionSpec, facts: TableFacts) -> None:
        """Columns that get keys are there, as far as it is known which are."""
        if not spec.columns:
            return
        self.assumed.append("no column with a column key is a partition or sort source")
        if facts.columns is None or facts.nested is None:
            self.assumed.append("the table has every column in encryption.columns")
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
        place = location or _above_default(self.context.warehouse, name)
        if place is None:
            self.assumed.append("the allow-list covers the location that the catalog chooses")
        elif not allowed.covers(place):
            raise Refusal(
                "allowed-paths",
                "The allow-list does not cover the table's own location, so its data could not be read.",
                "Add the location to read.allowed.data.paths.",
            )

    def _made(
        self, statement: CreateTable, change: requested.Requested, location: Location | None
    ) -> TableFacts:
        columns = nested = leaves = None
        if statement.columns is not None:
            columns = tuple(each.name[-1] for each in statement.columns)
            nested = tuple(name for each in statement.columns for name in each.inside)
            leaves = protection.leaves_of(statement.columns)
        elif statement.query is not None and statement.query.outputs is not None:
            columns = self._made_of(statement.query.outputs)
            leaves = protection.leaves_of(Column((each,)) for each in columns)
        return TableFacts(
            owner=self.context.principal.name,
            columns=columns,
            nested=nested,
            leaves=leaves,
            allowed=change.allowed,
            spec=change.spec,
            file_format=written_format(statement.properties) or FileFormat.AVRO,
            location=location,
            default_location=location is None,
        )

    def _made_of(self, outputs: tuple[str, ...]) -> tuple[str, ...]:
        """The columns of a table that a query makes: Hive's are in small letters."""
        folded = tuple(each.lower() for each in outputs)
        if len(set(folded)) < len(folded):
            raise Refusal(
                "columns", "The query returns two columns with the same name.", "Rename one with AS."
            )
        return folded if self.names.hive else outputs


#: A list is never sent back to this: see `RequiredPrivileges._next`.
_ANYWHERE: Final = Location.parse("file:///lakewarden/unknown")


def _above_default(warehouse: Location | None, name: TableName) -> Location | None:
    """The directory below which the catalog chooses a new table's place."""
    return None if warehouse is None else warehouse.child(*(slug(level) for level in name.namespace))


def _widest(
    governed: Mapping[str, str],
    removed: frozenset[str],
    key: str | None,
    table: str,
    file_format: FileFormat | None,
) -> requested.Requested:
    """All that a change could bring or take away, whatever governs the table now."""
    nothing = EncryptionSpec.parse({}, catalog_master_key_id=key)
    given = requested.for_change(
        AllowList.of([]), nothing, governed, frozenset(), _ANYWHERE, key, table, file_format=file_format
    )
    keys = set(given.new_keys)
    if removed and key is not None:
        keys.add(key)
    touched = bool(removed or file_format) or given.unprotects or could_downgrade(governed)
    return requested.Requested(given.allowed, given.spec, given.added, tuple(sorted(keys)), touched)


def _format_said(ordinary: Mapping[str, str], removals: Collection[str]) -> FileFormat | None:
    """The format that new files get by a change of properties; None if it says nothing of it."""
    if WRITE_FORMAT not in ordinary and WRITE_FORMAT not in removals:
        return None
    return written_format(ordinary) or FileFormat.AVRO


def _with(facts: TableFacts, change: requested.Requested, said: FileFormat | None) -> TableFacts:
    certain = facts.allowed is not None and facts.spec is not None
    return replace(
        facts,
        allowed=change.allowed if certain else None,
        spec=change.spec if certain else None,
        file_format=said or facts.file_format,
    )


def _check_ordinary(ordinary: Mapping[str, str], table: str, *, new: bool = True) -> None:
    tables.check_properties(ordinary, table)
    version = ordinary.get(_FORMAT_VERSION, _WRITTEN)
    if new and version != _WRITTEN:
        raise UnsupportedFormatVersion(
            f"Table format version {version[:20]!r} is not supported.",
            table=table,
            rule="format-version",
            hint=f"Use format version {_WRITTEN}.",
        )


def _check_columns(statement: CreateTable, spec: EncryptionSpec, facts: TableFacts, table: str) -> None:
    """Encrypted columns exist, and are neither partition nor sort sources."""
    names = [*(facts.columns or ()), *(facts.nested or ())]
    ids = {name: number for number, name in enumerate(names, start=1)}
    sources = [".".join(each) for each in statement.sources]
    unknown = [each for each in sources if facts.columns is not None and not _has(each, names)]
    if unknown:
        raise Refusal(
            "partition-spec", f"The table has no column {unknown[0][:80]!a}.", "Correct the column name."
        )
    if not spec.encrypts:
        return
    keyed = resolve_columns(spec, ids)
    folded = {name.lower(): number for name, number in ids.items()}
    decision = check_sources(spec, keyed, [(each, folded.get(each.lower(), 0)) for each in sources])
    if not decision.allowed:
        raise EncryptionPolicyViolation(
            decision.explanation,
            table=table,
            rule=decision.reasons[0].rule,
            hint="Partition by columns that are not encrypted.",
        )


def _has(column: str, names: Iterable[str]) -> bool:
    return column.lower() in {each.lower() for each in names}
