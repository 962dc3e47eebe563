"""What a table's encryption properties mean: the specification, its columns by field id, its bounds."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.encryption.encrypted_columns import (
    KeyedFields,
    protected_fields,
    require_column_left,
    require_numbered,
    require_sorted,
    require_sources,
    resolve_columns,
)
from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import (
    Algorithm,
    ColumnKey,
    ColumnMask,
    EncryptionSpec,
    Footer,
    Mechanism,
    VerifyDigest,
)
from policy.errors import EncryptionPolicyViolation, PropertyInvalid
from tests.support.vectors import each_row

SCHEMA = {"id": 1, "ssn": 2, "email": 3, "address": 4, "address.city": 5, "address.zip": 6, "addresses": 7}


def parse(properties=None, *, master="lake", **given) -> EncryptionSpec:
    named = {f"encryption.{name.replace('_', '-')}": value for name, value in given.items()}
    return EncryptionSpec.parse({**(properties or {}), **named}, catalog_master_key_id=master)


def test_no_encryption_property_means_plaintext():
    spec = parse({"owner": "ann", "read.allowed.data.paths": "s3://b/t"})
    assert spec == EncryptionSpec(Mechanism.PLAINTEXT)
    assert not spec.encrypts and spec.key_ids() == () and spec.not_in_effect() == ()
    assert spec.to_properties() == {"encryption.mechanism": "plaintext"}


@each_row(
    "properties",
    [
        {"encryption.mechanism": "envelope"},
        {"encryption.key-id": "lake"},
        {"encryption.algorithm": "AES_GCM_V1"},
        {"encryption.data-key-length": "32"},
        {"encryption.footer": "encrypted"},
        {"encryption.stock-readers": "false"},
        {"option.parquet.encryption.uniform.key": "lake"},
    ],
)
def test_any_encryption_property_makes_envelope_with_the_defaults(properties):
    assert parse(properties) == EncryptionSpec(Mechanism.ENVELOPE, "lake", Algorithm.AES_GCM_V1, 32)
    assert parse(properties).encrypts


@each_row(
    ("name", "value"),
    [
        ("encryption.master-key-id", "lake"),
        ("orc.encrypt", "pii:ssn"),
        ("encryption.algorithm", "AES_GCM_V1"),
        ("encryption.data-key-length", "32"),
        ("encryption.footer", "encrypted"),
        ("encryption.masks", "nullify:ssn"),
        ("encryption.stock-readers", "false"),
        ("encryption.standard-clients", "refuse"),
        ("orc.key.provider", "hadoop"),
    ],
)
def test_plaintext_beside_another_encryption_property_is_a_contradiction(name, value):
    with pytest.raises(PropertyInvalid) as caught:
        parse({"encryption.mechanism": "plaintext", name: value})
    assert caught.value.rule == "property-contradiction"


def test_table_without_any_master_key_is_refused():
    with pytest.raises(PropertyInvalid, match="master key"):
        parse(mechanism="envelope", master=None)
    with pytest.raises(PropertyInvalid, match="catalog's master key"):
        parse(mechanism="envelope", master="not a key")
    assert parse(master_key_id="own", master=None).master_key_id == "own"
    assert parse(master=None) == EncryptionSpec(Mechanism.PLAINTEXT)


def test_everything_that_can_be_said():
    spec = parse(
        {
            "encryption.key-id": "lake",
            "encryption.algorithm": "AES_GCM_CTR_V1",
            "encryption.data-key-length": "24",
            "encryption.columns": "pii:ssn,email;lake:id",
            "encryption.footer": "plaintext",
            "encryption.masks": "nullify:ssn",
            "encryption.verify-digest": "always",
            "encryption.stock-readers": "true",
            "orc.key.provider": "hadoop",
            "hadoop.security.key.provider.path": "kms://h",
        }
    )
    assert spec == EncryptionSpec(
        Mechanism.ENVELOPE,
        "lake",
        Algorithm.AES_GCM_CTR_V1,
        24,
        (ColumnKey("lake", ("id",)), ColumnKey("pii", ("email", "ssn"))),
        Footer.PLAINTEXT,
        (ColumnMask("nullify", ("ssn",)),),
        True,
        (("orc.key.provider", "hadoop"), ("hadoop.security.key.provider.path", "kms://h")),
        VerifyDigest.ALWAYS,
    )
    assert spec.key_ids() == ("lake", "pii")
    sentences = spec.not_in_effect()
    assert sum(sentence.startswith("orc.key.provider ") for sentence in sentences) == 1
    assert sum(sentence.startswith("hadoop.security.key.provider.path ") for sentence in sentences) == 1
    assert len(sentences) == 2 and all(sentence.endswith(".") for sentence in sentences)


@each_row(
    "given",
    [
        {"mechanism": "envelope"},
        {"data_key_length": "16"},
        {"data_key_length": "24"},
        {"master_key_id": "x"},
        {"columns": "pii:ssn"},
        {"algorithm": "AES_GCM_CTR_V1"},
        {"footer": "plaintext"},
    ],
)
def test_what_is_in_effect_now_is_not_reported(given):
    assert parse(**given).not_in_effect() == ()


optional = st.fixed_dictionaries(
    {},
    optional={
        "encryption.mechanism": st.just("envelope"),
        "encryption.master-key-id": st.sampled_from(["lake", "a/b", "arn:aws:kms:x:1:key/y"]),
        "encryption.algorithm": st.sampled_from([Algorithm.AES_GCM_V1, Algorithm.AES_GCM_CTR_V1]),
        "encryption.data-key-length": st.sampled_from(["16", "24", "32"]),
        "encryption.columns": st.sampled_from(["k:a", "k:b,a;j:c d.e", "arn:aws:kms:x:1:key/y:a;k:b"]),
        "encryption.footer": st.sampled_from(list(Footer)),
        "encryption.masks": st.sampled_from(["nullify:a", "nullify:a,b"]),
        "encryption.stock-readers": st.sampled_from(["true", "false"]),
        "encryption.verify-digest": st.sampled_from(["never", "first-read", "always"]),
        "encryption.standard-clients": st.sampled_from(["load", "refuse"]),
        "orc.key.provider": st.just("hadoop"),
    },
)


@given(optional)
def test_properties_in_force_parse_to_the_same_specification(properties):
    spec = EncryptionSpec.parse(properties, catalog_master_key_id="default")
    shown = spec.to_properties()
    assert EncryptionSpec.parse(shown, catalog_master_key_id=None) == spec
    assert EncryptionSpec.parse(shown, catalog_master_key_id="other").to_properties() == shown
    assert "encryption.pek-id" not in shown


def test_columns_become_field_ids_with_all_that_is_nested_in_them():
    spec = parse(columns="pii:ssn,address;lake:addresses", masks="nullify:address")
    assert resolve_columns(spec, SCHEMA) == (KeyedFields("lake", (7,)), KeyedFields("pii", (2, 4, 5, 6)))


@each_row("text", ["pii:absent", "pii:SSN", "pii:address.street", "pii:address.city.x", "pii:ssn,absent"])
def test_unknown_column_is_refused(text):
    with pytest.raises(PropertyInvalid) as caught:
        resolve_columns(parse(columns=text), SCHEMA)
    assert caught.value.rule == "unknown-column"


def test_a_name_with_a_dot_need_not_lie_in_another_column():
    assert resolve_columns(parse(columns="pii:a.b"), {"a.b": 1, "a.c": 2}) == (KeyedFields("pii", (1,)),)


def test_mask_on_a_column_without_a_key_or_on_an_unknown_one_is_refused():
    for masks in ("nullify:email", "nullify:address", "nullify:ssn,id"):
        with pytest.raises(PropertyInvalid) as caught:
            resolve_columns(parse(columns="pii:ssn,address.city", masks=masks), SCHEMA)
        assert caught.value.rule == "mask-without-key"
    with pytest.raises(PropertyInvalid) as caught:
        resolve_columns(parse(masks="nullify:absent"), SCHEMA)
    assert caught.value.rule == "unknown-column"


def test_under_a_uniform_key_every_column_has_one():
    assert resolve_columns(parse(masks="nullify:email"), SCHEMA) == ()


def check(sources, **given):
    """Refuses encrypted sources."""
    spec = parse(**given)
    names = {field_id: name for name, field_id in SCHEMA.items()}
    require_sources(spec, resolve_columns(spec, SCHEMA), [(names[each], each) for each in sources], "db.t")


def test_an_encrypted_column_is_no_partition_source():
    check([1, 3], columns="pii:ssn,address")
    for sources in ([2], [1, 2], [5]):
        with pytest.raises(EncryptionPolicyViolation) as refused:
            check(sources, columns="pii:ssn,address")
        assert refused.value.rule == "encrypted-source"


def test_under_a_uniform_key_every_source_is_encrypted():
    check([], mechanism="envelope")
    check([1, 2, 3])
    check([1, 2, 3], partition_values="plaintext")
    with pytest.raises(EncryptionPolicyViolation):
        check([1], mechanism="envelope")


@each_row(
    ("given", "fields"),
    [
        ({}, frozenset()),
        ({"mechanism": "envelope"}, None),
        ({"columns": "pii:ssn,address;lake:addresses"}, frozenset({2, 4, 5, 6, 7})),
        ({"plaintext_columns": "id,address"}, frozenset({2, 3, 7})),
        ({"plaintext_columns": "address.city"}, frozenset({1, 2, 3, 6, 7})),
        ({"plaintext_columns": "", "columns": "pii:ssn"}, frozenset(range(1, 8))),
    ],
)
def test_protected_are_all_columns_or_those_that_are_named(given, fields):
    spec = parse(**given)
    assert protected_fields(spec, resolve_columns(spec, SCHEMA)) == fields


def order(sources, varying, **given):
    """Refuses encrypted columns that sort a table in which other columns would show their order."""
    spec = parse(**given)
    names = {field_id: name for name, field_id in SCHEMA.items()}
    keyed = resolve_columns(spec, SCHEMA)
    require_sorted(spec, keyed, *([(names[i], i) for i in ids] for ids in (sources, varying)), "db.t")


def test_an_encrypted_column_sorts_a_table_without_plaintext_columns():
    order([2], [1, 2, 3], mechanism="envelope")
    order([1], [1, 2, 3], columns="pii:ssn")
    order([2], [2, 3], plaintext_columns="id,address,addresses")
    order([2], [1, 2, 3], plaintext_columns="", columns="pii:email")
    for said in ({"columns": "pii:ssn"}, {"plaintext_columns": "id"}):
        with pytest.raises(EncryptionPolicyViolation) as refused:
            order([2], [1, 2, 3], **said)
        assert refused.value.rule == "encrypted-order"
        assert refused.value.message == (
            "The encrypted column 'ssn' cannot sort the table: files show values of 'id' in the order of its "
            "rows, in plaintext or masked."
        )


def test_an_encrypted_column_sorts_no_orc_table_that_stores_hashes():
    for masks, shown in (("sha256:email", True), ("redact:id", False), ("nullify:email", False)):
        named = {"encryption.mechanism": "envelope", "encryption.masks": masks}
        spec = EncryptionSpec.parse(named, catalog_master_key_id="lake", file_format=FileFormat.ORC)
        with pytest.raises(EncryptionPolicyViolation) if shown else nullcontext():
            require_sorted(spec, (), [("ssn", 2)], [("ssn", 2), ("email", 3)], "db.t")


def test_columns_that_no_property_names_are_under_the_tables_key():
    spec = parse(columns="pii:ssn", plaintext_columns="id,address.city")
    # The struct itself is in no group, since a field of it is plaintext.
    assert resolve_columns(spec, SCHEMA) == (KeyedFields("pii", (2,)), KeyedFields("lake", (3, 6, 7)))
    assert {name: spec.key_of(name) for name in SCHEMA if name != "address"} == {
        "id": None,
        "ssn": "pii",
        "email": "lake",
        "address.city": None,
        "address.zip": "lake",
        "addresses": "lake",
    }
    later = {**SCHEMA, "address.street": 8, "salary": 9}
    assert resolve_columns(spec, later)[1] == KeyedFields("lake", (3, 6, 7, 8, 9))
    named = parse(columns="pii:ssn,email,addresses", plaintext_columns="id,address")
    assert [group.key_id for group in resolve_columns(named, SCHEMA)] == ["pii"]


@each_row(
    ("given", "rule"),
    [
        ({"columns": "pii:ssn", "plaintext_columns": "ssn"}, "property-contradiction"),
        ({"columns": "pii:address", "plaintext_columns": "address.city"}, "property-contradiction"),
        ({"columns": "pii:address.city", "plaintext_columns": "address"}, "property-contradiction"),
        ({"columns": "lake:ssn", "plaintext_columns": "id"}, "property-contradiction"),
        ({"mechanism": "plaintext", "plaintext_columns": "id"}, "property-contradiction"),
        ({"plaintext_columns": "id,id"}, "property-value"),
        ({"plaintext_columns": "id,,ssn"}, "property-value"),
        ({"plaintext_columns": "address,address.city"}, "property-value"),
        ({"plaintext_columns": "nothing"}, "unknown-column"),
        ({"plaintext_columns": "id,ssn,email,address,addresses"}, "no-encrypted-column"),
        ({"plaintext_columns": "id", "masks": "nullify:id"}, "mask-without-key"),
        ({"partition_values": "encrypted"}, "property-value"),
    ],
)
def test_plaintext_columns_that_contradict_another_property_are_refused(given, rule):
    with pytest.raises(PropertyInvalid) as refused:
        resolve_columns(parse(**given), SCHEMA)
    assert refused.value.rule == rule


def test_of_orc_a_plaintext_column_is_a_top_level_column():
    given = {"encryption.plaintext-columns": "address.city"}
    spec = EncryptionSpec.parse(given, catalog_master_key_id="lake", file_format=FileFormat.ORC)
    with pytest.raises(PropertyInvalid, match="nested-column"):
        resolve_columns(spec, SCHEMA)


def wide(keys, fields):
    """A specification with so many keys, and columns with so many fields in all."""
    names = [f"c{number}" for number in range(keys)]
    inside = [f"{names[number % keys]}.f{number}" for number in range(fields - keys)]
    groups = ";".join(f"k{name}:{name}" for name in names)
    return parse(columns=groups), {name: number for number, name in enumerate([*names, *inside])}


@each_row(("keys", "fields"), [(254, 254), (1, 16_000), (254, 10_000)])
def test_many_columns_get_keys(keys, fields):
    keyed = resolve_columns(*wide(keys, fields))
    assert (len(keyed), sum(len(group.field_ids) for group in keyed)) == (keys, fields)


@each_row(("keys", "fields"), [(255, 255), (1, 17_000), (254, 13_000)])
def test_more_columns_than_key_metadata_holds_are_refused_where_they_are_named(keys, fields):
    with pytest.raises(PropertyInvalid) as caught:
        resolve_columns(*wide(keys, fields))
    assert caught.value.rule == "too-many-columns"


def test_foreign_key_providers_have_no_effect_on_parquet():
    providers = ("orc.key.provider", "hadoop.security.key.provider.path")
    assert parse(dict.fromkeys(reversed(providers), "x")).not_in_effect() == tuple(
        f"{name} has no effect in this release: keys always come from the catalog's KMS."
        for name in providers
    )


@each_row(
    ("attempt", "told"),
    [
        (
            lambda: parse(mechanism="envelope", master=None),
            "The table is encrypted, but neither the table nor the catalog has a master key."
            " [rule=master-key-id] Set encryption.master-key-id.",
        ),
        (
            lambda: parse(mechanism="envelope", master="not a key"),
            "The catalog's master key id 'not a key' is not valid."
            " [rule=master-key-id] Correct the master key id in the catalog's configuration.",
        ),
        (
            lambda: parse(mechanism="plaintext", footer="encrypted"),
            "Properties encryption.mechanism=plaintext and encryption.footer contradict each other."
            " [rule=property-contradiction] Set only one of them.",
        ),
        (
            lambda: resolve_columns(parse(columns="pii:SSN"), SCHEMA),
            "encryption.columns: the table has no column 'SSN'. [rule=unknown-column]"
            " Use the schema's column names, in exact letter case. Separate nested names with dots.",
        ),
        (
            lambda: resolve_columns(parse(masks="nullify:absent"), SCHEMA),
            "encryption.masks: the table has no column 'absent'. [rule=unknown-column]"
            " Use the schema's column names, in exact letter case. Separate nested names with dots.",
        ),
        (
            lambda: resolve_columns(parse(columns="pii:ssn", masks="nullify:email"), SCHEMA),
            "encryption.masks: column 'email' has a mask but no column key. [rule=mask-without-key]"
            " Give the column a key in encryption.columns, or remove the mask.",
        ),
        (
            lambda: resolve_columns(
                parse(columns=";".join(f"k{n}:c{n}" for n in range(255))), {f"c{n}": n for n in range(255)}
            ),
            "encryption.columns: 255 column keys with their columns, nested ones included, do not fit into"
            " the key metadata of a file. [rule=too-many-columns] Use fewer keys or columns, or unset the"
            " property to encrypt all columns under one key.",
        ),
    ],
)
def test_each_refusal_says_what_is_wrong_and_what_to_do(attempt, told):
    with pytest.raises(PropertyInvalid) as caught:
        attempt()
    assert str(caught.value) == told


def test_key_metadata_is_filled_up_to_its_bounds():
    """254 column keys, or 65,024 bytes: 85 for each key, its id, and 4 for each field."""
    schema = {f"c{number}": number for number in range(20_000)}
    assert len(resolve_columns(parse(columns=";".join(f"k{n}:c{n}" for n in range(254))), schema)) == 254
    fields = (65_536 - 512 - 85 - 3) // 4
    names = [f"c{number}" for number in range(fields + 1)]
    spec = EncryptionSpec(Mechanism.ENVELOPE, "lake", columns=(ColumnKey("pii", tuple(names[:-1])),))
    assert len(resolve_columns(spec, schema)[0].field_ids) == fields
    longer = EncryptionSpec(Mechanism.ENVELOPE, "lake", columns=(ColumnKey("pii", tuple(names)),))
    with pytest.raises(PropertyInvalid):
        resolve_columns(longer, schema)
    named = EncryptionSpec(Mechanism.ENVELOPE, "lake", columns=(ColumnKey("pii+", tuple(names[:-1])),))
    assert (85 + 3 + 4 * fields, 65_536 - 512) == (65_024, 65_024)
    with pytest.raises(PropertyInvalid):
        resolve_columns(named, schema)


def test_an_error_names_the_sources_that_are_encrypted():
    with pytest.raises(EncryptionPolicyViolation) as refused:
        check([1, 2, 5], columns="pii:ssn,address")
    assert refused.value.message == ("Encrypted columns cannot partition a table: 'ssn', 'address.city'.")


@each_row(
    ("column", "field_ids"),
    [("a", (1, 2, 3, 4)), ("a.b", (2, 3)), ("a.b.c", (3,)), ("a.bc", (4,)), ("ab", (5,))],
)
def test_a_column_has_the_fields_in_it_and_no_others(column, field_ids):
    schema = {"a": 1, "a.b": 2, "a.b.c": 3, "a.bc": 4, "ab": 5}
    assert resolve_columns(parse(columns=f"k:{column}"), schema) == (KeyedFields("k", field_ids),)


@each_row(
    ("file_format", "leaves", "refused"),
    [("parquet", 32_768, False), ("parquet", 32_769, True), ("orc", 40_000, False)],
)
def test_columns_are_no_more_than_an_encrypted_file_can_number(file_format, leaves, refused):
    spec = EncryptionSpec.parse(
        {"encryption.mechanism": "envelope"}, catalog_master_key_id="m", file_format=FileFormat(file_format)
    )
    with pytest.raises(PropertyInvalid, match=r"too-many-columns.*orc") if refused else nullcontext():
        require_numbered(spec, leaves)
    require_numbered(EncryptionSpec.parse({}, catalog_master_key_id="m"), leaves)


def test_the_last_column_with_a_key_does_not_go():
    keyed, others, none = (
        parse(columns="pii:ssn,email"),
        parse(columns="pii:email"),
        parse(mechanism="envelope"),
    )
    with pytest.raises(EncryptionPolicyViolation) as refused:
        require_column_left(keyed, none, "db.t")
    assert str(refused.value) == (
        "The change removes the last column that encryption.columns names. [table=db.t, rule=last-column] "
        "Unset encryption.columns first. All columns are then encrypted under one key."
    )
    require_column_left(keyed, others, "db.t")
    require_column_left(none, none, "db.t")
