"""From the tree of a query to what it reads: its tables, the columns that it names, the code that it runs.

A column belongs to the table whose alias stands before it. One without an alias may belong to each table of
its SELECT and of those around it, and is asked for on all of them; less would leave the right one out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from sqlglot import exp

from policy.sql_lint.cursor import Name
from policy.sql_lint.problems import Problem
from policy.sql_lint.statements import Query, Reference

#: The clause TRANSFORM … USING; there is a function of that name, too.
SCRIPT: Final = "TRANSFORM with a script"
#: sqlglot takes it for a table, and the table's name for its alias.
_STREAM: Final = "STREAM"


class Reader:
    """Collects what one query reads."""

    def __init__(self, tree: exp.Expr, start: int) -> None:
        self._tree = tree
        self._start = start
        self._tables: list[exp.Table] = []
        self._of_select: dict[int, list[int]] = {}
        self._whole: set[int] = set()
        self._columns: list[Reference] = []
        self._functions: list[str] = []

    def read(self) -> Query:
        for table in self._tree.find_all(exp.Table):
            self._table(table)
        for node in self._tree.walk():
            self._node(node)
        named = {table for reference in self._columns for table in reference.tables}
        self._whole |= set(range(len(self._tables))) - named
        return Query(
            tables=tuple(_parts_of(each) for each in self._tables),
            whole=frozenset(self._whole),
            columns=tuple(dict.fromkeys(self._columns)),
            functions=tuple(dict.fromkeys(self._functions)),
            outputs=_outputs(self._tree),
        )

    def _table(self, node: exp.Table) -> None:
        if not isinstance(node.this, exp.Identifier | exp.Dot):
            return  # a function, whose name is looked at as one
        if isinstance(node.parent, exp.JoinHint):
            return  # a hint names a table of the query by its alias
        if not node.args.get("db") and _is_of_with(node):
            return
        if (
            node.alias
            and len(node.parts) == 1
            and not node.this.args.get("quoted")
            and node.name.upper() == _STREAM
        ):
            raise Problem(
                self._start,
                "query",
                "STREAM before a name reads the table of that name as a stream.",
                "Leave it out. To read a table of the name STREAM, quote the name.",
            )
        select = node.find_ancestor(exp.Select)
        self._of_select.setdefault(id(select), []).append(len(self._tables))
        self._tables.append(node)

    def _node(self, node: exp.Expr) -> None:
        match node:
            case exp.Column():
                self._column(node)
            case exp.Star() if not (isinstance(node.parent, exp.Column) or _is_counted(node)):
                self._every(node)
            case exp.Join():
                self._join(node)
            case exp.Anonymous():
                self._function(node)
            case exp.QueryTransform():
                self._functions.append(SCRIPT)

    def _column(self, node: exp.Column) -> None:
        if isinstance(node.this, exp.Star):
            self._every(node, node.table)
            return
        path = _path_of(node)
        qualified = [(n, rest) for n, table in enumerate(self._tables) for rest in _below(table, path)]
        if qualified:
            for number, rest in qualified:
                self._columns.append(Reference(frozenset({number}), rest))
        elif not _is_derived(node, path) and not _orders_by_alias(node, path):
            candidates = frozenset(self._around(node))
            if candidates:
                self._columns.append(Reference(candidates, path, optional=_is_alias(node, path)))

    def _every(self, node: exp.Expr, qualifier: str = "") -> None:
        """`*` stands for every column of the tables that its own SELECT reads."""
        select = node.find_ancestor(exp.Select)
        for number in self._of_select.get(id(select), []):
            if qualifier.lower() in ("", self._tables[number].alias_or_name.lower()):
                self._whole.add(number)

    def _join(self, node: exp.Join) -> None:
        select = node.find_ancestor(exp.Select)
        sources = self._of_select.get(id(select), [])
        if str(node.args.get("method") or "").upper() == "NATURAL":
            self._whole.update(sources)
        for shared in node.args.get("using") or []:
            self._columns += [Reference(frozenset({number}), (shared.name,)) for number in sources]

    def _function(self, node: exp.Anonymous) -> None:
        name = str(node.this if isinstance(node.this, str) else node.name)
        called = ".".join([*_qualifier(node), name])
        if name.lower() == "identifier":
            raise Problem(
                self._start,
                "query",
                "IDENTIFIER(…) computes a name that lint cannot check.",
                "Write the name.",
            )
        self._functions.append(called)

    def _around(self, node: exp.Expr) -> Iterator[int]:
        """The tables of the SELECT that `node` is in, and of those around it."""
        select = node.find_ancestor(exp.Select)
        while select is not None:
            yield from self._of_select.get(id(select), [])
            select = None if _stands_alone(select) else select.find_ancestor(exp.Select)


def _stands_alone(select: exp.Select) -> bool:
    """Whether a SELECT sees nothing of those around it: in a WITH, or in a FROM without LATERAL."""
    node: exp.Expr | None = select
    while isinstance(node, exp.Select | exp.SetOperation | exp.Subquery):
        node = node.parent
    return isinstance(node, exp.CTE | exp.From | exp.Join)


def _qualifier(node: exp.Expr) -> list[str]:
    """What stands before a function's name, with dots."""
    parent = node.parent
    if not isinstance(parent, exp.Dot) or parent.expression is not node:
        return []
    return [each.name for each in parent.this.find_all(exp.Identifier, bfs=False)]


def _parts_of(table: exp.Table) -> Name:
    return tuple(each.name for each in table.parts)


def _is_counted(star: exp.Star) -> bool:
    """Whether it is the one of `count(*)`, which names no column."""
    return isinstance(star.parent, exp.Anonymous) and star.parent.name.lower() == "count"


def _path_of(column: exp.Column) -> Name:
    """A column's name with what stands before it, and the fields in it that are read."""
    parts = [each.name for each in column.parts]
    node: exp.Expr = column
    while isinstance(node.parent, exp.Dot) and node.parent.this is node:
        node = node.parent
        if not isinstance(node.expression, exp.Identifier):
            break
        parts.append(node.expression.name)
    return tuple(parts)


def _below(table: exp.Table, path: Name) -> Iterator[Name]:
    """The rest of a path that begins with a table's alias or name."""
    folded = tuple(each.lower() for each in path)
    if len(path) > 1 and folded[0] == table.alias_or_name.lower():
        yield path[1:]
        return
    if table.alias:
        return
    names = tuple(each.lower() for each in _parts_of(table))
    for length in range(2, len(names) + 1):
        if len(path) > length and folded[:length] == names[-length:]:
            yield path[length:]
            return


def _is_of_with(table: exp.Table) -> bool:
    """Whether a name means a query of a WITH around it; one is not visible in itself."""
    name = table.name.lower()
    for inside, node in pairwise(_above(table)):
        clause = node if isinstance(node, exp.With) else node.args.get("with_")
        if isinstance(clause, exp.With) and clause is not inside and name in _visible(clause, inside):
            return True
    return False


def _visible(clause: exp.With, inside: exp.Expr) -> set[str]:
    """The names that a WITH gives to what is inside of one of its queries, or to the query that it begins."""
    names: set[str] = set()
    for each in clause.expressions:
        if each is inside:
            return names | ({each.alias.lower()} if clause.args.get("recursive") else set())
        names.add(each.alias.lower())
    return names


def _is_derived(column: exp.Column, path: Name) -> bool:
    """Whether a column is certainly not one of a table: a parameter of a lambda, or of a part that is
    derived."""
    name = path[0].lower()
    lambdas = (node for node in _above(column) if isinstance(node, exp.Lambda))
    if any(name == each.name.lower() for node in lambdas for each in node.expressions):
        return True
    select = column.find_ancestor(exp.Select)
    return select is not None and any(
        name in names for names in _derived_names(_seen_by(column, select), len(path) > 1)
    )


def _seen_by(column: exp.Column, select: exp.Select) -> Iterator[exp.Expr]:
    """The sources of a SELECT whose names a column in it may have.

    What stands in a join or LATERAL VIEW sees those before it, and ON its own one too. Beyond its ON, nobody
    sees what a semi or anti join brings.
    """
    joins, views = (select.args.get(part) or [] for part in ("joins", "laterals"))
    around = {id(each) for each in _above(column)}
    for each in [*filter(None, [select.args.get("from_")]), *joins, *views]:
        inside, own = id(each) in around, id(each.args.get("on")) in around
        if own or not (inside or _is_half(each)):
            yield each if isinstance(each, exp.Lateral) else each.this
        if inside:
            return


def _above(node: exp.Expr) -> Iterator[exp.Expr]:
    """A node and those that it is in."""
    above: exp.Expr | None = node
    while above is not None:
        yield above
        above = above.parent


def _is_half(source: exp.Expr) -> bool:
    """Whether it is a join that only decides which rows of the other side stay."""
    return isinstance(source, exp.Join) and not {"SEMI", "ANTI"}.isdisjoint((source.side, source.kind))


def _derived_names(sources: Iterable[exp.Expr], qualified: bool) -> Iterator[set[str]]:
    """The names that derived sources of a SELECT give to columns, and with a qualifier to themselves."""
    for source in sources:
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
            if qualified and not source.args.get("db") and _is_of_with(source):
                yield {source.alias_or_name.lower()}
            continue
        alias = source.args.get("alias")
        columns = {each.name.lower() for each in (alias.args.get("columns") or [])} if alias else set()
        if isinstance(source, exp.Subquery):
            columns |= {each.lower() for each in _outputs(source) or ()}
        yield columns | ({source.alias.lower()} if qualified and source.alias else set())


def _orders_by_alias(column: exp.Column, path: Name) -> bool:
    """Whether a column is an output of its own SELECT: an ORDER BY looks there first."""
    order = column.find_ancestor(exp.Order, exp.Select, exp.Window)
    return isinstance(order, exp.Order) and isinstance(order.parent, exp.Select) and _is_alias(column, path)


def _is_alias(column: exp.Column, path: Name) -> bool:
    """Whether a name may mean an output of its own SELECT."""
    select = column.find_ancestor(exp.Select)
    if select is None or len(path) > 1:
        return False
    return path[0].lower() in {
        each.alias.lower() for each in select.expressions if isinstance(each, exp.Alias)
    } and not any(column is inner for each in select.expressions for inner in each.find_all(exp.Column))


def _outputs(query: exp.Expr) -> tuple[str, ...] | None:
    if isinstance(query, exp.Values):
        return None
    if not isinstance(query, exp.Query) or query.is_star:
        return None
    names = tuple(query.named_selects)
    return names if all(names) else None
