"""What a user sees of a table by what is known of it, and the column that a path is in."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from policy.encryption.specification import EncryptionSpec
from policy.known_table import KnownTable
from policy.principal import Principal
from policy.privileges.requests import Through
from policy.ranger import PolicySet
from policy.restrictions.columns import SchemaField, TableColumns
from policy.view import View
from policy.visible import Seen, seen
from tests.support.vectors import each_row

KEYED = EncryptionSpec.parse(
    {"encryption.columns": "pii:Person.ssn;hr:salary,bonus", "encryption.masks": "nullify:salary"},
    catalog_master_key_id="lake",
)


@each_row(
    ("path", "column"),
    [
        ("person.SSN", "Person"),
        ("PERSON.name.first", "Person"),
        ("SALARY.net", "salary"),
        ("salary", "salary"),
        ("personal.ssn", "personal"),
        ("Other.x", "Other"),
    ],
)
def test_columns_that_are_not_known_are_called_as_the_encryption_calls_them(path: str, column: str) -> None:
    assert KnownTable(spec=KEYED).column(path) == column


def test_columns_that_are_known_come_before_those_that_the_encryption_names() -> None:
    assert KnownTable(columns=("person",), spec=KEYED).column("PERSON.ssn") == "person"
    assert KnownTable(columns=("Person.ssn", "Person"), spec=KEYED).column("person.ssn.x") == "Person.ssn"


def _seen(condition: str, granted: list[str], path: str, through: Through = Through.ENGINE) -> Seen:
    """What ann sees of a column of a table with keys, a mask on `salary`, and a row filter."""
    item = {"users": ["ann"], "accesses": [{"type": "select"}]}
    resources = {"database": {"values": ["db"]}, "table": {"values": ["t"]}}
    documents = [
        {"name": "g", "resources": {**resources, "column": {"values": granted}}, "policyItems": [item]},
        {
            "name": "f",
            "policyType": 2,
            "resources": resources,
            "rowFilterPolicyItems": [{**item, "rowFilterInfo": {"filterExpr": condition}}],
        },
    ]
    policies = PolicySet.parse({"p.json": json.dumps({"policies": documents})})
    names = ("id", "ssn", "email", "salary", "bonus")
    spec = EncryptionSpec.parse(
        {"encryption.columns": "pii:ssn,email;hr:salary,bonus", "encryption.masks": "nullify:salary"},
        catalog_master_key_id="lake",
    )
    schema = TableColumns(SchemaField(number, (name,), "string") for number, name in enumerate(names, 1))
    table = KnownTable(names, spec=spec, schema=schema)
    view = View.of(policies, datetime(2026, 3, 31, tzinfo=UTC), Principal("ann"), ("db", "t"), None)
    return seen(view, table, [path], through)


def test_a_row_filter_reads_columns_that_the_user_cannot_select() -> None:
    assert _seen("ssn = 'x'", ["id", "email"], "id").decision.allowed
    assert _seen("ssn = 'x'", ["id", "email"], "email").decision.allowed
    assert not _seen("ssn = 'x'", ["id", "email"], "id", Through.PROCESS).decision.allowed
    assert not _seen("ssn = 'x'", ["id", "email"], "ssn").decision.allowed
    assert not _seen("ssn = 'x'", ["id"], "id").decision.allowed


def test_a_row_filter_reads_no_column_that_is_shown_through_a_mask_of_the_table() -> None:
    assert _seen("salary = 'x'", ["id", "bonus"], "id").decision.reasons[0].rule == "masked-column"
    assert _seen("salary = 'x'", ["id", "bonus", "salary"], "id").decision.allowed
