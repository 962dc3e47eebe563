"""What encryption rules decide about a change of a table: it breaks no rule, and drops no protection."""

from __future__ import annotations

from policy.encryption_rules import Column, ColumnName, TableFacts
from tests.policy.test_encryption_rules import KEY, UNIFORM, facts, spec
from tests.support.rules import rule, rules_of
from tests.support.vectors import each_row

# -- changes


def test_a_change_may_not_break_a_rule() -> None:
    rules = rules_of(rule("ssn", columns=["ssn"]))
    decision = rules.decide_change(facts("id"), facts("id", "ssn"))
    assert not decision.allowed and decision.reasons[0].rule == "must-encrypt"
    assert rules.decide_change(facts("id"), facts("id", "name")).allowed


def test_a_table_that_breaks_a_newer_rule_is_only_changed_for_the_better() -> None:
    rules = rules_of(rule("r", columns=["ssn", "iban"], columnKey=True), rule("t", columns=["id"]))
    before = facts("id", "ssn", "iban")
    assert not rules.decide_change(before, facts("id", "ssn", "iban", "note")).allowed
    assert rules.decide_change(before, facts("id", "ssn", "iban", of=UNIFORM)).allowed
    assert rules.decide_change(before, facts("id", "ssn")).allowed
    assert rules.decide_change(before, before).allowed


def test_less_broken_in_number_is_not_better_if_something_else_breaks() -> None:
    rules = rules_of(rule("all"), rule("keys", masterKeys=["good"], mustEncrypt=False))
    decision = rules.decide_change(facts(), facts(of=spec(master_key_id="bad")))
    assert [each.rule for each in decision.reasons] == ["master-key"]


def test_breaking_the_same_rule_in_another_way_is_worse() -> None:
    """From 24 to 16 bytes the rule is broken before and after."""
    rules = rules_of(rule("r", minDataKeyLength=32))
    shorter = rules.decide_change(facts(of=spec(data_key_length="24")), facts(of=spec(data_key_length="16")))
    assert [each.detail[:26] for each in shorter.reasons] == ["Data keys of 16 bytes are "]


def test_another_name_may_break_nothing_new() -> None:
    rules = rules_of(rule("r", databases=["finance", "hr"]), rule("s", databases=["hr"], tables=["pay"]))
    assert rules.decide_name(facts(), facts(table="old")).allowed
    assert rules.decide_name(facts(), facts(database="sales")).allowed
    assert not rules.decide_name(facts(database="sales"), facts()).allowed
    assert not rules.decide_name(facts(), facts(database="hr")).allowed


# -- leaving the reach of a rule


def test_a_name_out_of_reach_drops_protection() -> None:
    rules = rules_of(rule("r", databases=["finance"]), rule("s", databases=["hr"]))
    assert rules.downgraded(facts(of=UNIFORM), facts(of=UNIFORM, database="sandbox"))
    assert not rules.downgraded(facts(of=UNIFORM), facts(of=UNIFORM, table="other"))
    assert not rules.downgraded(facts(of=UNIFORM), facts(of=UNIFORM, database="hr")), "it asks the same there"
    assert not rules.downgraded(facts(database="sandbox"), facts())


def test_a_weaker_rule_in_its_place_drops_protection() -> None:
    rules = rules_of(rule("r", databases=["finance"], minDataKeyLength=32), rule("s", databases=["hr"]))
    assert rules.downgraded(facts(of=UNIFORM), facts(of=UNIFORM, database="hr"))


def test_what_asks_nothing_of_a_plaintext_table_is_not_dropped() -> None:
    rules = rules_of(rule("r", databases=["finance"], mustEncrypt=False, minDataKeyLength=32))
    assert not rules.downgraded(facts(), facts(database="hr"))
    assert rules.downgraded(facts(of=UNIFORM), facts(of=UNIFORM, database="hr"))


def test_a_column_out_of_reach_drops_protection_and_one_that_is_gone_does_not() -> None:
    rules = rules_of(rule("r", columns=["ssn"]))
    column, renamed = (Column(3, (ColumnName(name, name),)) for name in ("ssn", "note"))
    before = TableFacts("finance", "pay", (column,), UNIFORM)
    assert rules.downgraded(before, TableFacts("finance", "pay", (renamed,), UNIFORM))
    assert not rules.downgraded(before, TableFacts("finance", "pay", (), UNIFORM))


def test_both_the_table_and_its_columns_can_leave_a_rule() -> None:
    """A rule on the table asks the same of each column, also where another rule takes over for the table."""
    rules = rules_of(
        rule("r", databases=["finance"]),
        rule("s", databases=["hr"], **{"except": [{"columns": ["ssn"]}]}),
    )
    assert rules.downgraded(facts(of=UNIFORM), facts(of=UNIFORM, database="hr"))
    assert not rules.downgraded(facts("id", of=UNIFORM), facts("id", of=UNIFORM, database="hr"))
    assert rules.downgraded(facts(of=UNIFORM, database="hr"), facts("ssn", of=UNIFORM, database="x"))


@each_row("field", ["plaintextFooter", "stockReaders", "partitionValues"])
def test_a_ban_that_does_not_hold_elsewhere_is_dropped(field: str) -> None:
    rules = rules_of(rule("r", databases=["finance"], **{field: False}), rule("s", databases=["hr"]))
    assert rules.downgraded(facts(of=UNIFORM), facts(of=UNIFORM, database="hr"))


def test_other_master_keys_elsewhere_drop_protection() -> None:
    rules = rules_of(
        rule("r", databases=["finance"], masterKeys=[KEY]),
        rule("s", databases=["hr"], masterKeys=["*"]),
        rule("t", databases=["it"], masterKeys=[KEY]),
    )
    assert rules.downgraded(facts(of=UNIFORM), facts(of=UNIFORM, database="hr"))
    assert not rules.downgraded(facts(of=UNIFORM), facts(of=UNIFORM, database="it"))
