"""Files of cases into typed cases: all of a file, or nothing of it.

Rules:
- Every mapping has a closed set of names, every value is a text, a list or a mapping
  (`policy.testing.strict_yaml`); what would be without effect is refused.
- A file has at least one case. Names of cases are unique in it.
- A case asks exactly one thing: `access` on a `resource`, a `sql` statement, or how a `table` is to be
  encrypted.
- A request that cannot be built (no such access type, a location that is none) is a mistake in the file, not
  a denial.

Source: docs/policy-tests.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from policy.errors import InvalidInput
from policy.explain.considered import UNKNOWN_TABLE, reads
from policy.identifiers import TableName, namespace_of
from policy.location.location import Location
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource, Through
from policy.ranger.servicedef import MASK_NONE, MASK_TYPES
from policy.resource_names import resource_named, table_named
from policy.sql_lint.lint import Dialect
from policy.testing.cases import (
    NO_MASK,
    AccessQuestion,
    Answer,
    Case,
    CaseFile,
    Catalog,
    Expected,
    ExpectedMask,
    ExpectedReason,
    Question,
    StatementQuestion,
    TableQuestion,
)
from policy.testing.fixtures import FixtureTable
from policy.testing.strict_yaml import Node
from policy.testing.strict_yaml import parse as parse_yaml

MAX_CASES: Final = 10_000
"""Most cases in a file."""

_WHO: Final = ("user", "groups", "roles")
_REQUEST: Final = (*_WHO, "access", "resource", "through", "owner", "at", "mask", "rows")
_STATEMENT: Final = (*_WHO, "sql", "dialect", "database", "owner", "at")
_BESIDE: Final = {"access": _REQUEST, "sql": _STATEMENT, "table": ("table",)}
_ALWAYS: Final = ("name", "description", "expect", "because")
_ANSWERS: Final[Mapping[str, Answer]] = {"allow": "allow", "deny": "deny", "masked": "masked"}
_DIALECTS: Final[Mapping[str, Dialect]] = {"spark": "spark", "hive": "hive"}


def parse_cases(file: str, data: bytes) -> CaseFile:
    """Read a file of cases.

    Args:
        file: its name, for messages.
        data: its content.

    Raises:
        RequestInvalid: naming file, line, column and field of the first thing that is wrong.
    """
    top = parse_yaml(file, data)
    fields = top.fields("description", "policies", "encryption_rules", "catalog", "tables", "cases")
    if "description" in fields:
        fields["description"].text()
    if "cases" not in fields:
        raise top.invalid("the file has no cases.", "Add a list named cases.")
    catalog = _catalog(fields["catalog"]) if "catalog" in fields else Catalog()
    tables = _tables(fields["tables"], catalog) if "tables" in fields else {}
    return CaseFile(
        name=file,
        policies=_paths(fields, "policies"),
        encryption_rules=_paths(fields, "encryption_rules"),
        catalog=catalog,
        tables=tables,
        cases=_cases(fields["cases"], tables),
    )


def _paths(fields: Mapping[str, Node], name: str) -> tuple[str, ...]:
    if name not in fields:
        return ()
    for node in fields[name].elements():
        if node.line_of_text().startswith("/"):
            raise node.invalid("the path must be relative to the test file.")
    return fields[name].texts()


def _catalog(node: Node) -> Catalog:
    fields = node.fields("name", "master_key", "engine")
    given = {name: each.line_of_text() for name, each in fields.items()}
    return Catalog(**given)


def _tables(node: Node, catalog: Catalog) -> dict[TableName, FixtureTable]:
    tables: dict[TableName, FixtureTable] = {}
    for text, each in node.members().items():
        with _reported_at(each):
            table = _table(table_named(text), each, catalog)
        tables[table.name] = table
    return tables


def _table(name: TableName, node: Node, catalog: Catalog) -> FixtureTable:
    fields = node.fields("owner", "columns", "location", "properties")
    given = fields["properties"].members() if "properties" in fields else {}
    location = _text(fields, "location")
    owner = _text(fields, "owner")
    if owner is not None:
        Principal(owner)
    return FixtureTable.of(
        name,
        owner=owner,
        columns=fields["columns"].texts() if "columns" in fields else None,
        location=None if location is None else Location.parse(location),
        properties={key: value.line_of_text() for key, value in given.items()},
        master_key=catalog.master_key,
    )


def _cases(node: Node, tables: Mapping[TableName, FixtureTable]) -> tuple[Case, ...]:
    elements = node.elements()
    if len(elements) > MAX_CASES:
        raise node.invalid(
            f"the file has {len(elements)} cases, but at most {MAX_CASES} are allowed.", "Split the file."
        )
    names: set[str] = set()
    cases = []
    for element in elements:
        case = _case(element, tables)
        if case.name in names:
            raise element.invalid(
                f"another case has the name {case.name!r}.", "Use a different name for each case."
            )
        names.add(case.name)
        cases.append(case)
    return tuple(cases)


def _case(node: Node, tables: Mapping[TableName, FixtureTable]) -> Case:
    fields = node.fields(*dict.fromkeys((*_ALWAYS, *_REQUEST, *_STATEMENT, "table")))
    kinds = [name for name in ("access", "sql", "table") if name in fields]
    if len(kinds) != 1:
        raise node.invalid(
            "a case must have exactly one of access, sql and table.",
            "Write access and resource, or sql and dialect, or table.",
        )
    kind = kinds[0]
    known = {"access": (*_REQUEST, "at", "mask", "rows"), "sql": (*_STATEMENT, "at"), "table": ("table",)}[
        kind
    ]
    for name in fields:
        if name not in (*_ALWAYS, *known):
            raise fields[name].invalid(f"this field has no effect together with {kind}.", "Omit the field.")
    if "description" in fields:
        fields["description"].text()
    return Case(
        name=_name(_needed(node, fields, "name")),
        file=node.file,
        line=node.line,
        at=_moment(fields["at"]) if "at" in fields else None,
        question=_QUESTIONS[kind](node, fields, tables),
        expected=_expected(node, fields),
    )


def _name(node: Node) -> str:
    name = node.line_of_text()
    if "::" in name:
        raise node.invalid("the name contains two colons, which test runners interpret.", "Use another name.")
    return name


def _access_question(
    node: Node, fields: Mapping[str, Node], tables: Mapping[TableName, FixtureTable]
) -> AccessQuestion:
    named = _needed(node, fields, "resource")
    with _reported_at(named):
        resource = resource_named(named.line_of_text())
    principal = _principal(node, fields)
    table, owner = _table_of(resource, tables), _text(fields, "owner")
    if owner is None and table is not None:
        owner = table.owner
    access = fields["access"].line_of_text()
    with _reported_at(fields["access"]):
        AccessRequest(principal, resource, access, owner)
    if "mask" in fields and (resource.levels[-1] != "column" or access != "select"):
        raise fields["mask"].invalid("mask requires access: select on a column.")
    if "rows" in fields and (resource.levels[-1] not in ("table", "column") or access != "select"):
        raise fields["rows"].invalid("rows requires access: select on a table or column.")
    if "through" in fields and not reads(AccessRequest(principal, resource, access, owner)):
        raise fields["through"].invalid("only tables and columns are read through something.")
    through = Through(fields["through"].choice(*Through)) if "through" in fields else Through.ENGINE
    known = UNKNOWN_TABLE if table is None else table.for_statements().known
    return AccessQuestion(principal, access, resource, owner, known, through)


def _statement_question(
    node: Node, fields: Mapping[str, Node], tables: Mapping[TableName, FixtureTable]
) -> StatementQuestion:
    dialect = _needed(node, fields, "dialect").choice(*_DIALECTS)
    if "database" in fields:
        with _reported_at(fields["database"]):
            namespace_of(fields["database"].line_of_text().split("."))
    return StatementQuestion(
        principal=_principal(node, fields),
        sql=fields["sql"].text(),
        dialect=_DIALECTS[dialect],
        database=_text(fields, "database"),
        owner=_text(fields, "owner"),
    )


def _table_question(
    node: Node, fields: Mapping[str, Node], tables: Mapping[TableName, FixtureTable]
) -> TableQuestion:
    named = fields["table"]
    with _reported_at(named):
        table = table_named(named.line_of_text())
    if table not in tables:
        raise named.invalid("the table is not defined in the file.", "Add it under tables.")
    if tables[table].columns is None:
        raise named.invalid("the columns of the table are unknown.", "Add its columns under tables.")
    return TableQuestion(table)


_Reader: TypeAlias = Callable[[Node, Mapping[str, Node], Mapping[TableName, FixtureTable]], Question]
_QUESTIONS: Final[Mapping[str, _Reader]] = {
    "access": _access_question,
    "sql": _statement_question,
    "table": _table_question,
}


def _table_of(resource: Resource, tables: Mapping[TableName, FixtureTable]) -> FixtureTable | None:
    """The file's table that a resource is, or is a column of."""
    if resource.levels[:2] != ("database", "table"):
        return None
    return tables.get(TableName(tuple(resource.values[0].split(".")), resource.values[1]))


def _principal(node: Node, fields: Mapping[str, Node]) -> Principal:
    user = _needed(node, fields, "user")
    groups, roles = (fields[name].texts() if name in fields else () for name in ("groups", "roles"))
    with _reported_at(user):
        return Principal(user.line_of_text(), frozenset(groups), frozenset(roles))


def _moment(node: Node) -> datetime:
    text = node.line_of_text()
    try:
        moment = datetime.fromisoformat(text)
        # Time zones reach a day further; beyond the ends of the calendar no zone shows a time.
        _ = moment - timedelta(days=2), moment + timedelta(days=2)
    except (ValueError, OverflowError) as problem:
        raise node.invalid(
            "the value is not a time.", 'Write it as "2030-01-31T12:00:00+01:00".'
        ) from problem
    if moment.tzinfo is None:
        raise node.invalid("the time has no time zone.", 'Write it as "2030-01-31T12:00:00+01:00".')
    return moment


def _expected(node: Node, fields: Mapping[str, Node]) -> Expected:
    answer = _needed(node, fields, "expect").choice(*_ANSWERS)
    rows = fields["rows"].choice("all", "filtered") if "rows" in fields else None
    return Expected(
        answer=_ANSWERS[answer],
        because=_because(fields["because"]) if "because" in fields else None,
        mask=_mask(fields["mask"]) if "mask" in fields else None,
        filtered=None if rows is None else rows == "filtered",
    )


def _because(node: Node) -> ExpectedReason:
    fields = node.fields("rule", "policy", "item", "detail")
    return ExpectedReason(*(_text(fields, name) for name in ("rule", "policy", "item", "detail")))


def _mask(node: Node) -> ExpectedMask:
    fields = node.fields("type", "value", "policy")
    named = _needed(node, fields, "type").choice(NO_MASK, *sorted(MASK_TYPES - {MASK_NONE}))
    if named == NO_MASK and len(fields) > 1:
        raise node.invalid("policy and value are not allowed together with no mask.", "Omit them.")
    return ExpectedMask(named, _text(fields, "value"), _text(fields, "policy"))


def _needed(node: Node, fields: Mapping[str, Node], name: str) -> Node:
    if name not in fields:
        raise node.invalid(f"the field the field {name} is missing.", "Add it.")
    return fields[name]


def _text(fields: Mapping[str, Node], name: str) -> str | None:
    return fields[name].line_of_text() if name in fields else None


@contextmanager
def _reported_at(node: Node) -> Iterator[None]:
    """What is refused by the rules of names, requests and properties is refused here."""
    try:
        yield
    except InvalidInput as problem:
        if problem.rule == "policy-test":
            raise
        raise node.invalid(problem.message, problem.hint) from problem
