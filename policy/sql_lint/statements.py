"""What a statement says, once its text was understood; nothing is decided here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.sql_lint.cursor import Name


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table that is made or altered.

    Attributes:
        name: its name, nested ones by their path.
        inside: dotted names of what is nested in it, below its own name.
    """

    name: Name
    inside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A column as a query names it.

    Attributes:
        tables: indexes into the query's tables, of those that the column may belong to.
        path: the column and the fields in it.
        optional: whether the name may mean something else than a column.
    """

    tables: frozenset[int]
    path: Name
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """What a query reads.

    Attributes:
        tables: the names of the tables that it reads.
        whole: those of them of which every column is read, or none is named; by index.
        columns: the columns that it names.
        functions: the functions and scripts that it calls, by name.
        outputs: names of the columns that it answers; None where they are not known.
        unaltered: whether rows must be read as they are, without row filters and masks of policies.
    """

    tables: tuple[Name, ...]
    whole: frozenset[int]
    columns: tuple[Reference, ...]
    functions: tuple[str, ...]
    outputs: tuple[str, ...] | None
    unaltered: bool = False


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE.

    Attributes:
        name: the table.
        properties: its properties, options among them.
        location: where it is to lie.
        columns: its columns, unless they come from elsewhere.
        sources: the columns that partition it.
        query: the query that it is made from.
        like: the table that it is made like.
        may_exist: whether it is no error if it exists.
    """

    name: Name
    properties: Mapping[str, str]
    location: str | None = None
    columns: tuple[Column, ...] | None = None
    sources: tuple[Name, ...] = ()
    query: Query | None = None
    like: Name | None = None
    may_exist: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceTable:
    """REPLACE TABLE, CREATE OR REPLACE TABLE.

    Attributes:
        definition: what the table becomes.
        creates: whether it is made if it does not exist.
    """

    definition: CreateTable
    creates: bool


@dataclass(frozen=True, slots=True)
class AlterProperties:
    """SET or UNSET TBLPROPERTIES, SET LOCATION, COMMENT ON TABLE, and what else changes no columns."""

    name: Name
    updates: Mapping[str, str] = field(default_factory=dict)
    removals: tuple[str, ...] = ()
    location: str | None = None


@dataclass(frozen=True, slots=True)
class AlterColumns:
    """ADD, DROP, RENAME, CHANGE, REPLACE COLUMNS.

    Attributes:
        name: the table.
        added: columns that are new.
        removed: columns that go.
        renamed: one that is called otherwise, and what it is called then.
        replaced: whether all columns are other ones.
    """

    name: Name
    added: tuple[Column, ...] = ()
    removed: tuple[Name, ...] = ()
    renamed: tuple[Name, Name] | None = None
    replaced: bool = False


@dataclass(frozen=True, slots=True)
class AlterLayout:
    """A change of the partition fields, or of the order of writes.

    Attributes:
        name: the table.
        sources: the columns that partition it from then on.
        sorted_by: the columns that sort it from then on.
    """

    name: Name
    sources: tuple[Name, ...] = ()
    sorted_by: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True)
class AlterReference:
    """CREATE, REPLACE or DROP of a branch or tag.

    Attributes:
        name: the table.
        takes_back: whether it can take a branch back, or remove one.
    """

    name: Name
    takes_back: bool


@dataclass(frozen=True, slots=True)
class RenameTable:
    """RENAME TO."""

    name: Name
    target: Name


@dataclass(frozen=True, slots=True)
class DropTable:
    """DROP TABLE."""

    name: Name


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT INTO, INSERT OVERWRITE.

    Attributes:
        name: the table.
        query: the new rows.
        filtered: what is compared to find the rows that go.
        evolves: whether columns are added or widened as the rows have them.
        compares: whether files can go by their partitions.
        overwrites: whether rows go.
    """

    name: Name
    query: Query
    filtered: Query | None = None
    evolves: bool = False
    compares: bool = False
    overwrites: bool = False


@dataclass(frozen=True, slots=True)
class ChangeRows:
    """DELETE, UPDATE, MERGE, TRUNCATE.

    Attributes:
        name: the table.
        query: what is read to change it; None if whole files go.
        evolves: whether columns are added or widened as the rows have them.
        inserts: whether rows are only added: those for which the query finds no match.
    """

    name: Name
    query: Query | None = None
    evolves: bool = False
    inserts: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    """A query by itself."""

    query: Query


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE TEMPORARY VIEW."""

    name: str
    query: Query


@dataclass(frozen=True, slots=True)
class ChangeView:
    """CREATE VIEW, ALTER VIEW of a permanent view.

    Attributes:
        name: the view.
        operations: what is required on it (`policy.privileges`).
        query: its text; None if that stays.
        target: its next name, of RENAME TO.
        properties: names of properties that are set.
        may_exist: whether CREATE is no error if it exists.
    """

    name: Name
    operations: tuple[str, ...]
    query: Query | None = None
    target: Name | None = None
    properties: tuple[str, ...] = ()
    may_exist: bool = False


@dataclass(frozen=True, slots=True)
class DropView:
    """DROP VIEW."""

    name: Name


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """SHOW and DESCRIBE of a table."""

    name: Name


@dataclass(frozen=True, slots=True)
class Namespace:
    """An operation on a namespace.

    Attributes:
        name: the namespace; None is the current one, and empty names the catalog.
        operation: what it is (`policy.privileges`), such as ``namespace.update``.
        updates: properties that are set.
        removals: properties that are removed.
        uses: whether it becomes the current one.
        cascades: whether what is in it is to go too.
    """

    name: Name | None
    operation: str
    updates: Mapping[str, str] = field(default_factory=dict)
    removals: tuple[str, ...] = ()
    uses: bool = False
    cascades: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """What brings code into the engine."""

    what: str


@dataclass(frozen=True, slots=True)
class Explain:
    """EXPLAIN of another statement, which has no effect then."""

    statement: Statement


@dataclass(frozen=True, slots=True)
class CallOnKeys:
    """CALL of a procedure on a table's keys.

    Attributes:
        procedure: its name as it is written.
        table: the table's name, which the procedure is given.
        rewraps: whether data keys are moved to later versions of keys, and not keys rotated.
    """

    procedure: Name
    table: Name
    rewraps: bool


@dataclass(frozen=True, slots=True)
class CallRewrite:
    """CALL of the procedure that rewrites data files.

    Attributes:
        procedure: its name as it is written.
        table: the table's name, which the procedure is given.
        forbids: whether files of earlier encryption are to be refused from then on.
    """

    procedure: Name
    table: Name
    forbids: bool


@dataclass(frozen=True, slots=True)
class CallChangelog:
    """CALL of the procedure that makes a temporary view of a table's changes.

    Attributes:
        procedure: its name as it is written.
        table: the table's name, which the procedure is given.
        view: the view's name.
    """

    procedure: Name
    table: Name
    view: str


@dataclass(frozen=True, slots=True)
class CallAnalyze:
    """CALL of the procedure that counts distinct values.

    Attributes:
        procedure: its name as it is written.
        table: the table's name, which the procedure is given.
        columns: the columns; None for all.
    """

    procedure: Name
    table: Name
    columns: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class CallMaintenance:
    """CALL of another procedure that maintains a table.

    Attributes:
        procedure: its name as it is written.
        table: the table's name, which the procedure is given.
        operation: what it does, by its name in `policy.privileges.operations`.
    """

    procedure: Name
    table: Name
    operation: str


@dataclass(frozen=True, slots=True)
class CallCopy:
    """CALL of a procedure that copies the rows of files outside of the catalog.

    Attributes:
        procedure: its name as it is written.
        table: the table's name, which the procedure is given.
        made: the table that it makes; None if it adds the rows to one.
    """

    procedure: Name
    table: Name
    made: CreateTable | None = None


@dataclass(frozen=True, slots=True)
class NoPrivileges:
    """What asks for nothing, such as a harmless setting."""


Statement = (
    CreateTable
    | ReplaceTable
    | AlterProperties
    | AlterColumns
    | AlterLayout
    | AlterReference
    | RenameTable
    | DropTable
    | Insert
    | ChangeRows
    | Select
    | CreateView
    | ChangeView
    | DropView
    | DescribeTable
    | Namespace
    | Code
    | Explain
    | CallAnalyze
    | CallChangelog
    | CallCopy
    | CallMaintenance
    | CallOnKeys
    | CallRewrite
    | NoPrivileges
)
