"""The column that a path is in, by what is known of a table."""

from __future__ import annotations

from policy.encryption.specification import EncryptionSpec
from policy.visible import KnownTable
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
