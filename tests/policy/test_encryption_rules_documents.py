"""Documents of encryption rules: what is wrong is refused whole, with document, line and field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policy.encryption_rules import EncryptionRules
from policy.encryption_rules.contradictions import common
from policy.errors import PolicyInvalid
from tests.support.rules import rule, rules_of, tag, text_of
from tests.support.vectors import each_row


def refusal(text: str | bytes) -> str:
    """Why a document is refused."""
    with pytest.raises(PolicyInvalid) as raised:
        EncryptionRules.parse({"rules.json": text})
    return str(raised.value)


def test_a_document_says_rules_or_tags_or_both() -> None:
    assert [each.name for each in rules_of(rule("b"), rule("a")).rules] == ["a", "b"]
    parted = {
        "a": json.dumps({"rules": [rule("r", tags=["pii"])]}),
        "b": json.dumps({"tags": [tag("pii", "x")]}),
    }
    assert [each.document for each in EncryptionRules.parse(parted).rules] == ["a"]
    assert EncryptionRules.parse({"a": '{"rules": []}'}).rules == ()


def test_the_version_is_that_of_names_and_texts_in_any_order() -> None:
    one, two = text_of(rule("a")), text_of(rule("b"))
    version = EncryptionRules.parse({"x": one, "y": two}).version
    assert version == EncryptionRules.parse({"y": two.encode(), "x": one.encode()}).version
    assert version != EncryptionRules.parse({"x": two, "y": one}).version
    assert len(version) == 64


@each_row("text", ["[]", "{}", "null", '"x"', "{", '{"policies": []}', b"\xff", '{"rules": 1}'])
def test_what_is_no_document_is_refused(text: str | bytes) -> None:
    assert "rules.json" in refusal(text)


@each_row(
    ("fields", "field"),
    [
        ({"mustEncrypt": None}, "rules[0]"),
        ({"mustEncrypt": "true"}, "rules[0].mustEncrypt"),
        ({"mustEncrypt": False}, "rules[0]"),
        ({"mustEncrypt": False, "columnKey": True}, "rules[0]"),
        ({"mustencrypt": True}, "rules[0].mustencrypt"),
        ({"columnKey": False}, "rules[0].columnKey"),
        ({"plaintextFooter": True}, "rules[0].plaintextFooter"),
        ({"stockReaders": True}, "rules[0].stockReaders"),
        ({"stockReaders": 0}, "rules[0].stockReaders"),
        ({"algorithms": []}, "rules[0].algorithms"),
        ({"algorithms": "AES_GCM_V1"}, "rules[0].algorithms"),
        ({"algorithms": ["aes_gcm_v1"]}, "rules[0].algorithms[0]"),
        ({"algorithms": ["AES_GCM_V1", "AES_GCM_CTR_V1", "ORC_AES_CTR"]}, "rules[0].algorithms"),
        ({"masterKeys": []}, "rules[0].masterKeys"),
        ({"masterKeys": ["k", 1]}, "rules[0].masterKeys[1]"),
        ({"masterKeys": ["{USER}"]}, "rules[0].masterKeys[0]"),
        ({"masterKeys": ["k" * 257]}, "rules[0].masterKeys[0]"),
        ({"columns": ["a｛b"]}, "rules[0].columns[0]"),
        ({"minDataKeyLength": 256}, "rules[0].minDataKeyLength"),
        ({"minDataKeyLength": True}, "rules[0].minDataKeyLength"),
        ({"minDataKeyLength": 16.0}, "rules[0].minDataKeyLength"),
        ({"databases": None}, "rules[0].databases"),
        ({"databases": []}, "rules[0].databases"),
        ({"databases": "*"}, "rules[0].databases"),
        ({"tables": [""]}, "rules[0].tables[0]"),
        ({"tables": ["a\nb"]}, "rules[0].tables[0]"),
        ({"tables": ["x" * 257]}, "rules[0].tables[0]"),
        ({"tables": ["{OWNER}"]}, "rules[0].tables[0]"),
        ({"tables": ["a}"]}, "rules[0].tables[0]"),
        ({"columns": []}, "rules[0].columns"),
        ({"columns": ["a", None]}, "rules[0].columns[1]"),
        ({"tags": []}, "rules[0].tags"),
        ({"tags": ["nowhere"]}, "rules[0].tags[0]"),
        ({"except": []}, "rules[0].except"),
        ({"except": [{}]}, "rules[0].except[0]"),
        ({"except": [{"tags": ["x"]}]}, "rules[0].except[0].tags"),
        ({"except": [{"columns": []}]}, "rules[0].except[0].columns"),
        ({"name": None}, "rules[0].name"),
        ({"name": " "}, "rules[0].name"),
        ({"description": 1}, "rules[0].description"),
        ({"priority": 1}, "rules[0].priority"),
    ],
)
def test_a_mistake_in_a_rule_is_refused_with_its_place(fields: dict[str, Any], field: str) -> None:
    told = refusal(text_of(rule("r") | fields))
    assert "rules.json, line " in told and f", {field}: " in told


@each_row(
    ("fields", "field"),
    [
        ({"tag": None}, "tags[0].tag"),
        ({"columns": []}, "tags[0].columns"),
        ({"columns": None}, "tags[0].columns"),
        ({"databases": None}, "tags[0].databases"),
        ({"mustEncrypt": True}, "tags[0].mustEncrypt"),
        ({"tag": "pi"}, "tags[0].tag"),
    ],
)
def test_a_mistake_in_a_tag_is_refused_with_its_place(fields: dict[str, Any], field: str) -> None:
    tags = (tag("pii", "x") | fields, tag("pii", "y"))
    assert f", {field}: " in refusal(text_of(rule("r", tags=["pii"]), tags=tags))


def test_the_line_is_that_of_the_field() -> None:
    text = text_of(rule("a"), rule("b", minDataKeyLength=17))
    line = next(number for number, each in enumerate(text.split("\n"), 1) if "minDataKeyLength" in each)
    assert f"line {line}, rules[1].minDataKeyLength" in refusal(text)


def test_a_name_given_twice_means_nothing() -> None:
    assert "mustEncrypt" in refusal('{"rules": [{"mustEncrypt": true, "mustEncrypt": false}]}')


def test_two_rules_of_one_name_are_refused_in_whatever_documents() -> None:
    one = text_of(rule("r"))
    with pytest.raises(PolicyInvalid, match=r"b, line \d+, rules\[0\].name: another rule has the name 'r'"):
        EncryptionRules.parse({"a": one, "b": one})


def test_a_bad_document_is_refused_with_the_good_ones() -> None:
    with pytest.raises(PolicyInvalid):
        EncryptionRules.parse({"good": text_of(rule("r")), "bad": "{}"})


def test_a_pattern_may_be_as_long_as_it_is_said() -> None:
    """Also one that is looked for at any depth, and one whose letters stand for several each."""
    longest = ["x" * 256, "ﬃ" * 256]
    made = rule("r", databases=longest, tables=longest, columns=longest, masterKeys=longest)
    assert rules_of(made).rules[0].area.tables.values == tuple(longest)


def test_there_is_a_bound_on_rules_and_on_size() -> None:
    many = [rule(f"r{number}") for number in range(1_001)]
    assert "rules[1000]" in refusal(text_of(*many))
    assert "at most" in refusal(" " * (16 * 1024 * 1024 + 1))


# -- contradictions

_V1, _CTR = {"algorithms": ["AES_GCM_V1"]}, {"algorithms": ["AES_GCM_CTR_V1"]}


@each_row(
    ("first", "second", "why"),
    [
        (rule("a", **_V1), rule("b", **_CTR), "allow no common algorithm"),
        (rule("a", **_V1), rule("b", mustEncrypt=False, columns=["x"], **_CTR), "allow no common algorithm"),
        (
            rule("a", databases=["fin*"], **_V1),
            rule("b", databases=["*ce"], **_CTR),
            "allow no common algorithm",
        ),
        (rule("a", tables=["Pay"], **_V1), rule("b", tables=["pay"], **_CTR), "allow no common algorithm"),
        (rule("a", columns=["ssn"], **_V1), rule("b", columns=["*n"], **_CTR), "allow no common algorithm"),
        (rule("a", masterKeys=["k1"]), rule("b", masterKeys=["k2"]), "allow no common master key"),
        (
            rule("a", masterKeys=["x*"]),
            rule("b", masterKeys=["y*", "z?"], columns=["c"]),
            "no common master key",
        ),
        (
            rule("a", masterKeys=["k"]),
            rule("b", columns=["ssn"], columnKey=True),
            "no other key is left for the column",
        ),
    ],
)
def test_rules_that_nothing_can_satisfy_are_refused(
    first: dict[str, Any], second: dict[str, Any], why: str
) -> None:
    for pair in ((first, second), (second, first)):
        told = refusal(text_of(*pair))
        assert "rules[1]: no table can satisfy" in told and why in told
        assert "'a'" in told and "'b'" in told


def test_one_rule_that_nothing_can_satisfy_is_refused() -> None:
    told = refusal(text_of(rule("a", columnKey=True, masterKeys=["k"])))
    assert "no table can satisfy 'a': they allow only the master key" in told


def test_a_tag_can_make_two_rules_meet() -> None:
    pair = (rule("a", columns=["ssn"], **_V1), rule("b", tags=["pii"], **_CTR))
    assert "allow no common algorithm" in refusal(text_of(*pair, tags=(tag("pii", "s*"),)))
    rules_of(*pair, tags=(tag("pii", "email"),))


@each_row(
    ("first", "second"),
    [
        (rule("a", databases=["x"], **_V1), rule("b", databases=["y"], **_CTR)),
        (rule("a", tables=["x*"], **_V1), rule("b", tables=["y*"], **_CTR)),
        (rule("a", columns=["x"], **_V1), rule("b", columns=["y"], **_CTR)),
        (rule("a", mustEncrypt=False, **_V1), rule("b", mustEncrypt=False, **_CTR)),
        (
            rule("a", **_V1, **{"except": [{"databases": ["legacy"]}]}),
            rule("b", databases=["legacy"], **_CTR),
        ),
        (rule("a", masterKeys=["k*"]), rule("b", masterKeys=["*1"])),
        (rule("a", masterKeys=["k", "l"]), rule("b", columns=["ssn"], columnKey=True)),
        (rule("a", masterKeys=["k?"]), rule("b", columns=["ssn"], columnKey=True)),
        (rule("a", masterKeys=["k?"]), rule("b", masterKeys=["k1"])),
    ],
)
def test_rules_that_something_satisfies_are_accepted(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert len(rules_of(first, second).rules) == 2


@each_row(
    ("one", "other", "shared"),
    [
        ("abc", "abc", "abc"),
        ("abc", "abd", None),
        ("a*", "*b", "ab"),
        ("a?c", "?b*", "abc"),
        ("a?", "ab", "ab"),
        ("x*", "y*", None),
        ("*a*", "b*b", "bab"),
        ("?", "*", "z"),
        ("?", "", None),
        ("*", "", ""),
        ("**", "*", ""),
        ("a*c", "ab", None),
    ],
)
def test_what_two_patterns_share(one: str, other: str, shared: str | None) -> None:
    assert common(one, other) == shared
    assert common(other, one) == shared


_NO_MACROS = "encryption rules do not depend on the user, so macros in braces are not supported."
_WITHOUT_EFFECT = "the value has no effect, because a rule cannot allow what another rule forbids."


@each_row(
    ("fields", "problem", "hint"),
    [
        (
            {"except": [{}]},
            "the exception names no databases, tables or columns.",
            "Name some, or remove the exception.",
        ),
        (
            {"mustEncrypt": None},
            "mustEncrypt is missing.",
            "Set it to true, or to false if the rule applies only where data is encrypted.",
        ),
        ({"mustEncrypt": False}, "the rule has no requirement.", "Add a requirement, or remove the rule."),
        (
            {"mustEncrypt": False, "columnKey": True},
            "a column with a column key is always encrypted, so columnKey requires mustEncrypt",
            None,
        ),
        ({"columnKey": False}, _WITHOUT_EFFECT, "Write true, or omit the field."),
        ({"stockReaders": True}, _WITHOUT_EFFECT, "Write false, or omit the field."),
        (
            {"algorithms": ["x" * 100]},
            f"{'x' * 80!r} is not an algorithm.",
            "Use one of: AES_GCM_V1, AES_GCM_CTR_V1, ORC_AES_CTR.",
        ),
        (
            {"algorithms": ["AES_GCM_V1", "AES_GCM_CTR_V1", "ORC_AES_CTR"]},
            "the list names every algorithm, so it has no effect.",
            None,
        ),
        ({"masterKeys": ["{USER}"]}, _NO_MACROS, None),
        ({"tables": ["a{b"]}, _NO_MACROS, None),
        ({"columns": ["a}b"]}, _NO_MACROS, None),
        ({"minDataKeyLength": 7}, "7 is not a valid data key length in bytes.", "Use 16, 24 or 32."),
        ({"tables": ["x" * 257]}, "a pattern must have at most 256 characters.", None),
        ({"tables": []}, "the list is empty.", 'Use ["*"] to match all.'),
        ({"tags": ["x"]}, "the tag 'x' is assigned to no column.", "Assign the tag under tags."),
    ],
)
def test_a_mistake_is_told_with_what_to_do(fields: dict[str, Any], problem: str, hint: str | None) -> None:
    with pytest.raises(PolicyInvalid) as raised:
        rules_of(rule("r") | fields)
    assert raised.value.message.endswith(f": {problem}")
    assert raised.value.hint == hint


def test_mistakes_of_several_rules_are_told_with_what_to_do() -> None:
    with pytest.raises(PolicyInvalid) as raised:
        rules_of(rule("a", **_V1), rule("b", **_CTR))
    assert raised.value.message.endswith(
        ": no table can satisfy 'a' and 'b': they allow no common algorithm."
    )
    assert raised.value.hint == "Change a requirement, or add an exception so that the rules do not overlap."
    with pytest.raises(PolicyInvalid) as raised:
        rules_of(rule("a"), tags=(tag("pii", "x"),))
    assert raised.value.message.endswith(": no rule uses the tag 'pii', so it has no effect.")
    assert raised.value.hint == "Correct the name, or use the tag in a rule."
