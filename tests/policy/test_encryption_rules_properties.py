"""What holds for every set of encryption rules: adding never opens, order never matters."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from policy.encryption.specification import EncryptionSpec
from policy.encryption_rules import Column, ColumnName, EncryptionRules, TableFacts, column_key
from policy.encryption_rules.contradictions import common
from policy.errors import PolicyInvalid
from policy.ranger.matching import Pattern
from policy.ranger.servicedef import Level
from tests.support.rules import rule, text_of

_NAMES = ("a", "A", "b", "ab", "a.b", "c.a", "а")
_PATTERNS = st.lists(st.sampled_from(["*", "a", "b", "a*", "*b", "?", "a.b", "c"]), min_size=1, max_size=2)
_LEVELS = ("databases", "tables", "columns")


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    """One rule, without a name."""
    fields: dict[str, Any] = {name: draw(_PATTERNS) for name in _LEVELS if draw(st.booleans())}
    if draw(st.booleans()):
        fields["except"] = [{draw(st.sampled_from(_LEVELS)): draw(_PATTERNS)}]
    fields["mustEncrypt"] = draw(st.booleans())
    if fields["mustEncrypt"] and draw(st.booleans()):
        fields["columnKey"] = True
    for name, values in {
        "algorithms": [["AES_GCM_V1"], ["AES_GCM_CTR_V1"]],
        "masterKeys": [["k1"], ["k?"], ["k2", "k3"]],
        "minDataKeyLength": [16, 24, 32],
        "plaintextFooter": [False],
        "stockReaders": [False],
        "partitionValues": [False],
    }.items():
        if draw(st.booleans()):
            fields[name] = draw(st.sampled_from(values))
    assume(fields["mustEncrypt"] or len(fields) > 2)
    return fields


@st.composite
def specs(draw: st.DrawFn) -> EncryptionSpec:
    """A table's encryption."""
    if draw(st.integers(0, 3)) == 0:
        return EncryptionSpec.parse({}, catalog_master_key_id=None)
    properties = {
        "encryption.master-key-id": draw(st.sampled_from(["k1", "k2"])),
        "encryption.algorithm": draw(st.sampled_from(["AES_GCM_V1", "AES_GCM_CTR_V1"])),
        "encryption.data-key-length": draw(st.sampled_from(["16", "24", "32"])),
        "encryption.footer": draw(st.sampled_from(["encrypted", "plaintext"])),
        "encryption.stock-readers": draw(st.sampled_from(["true", "false"])),
    }
    columns = draw(st.sampled_from([None, "k2:a", "k3:a,b", "k2:c;k3:ab"]))
    if columns is not None:
        properties["encryption.columns"] = columns
    plaintext = draw(st.sampled_from([None, None, "", "d"]))
    if plaintext is not None and properties["encryption.master-key-id"] not in (columns or ""):
        properties["encryption.plaintext-columns"] = plaintext
    if draw(st.booleans()):
        properties["encryption.partition-values"] = "plaintext"
    return EncryptionSpec.parse(properties, catalog_master_key_id=None)


@st.composite
def tables(draw: st.DrawFn) -> TableFacts:
    """A table, whose columns have had other names."""
    spec = draw(specs())
    columns = []
    for field_id in range(1, draw(st.integers(0, 3)) + 1):
        names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=2, unique=True))
        known = tuple(ColumnName(name, name) for name in names)
        columns.append(Column(field_id, known, column_key(spec, names[0])))
    database, table = draw(st.sampled_from(_NAMES)), draw(st.sampled_from(_NAMES))
    return TableFacts(database, table, tuple(columns), spec)


def parsed(*found: dict[str, Any]) -> EncryptionRules:
    """A set of these rules; one that contradicts itself is passed over."""
    named = [rule(f"r{number}", **each) for number, each in enumerate(found)]
    try:
        return EncryptionRules.parse({"d": text_of(*named)})
    except PolicyInvalid:
        assume(False)
        raise


def _asked(found: EncryptionRules, facts: TableFacts) -> list[tuple[str, str, int | None]]:
    return [(each.rule, str(each.requirement), each.field_id) for each in found.violations(facts)]


_RUN = settings(
    max_examples=settings.default.max_examples * 3 // 5,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
_SETS = st.lists(rules(), max_size=3)


@_RUN
@given(_SETS, rules(), tables())
def test_another_rule_never_lets_a_refused_table_through(
    some: list[dict[str, Any]], more: dict[str, Any], facts: TableFacts
) -> None:
    before, after = parsed(*some), parsed(*some, more)
    assert set(before.violations(facts)) <= set(after.violations(facts))
    assert before.decide(facts).allowed or not after.decide(facts).allowed


@_RUN
@given(_SETS, rules(), tables(), tables())
def test_another_rule_never_lets_a_change_break_something_new(
    some: list[dict[str, Any]], more: dict[str, Any], before: TableFacts, after: TableFacts
) -> None:
    few, many = parsed(*some), parsed(*some, more)
    if before != after and many.decide_change(before, after).allowed:
        assert set(few.violations(after)) <= set(few.violations(before))


@_RUN
@given(_SETS, rules(), tables(), tables())
def test_only_a_rule_about_where_a_table_goes_makes_up_for_one_that_it_leaves(
    some: list[dict[str, Any]], more: dict[str, Any], before: TableFacts, after: TableFacts
) -> None:
    few, many = parsed(*some), parsed(*some, more)
    if few.downgraded(before, after) and not many.rules[-1].is_about(after):
        assert many.downgraded(before, after)


@_RUN
@given(_SETS, tables(), tables())
def test_order_of_documents_rules_and_patterns_does_not_matter(
    some: list[dict[str, Any]], facts: TableFacts, other: TableFacts
) -> None:
    straight = parsed(*some)
    turned = [
        {name: value[::-1] if isinstance(value, list) else value for name, value in each.items()}
        for each in some
    ]
    named = [rule(f"r{number}", **each) for number, each in enumerate(turned)]
    texts = {f"d{number}": text_of(each) for number, each in enumerate(named)}
    backwards = EncryptionRules.parse(dict(reversed(texts.items())))
    assert [each.allowed for each in (straight.decide(facts), straight.decide_change(other, facts))] == [
        each.allowed for each in (backwards.decide(facts), backwards.decide_change(other, facts))
    ]
    assert straight.downgraded(other, facts) == backwards.downgraded(other, facts)
    assert _asked(straight, facts) == _asked(backwards, facts)


@_RUN
@given(_SETS, tables(), tables(), tables())
def test_steps_that_are_allowed_never_end_worse_than_they_began(
    some: list[dict[str, Any]], first: TableFacts, second: TableFacts, third: TableFacts
) -> None:
    """A change in two steps reaches nothing that breaks a rule which was not broken at the start."""
    found = parsed(*some)
    if found.decide_change(first, second).allowed and found.decide_change(second, third).allowed:
        assert set(found.violations(third)) <= set(found.violations(first))


@_RUN
@given(_SETS, tables())
def test_a_table_without_encryption_breaks_only_what_must_be_encrypted(
    some: list[dict[str, Any]], facts: TableFacts
) -> None:
    plain = TableFacts(
        facts.database, facts.table, facts.columns, EncryptionSpec.parse({}, catalog_master_key_id=None)
    )
    assert {str(each.requirement) for each in parsed(*some).violations(plain)} <= {
        "must-encrypt",
        "column-key",
    }


_GLOBS = st.text("ab?*", max_size=6)


@_RUN
@given(_GLOBS, _GLOBS)
def test_what_two_patterns_share_matches_both(one: str, other: str) -> None:
    found = common(one, other)
    assert (found is None) == (common(other, one) is None)
    if found is not None and one and other:
        level = Level("x", case_sensitive=True)
        assert all(Pattern.of(each, level).matches((found,), "") for each in (one, other))


@_RUN
@given(_GLOBS.filter(bool), _GLOBS.filter(bool), st.text("ab", max_size=6))
def test_what_both_match_is_shared(one: str, other: str, text: str) -> None:
    level = Level("x", case_sensitive=True)
    if all(Pattern.of(each, level).matches((text,), "") for each in (one, other)):
        assert common(one, other) is not None
