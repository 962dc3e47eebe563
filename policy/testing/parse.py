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

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from policy.explain.considered import UNKNOWN_TABLE, reads
from policy.fields import Field
from policy.identifiers import TableName, namespace_of
from policy.location.location import Location
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource, Through
from policy.ranger.servicedef import MASK_NONE, MASK_TYPES
from policy.resource_names import resource_named, table_named
from policy.restrictions.columns import TableColumns
from policy.restrictions.samples import require_type, value_of
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
    Sample,
    StatementQuestion,
    TableQuestion,
)
from policy.testing.fixtures import FixtureTable, typed
from policy.testing.strict_yaml import parse as parse_yaml

MAX_CASES: Final = 10_000
"""Most cases in a file."""

_FILE: Final = frozenset({"description", "policies", "encryption_rules", "catalog", "tables", "cases"})
_WHO: Final = ("user", "groups", "roles")
_SHOWN: Final = ("filter", "row", "shown")
_REQUEST: Final = (*_WHO, "access", "resource", "through", "owner", "at", "mask", "rows", *_SHOWN)
_STATEMENT: Final = (*_WHO, "sql", "dialect", "database", "owner", "at")
_BESIDE: Final = {"access": _REQUEST, "sql": _STATEMENT, "table": ("table",)}
_HIDDEN: Final = "hidden"
_ALWAYS: Final = ("name", "description", "expect", "because")
_CASE: Final = frozenset(_ALWAYS).union(*_BESIDE.values())
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
    top = parse_yaml(file, data).members(_FILE)
    _describe(top)
    if not top["cases"].given:
        raise top.invalid("the file has no cases.", "Add a list named cases.")
    catalog = _catalog(top["catalog"])
    tables = _tables(top["tables"], catalog)
    return CaseFile(
        name=file,
        policies=_paths(top["policies"]),
        encryption_rules=_paths(top["encryption_rules"]),
        catalog=catalog,
        tables=tables,
        cases=_cases(top["cases"], tables),
    )


def _describe(field: Field) -> None:
    """Check a description, which has no effect."""
    if field["description"].given:
        field["description"].text()


def _paths(field: Field) -> tuple[str, ...]:
    for element in field.elements():
        if element.line_of_text().startswith("/"):
            raise element.invalid("the path must be relative to the test file.")
    return field.lines()


def _catalog(field: Field) -> Catalog:
    if not field.given:
        return Catalog()
    members = field.members(frozenset({"name", "master_key", "engine"}))
    return Catalog(**{name: members[name].line_of_text() for name in members.names()})


def _tables(field: Field, catalog: Catalog) -> dict[TableName, FixtureTable]:
    tables: dict[TableName, FixtureTable] = {}
    for text in field.names() if field.given else ():
        with field[text].located():
            table = _table(table_named(text), field[text], catalog)
        tables[table.name] = table
    return tables


def _table(name: TableName, field: Field, catalog: Catalog) -> FixtureTable:
    members = field.members(frozenset({"owner", "columns", "location", "properties"}))
    properties = members["properties"]
    location = members["location"].optional_line()
    owner = members["owner"].optional_line()
    if owner is not None:
        Principal(owner)
    types = _types(members["columns"]) if isinstance(members["columns"].value, dict) else None
    listed = members["columns"].lines() if types is None and members["columns"].given else None
    return FixtureTable.of(
        name,
        owner=owner,
        columns=listed if types is None else tuple(types),
        types=types,
        location=None if location is None else Location.parse(location),
        properties={key: properties[key].line_of_text() for key in properties.names()}
        if properties.given
        else {},
        master_key=catalog.master_key,
    )


def _types(field: Field) -> dict[str, str]:
    """The types of columns by their names, with `not null` behind those of required ones."""
    types = {name: field[name].line_of_text() for name in field.names()}
    for name, column_type in types.items():
        with field[name].located():
            require_type(typed(column_type)[0])
        inside = next((each for each in types if each.startswith(f"{name}.")), None)
        if inside is not None:
            raise field[name].invalid(f"the column {inside!r} is inside of it.", "Omit the column itself.")
    return types


def _cases(field: Field, tables: Mapping[TableName, FixtureTable]) -> tuple[Case, ...]:
    elements = list(field.elements())
    if len(elements) > MAX_CASES:
        raise field.invalid(
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


def _case(field: Field, tables: Mapping[TableName, FixtureTable]) -> Case:
    case = field.members(_CASE)
    kinds = [name for name in _QUESTIONS if case[name].given]
    if len(kinds) != 1:
        raise case.invalid(
            "a case must have exactly one of access, sql and table.",
            "Write access and resource, or sql and dialect, or table.",
        )
    kind = kinds[0]
    for name in case.names():
        if name not in (*_ALWAYS, *_BESIDE[kind]):
            raise case[name].invalid(f"this field has no effect together with {kind}.", "Omit the field.")
    _describe(case)
    return Case(
        name=_name(case.required("name")),
        file=case.document.name,
        line=case.line,
        at=_moment(case["at"]) if case["at"].given else None,
        question=_QUESTIONS[kind](case, tables),
        expected=_expected(case),
    )


def _name(field: Field) -> str:
    name = field.line_of_text()
    if "::" in name:
        raise field.invalid(
            "the name contains two colons, which test runners interpret.", "Use another name."
        )
    return name


def _access_question(case: Field, tables: Mapping[TableName, FixtureTable]) -> AccessQuestion:
    named = case.required("resource")
    with named.located():
        resource = resource_named(named.line_of_text())
    principal = _principal(case)
    table, owner = _table_of(resource, tables), case["owner"].optional_line()
    if owner is None and table is not None:
        owner = table.owner
    access = case["access"].line_of_text()
    with case["access"].located():
        AccessRequest(principal, resource, access, owner)
    if case["mask"].given and (resource.levels[-1] != "column" or access != "select"):
        raise case["mask"].invalid("mask requires access: select on a column.")
    if case["rows"].given and (resource.levels[-1] not in ("table", "column") or access != "select"):
        raise case["rows"].invalid("rows requires access: select on a table or column.")
    _check_shown(case, resource, None if table is None else table.schema)
    through = case["through"]
    if through.given and not reads(AccessRequest(principal, resource, access, owner)):
        raise through.invalid("only tables and columns are read through something.")
    known = UNKNOWN_TABLE if table is None else table.for_statements().known
    client = Through(through.choice(*Through)) if through.given else Through.ENGINE
    return AccessQuestion(principal, access, resource, owner, known, client)


def _check_shown(case: Field, resource: Resource, schema: TableColumns | None) -> None:
    """Check that a row filter and a sample row can be asked for, and that their columns exist."""
    given = [name for name in _SHOWN if case[name].given]
    if not given:
        return
    first = case[given[0]]
    if resource.levels[-1] != "table" or case["access"].value != "select" or case["through"].given:
        raise first.invalid(f"{given[0]} requires access: select on a table, through an engine.")
    if schema is None:
        raise first.invalid(
            "the types of the table's columns are unknown.",
            "Under tables, write its columns as names with types, such as {id: long}.",
        )
    if case["row"].given != case["shown"].given:
        raise first.invalid("row and shown must stand together.")
    for part in (case["row"], case["shown"]):
        for name in part.names() if isinstance(part.value, dict) else ():
            field = next((each for each in schema.by_id.values() if each.name == name), None)
            if field is None or field.type == "struct":
                raise part[name].invalid(f"the table has no column {name[:80]!r} with a type.")
            with part[name].located():
                value_of(field.type, part[name].text())


def _statement_question(case: Field, _tables: Mapping[TableName, FixtureTable]) -> StatementQuestion:
    dialect = case.required("dialect").choice(*_DIALECTS)
    database = case["database"].optional_line()
    if database is not None:
        with case["database"].located():
            namespace_of(database.split("."))
    return StatementQuestion(
        principal=_principal(case),
        sql=case["sql"].text(),
        dialect=_DIALECTS[dialect],
        database=database,
        owner=case["owner"].optional_line(),
    )


def _table_question(case: Field, tables: Mapping[TableName, FixtureTable]) -> TableQuestion:
    named = case["table"]
    with named.located():
        table = table_named(named.line_of_text())
    if table not in tables:
        raise named.invalid("the table is not defined in the file.", "Add it under tables.")
    if tables[table].columns is None:
        raise named.invalid("the columns of the table are unknown.", "Add its columns under tables.")
    return TableQuestion(table)


_Reader: TypeAlias = Callable[[Field, Mapping[TableName, FixtureTable]], Question]
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


def _principal(case: Field) -> Principal:
    user = case.required("user")
    with user.located():
        return Principal(
            user.line_of_text(), frozenset(case["groups"].lines()), frozenset(case["roles"].lines())
        )


def _moment(field: Field) -> datetime:
    text = field.line_of_text()
    try:
        moment = datetime.fromisoformat(text)
        # Time zones reach a day further; beyond the ends of the calendar no zone shows a time.
        _ = moment - timedelta(days=2), moment + timedelta(days=2)
    except (ValueError, OverflowError) as problem:
        raise field.invalid(
            "the value is not a time.", 'Write it as "2030-01-31T12:00:00+01:00".'
        ) from problem
    if moment.tzinfo is None:
        raise field.invalid("the time has no time zone.", 'Write it as "2030-01-31T12:00:00+01:00".')
    return moment


def _expected(case: Field) -> Expected:
    answer = case.required("expect").choice(*_ANSWERS)
    rows = case["rows"].choice("all", "filtered") if case["rows"].given else None
    return Expected(
        answer=_ANSWERS[answer],
        because=_because(case["because"]) if case["because"].given else None,
        mask=_mask(case["mask"]) if case["mask"].given else None,
        filtered=None if rows is None else rows == "filtered",
        row_filter=case["filter"].optional_line(),
        sample=_sample(case["row"], case["shown"]) if case["row"].given else None,
    )


def _sample(row: Field, shown: Field) -> Sample:
    if isinstance(shown.value, str):
        shown.choice(_HIDDEN)
        return Sample(_values(row), None)
    return Sample(_values(row), _values(shown))


def _values(field: Field) -> dict[str, str]:
    return {name: field[name].text() for name in field.names()}


def _because(field: Field) -> ExpectedReason:
    names = ("rule", "policy", "item", "detail")
    members = field.members(frozenset(names))
    return ExpectedReason(*(members[name].optional_line() for name in names))


def _mask(field: Field) -> ExpectedMask:
    members = field.members(frozenset({"type", "policy"}))
    named = members.required("type").choice(NO_MASK, *sorted(MASK_TYPES - {MASK_NONE}))
    if named == NO_MASK and len(members.names()) > 1:
        raise field.invalid("policy is not allowed together with no mask.", "Omit it.")
    return ExpectedMask(named, members["policy"].optional_line())
