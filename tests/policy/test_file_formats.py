"""What each format of files can encrypt, and what becomes of a table whose format changes."""

from __future__ import annotations

from uuid import UUID

import pytest

from policy.encryption.encrypted_columns import masked_fields, resolve_columns
from policy.encryption.epochs import Epoch, Epochs, FileKey, FileKeys, PekRef, check_new_file
from policy.encryption.file_formats import FileFormat, written_format
from policy.encryption.requested import for_change
from policy.encryption.specification import Algorithm, EncryptionSpec, Footer, VerifyDigest
from policy.errors import PropertyInvalid
from policy.location.allow_list import AllowList
from policy.location.location import Location
from tests.support.vectors import each_row

HOME = Location.parse("s3://b/t")
ENVELOPE = {"encryption.mechanism": "envelope"}
NESTED = {"ssn": 1, "st": 2, "st.a": 3}


def orc(**given: str) -> EncryptionSpec:
    properties = ENVELOPE | {f"encryption.{name.replace('_', '-')}": value for name, value in given.items()}
    return EncryptionSpec.parse(properties, catalog_master_key_id="lake", file_format=FileFormat.ORC)


@each_row(
    ("said", "found"),
    [({}, "parquet"), ({"write.format.default": "ORC"}, "orc"), ({"write.format.default": "csv"}, None)],
)
def test_a_table_says_its_format(said: dict[str, str], found: str | None) -> None:
    assert written_format(said) == found


def test_orc_has_an_algorithm_digests_and_a_footer_of_its_own() -> None:
    spec = orc()
    assert spec.algorithm is Algorithm.ORC_AES_CTR and spec.file_format is FileFormat.ORC
    assert spec.verify_digest is VerifyDigest.ALWAYS and spec.keeps_digests
    assert "encryption.footer" not in spec.to_properties()
    assert orc(verify_digest="never").keeps_digests  # a later reader finds them
    assert EncryptionSpec.parse(spec.to_properties(), catalog_master_key_id=None) == spec


@each_row(
    ("given", "rule"),
    [
        ({"algorithm": "AES_GCM_V1"}, "format-algorithm"),
        ({"data_key_length": "24"}, "format-property"),
        ({"footer": "encrypted"}, "format-property"),
        ({"footer": "plaintext"}, "format-property"),
        ({"stock_readers": "true"}, "format-property"),
    ],
)
def test_what_orc_files_cannot_have_is_refused(given: dict[str, str], rule: str) -> None:
    with pytest.raises(PropertyInvalid) as refused:
        orc(**given)
    assert refused.value.rule == rule and refused.value.hint


@each_row(
    ("properties", "file_format", "rule"),
    [
        ({"encryption.algorithm": "ORC_AES_CTR"}, FileFormat.PARQUET, "format-algorithm"),
        (ENVELOPE, FileFormat.AVRO, "format-encryption"),
        ({"encryption.masks": "redact:a"}, FileFormat.PARQUET, "format-property"),
    ],
)
def test_what_other_files_cannot_have_is_refused(
    properties: dict[str, str], file_format: FileFormat, rule: str
) -> None:
    with pytest.raises(PropertyInvalid) as refused:
        EncryptionSpec.parse(properties, catalog_master_key_id="lake", file_format=file_format)
    assert refused.value.rule == rule


@each_row(
    ("provider", "told"),
    [
        ("hadoop", ()),
        (
            "memory",
            (
                "orc.key.provider=memory has no effect in this release: "
                "only the hadoop provider is supported.",
            ),
        ),
    ],
)
def test_only_the_hadoop_provider_of_keys_has_an_effect_on_orc(provider: str, told: tuple[str, ...]) -> None:
    given = ENVELOPE | {"orc.key.provider": provider}
    spec = EncryptionSpec.parse(given, catalog_master_key_id="lake", file_format=FileFormat.ORC)
    assert spec.not_in_effect() == told


@each_row(
    ("given", "why"),
    [
        ({"columns": "pii:st.a"}, "ORC encrypts a whole top-level column."),
        ({"columns": "pii:st", "masks": "nullify:st.a"}, "a mask covers a whole top-level column."),
    ],
)
def test_orc_encrypts_and_masks_whole_columns(given: dict[str, str], why: str) -> None:
    with pytest.raises(PropertyInvalid) as refused:
        resolve_columns(orc(**given), NESTED)
    assert refused.value.rule == "nested-column" and "'st'" in refused.value.message
    assert refused.value.hint == f"Name st: {why}"


def test_a_column_without_a_name_has_no_others_in_it() -> None:
    (keyed,) = resolve_columns(orc(columns="pii:ssn"), {"": 7, "ssn": 1})
    assert keyed.field_ids == (1,)


def test_masks_are_found_by_field_id() -> None:
    assert masked_fields(orc(columns="pii:ssn,st", masks="sha256:ssn;nullify:st"), NESTED) == {
        1: "sha256",
        2: "nullify",
    }


def _changed(spec: EncryptionSpec, to: FileFormat, **governed: str) -> EncryptionSpec:
    wanted = for_change(AllowList.of([HOME]), spec, governed, (), HOME, "lake", "db.t", file_format=to)
    return wanted.spec


def test_another_format_is_another_specification_and_takes_that_formats_defaults() -> None:
    parquet = EncryptionSpec.parse(ENVELOPE, catalog_master_key_id="lake")
    assert _changed(parquet, FileFormat.ORC) == orc()
    assert _changed(orc(), FileFormat.PARQUET) == parquet
    chosen = orc(verify_digest="first-read")
    assert _changed(chosen, FileFormat.PARQUET).verify_digest is VerifyDigest.FIRST_READ
    with pytest.raises(PropertyInvalid):
        _changed(orc(masks="sha256:a"), FileFormat.PARQUET)
    with pytest.raises(PropertyInvalid):
        _changed(parquet, FileFormat.AVRO)


def test_a_plaintext_footer_is_a_choice_that_orc_files_cannot_follow() -> None:
    chosen = EncryptionSpec.parse(ENVELOPE | {"encryption.footer": "plaintext"}, catalog_master_key_id="lake")
    with pytest.raises(PropertyInvalid) as refused:
        _changed(chosen, FileFormat.ORC)
    assert refused.value.rule == "format-property" and "encryption.footer" in refused.value.message


def test_a_file_in_another_format_or_without_its_digest_does_not_fit_its_epoch() -> None:
    pek = PekRef(UUID(int=1), 1, "lake")
    epochs = Epochs.of([Epoch(0, orc(), (), (pek,))])
    key = FileKey(pek, (), 32)

    def judged(algorithm: Algorithm, *, digest: bool) -> str | None:
        keys = FileKeys(algorithm, Footer.ENCRYPTED, (key,), digest=digest)
        decision = check_new_file(epochs, keys)
        return None if decision.allowed else decision.reasons[0].rule

    assert judged(Algorithm.ORC_AES_CTR, digest=True) is None
    assert judged(Algorithm.ORC_AES_CTR, digest=False) == "file-digest"
    assert judged(Algorithm.AES_GCM_V1, digest=True) == "algorithm"


@each_row(
    ("before", "after", "unprotects"),
    [
        ("nullify:a", "sha256:a", True),
        ("nullify:a", "redact:a", True),
        ("sha256:a", "sha256:a,b", True),
        ("sha256:a", "nullify:a,b", False),
        ("redact:a", "redact:a;nullify:b", False),
    ],
)
def test_a_mask_that_shows_something_drops_protection(before: str, after: str, unprotects: bool) -> None:
    wanted = for_change(
        AllowList.of([HOME]), orc(masks=before), {"encryption.masks": after}, (), HOME, "lake", "db.t"
    )
    assert wanted.unprotects is unprotects
