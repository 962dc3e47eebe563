"""Governed properties: their spellings, their values, and what is refused of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.confusables import equal_but_foreign, skeleton_of
from policy.encryption.governed import (
    PEK_ID,
    canonical_name,
    check_count,
    is_confusable_with,
    is_governed,
    split,
)
from policy.errors import PropertyInvalid
from tests.support.vectors import each_row

SPELLINGS = {
    "read.allowed.data.paths": ("s3://b/t", "read.allowed.data.paths", "s3://b/t"),
    "encryption.mechanism": ("envelope", "encryption.mechanism", "envelope"),
    "encryption.master-key-id": ("lake", "encryption.master-key-id", "lake"),
    "encryption.key-id": ("lake", "encryption.master-key-id", "lake"),
    "parquet.encryption.footer.key": ("lake", "encryption.master-key-id", "lake"),
    "parquet.encryption.uniform.key": ("lake", "encryption.master-key-id", "lake"),
    "encryption.algorithm": ("AES_GCM_CTR_V1", "encryption.algorithm", "AES_GCM_CTR_V1"),
    "parquet.encryption.algorithm": ("AES_GCM_V1", "encryption.algorithm", "AES_GCM_V1"),
    "encryption.data-key-length": ("16", "encryption.data-key-length", "16"),
    "encryption.columns": ("pii:ssn,email", "encryption.columns", "pii:email,ssn"),
    "orc.encrypt": ("pii:ssn,email", "encryption.columns", "pii:email,ssn"),
    "parquet.encryption.column.keys": ("pii:ssn,email", "encryption.columns", "pii:email,ssn"),
    "encryption.footer": ("plaintext", "encryption.footer", "plaintext"),
    "parquet.encryption.plaintext.footer": ("true", "encryption.footer", "plaintext"),
    "encryption.masks": ("nullify:ssn;sha256:email", "encryption.masks", "nullify:ssn;sha256:email"),
    "orc.mask": ("sha256:email;nullify:ssn", "encryption.masks", "nullify:ssn;sha256:email"),
    "encryption.stock-readers": ("true", "encryption.stock-readers", "true"),
    "encryption.standard-clients": ("load", "encryption.standard-clients", "load"),
    "orc.key.provider": ("hadoop", "orc.key.provider", "hadoop"),
    "hadoop.security.key.provider.path": ("kms://h", "hadoop.security.key.provider.path", "kms://h"),
}
ORDINARY = [
    "owner",
    "comment",
    "write.format.default",
    "write.parquet.compression-codec",
    "write.metadata.delete-after-commit.enabled",
    "read.split.target-size",
    "read.parquet.vectorization.enabled",
    "commit.retry.num-retries",
    "format-version",
    "orc.compress",
    "orc.bloom.filter.columns",
    "parquet.block.size",
    "history.expire.max-snapshot-age-ms",
    "encryptions.count",
    "team.encryption.contact",
    "Комментарий",
    "説明",
    "説明説明説明説明説明説明説明説明説明説明",
    "option.owner",
    "option",
    "",
]
CONFUSABLES = {
    "Read.Allowed.Data.Paths": "read.allowed.data.paths",
    "READ.ALLOWED.DATA.PATHS": "read.allowed.data.paths",
    "encryption.Mechanism": "encryption.mechanism",
    "OPTION.encryption.mechanism": "encryption.mechanism",
    " encryption.mechanism": "encryption.mechanism",
    "encryption.mechanism ": "encryption.mechanism",
    "encryption.mechanism\n": "encryption.mechanism",
    "encryption .mechanism": "encryption.mechanism",
    "encryption\u200b.mechanism": "encryption.mechanism",
    "\ufeffencryption.mechanism": "encryption.mechanism",
    "encryption.m\u0435chanism": "encryption.mechanism",
    "\u0435n\u0441ryp\u0442i\u043en.mechanism": "encryption.mechanism",
    "\u212fncryption.mechanism": "encryption.mechanism",
    "ｅｎｃｒｙｐｔｉｏｎ.mechanism": "encryption.mechanism",
    "encr\u00fdption.mechanism": "encryption.mechanism",
    "encrypt\u0131on.mechanism": "encryption.mechanism",
    "encryption\u2024mechanism": "encryption.mechanism",
    "encryption.master\u2010key\u2011id": "encryption.master-key-id",
    "encryption.master\u2212key\u2014id": "encryption.master-key-id",
    "\u10d4ncryption.mechanism": "encryption.mechanism",
    "encryption_mechanism": "encryption.mechanism",
    "encryptionMechanism": "encryption.mechanism",
    "encryption-mechanism": "encryption.mechanism",
    "encryption.masterKeyId": "encryption.master-key-id",
    "encrypton.mechanism": "encryption.mechanism",
    "read.alowed.data.paths": "read.allowed.data.paths",
    "reed.allowed.data.paths": "read.allowed.data.paths",
    "encrypti0n.mechanism": "encryption.mechanism",
    "ORC.ENCRYPT": "orc.encrypt",
    "orc.encrypts": "orc.encrypt",
    "  orc . mask  ": "orc.mask",
    "o\u10d4c.m\u10d4sk": "orc.mask",
    "encryption.mechanisms": "encryption.mechanism",
    "encryption.column": "encryption.columns",
    "encryption.mask": "encryption.masks",
    "encryption.Pek-Id": "encryption.pek-id",
}
RESERVED = [
    "encryption",
    "encryption.",
    "encryption.foo",
    "Encryption.foo",
    "\u0435ncryption.foo",
    "read.allowed",
    "read.allowed.metadata.paths",
    "parquet.encryption.key.list",
    "parquet.encryption.kms.client.class",
    "parquet.crypto.factory.class",
    "orc.key.other",
    "hadoop.security.other",
    "option.encryption.foo",
]


@each_row("prefix", ["", "option.", "option.option."])
@each_row("name", SPELLINGS, count=20)
def test_every_spelling_becomes_its_canonical_name_and_value(name, prefix):
    value, canonical, normal = SPELLINGS[name]
    assert split({prefix + name: value, "owner": "ann"}) == ({canonical: normal}, {"owner": "ann"})
    assert is_governed(prefix + name)
    assert canonical_name(prefix + name) == canonical


@each_row("name", ORDINARY, count=21)
def test_ordinary_properties_are_left_alone(name):
    assert split({name: " Any \u200bvalue "}) == ({}, {name: " Any \u200bvalue "})
    assert not is_governed(name)
    with pytest.raises(PropertyInvalid, match="not a governed"):
        canonical_name(name)


@each_row("name", CONFUSABLES, count=36)
def test_confusable_names_are_refused_with_the_right_one_as_hint(name):
    assert is_governed(name)
    for refuse in (lambda: split({name: "envelope"}), lambda: canonical_name(name)):
        with pytest.raises(PropertyInvalid) as caught:
            refuse()
        assert caught.value.rule == "property-name"
        assert caught.value.hint == f"Did you mean {CONFUSABLES[name]}?"
        assert str(caught.value).isascii() and "\n" not in str(caught.value)


@each_row("name", RESERVED, count=13)
def test_unknown_names_under_a_governed_prefix_are_refused(name):
    assert is_governed(name)
    with pytest.raises(PropertyInvalid) as caught:
        split({name: "x"})
    assert caught.value.rule == "property-name" and caught.value.hint


@each_row("name", [PEK_ID, f"option.{PEK_ID}"])
def test_pek_id_from_a_client_is_refused(name):
    with pytest.raises(PropertyInvalid) as caught:
        split({name: "6f1c1f2e-0a63-4f6e-9d0c-0d1a2b3c4d5e"})
    assert caught.value.rule == "property-read-only"
    assert is_governed(name)


@each_row(
    ("first", "second"),
    [
        (("encryption.master-key-id", "a"), ("encryption.key-id", "b")),
        (("encryption.master-key-id", "a"), ("option.encryption.master-key-id", "b")),
        (("parquet.encryption.footer.key", "a"), ("parquet.encryption.uniform.key", "b")),
        (("encryption.columns", "k:a"), ("orc.encrypt", "k:b")),
        (("orc.encrypt", "k:a"), ("parquet.encryption.column.keys", "j:a")),
        (("encryption.footer", "encrypted"), ("parquet.encryption.plaintext.footer", "true")),
        (("encryption.algorithm", "AES_GCM_V1"), ("parquet.encryption.algorithm", "AES_GCM_CTR_V1")),
        (("encryption.masks", "nullify:a"), ("orc.mask", "redact:a")),
        (("read.allowed.data.paths", "s3://a"), ("option.read.allowed.data.paths", "s3://b")),
        (("parquet.encryption.uniform.key", "a"), ("encryption.columns", "k:a")),
        (("parquet.encryption.uniform.key", "a"), ("encryption.plaintext-columns", "a")),
        (("option.parquet.encryption.uniform.key", "a"), ("orc.encrypt", "k:a")),
    ],
)
def test_contradictions_name_both_spellings(first, second):
    for properties in ([first, second], [second, first]):
        with pytest.raises(PropertyInvalid) as caught:
            split(dict(properties))
        assert caught.value.rule == "property-contradiction"
        assert first[0] in caught.value.message and second[0] in caught.value.message


def test_equal_spellings_are_one_also_when_written_differently():
    governed, _ = split(
        {
            "encryption.columns": "pii: ssn , email; lake:a.b",
            "orc.encrypt": "lake:a.b;pii:email;pii:ssn",
            "option.encryption.columns": "pii:email,ssn;lake:a.b",
            "encryption.footer": "encrypted",
            "parquet.encryption.plaintext.footer": "false",
        }
    )
    assert governed == {"encryption.columns": "lake:a.b;pii:email,ssn", "encryption.footer": "encrypted"}


BAD_VALUES = {
    "encryption.mechanism": ["", "Envelope", "envelope ", "none", "true"],
    "encryption.algorithm": ["", "aes_gcm_v1", "AES_GCM", "AES_GCM_V1 ", "AES_GCM_V2"],
    "encryption.data-key-length": ["", "0", "128", "256", "032", " 32", "32.0", "+32", "３２"],
    "encryption.footer": ["", "true", "Encrypted"],
    "encryption.stock-readers": ["", "True", "TRUE", "1", "yes", " true"],
    "encryption.standard-clients": ["", "Load", "true", "allow", " load"],
    "parquet.encryption.plaintext.footer": ["", "True", "plaintext"],
    "encryption.master-key-id": [
        "", " a", "a ", "a b", "a:b", "a;b", "a,b", "clé", "../a", "a/../b", "a//b", "a/", "a@1", "-a",
        "x" * 256,
        "arn:", "a\n", "a\x00",
    ],
    "encryption.columns": [
        "", ";", "pii", "pii:", ":a", "pii:a;", ";pii:a", "pii:a,,b", "pii:a,", "pii:a;;lake:b", "pii:a;pii",
        "pii:a,a", "pii:a;lake:a", "pii:a.", "pii:.a", "pii:a..b", "pii:a;lake:a.b", "pii:a.b.c,a.b", "p i:a",
        "p:q:a", "pii:a\u200b", "pii:a\n", "pii: ", "pii:a. ",
    ],
    "encryption.masks": [
        "", "nullify", "nullify:", "hide:a", "Nullify:a", "nullify:a;redact:a", "redact,X:a",
    ],
    "orc.mask": ["redact,Xx9:a"],
    "orc.key.provider": ["", " ", "a\x00"],
    "hadoop.security.key.provider.path": [""],
}  # fmt: skip


@each_row(
    ("name", "value"), [(name, value) for name, values in BAD_VALUES.items() for value in values], count=90
)
def test_values_that_cannot_be_read_are_refused(name, value):
    for spelling in (name, f"option.{name}"):
        with pytest.raises(PropertyInvalid) as caught:
            split({spelling: value})
        assert caught.value.rule == "property-value"
        assert spelling in caught.value.message and caught.value.hint


@each_row("name", SPELLINGS, count=20)
@each_row("value", [None, 32, True, b"envelope", ["lake"]])
def test_values_that_are_no_text_are_refused(name, value):
    with pytest.raises(PropertyInvalid):
        split({name: value})


def test_overlong_value_is_refused():
    with pytest.raises(PropertyInvalid):
        split({"encryption.columns": "pii:" + "a" * 70_000})


def test_names_of_real_systems_can_be_keys_and_columns():
    arn = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd"
    text = f"{arn}:order id,straße,a-b;team/pii.v2:a.b c.d"
    assert split({"encryption.columns": text})[0] == {
        "encryption.columns": f"{arn}:a-b,order id,straße;team/pii.v2:a.b c.d"
    }


@given(st.dictionaries(st.text(max_size=30), st.text(max_size=10), max_size=4))
def test_split_loses_nothing_or_refuses(properties):
    try:
        governed, rest = split(properties)
    except PropertyInvalid:
        assert any(is_governed(name) for name in properties)
        return
    assert rest == {name: value for name, value in properties.items() if not is_governed(name)}
    assert bool(governed) == (len(rest) < len(properties))


@given(st.sampled_from(sorted(SPELLINGS)), st.integers(0, 40), st.sampled_from("\u200b\u00ad\u2060 \t\x00"))
def test_invisible_character_anywhere_in_a_name_is_refused(name, place, character):
    changed = name[:place] + character + name[place:]
    with pytest.raises(PropertyInvalid):
        split({changed: SPELLINGS[name][0]})


GOVERNED_NAMES = (
    "The governed properties are read.allowed.data.paths, encryption.mechanism, encryption.master-key-id,"
    " encryption.algorithm, encryption.data-key-length, encryption.columns,"
    " encryption.plaintext-columns, encryption.partition-values, encryption.footer,"
    " encryption.masks, encryption.stock-readers, encryption.standard-clients, encryption.verify-digest,"
    " orc.key.provider, hadoop.security.key.provider.path."
)
PROVIDER = "orc.key.provider"
KEY_ID_HINT = "Use at most 255 ASCII letters, digits and _ . / + = -, or an ARN."
GROUP_HINT = "Write key:column,column;key:column."
REFUSALS = {
    ("encryption.pek-id", "x"): (
        "encryption.pek-id is read-only: only the catalog sets it.",
        "Omit the property.",
    ),
    ("option.encryption.Mechanism", "x"): (
        "'option.encryption.Mechanism' is not a governed property.",
        "Did you mean encryption.mechanism?",
    ),
    ("encryption.colums.of.mine", "x"): (
        "'encryption.colums.of.mine' is not a governed property.",
        "Did you mean encryption.columns?",
    ),
    ("encryption." + "\u0437" * 75, "x"): (
        "'encryption." + "\\u0437" * 69 + "' is not a governed property.",
        GOVERNED_NAMES,
    ),
    ("read.allowed.data.paths", 7): (
        "read.allowed.data.paths: the value is not a string.",
        "Set the list of locations as a string.",
    ),
    ("orc.key.provider", 7): ("orc.key.provider: the value is not a string.", "Set the value as a string."),
    ("orc.key.provider", "  "): (
        "orc.key.provider: the value is empty.",
        "Set the key provider, or omit the property.",
    ),
    ("orc.key.provider", "a\x85"): (
        "orc.key.provider: the value contains a control or invisible character.",
        "Remove the character.",
    ),
    ("orc.key.provider", "a" * 65_537): (
        "orc.key.provider: the value has 65537 characters, which is too long.",
        "Use at most 65536.",
    ),
    ("encryption.footer", "x" * 81): (
        f"encryption.footer: {'x' * 80!r} is not an allowed value.",
        "Use encrypted or plaintext.",
    ),
    ("option.encryption.data-key-length", "8"): (
        "option.encryption.data-key-length: '8' is not an allowed value.",
        "Use 16 or 24 or 32.",
    ),
    ("encryption.key-id", "k" * 256): (
        f"encryption.key-id: {'k' * 80!r} is not a valid master key id.",
        KEY_ID_HINT,
    ),
    ("orc.encrypt", " " + "p" * 81): (f"orc.encrypt: {'p' * 80!r} is not a group of columns.", GROUP_HINT),
    ("encryption.key-id", "door/pii"): (
        "encryption.key-id: 'door/pii' names a key of the KMS endpoint, not a master key.",
        "Use a master key of the catalog's KMS.",
    ),
    ("orc.encrypt", "door/pii:a"): (
        "orc.encrypt: 'door/pii' names a key of the KMS endpoint, not a master key.",
        "Use a master key of the catalog's KMS.",
    ),
    ("orc.encrypt", "p q:a"): ("orc.encrypt: 'p q' is not a valid master key id.", KEY_ID_HINT),
    ("orc.encrypt", "p:a;q:a"): ("orc.encrypt: column 'a' is listed twice.", "List each column once."),
    ("orc.encrypt", "p:a. ,b"): (
        "orc.encrypt: a column name, or a part of a nested column name, is empty.",
        "Write every column name in full.",
    ),
    ("orc.encrypt", "p:a.b.c,a.b"): (
        "orc.encrypt: column 'a.b.c' is nested in column 'a.b', which is listed too.",
        "List only one of them.",
    ),
    ("orc.mask", "hide:a"): (
        "orc.mask: 'hide' is not an allowed value.",
        "Use nullify or sha256 or redact.",
    ),
}


@each_row(("name", "value"), REFUSALS, count=20)
def test_each_refusal_says_what_is_wrong_and_what_to_do(name, value):
    with pytest.raises(PropertyInvalid) as caught:
        split({"owner": "ann", name: value})
    assert (caught.value.message, caught.value.hint) == REFUSALS[name, value]


def test_a_contradiction_is_told_with_both_spellings_as_given():
    with pytest.raises(PropertyInvalid) as caught:
        split({"encryption.key-id": "a", "option.encryption.master-key-id": "b"})
    assert str(caught.value) == (
        "Properties encryption.key-id and option.encryption.master-key-id contradict each other."
        " [rule=property-contradiction] Set only one of them."
    )


def test_an_ordinary_property_is_told_from_a_governed_one():
    with pytest.raises(PropertyInvalid) as caught:
        canonical_name("owner")
    assert caught.value.message == "'owner' is not a governed property."
    assert caught.value.hint == "Set or remove it as an ordinary table property."
    assert caught.value.rule == "property-name"


def test_more_properties_than_are_judged_are_refused():
    check_count(1000)
    with pytest.raises(PropertyInvalid) as caught:
        check_count(1001)
    assert str(caught.value) == (
        "There are 1001 properties. At most 1000 are allowed. [rule=property-count] Remove unused properties."
    )


@each_row(
    ("name", "value", "kept"),
    [
        ("encryption.master-key-id", "k" * 255, "k" * 255),
        ("encryption.master-key-id", "X/X", "X/X"),
        ("encryption.columns", "k: XaX ; k:b.XcX", "k:XaX,b.XcX"),
        ("encryption.columns", " k :a .b", "k:a .b"),
        ("encryption.plaintext-columns", " b.c , a", "a,b.c"),
        ("encryption.plaintext-columns", "  ", ""),
        ("orc.key.provider", "a" * 65_536, "a" * 65_536),
        ("orc.key.provider", "X", "X"),
        ("orc.key.provider", "XX  XX", "XX  XX"),
        ("read.allowed.data.paths", "\x00", "\x00"),
    ],
)
def test_values_at_their_bounds_are_kept(name, value, kept):
    assert list(split({name: value})[0].values()) == [kept]


def test_blanks_are_spaces_alone():
    for name, value in (
        ("encryption.columns", "k:\u00a0"),
        ("encryption.columns", "k:a.\u00a0"),
        (PROVIDER, "\u00a0"),
    ):
        assert split({name: value})[0] == {name: value}
    with pytest.raises(PropertyInvalid):
        split({"encryption.columns": "\u00a0k:a"})


@each_row(
    ("name", "known", "taken"),
    [
        ("lakewarden.unsealed", "lakewarden.unsealed", True),
        ("LakeWarden_Unsealed", "lakewarden.unsealed", True),
        ("lakewardenunsealed", "lakewarden.unsealed", True),
        ("l.a.k.e.w.a.r.d.e.n.u.n.s.e.a.l.e.d", "lakewarden.unsealed", True),
        ("lakewarden.unsealled", "lakewarden.unsealed", True),
        ("lakewarden.sealed", "lakewarden.unsealed", True),
        ("lakewarden.seal", "lakewarden.unsealed", False),
        ("lakewarden.unsealed.x" + "x" * 600, "lakewarden.unsealed", False),
        ("comment", "lakewarden.unsealed", False),
    ],
)
def test_a_name_is_taken_for_another_one(name, known, taken):
    assert is_confusable_with(name, known) is taken


@each_row(
    ("name", "seen"),
    [
        (" A\tb\x7f\x00C ", "abc"),
        ("\u00c9t\u00e9", "ete"),
        ("\u0415\u0421", "ec"),
        ("\u2014\u22c5\uff21", "-.a"),
        ("a\u200b\u00a0\u0301b\u3000", "ab"),
        ("\u00dfX", "ssx"),
        ("\u00a3x", "\u00a3x"),
        ("xMcZ\u00e9", "xmcze"),
        ("\u00e9!\u0661m", "e!\u0661m"),
    ],
)
def test_what_a_person_sees(name, seen):
    assert skeleton_of(name) == seen


@each_row(
    ("text", "known", "same"),
    [
        ("abcd", "abcd", True),
        ("abcd", "abce", False),
        ("abc", "abcd", False),
        ("ab\u10d4\u10d4", "abcd", True),
        ("a\u10d4\u10d4\u10d4", "abcd", False),
        ("ab\u10d4\u10d4\u10d4", "abcde", False),
        ("abc\u10d4\u10d4", "abcde", True),
        ("abx\u10d4", "abcd", False),
        ("ab\u10d4\u10d4e", "abcd", False),
    ],
)
def test_most_letters_are_equal_where_foreign_ones_stand_for_others(text, known, same):
    assert equal_but_foreign(text, known) is same
