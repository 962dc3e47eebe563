"""Runs statements that are built once and run often: their text is made once for each kind of database.

SQLAlchemy's work for a statement, and for a transaction that only reads, costs many times what the database
does. So these statements are run by the driver itself, on connections of SQLAlchemy's pools.

- `Prepared` is a SELECT outside of a transaction. One statement sees one state of the database, in SQLite as
  in PostgreSQL. What takes several statements that have to agree runs in `catalog.db.engine.read`.
- `PreparedChange` runs inside of `catalog.db.engine.write`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Insert, Select, Update
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from catalog.base.outside_calls import Part, outside_call
from catalog.db.driver import error_of, wrapped
from catalog.db.engine import translated
from catalog.db.readers import readers_of


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A statement for one kind of database.

    Attributes:
        text: its SQL.
        fixed: the values that are part of the statement.
        order: the names of the parameters, where the driver takes them by position.
        converters: what makes a column's value of the driver's, with the column's place.
    """

    text: str
    fixed: Mapping[str, Any]
    order: Sequence[str] | None
    converters: Sequence[tuple[int, Callable[[Any], Any]]]

    def parameters(self, given: Mapping[str, Any]) -> Any:
        """Return the parameters as the driver takes them."""
        values = {**self.fixed, **given}
        return values if self.order is None else [values[name] for name in self.order]

    def row(self, found: Sequence[Any]) -> tuple[Any, ...]:
        """Return a row with the values of the columns' types."""
        if not self.converters:
            return tuple(found)
        values = list(found)
        for at, convert in self.converters:
            values[at] = convert(values[at])
        return tuple(values)


class Prepared:
    """A SELECT that many requests run; see the module.

    Args:
        statement: the statement, with `bindparam` for what differs from run to run.
    """

    def __init__(self, statement: Select[Any]) -> None:
        self._columns = statement.selected_columns
        self._texts = _Texts(statement, [each.type for each in self._columns], None)

    def named(self, engine: Engine, **values: object) -> dict[str, Any] | None:
        """Return the values of the first row by column; as `first`."""
        row = self.first(engine, **values)
        return None if row is None else dict(zip(self._columns.keys(), row, strict=True))

    def first(self, engine: Engine, **values: object) -> tuple[Any, ...] | None:
        """Return the first row; None if there is none.

        Raises:
            StateUnavailable: the database does not answer, in bounded time.
        """
        readers = readers_of(engine)
        compiled = self._texts.of(readers.dialect)
        with outside_call(Part.DATABASE, "select"), translated():
            try:
                found = _first(readers, compiled.text, compiled.parameters(values))
            except error_of(readers.dialect) as error:
                raise wrapped(readers.dialect, error) from error
        return None if found is None else compiled.row(found)


class PreparedChange:
    """An INSERT or UPDATE that many requests run; see the module.

    Args:
        statement: the statement, with `bindparam` for what differs from run to run.
        columns: of an INSERT, the columns that it sets. Their values are those of the driver.
    """

    def __init__(self, statement: Insert | Update, columns: Sequence[str] | None = None) -> None:
        self._texts = _Texts(statement, [], columns)

    def run(self, connection: Connection, rows: Sequence[Mapping[str, object]]) -> int:
        """Run the statement once for each row of parameters.

        Returns:
            how many rows it changed.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the failure, which `write` translates.
        """
        compiled = self._texts.of(connection.dialect)
        cursor = connection.connection.cursor()
        try:
            if len(rows) == 1:
                cursor.execute(compiled.text, compiled.parameters(rows[0]))
            else:
                cursor.executemany(compiled.text, [compiled.parameters(each) for each in rows])
            changed: int = cursor.rowcount
        except error_of(connection.dialect) as error:
            raise wrapped(connection.dialect, error) from error
        finally:
            cursor.close()
        return changed


class _Texts:
    """The text of a statement for each kind of database."""

    def __init__(
        self, statement: Any, types: Sequence[TypeEngine[Any]], columns: Sequence[str] | None
    ) -> None:
        self._statement = statement
        self._types = types
        self._columns = columns
        self._compiled: dict[str, _Compiled] = {}

    def of(self, dialect: Dialect) -> _Compiled:
        """Return the text for a kind of database."""
        found = self._compiled.get(dialect.name)
        if found is None:
            # Threads can do this at the same time; their results are equal.
            found = self._compiled[dialect.name] = self._compile(dialect)
        return found

    def _compile(self, dialect: Dialect) -> _Compiled:
        compiled = self._statement.compile(dialect=dialect, column_keys=self._columns)
        convert = (each.dialect_impl(dialect).result_processor(dialect, None) for each in self._types)
        return _Compiled(
            str(compiled),
            {name: value for name, value in compiled.params.items() if value is not None},
            compiled.positiontup,
            [(at, each) for at, each in enumerate(convert) if each is not None],
        )


def _first(readers: Engine, text: str, parameters: Any) -> Any:
    connection = readers.raw_connection()
    try:
        cursor = connection.cursor()
        cursor.execute(text, parameters)
        found = cursor.fetchone()
        cursor.close()
    except BaseException:
        # Whatever is wrong with the connection ends with it.
        connection.invalidate()
        raise
    connection.close()
    return found
