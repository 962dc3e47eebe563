"""Changes after which new files would promise less than they do now."""

from __future__ import annotations

from collections.abc import Mapping

from policy.encryption import governed
from policy.encryption.downgrade import (
    HiddenFields,
    could_downgrade,
    downgrades,
    downgrades_files,
    hidden_fields,
    uncovers_fields,
)
from policy.encryption.encrypted_columns import resolve_columns
from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import EncryptionSpec
from tests.support.vectors import each_row


def parse(text: str) -> EncryptionSpec:
    """A specification: `format`, and encryption properties without their prefix."""
    given = dict(each.split("=", 1) for each in text.split())
    file_format = FileFormat(given.pop("format", "parquet"))
    named = {f"encryption.{name}": value for name, value in given.items()}
    return EncryptionSpec.parse(named, catalog_master_key_id="lake", file_format=file_format)


ALL = "mechanism=envelope"
SOME = "columns=pii:ssn"
REST = "plaintext-columns=day"
CTR = "algorithm=AES_GCM_CTR_V1"


@each_row(
    ("before", "after", "less"),
    [
        # a column that would be in plaintext
        ("", ALL, False),
        ("", SOME, False),
        ("", "", False),
        (ALL, "", True),
        (ALL, SOME, True),
        (SOME, "", True),
        ("columns=pii:ssn,id", SOME, True),
        ("columns=pii:ssn;other:id", SOME, True),
        ("columns=pii:address", "columns=pii:address.city", True),
        ("columns=pii:address.city", "columns=pii:city", True),
        ("columns=pii:addresses", "columns=pii:address", True),
        ("", REST, False),
        (ALL, REST, True),
        (ALL, "plaintext-columns=", False),
        ("plaintext-columns=", ALL, False),
        (REST, ALL, False),
        (REST, "plaintext-columns=", False),
        (REST, "plaintext-columns=day,id", True),
        (REST, "plaintext-columns=id", True),
        ("plaintext-columns=address", "plaintext-columns=address.city", False),
        ("plaintext-columns=address.city", "plaintext-columns=address", True),
        (SOME, f"{SOME} {REST}", False),
        (f"{SOME} {REST}", SOME, True),
        (f"{SOME} plaintext-columns=", SOME, True),
        # values of partitions
        (ALL, "partition-values=plaintext", True),
        ("", "partition-values=plaintext", True),
        (ALL, "partition-values=refuse", False),
        ("partition-values=plaintext", ALL, False),
        # or under another key
        (REST, f"{SOME} {REST}", True),
        (f"{SOME} {REST}", REST, True),
        (f"{SOME} {REST}", "columns=pii:ssn,day plaintext-columns=", False),
        ("columns=lake:ssn", REST, True),
        ("columns=lake:ssn", ALL, True),
        (ALL, "master-key-id=x", True),
        (SOME, f"{SOME} master-key-id=x", True),
        (SOME, "columns=other:ssn", True),
        (SOME, "columns=pii:id;other:ssn", True),
        (SOME, ALL, True),
        ("columns=pii:address.city", "columns=other:address", True),
        ("columns=pii:address.city", "columns=pii:address", False),
        (SOME, "columns=pii:ssn,id", False),
        (SOME, "columns=pii:ssn;other:id", False),
        # changes that would be noticed less
        (ALL, CTR, True),
        (CTR, ALL, False),
        (ALL, f"{CTR} verify-digest=first-read", True),
        (ALL, f"{CTR} verify-digest=always", False),
        (f"{CTR} verify-digest=always", f"{CTR} verify-digest=first-read", True),
        (f"{CTR} verify-digest=first-read", f"{CTR} verify-digest=never", True),
        (f"{CTR} verify-digest=first-read", f"{CTR} verify-digest=always", False),
        ("verify-digest=always", "verify-digest=never", True),
        (f"{SOME} verify-digest=always", f"{SOME} verify-digest=first-read", True),
        # a footer in plaintext
        (ALL, "footer=plaintext", True),
        ("footer=plaintext", ALL, False),
        ("footer=plaintext", "footer=plaintext", False),
        # shorter keys
        (ALL, "data-key-length=24", True),
        ("data-key-length=24", "data-key-length=16", True),
        ("data-key-length=16", ALL, False),
        # another format
        (ALL, "format=orc mechanism=envelope verify-digest=always", True),
        ("footer=plaintext", "format=orc mechanism=envelope verify-digest=always", False),
        ("footer=plaintext", "format=orc verify-digest=first-read", True),
        ("footer=plaintext", "format=orc mechanism=envelope", False),
        (f"{CTR} footer=plaintext", "format=orc verify-digest=never", True),
        (f"{CTR} footer=plaintext verify-digest=first-read", "format=orc verify-digest=first-read", True),
        ("format=orc mechanism=envelope", "format=orc verify-digest=first-read", True),
        (f"{CTR} footer=plaintext", "format=orc mechanism=envelope verify-digest=always", False),
        ("format=orc verify-digest=never", f"{CTR} footer=plaintext", False),
        ("format=orc mechanism=envelope", ALL, True),
        ("format=orc mechanism=envelope", "verify-digest=first-read", True),
        ("format=orc mechanism=envelope", "verify-digest=always", False),
        (f"format=orc {SOME}", SOME, True),
        (f"format=orc {SOME}", f"{SOME} verify-digest=first-read", True),
        (f"format=orc {SOME}", f"{SOME} verify-digest=always", False),
        # other readers
        ("", "stock-readers=true", True),
        (ALL, "stock-readers=true", True),
        ("stock-readers=true", ALL, False),
        ("", "standard-clients=load", True),
        (ALL, "standard-clients=load", True),
        (ALL, "standard-clients=refuse", False),
        ("standard-clients=refuse", ALL, True),
        ("standard-clients=load", ALL, False),
        ("standard-clients=load", "standard-clients=refuse", False),
        (f"format=orc {SOME} masks=nullify:ssn", f"format=orc {SOME} masks=sha256:ssn", True),
        (f"format=orc {SOME} masks=sha256:ssn", f"format=orc {SOME} masks=nullify:ssn", False),
    ],
)
def test_what_new_files_would_promise_less(before: str, after: str, less: bool) -> None:
    assert downgrades(parse(before), parse(after)) is less


@each_row("text", ["", ALL, SOME, CTR, "stock-readers=true", f"format=orc {SOME} masks=sha256:ssn"])
def test_what_stays_as_it_is_weakens_nothing(text: str) -> None:
    assert not downgrades(parse(text), parse(text))
    assert not downgrades_files(parse(text), parse(text))


Keys = Mapping[int, str] | None


def hidden(keys: Keys) -> HiddenFields:
    """Those fields alone, or for None all fields, under the table's key."""
    return HiddenFields({}, others=True) if keys is None else HiddenFields(keys)


@each_row(
    ("before", "after", "less"),
    [
        ({}, {}, False),
        ({}, None, False),
        ({}, {2: "pii"}, False),
        (None, None, False),
        (None, {1: "pii", 2: "pii", 3: "pii"}, True),
        ({2: "pii"}, None, True),
        ({2: "pii"}, {}, True),
        ({2: "pii"}, {3: "pii"}, True),
        ({2: "pii"}, {2: "pii", 3: "pii"}, False),
        ({2: "pii"}, {2: "other"}, True),
        ({2: "pii", 9: "pii"}, {2: "pii"}, False),
        ({9: "pii"}, {}, False),
        ({9: "pii"}, None, False),
    ],
)
def test_columns_are_told_apart_by_the_ids_of_those_that_are_still_there(
    before: Keys, after: Keys, less: bool
) -> None:
    assert uncovers_fields(hidden(before), hidden(after), [1, 2, 3]) is less


@each_row(
    ("before", "after", "less"),
    [
        # field 3 comes with the change
        (HiddenFields({}, True, {1}), HiddenFields({}, True, {1}), False),
        (HiddenFields({}, True, {1}), HiddenFields({}, True, {1, 3}), True),
        (HiddenFields({}, True, {1}), HiddenFields({2: "pii"}, True, {1}), True),
        (HiddenFields({2: "pii"}, True, {1}), HiddenFields({1: "pii", 2: "pii"}, True), False),
        (HiddenFields({2: "pii"}, True, {1}), HiddenFields({2: "pii"}), True),
        # all are named, and the next one would be in plaintext
        (HiddenFields({2: "pii"}, True, {1, 3}), HiddenFields({2: "pii"}), True),
        (HiddenFields({}, True), HiddenFields({}, True, {9}), False),
    ],
)
def test_a_field_that_no_property_names_counts_as_encrypted(
    before: HiddenFields, after: HiddenFields, less: bool
) -> None:
    assert uncovers_fields(before, after, [1, 2, 3]) is less


@each_row(
    ("text", "keys"),
    [
        ("", {}),
        (ALL, None),
        (SOME, {1: "pii"}),
        ("columns=pii:ssn;other:name", {1: "pii", 2: "other", 3: "other"}),
    ],
)
def test_fields_are_under_their_columns_keys_or_all_under_one(text: str, keys: Keys) -> None:
    spec = parse(text)
    names = {"ssn": 1, "name": 2, "name.first": 3}
    found = hidden_fields(spec, resolve_columns(spec, names), names.values())
    assert found == hidden(keys)


def test_fields_that_no_property_names_are_under_the_tables_key() -> None:
    names = {"ssn": 1, "name": 2, "name.first": 3, "name.last": 4, "day": 5}
    spec = parse("columns=pii:ssn plaintext-columns=day,name.first")
    found = hidden_fields(spec, resolve_columns(spec, names), names.values())
    # The struct holds a plaintext field.
    assert found == HiddenFields({1: "pii"}, True, {2, 3, 5})


@each_row(
    ("name", "harmless", "weaker"),
    [
        ("encryption.mechanism", ["envelope"], ["plaintext"]),
        ("encryption.algorithm", ["AES_GCM_V1"], ["AES_GCM_CTR_V1", "ORC_AES_CTR"]),
        ("encryption.footer", ["encrypted"], ["plaintext"]),
        ("encryption.data-key-length", ["32"], ["16", "24"]),
        ("encryption.verify-digest", ["always"], ["never", "first-read"]),
        ("encryption.stock-readers", ["false"], ["true"]),
        ("encryption.standard-clients", ["refuse"], ["load"]),
        ("encryption.columns", [], ["pii:ssn"]),
        ("encryption.plaintext-columns", [""], ["day"]),
        ("encryption.partition-values", ["refuse"], ["plaintext"]),
        ("encryption.master-key-id", [], ["x"]),
        ("encryption.masks", ["nullify:ssn"], []),
        ("read.allowed.data.paths", ["s3://b/t"], []),
    ],
)
def test_of_an_unknown_table_it_is_told_what_could_weaken_it(
    name: str, harmless: list[str], weaker: list[str]
) -> None:
    assert governed.canonical_name(name) == name
    assert not any(could_downgrade({name: value}) for value in harmless)
    assert all(could_downgrade({name: value}) for value in weaker)
