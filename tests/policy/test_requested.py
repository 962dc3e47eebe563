"""What a request wants to govern a table, from the properties that were typed."""

from __future__ import annotations

import pytest

from policy.encryption.requested import Requested, for_change, for_new_table
from policy.encryption.specification import EncryptionSpec, Mechanism
from policy.errors import LocationInvalid, NotSupportedYet, PropertyInvalid
from policy.location.allow_list import AllowList
from policy.location.location import Location
from tests.support.vectors import each_row

HOME = Location.parse("s3://lake/db/t")
PLAIN = EncryptionSpec.parse({}, catalog_master_key_id=None)
ENVELOPE = {"encryption.mechanism": "envelope"}
OWN = {"encryption.master-key-id": "own"}


def entries(*texts: str) -> tuple[Location, ...]:
    return tuple(Location.parse(text) for text in texts)


def spec(properties: dict[str, str], catalog: str | None = "lake") -> EncryptionSpec:
    return EncryptionSpec.parse(properties, catalog_master_key_id=catalog)


def change(
    before: dict[str, str],
    given: dict[str, str],
    unset: tuple[str, ...] = (),
    allowed: str = "s3://lake/db/t",
) -> Requested:
    return for_change(AllowList.parse(allowed), spec(before), given, unset, HOME, "lake", "db.t")


@each_row(
    ("properties", "location", "listed"),
    [
        ({}, HOME, entries("s3://lake/db/t")),
        ({}, None, ()),
        ({"read.allowed.data.paths": "s3://b/x"}, HOME, entries("s3://b/x")),
        ({"read.allowed.data.paths": "s3://b/x"}, None, entries("s3://b/x")),
    ],
)
def test_a_new_table_inherits_its_location_unless_a_list_is_given(properties, location, listed) -> None:
    wanted = for_new_table(properties, location, None, "db.t")
    assert wanted == Requested(AllowList.of(listed), PLAIN, listed, (), unprotects=False)


def test_a_new_table_asks_for_the_keys_that_it_names_or_the_catalogs() -> None:
    assert for_new_table(ENVELOPE, HOME, "lake", "db.t").new_keys == ("lake",)
    named = for_new_table({"encryption.master-key-id": "own"}, HOME, "lake", "db.t")
    assert named.new_keys == ("own",) and named.spec.master_key_id == "own"
    assert named.unprotects is False
    with pytest.raises(PropertyInvalid, match="master key"):
        for_new_table(ENVELOPE, HOME, None, "db.t")


def test_a_list_that_is_none_is_refused_at_creation_and_change() -> None:
    given = {"read.allowed.data.paths": "/x"}
    for attempt in (lambda: for_new_table(given, HOME, None, "db.t"), lambda: change({}, given)):
        with pytest.raises(LocationInvalid):
            attempt()


def test_nothing_changes_without_a_governed_property() -> None:
    before = spec({"encryption.master-key-id": "own"})
    same = for_change(AllowList.parse("s3://b/x"), before, {}, (), HOME, "lake", "db.t")
    assert same == Requested(AllowList.parse("s3://b/x"), before, (), (), unprotects=False)
    assert same.spec is before


def test_a_longer_list_adds_what_the_one_in_force_does_not_cover() -> None:
    wanted = change({}, {"read.allowed.data.paths": "s3://lake/db/t/data,s3://b/x,s3://lake/db/tt"})
    assert set(wanted.allowed.entries) == set(entries("s3://lake/db/t/data", "s3://b/x", "s3://lake/db/tt"))
    assert set(wanted.added) == set(entries("s3://b/x", "s3://lake/db/tt"))


def test_a_list_that_is_removed_goes_back_to_the_tables_location() -> None:
    wanted = change({}, {}, ("read.allowed.data.paths",), allowed="s3://b/x")
    assert wanted.allowed == AllowList.of([HOME]) and wanted.added == (HOME,)
    narrower = change({}, {}, ("read.allowed.data.paths",), allowed="s3://lake/db")
    assert narrower.allowed == AllowList.of([HOME]) and narrower.added == ()


def test_the_list_alone_leaves_the_encryption_as_it_is() -> None:
    before = {"encryption.master-key-id": "own"}
    for wanted in (
        change(before, {"read.allowed.data.paths": "s3://b/x"}),
        change(before, {}, ("read.allowed.data.paths",)),
    ):
        assert wanted.spec == spec(before)
        assert wanted.new_keys == () and wanted.unprotects is False


@each_row(
    ("before", "given", "unset", "after", "new_keys", "unprotects"),
    [
        ({}, ENVELOPE, (), ENVELOPE, ("lake",), False),
        (ENVELOPE, OWN, (), OWN, ("own",), True),
        (OWN, {}, ("encryption.master-key-id",), ENVELOPE, ("lake",), True),
        (OWN, {}, ("encryption.master-key-id", "encryption.mechanism"), ENVELOPE, ("lake",), True),
        (ENVELOPE, {"encryption.mechanism": "plaintext"}, (), {}, (), True),
        (OWN, {"encryption.algorithm": "AES_GCM_V1"}, (), OWN, (), False),
    ],
)  # fmt: skip
def test_a_change_of_the_encryption_keeps_what_it_does_not_name(
    before, given, unset, after, new_keys, unprotects
) -> None:
    wanted = change(before, given, unset)
    assert wanted.spec == spec(after)
    assert wanted.new_keys == new_keys and wanted.unprotects is unprotects
    assert wanted.allowed == AllowList.of([HOME]) and wanted.added == ()


def test_an_encryption_that_is_changed_and_removed_at_once_starts_from_nothing() -> None:
    wanted = change({"encryption.mechanism": "plaintext"}, {"encryption.master-key-id": "own"})
    assert wanted.spec.mechanism is Mechanism.ENVELOPE and wanted.new_keys == ("own",)


def test_a_change_is_refused_without_a_key_and_without_a_meaning() -> None:
    with pytest.raises(PropertyInvalid, match="master key"):
        for_change(AllowList.of([HOME]), PLAIN, ENVELOPE, (), HOME, None, "db.t")
    with pytest.raises(PropertyInvalid) as caught:
        change({}, {"encryption.mechanism": "plaintext", "encryption.algorithm": "AES_GCM_V1"})
    assert caught.value.rule == "property-contradiction"


def test_what_has_no_effect_yet_is_refused_at_creation_and_change() -> None:
    without = ENVELOPE | {"orc.key.provider": "hadoop", "hadoop.security.key.provider.path": "kms://h"}
    parts = spec(without).not_in_effect()
    assert len(parts) > 1
    told = (
        f"{' '.join(parts)} [table=db.t, rule=not-in-effect]"
        " Omit the property. It has no effect in this release."
    )
    for attempt in (lambda: for_new_table(without, HOME, "lake", "db.t"), lambda: change({}, without)):
        with pytest.raises(NotSupportedYet) as caught:
            attempt()
        assert str(caught.value) == told
