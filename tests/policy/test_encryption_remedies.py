"""What the encryption rules ask of a table, if they leave no choice."""

from __future__ import annotations

from typing import Any

import pytest

from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import EncryptionSpec
from policy.encryption_rules import Remedy, TableFacts, remedy_of
from tests.support.rules import rule, rules_of

ENVELOPE = {"encryption.mechanism": "envelope"}


def remedy(*rules: dict[str, Any], **properties: str) -> Remedy:
    """The remedy of a table with the columns `id` and `ssn`."""
    given = {f"encryption.{name.replace('_', '-')}": value for name, value in properties.items()}
    spec = EncryptionSpec.parse(given, catalog_master_key_id="house")
    facts = TableFacts.of_names("db", "t", ("id", "ssn"), spec)
    return remedy_of(rules_of(*rules), facts, "house", FileFormat.PARQUET)


ALL = rule("all")


@pytest.mark.parametrize(
    ("rules", "properties", "asked"),
    [
        ([ALL], {}, ENVELOPE),
        ([ALL], {"mechanism": "envelope"}, {}),
        ([rule("c", columns=["ssn"])], {}, ENVELOPE),
        ([rule("k", masterKeys=["payroll"])], {}, {**ENVELOPE, "encryption.master-key-id": "payroll"}),
        ([rule("k", masterKeys=["house", "payroll-*"])], {}, ENVELOPE),
        (
            [ALL, rule("a", mustEncrypt=False, algorithms=["AES_GCM_CTR_V1"])],
            {},
            {**ENVELOPE, "encryption.algorithm": "AES_GCM_CTR_V1"},
        ),
        (
            [rule("s", minDataKeyLength=24), rule("t", minDataKeyLength=32)],
            {"data_key_length": "16"},
            {"encryption.data-key-length": "32"},
        ),
        (
            [rule("r", plaintextFooter=False, stockReaders=False)],
            {"footer": "plaintext", "stock_readers": "true"},
            {"encryption.footer": "encrypted", "encryption.stock-readers": "false"},
        ),
        ([ALL], {"plaintext_columns": "id,ssn"}, {"encryption.plaintext-columns": None}),
        (
            [rule("c", columns=["ssn"])],
            {"plaintext_columns": "id,ssn"},
            {"encryption.plaintext-columns": "id"},
        ),
    ],
)
def test_what_follows_from_the_rules_alone_is_asked(
    rules: list[dict[str, Any]], properties: dict[str, str], asked: dict[str, str | None]
) -> None:
    assert remedy(*rules, **properties) == Remedy(asked)


@pytest.mark.parametrize(
    ("rules", "properties", "told"),
    [
        ([rule("c", columns=["ssn"], columnKey=True)], {}, "must have a column key"),
        ([rule("c", columns=["ssn"])], {"columns": "other:id"}, "must be encrypted"),
        ([rule("k", masterKeys=["a", "b"])], {}, "master key 'house' is not allowed"),
        ([rule("k", masterKeys=["payroll-*"])], {}, "master key 'house' is not allowed"),
        ([rule("k", columns=["ssn"], masterKeys=["payroll"])], {}, "is not allowed for the column 'ssn'"),
        ([rule("p", partitionValues=False)], {"partition_values": "plaintext"}, "partition values"),
        ([rule("o", algorithms=["ORC_AES_CTR"])], {}, "algorithm AES_GCM_V1 is not allowed"),
    ],
)
def test_a_choice_is_left_to_a_person(
    rules: list[dict[str, Any]], properties: dict[str, str], told: str
) -> None:
    found = remedy(*rules, **properties)
    assert found.properties == {}
    assert told in (found.undecided or "")
