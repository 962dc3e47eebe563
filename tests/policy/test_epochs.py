"""Epochs: which one governs a file, and what a file of it has to be."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from policy.encryption.encrypted_columns import KeyedFields
from policy.encryption.epochs import (
    Epoch,
    Epochs,
    FileKey,
    FileKeys,
    PekRef,
    check_migrated,
    check_new_file,
    check_sealed_file,
    encrypts_equally,
    epoch_for,
    migrated,
)
from policy.encryption.specification import (
    Algorithm,
    ColumnKey,
    EncryptionSpec,
    Footer,
    Mechanism,
    VerifyDigest,
)
from policy.errors import EncryptionPolicyViolation
from tests.support.vectors import each_row

LAKE, LAKE_2, PII, OTHER = (
    PekRef(UUID(int=1), 1, "lake"),
    PekRef(UUID(int=1), 2, "lake"),
    PekRef(UUID(int=2), 1, "pii"),
    PekRef(UUID(int=3), 1, "lake"),
)
PLAIN = Epoch(0, EncryptionSpec(Mechanism.PLAINTEXT))
UNIFORM = Epoch(5, EncryptionSpec(Mechanism.ENVELOPE, "lake"), peks=(LAKE,))
COLUMNS = Epoch(
    9,
    EncryptionSpec(Mechanism.ENVELOPE, "lake", columns=(ColumnKey("pii", ("ssn",)),)),
    columns=(KeyedFields("pii", (2, 3)),),
    peks=(LAKE_2, LAKE, PII),
)
HISTORY = Epochs.of([PLAIN, UNIFORM, COLUMNS])

FOOTER_KEY = FileKey(LAKE, (), 32)
UNIFORM_FILE = FileKeys(Algorithm.AES_GCM_V1, Footer.ENCRYPTED, (FOOTER_KEY,))
COLUMN_FILE = replace(UNIFORM_FILE, keys=(FOOTER_KEY, FileKey(PII, (2, 3), 32)))


@each_row(
    ("number", "epoch"),
    [(0, PLAIN), (4, PLAIN), (5, UNIFORM), (8, UNIFORM), (9, COLUMNS), (10**12, COLUMNS)],
)
def test_epoch_of_a_sequence_number(number, epoch):
    assert epoch_for(HISTORY, number) is epoch


def test_negative_or_unknown_sequence_number_has_no_epoch():
    with pytest.raises(EncryptionPolicyViolation):
        epoch_for(HISTORY, -1)
    for number in (-1, None):
        for keys in (None, UNIFORM_FILE):
            decision = check_sealed_file(HISTORY, number, keys)
            assert not decision and decision.reasons[0].rule == "epoch"


@each_row(
    "epochs",
    [[], [UNIFORM], [PLAIN, PLAIN], [PLAIN, COLUMNS, UNIFORM], [PLAIN, UNIFORM, UNIFORM]],
)
def test_epochs_with_a_gap_or_out_of_order_are_refused(epochs):
    with pytest.raises(EncryptionPolicyViolation):
        Epochs.of(epochs)


def test_newer_epoch_follows_or_replaces_the_current_one():
    assert Epochs.of([PLAIN]).followed_by(UNIFORM).entries == (PLAIN, UNIFORM)
    newer = replace(UNIFORM, peks=(LAKE_2,))
    assert Epochs.of([PLAIN, UNIFORM]).followed_by(newer).entries == (PLAIN, newer)
    assert Epochs.of([PLAIN]).followed_by(replace(UNIFORM, from_sequence_number=0)).current.spec.encrypts
    with pytest.raises(EncryptionPolicyViolation):
        HISTORY.followed_by(replace(UNIFORM, from_sequence_number=7))


@each_row(
    "changed",
    [
        {"from_sequence_number": -1},
        {"columns": ()},
        {"columns": (KeyedFields("lake", (2,)),)},
        {"peks": ()},
        {"peks": (LAKE,)},
        {"peks": (LAKE, PII, PII)},
        {"peks": (LAKE, PII, PekRef(UUID(int=4), 1, "third"))},
    ],
    ids=str,
)
def test_epoch_that_contradicts_itself_is_refused(changed):
    with pytest.raises(EncryptionPolicyViolation):
        replace(COLUMNS, **changed)


def test_plaintext_table_with_a_pek_is_refused():
    with pytest.raises(EncryptionPolicyViolation):
        replace(PLAIN, peks=(LAKE,))


def test_file_is_judged_by_the_epoch_of_its_sequence_number():
    assert check_sealed_file(HISTORY, 4, None)
    assert check_sealed_file(HISTORY, 5, UNIFORM_FILE)
    assert check_sealed_file(HISTORY, 9, COLUMN_FILE)
    refused = {
        (4, UNIFORM_FILE): "plaintext-required",
        (5, None): "encryption-required",
        (9, None): "encryption-required",
        (9, UNIFORM_FILE): "columns",
        (5, COLUMN_FILE): "pek",
    }
    for (number, keys), rule in refused.items():
        decision = check_sealed_file(HISTORY, number, keys)
        assert not decision and decision.reasons[0].rule == rule


def test_new_file_is_judged_by_the_current_epoch():
    assert check_new_file(HISTORY, COLUMN_FILE)
    assert not check_new_file(HISTORY, None) and not check_new_file(HISTORY, UNIFORM_FILE)
    assert check_new_file(Epochs.of([PLAIN]), None)
    assert not check_new_file(Epochs.of([PLAIN]), UNIFORM_FILE)
    assert not check_new_file(Epochs.of([PLAIN, UNIFORM]), None)


def test_every_pek_version_that_the_epoch_names_is_good():
    renewed = replace(COLUMN_FILE, keys=(FileKey(LAKE_2, (), 32), COLUMN_FILE.keys[1]))
    assert check_new_file(HISTORY, renewed)


@each_row(
    ("rule", "changed"),
    [
        ("algorithm", {"algorithm": Algorithm.AES_GCM_CTR_V1}),
        ("footer", {"footer": Footer.PLAINTEXT}),
        ("stock-readers", {"stock_readers": True}),
        ("pek", {"keys": ()}),
        ("pek", {"keys": (FileKey(OTHER, (), 32), COLUMN_FILE.keys[1])}),
        ("pek", {"keys": (FileKey(replace(LAKE, version=3), (), 32), COLUMN_FILE.keys[1])}),
        ("pek", {"keys": (FileKey(replace(LAKE, master_key_id="pii"), (), 32), COLUMN_FILE.keys[1])}),
        ("pek", {"keys": (FileKey(PII, (), 32), COLUMN_FILE.keys[1])}),
        ("pek", {"keys": (COLUMN_FILE.keys[1],)}),
        ("pek", {"keys": (FOOTER_KEY, FileKey(OTHER, (2, 3), 32))}),
        ("data-key-length", {"keys": (FileKey(LAKE, (), 16), COLUMN_FILE.keys[1])}),
        ("data-key-length", {"keys": (FOOTER_KEY, FileKey(PII, (2, 3), 24))}),
        ("columns", {"keys": (FOOTER_KEY, FileKey(PII, (2,), 32))}),
        ("columns", {"keys": (FOOTER_KEY, FileKey(PII, (2, 3, 4), 32))}),
        ("columns", {"keys": (FOOTER_KEY, FileKey(LAKE, (2, 3), 32))}),
        ("columns", {"keys": (*COLUMN_FILE.keys, FileKey(LAKE, (4,), 32))}),
        ("columns", {"keys": (*COLUMN_FILE.keys, COLUMN_FILE.keys[1])}),
    ],
)
def test_file_that_is_not_what_its_epoch_says_is_refused(rule, changed):
    decision = check_new_file(HISTORY, replace(COLUMN_FILE, **changed))
    assert not decision and decision.reasons[0].rule == rule


def test_column_keys_in_a_uniform_table_are_refused():
    keys = replace(UNIFORM_FILE, keys=(FOOTER_KEY, FileKey(LAKE, (2,), 32)))
    assert check_new_file(Epochs.of([PLAIN, UNIFORM]), keys).reasons[0].rule == "columns"


@each_row(
    ("version", "new", "sealed"),
    [(1, False, False), (2, True, True), (3, False, True), (70, False, True)],
)
def test_a_sealed_file_may_be_under_a_later_version_than_its_epoch_and_a_new_one_may_not(
    version, new, sealed
):
    """The epoch names version 2: a file whose keys were rewrapped keeps its sequence number."""
    epochs = Epochs.of([PLAIN, replace(UNIFORM, peks=(LAKE_2,))])
    file = replace(UNIFORM_FILE, keys=(FileKey(replace(LAKE, version=version), (), 32),))
    decisions = check_new_file(epochs, file), check_sealed_file(epochs, 7, file)
    assert [decision.allowed for decision in decisions] == [new, sealed]
    assert {each.reasons[0].rule for each in decisions if not each.allowed} <= {"pek"}


@each_row("other", [{"pek_id": UUID(int=9)}, {"master_key_id": "pii"}], ids=str)
def test_a_later_version_of_another_pek_is_refused(other):
    file = replace(UNIFORM_FILE, keys=(FileKey(replace(LAKE_2, **other), (), 32),))
    decision = check_sealed_file(HISTORY, 5, file)
    assert not decision and decision.reasons[0].rule == "pek"


def test_column_keys_may_be_rewrapped_each_for_itself():
    later = replace(PII, version=2)
    assert check_sealed_file(HISTORY, 9, replace(COLUMN_FILE, keys=(FOOTER_KEY, FileKey(later, (2, 3), 32))))


@each_row(
    ("number", "keys", "rule", "detail"),
    [
        (
            None,
            None,
            "epoch",
            "The file's sequence number is unknown, so its encryption epoch cannot be determined.",
        ),
        (4, None, "plaintext-required", "The table is not encrypted, nor is the file."),
        (
            4,
            UNIFORM_FILE,
            "plaintext-required",
            "The file has key metadata, but its encryption epoch is plaintext.",
        ),
        (
            5,
            None,
            "encryption-required",
            "The file is unencrypted, but its encryption epoch requires encryption.",
        ),
        (5, UNIFORM_FILE, "encryption-required", "The file is encrypted as its epoch says."),
        (9, COLUMN_FILE, "encryption-required", "The file is encrypted as its epoch says."),
        (
            9,
            replace(COLUMN_FILE, algorithm=Algorithm.AES_GCM_CTR_V1),
            "algorithm",
            "The file uses AES_GCM_CTR_V1. Its encryption epoch requires AES_GCM_V1.",
        ),
        (
            9,
            replace(COLUMN_FILE, footer=Footer.PLAINTEXT),
            "footer",
            "The file's footer is plaintext. Its encryption epoch requires encrypted.",
        ),
        (
            9,
            replace(COLUMN_FILE, stock_readers=True),
            "stock-readers",
            "The file has the key material for standard readers, contrary to its epoch.",
        ),
        (
            9,
            replace(COLUMN_FILE, keys=(FileKey(OTHER, (), 32),)),
            "pek",
            "The file is under PEK 00000000-0000-0000-0000-000000000003, "
            "which its encryption epoch does not allow.",
        ),
        (
            9,
            replace(COLUMN_FILE, keys=(FileKey(LAKE, (), 16),)),
            "data-key-length",
            "The file has a data key of 16 bytes. Its epoch requires 32 bytes.",
        ),
        (
            9,
            replace(COLUMN_FILE, keys=()),
            "pek",
            "The footer key is not wrapped under the master key that the encryption epoch names.",
        ),
        (9, UNIFORM_FILE, "columns", "The file's column keys do not match those of its encryption epoch."),
    ],
)
def test_a_decision_about_a_file_says_why(number, keys, rule, detail):
    (reason,) = check_sealed_file(HISTORY, number, keys).reasons
    assert (reason.rule, reason.detail) == (rule, detail)


DAMAGED = "The table's governed state is damaged. Restore the catalog's database from a backup."


@each_row(
    ("attempt", "message", "hint"),
    [
        (
            lambda: replace(PLAIN, from_sequence_number=-1),
            "An encryption epoch begins at a negative sequence number.",
            DAMAGED,
        ),
        (
            lambda: replace(COLUMNS, columns=()),
            "The columns of an encryption epoch do not match its specification.",
            DAMAGED,
        ),
        (
            lambda: replace(COLUMNS, peks=()),
            "The PEKs of an encryption epoch do not match its master keys.",
            DAMAGED,
        ),
        (
            lambda: replace(COLUMNS, peks=(LAKE, PII, PII)),
            "An encryption epoch names the same PEK twice.",
            DAMAGED,
        ),
        (lambda: Epochs.of([]), "No encryption epoch covers sequence number 0.", DAMAGED),
        (
            lambda: Epochs.of([PLAIN, PLAIN]),
            "The encryption epochs are not in ascending order of sequence numbers.",
            DAMAGED,
        ),
        (
            lambda: epoch_for(HISTORY, -1),
            "No encryption epoch covers sequence number -1.",
            "The metadata is malformed; restore it from a sealed version.",
        ),
    ],
)
def test_what_is_damaged_is_told_with_what_to_do(attempt, message, hint):
    with pytest.raises(EncryptionPolicyViolation) as caught:
        attempt()
    assert (caught.value.message, caught.value.rule, caught.value.hint) == (message, "epoch", hint)


def test_the_order_of_column_keys_does_not_matter():
    spec = EncryptionSpec(
        Mechanism.ENVELOPE, "lake", columns=(ColumnKey("lake", ("id",)), ColumnKey("pii", ("ssn",)))
    )
    columns = (KeyedFields("lake", (1,)), KeyedFields("pii", (2,)))
    epochs = Epochs.of([Epoch(0, spec, columns, (LAKE, PII))])
    keys = (FileKey(PII, (2,), 32), FileKey(LAKE, (1,), 32))
    for order in (keys, keys[::-1]):
        assert check_new_file(epochs, replace(UNIFORM_FILE, keys=(FOOTER_KEY, *order)))


def test_a_file_is_as_the_current_epoch_says_under_any_version_of_its_keys():
    history = Epochs.of([PLAIN, UNIFORM, replace(UNIFORM, from_sequence_number=7, peks=(LAKE_2,))])
    later = replace(UNIFORM_FILE, keys=(FileKey(LAKE_2, (), 32),))
    assert check_migrated(history, UNIFORM_FILE) and check_migrated(history, later)
    other = replace(UNIFORM_FILE, keys=(FileKey(OTHER, (), 32),))
    for keys in (None, COLUMN_FILE, other, replace(UNIFORM_FILE, algorithm=Algorithm.AES_GCM_CTR_V1)):
        assert not check_migrated(history, keys)
    assert check_migrated(Epochs.of([UNIFORM_AT_0, replace(PLAIN, from_sequence_number=3)]), None)


def test_a_parquet_file_with_keys_of_columns_has_a_digest_of_its_footer_once_it_is_rewritten():
    history = Epochs.of([PLAIN, replace(HISTORY.current, from_sequence_number=3)])
    assert check_sealed_file(history, 3, COLUMN_FILE)
    decision = check_migrated(history, COLUMN_FILE)
    assert not decision and decision.reasons[0].rule == "footer-digest"
    assert check_migrated(history, replace(COLUMN_FILE, footer_digest=True))


@each_row(
    ("now", "equally"),
    [
        (COLUMNS, True),
        (replace(COLUMNS, from_sequence_number=12, peks=(LAKE_2, PII)), True),
        (replace(COLUMNS, spec=replace(COLUMNS.spec, columns=(ColumnKey("pii", ("tax",)),))), True),
        (replace(COLUMNS, columns=(KeyedFields("pii", (2,)),)), False),
        (replace(COLUMNS, spec=replace(COLUMNS.spec, footer=Footer.PLAINTEXT)), False),
        (replace(COLUMNS, spec=replace(COLUMNS.spec, data_key_length=16)), False),
        (replace(COLUMNS, spec=replace(COLUMNS.spec, verify_digest=VerifyDigest.ALWAYS)), False),
    ],
)
def test_epochs_encrypt_equally_but_for_key_versions_and_names_of_columns(now, equally):
    assert encrypts_equally(COLUMNS, now) is equally


UNIFORM_AT_0 = replace(UNIFORM, from_sequence_number=0)
ROTATED = replace(UNIFORM, from_sequence_number=7, peks=(LAKE_2,))
FOREIGN = replace(UNIFORM, from_sequence_number=8, peks=(OTHER,))


@each_row(
    ("before", "after"),
    [
        ([PLAIN], [PLAIN]),
        ([PLAIN, UNIFORM], [UNIFORM_AT_0]),
        ([UNIFORM_AT_0, ROTATED], [UNIFORM_AT_0, ROTATED]),
        ([PLAIN, UNIFORM, ROTATED], [UNIFORM_AT_0, ROTATED]),
        ([PLAIN, UNIFORM, FOREIGN], [replace(FOREIGN, from_sequence_number=0)]),
        ([UNIFORM_AT_0, replace(PLAIN, from_sequence_number=3), UNIFORM], [UNIFORM_AT_0]),
        ([UNIFORM_AT_0, replace(PLAIN, from_sequence_number=3), ROTATED], [UNIFORM_AT_0, ROTATED]),
        ([PLAIN, UNIFORM, replace(PLAIN, from_sequence_number=9)], [PLAIN]),
    ],
)
def test_only_epochs_that_differ_in_key_versions_are_left_after_a_migration(before, after):
    left = migrated(Epochs.of(before))
    assert left.entries == tuple(after)
    assert migrated(left) == left


def test_a_file_of_another_epoch_fits_none_that_is_left():
    left = migrated(Epochs.of([PLAIN, UNIFORM, ROTATED]))
    for number in (0, 4, 5, 7, 10**12):
        assert not check_sealed_file(left, number, None)
    assert check_sealed_file(left, 0, UNIFORM_FILE)


def test_keys_that_were_named_before_the_columns_changed_keep_their_first_version():
    """A rotation, and then other columns: files that fit both are under the first version still."""
    renamed = replace(COLUMNS, from_sequence_number=12, peks=(LAKE_2, PII))
    left = migrated(Epochs.of([replace(COLUMNS, from_sequence_number=0, peks=(LAKE, PII)), renamed]))
    assert left.entries[0].peks == (LAKE, PII)
    assert left.entries[1].peks == (LAKE_2, PII)
