"""CREATE and ALTER of tables: Spark's and Hive's grammar, as far as the catalog carries it out.

A clause that is not read here is refused, and none may stand twice: what one reader takes from the first and
another from the last would be decided for the wrong one.

Source: Spark's SqlBaseParser.g4 (createTable, alterTable…) and AstBuilder (cleanTableOptions, the reserved
properties), Hive's HiveParser.g, and its HiveIcebergStorageHandler for what WITH SERDEPROPERTIES becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from policy.sql_lint.columns import column, column_name, column_type, columns_of, partitioned_by
from policy.sql_lint.cursor import Cursor, Name, T
from policy.sql_lint.iceberg import ALTERATIONS as ICEBERG_ALTERATIONS
from policy.sql_lint.problems import Problem
from policy.sql_lint.queries import read_query
from policy.sql_lint.statements import (
    AlterColumns,
    AlterProperties,
    Column,
    CreateTable,
    RenameTable,
    ReplaceTable,
    Statement,
)

_ICEBERG: Final = "iceberg"
_HANDLER: Final = "org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"
_FILE_FORMATS: Final = frozenset({"parquet", "orc", "avro"})
#: `USING` one of these makes an Iceberg table whose files are written in it.
_SPARK_FORMATS: Final = frozenset({"parquet", "orc"})
_WRITE_FORMAT: Final = "write.format.default"
#: Spark keeps these names for clauses of its own, or for itself.
_SPARK_RESERVED: Final = frozenset({"provider", "location", "owner", "external", "is_managed_location"})
#: With these, Hive takes over metadata that is there already, or takes the table from another catalog.
_HIVE_TAKES_OVER: Final = frozenset(
    {"metadata_location", "previous_metadata_location", "iceberg.catalog", "storage_handler"}
)
_PATH: Final = "path"
_OPTION: Final = "option."


@dataclass
class _Clauses:
    """The clauses of a CREATE TABLE, as they come."""

    cursor: Cursor
    like: Name | None = None
    seen: set[str] = field(default_factory=set)
    properties: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    location: str | None = None
    sources: tuple[Name, ...] = ()
    added: tuple[Column, ...] = ()
    is_iceberg: bool = False
    file_format: str | None = None

    def read(self) -> None:
        """Read clauses as long as any comes."""
        readers = _HIVE if self.cursor.hive else _SPARK if self.like is None else _SPARK_LIKE
        while (phrase := next(filter(self.cursor.ahead, readers), None)) is not None:
            if phrase in self.seen:
                self.cursor.refuse("the clause occurs twice")
            self.seen.add(phrase)
            self.cursor.expect(phrase)
            readers[phrase](self)

    def using(self) -> None:
        start, name = self.cursor.next.start, self.cursor.part()
        if name.lower() in _SPARK_FORMATS:
            self.file_format = name.lower()
        elif name.lower() != _ICEBERG:
            raise _not_iceberg(start, name)

    def stored_by(self) -> None:
        start = self.cursor.next.start
        name = _ICEBERG if self.cursor.took("ICEBERG") else self.cursor.string()
        if name not in (_ICEBERG, _HANDLER):
            raise _not_iceberg(start, name)
        self.is_iceberg = True
        if self.cursor.took("WITH SERDEPROPERTIES"):
            self.options = self.cursor.properties()

    def stored_in_spark(self) -> None:
        raise _not_iceberg(self.cursor.next.start, "STORED")

    def stored_as(self) -> None:
        start, name = self.cursor.next.start, self.cursor.part()
        if name.lower() not in _FILE_FORMATS:
            raise _not_iceberg(start, name)
        self.file_format = name.lower()

    def partitioned(self) -> None:
        self.sources, self.added = partitioned_by(self.cursor)

    def take_options(self) -> None:
        self.options = self.cursor.properties()

    def take_properties(self) -> None:
        self.properties = self.cursor.properties()

    def take_location(self) -> None:
        self.location = self.cursor.string()


_Readers = Mapping[str, Callable[[_Clauses], None]]
_BOTH: Final[_Readers] = {
    "LOCATION": _Clauses.take_location,
    "COMMENT": lambda clauses: clauses.cursor.remark(),
    "TBLPROPERTIES": _Clauses.take_properties,
    "PARTITIONED BY": _Clauses.partitioned,
}
_SPARK: Final[_Readers] = {
    **_BOTH,
    "STORED": _Clauses.stored_in_spark,
    "USING": _Clauses.using,
    "OPTIONS": _Clauses.take_options,
}
#: Behind CREATE TABLE … LIKE.
_SPARK_LIKE: Final[_Readers] = {
    phrase: _SPARK[phrase] for phrase in ("LOCATION", "TBLPROPERTIES", "STORED", "USING")
}
_HIVE: Final[_Readers] = {
    **_BOTH,
    "STORED BY": _Clauses.stored_by,
    "STORED AS": _Clauses.stored_as,
}


def create_table(cursor: Cursor) -> Statement:
    """What follows CREATE TABLE."""
    start = cursor.next.start
    may_exist = cursor.took("IF NOT EXISTS")
    name = cursor.name()
    like = cursor.name() if cursor.took("LIKE") else None
    return _definition(cursor, start, name, like, may_exist=may_exist)


def replace_table(cursor: Cursor, *, creates: bool) -> Statement:
    """What follows REPLACE TABLE of Spark."""
    return ReplaceTable(_definition(cursor, cursor.next.start, cursor.name()), creates)


def _definition(
    cursor: Cursor, start: int, name: Name, like: Name | None = None, *, may_exist: bool = False
) -> CreateTable:
    """What follows a table's name.

    Args:
        cursor: behind the name.
        start: where the name begins, for problems.
        name: the table.
        like: the table that it is made like.
        may_exist: whether it is no error if it exists.
    """
    columns = columns_of(cursor) if like is None and cursor.next.is_symbol("(") else None
    clauses = _Clauses(cursor, like)
    clauses.read()
    if cursor.hive and not clauses.is_iceberg:
        raise _not_iceberg(start, "Hive's own")
    query = None
    if like is None and (cursor.took("AS") or cursor.ahead("SELECT|WITH")):
        query = read_query(cursor)
    cursor.expect_end()
    if [columns, query, like].count(None) != 2:
        raise Problem(
            start, "columns", "The statement has both a column list and a query.", "Keep one of them."
        )
    properties, location = _merged(clauses, start)
    refuse_reserved(properties, start, hive=cursor.hive)
    all_columns = None if columns is None else (*columns, *clauses.added)
    return CreateTable(name, properties, location, all_columns, clauses.sources, query, like, may_exist)


def alter_table(cursor: Cursor) -> Statement:
    """What follows ALTER TABLE."""
    name = cursor.name()
    known = _ALTERATIONS if cursor.hive else ICEBERG_ALTERATIONS | _ALTERATIONS
    for phrase, read in known.items():
        if cursor.took(phrase):
            return read(cursor, name)
    cursor.refuse("unsupported change of a table")


def _merged(clauses: _Clauses, start: int) -> tuple[dict[str, str], str | None]:
    """Properties and options as one, as Spark hands them over; an option `path` is the location."""
    merged, location = dict(clauses.properties), clauses.location
    for key, value in [*clauses.properties.items(), *clauses.options.items()]:
        is_option = key in clauses.options or key.startswith(_OPTION)
        if key.lower() == _PATH and is_option:
            if location is not None:
                raise Problem(start, "location", "The location occurs twice.", "Keep LOCATION.")
            location = value
            merged.pop(key, None)
            continue
        bare = key.removeprefix(_OPTION)
        if merged.get(bare, value) != value:
            raise Problem(
                start,
                "option",
                f"OPTIONS and TBLPROPERTIES give {bare[:80]!a} different values.",
                "Set it once.",
            )
        merged.pop(key, None)
        merged[bare] = value
    if clauses.file_format is not None:
        if merged.get(_WRITE_FORMAT, clauses.file_format).lower() != clauses.file_format:
            raise Problem(
                start,
                "table-format",
                f"{clauses.file_format} contradicts {_WRITE_FORMAT}.",
                "Set the file format once.",
            )
        merged[_WRITE_FORMAT] = clauses.file_format
    return merged, location


def refuse_reserved(properties: Iterable[str], start: int, *, hive: bool) -> None:
    """Refuse properties that stand for a clause.

    Raises:
        Problem: there is one.
    """
    reserved = _HIVE_TAKES_OVER if hive else _SPARK_RESERVED
    for name in properties:
        folded = name.lower()
        if folded in reserved or (hive and folded.startswith("iceberg.catalog.")):
            raise Problem(
                start,
                "reserved-property",
                f"The table property {name[:80]!a} is reserved for the location or owner.",
                "Use a clause such as LOCATION, or register the table.",
            )


def _not_iceberg(start: int, name: str) -> Problem:
    return Problem(
        start,
        "table-format",
        f"The catalog supports only Iceberg tables, not {name[:80]!a}.",
        "Write USING iceberg for Spark, STORED BY ICEBERG for Hive.",
    )


def _set_properties(cursor: Cursor, name: Name) -> Statement:
    start, updates = cursor.next.start, cursor.properties()
    refuse_reserved(updates, start, hive=cursor.hive)
    return AlterProperties(name, updates)


def _unset_properties(cursor: Cursor, name: Name) -> Statement:
    start = cursor.past("IF EXISTS").next.start
    removals = cursor.property_names()
    refuse_reserved(removals, start, hive=cursor.hive)
    return AlterProperties(name, removals=tuple(removals))


def _set_location(cursor: Cursor, name: Name) -> Statement:
    return AlterProperties(name, location=cursor.string())


def _listed_or_not(cursor: Cursor, item: Callable[[Cursor], T]) -> tuple[T, ...]:
    return tuple(cursor.listed(item) if cursor.next.is_symbol("(") else cursor.several(item))


def _add_columns(cursor: Cursor, name: Name) -> Statement:
    return AlterColumns(name, _listed_or_not(cursor, _new_column))


def _add_column(cursor: Cursor, name: Name) -> Statement:
    if cursor.hive:
        cursor.refuse("expected COLUMNS")
    return _add_columns(cursor, name)


def _new_column(cursor: Cursor) -> Column:
    added = column(cursor, required=False)
    _position(cursor)
    return added


def _drop_columns(cursor: Cursor, name: Name) -> Statement:
    return AlterColumns(name, removed=_listed_or_not(cursor.past("IF EXISTS"), column_name))


def _rename_column(cursor: Cursor, name: Name) -> Statement:
    old = column_name(cursor)
    return AlterColumns(name, renamed=(old, (*old[:-1], cursor.expect("TO").part())))


def _change_column(cursor: Cursor, name: Name) -> Statement:
    """Hive's CHANGE gives old name, new name and type; Spark's the old name and what becomes of it."""
    old = column_name(cursor)
    if cursor.hive:
        return AlterColumns(name, renamed=(old, _new_column(cursor).name))
    if cursor.took("TYPE"):
        column_type(cursor)
    elif not (cursor.took_comment() or cursor.took("DROP NOT NULL") or _position(cursor)):
        cursor.refuse("unsupported change of a column")
    return AlterColumns(name)


def _position(cursor: Cursor) -> bool:
    if cursor.took("AFTER"):
        cursor.part()
        return True
    return cursor.took("FIRST")


#: Changes of tables, and what reads the rest; the first one counts.
_ALTERATIONS: Final[dict[str, Callable[[Cursor, Name], Statement]]] = {
    "SET TBLPROPERTIES": _set_properties,
    "UNSET TBLPROPERTIES": _unset_properties,
    "SET LOCATION": _set_location,
    "RENAME TO": lambda cursor, name: RenameTable(name, cursor.name()),
    "RENAME COLUMN": _rename_column,
    "ADD COLUMNS": _add_columns,
    "ADD COLUMN": _add_column,
    "DROP COLUMN|COLUMNS": _drop_columns,
    "ALTER|CHANGE COLUMN": _change_column,
    "CHANGE": _change_column,
    "REPLACE COLUMNS": lambda cursor, name: AlterColumns(name, columns_of(cursor), replaced=True),
}
