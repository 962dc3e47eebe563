"""Which tables the text of a definer view names.

Such a text must be a query that is understood as a whole. It calls functions that Spark brings along and no
others, and names tables of the view's own catalog. Spark reads the text, too: this binds it to the catalog.
"""

from __future__ import annotations

from functools import lru_cache

from policy.errors import RequestInvalid
from policy.identifiers import Namespace, TableName
from policy.sql_lint.cursor import Cursor
from policy.sql_lint.denials import Refusal
from policy.sql_lint.functions import SPARKS
from policy.sql_lint.lexer import tokens_of
from policy.sql_lint.names import Names, table_of_state
from policy.sql_lint.queries import read_query

_HINT = "Simplify the text, or create the view with the permissions of its readers."


@lru_cache(maxsize=256)
def tables_of(
    text: str, catalog: str, default_namespace: Namespace, *, default_elsewhere: bool
) -> frozenset[TableName]:
    """Return the tables that a view's text names.

    Args:
        text: the query, in Spark's SQL.
        catalog: the name of the view's catalog in the engine that the view was made in.
        default_namespace: the namespace of names without one.
        default_elsewhere: whether names without a catalog are of another one.

    Raises:
        RequestInvalid: it is not understood, calls another function, or names no table of this catalog.
    """
    try:
        tokens = list(tokens_of(text, hive=False))
        query = read_query(Cursor(tokens, len(text), text, hive=False))
        code = next((each for each in query.functions if each.lower() not in _FUNCTIONS), None)
        if code is not None:
            raise RequestInvalid(
                f"The text calls {code[:80]!a}, which is no function of Spark's own.",
                rule="view-text",
                hint="Definer views call Spark's own functions alone.",
            )
        if default_elsewhere and any(each[0] != catalog for each in query.tables):
            raise RequestInvalid(
                "The text names a table without the catalog, and the view was made in another catalog.",
                rule="view-text",
                hint=f"Begin the names of tables with {catalog}.",
            )
        names = Names(catalog, default_namespace or None, lost=False, hive=False)
        tables = frozenset(names.table(each) for each in query.tables)
    except Refusal as refusal:
        raise RequestInvalid(
            f"The text of a definer view must be read by the catalog. {refusal}",
            rule="view-text",
            hint=_HINT,
        ) from refusal
    state = next((each for each in sorted(tables) if table_of_state(each) is not None), None)
    if state is not None:
        raise RequestInvalid(
            f"The text names {state}, a branch, tag or snapshot.",
            rule="view-text",
            hint="Write VERSION AS OF behind the name of the table.",
        )
    return tables


#: Without what shows where rows come from.
_FUNCTIONS = frozenset(each for each in SPARKS if not each.startswith("input_file_"))
