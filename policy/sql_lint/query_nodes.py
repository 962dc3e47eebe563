"""The kinds of nodes that the tree of a query may have.

Each was looked at: what it reads is among its children, or it reads nothing. Whatever else sqlglot can make
of a text is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

_KINDS: Final[tuple[type[exp.Expr], ...]] = (
    # queries
    exp.Select,
    exp.Union,
    exp.Except,
    exp.Intersect,
    exp.Subquery,
    exp.Values,
    exp.With,
    exp.CTE,
    exp.From,
    exp.Join,
    exp.Where,
    exp.Group,
    exp.Having,
    exp.Order,
    exp.Ordered,
    exp.Sort,
    exp.Cluster,
    exp.Distribute,
    exp.Limit,
    exp.Offset,
    exp.Distinct,
    exp.Table,
    exp.TableAlias,
    exp.TableSample,
    exp.Lateral,
    exp.Version,
    exp.Cube,
    exp.Rollup,
    exp.GroupingSets,
    exp.Pivot,
    exp.Hint,
    exp.JoinHint,
    # names and values
    exp.Column,
    exp.Identifier,
    exp.Alias,
    exp.Aliases,
    exp.Star,
    exp.Dot,
    exp.Literal,
    exp.Boolean,
    exp.Null,
    exp.Var,
    exp.Tuple,
    exp.Paren,
    exp.Interval,
    exp.DataType,
    exp.DataTypeParam,
    exp.ColumnDef,
    exp.HexString,
    # operators, beside those of one and two operands
    exp.Between,
    exp.In,
    exp.Is,
    exp.Escape,
    exp.Bracket,
    exp.Slice,
    exp.Lambda,
    exp.Any,
    exp.All,
    exp.Exists,
    # functions with a syntax of their own
    exp.Anonymous,
    exp.Case,
    exp.If,
    exp.Cast,
    exp.TryCast,
    exp.Extract,
    exp.Window,
    exp.WindowSpec,
    exp.Filter,
    exp.Trim,
    exp.Substring,
    exp.Ceil,
    exp.Floor,
    exp.StrPosition,
    exp.Transform,
    exp.WithinGroup,
    exp.IgnoreNulls,
    exp.RespectNulls,
    exp.CurrentDate,
    exp.CurrentTimestamp,
    exp.CurrentUser,
    exp.SessionUser,
    exp.Concat,
    exp.GroupConcat,
    exp.Overlay,
    exp.QueryTransform,
    exp.Schema,
)
_ALLOWED: Final = frozenset(_KINDS)
_OPERATORS: Final = (exp.Binary, exp.Unary)
_ONLY_IN: Final[Mapping[type[exp.Expr], type[exp.Expr]]] = {
    exp.JoinHint: exp.Hint,
    exp.Schema: exp.QueryTransform,
}


def is_known(node: exp.Expr) -> bool:
    """Whether a node is of a kind that is understood here, at the place where it stands."""
    if type(node) not in _ALLOWED and not isinstance(node, _OPERATORS):
        return False
    around = _ONLY_IN.get(type(node))
    return around is None or isinstance(node.parent, around)
