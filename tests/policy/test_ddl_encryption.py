"""Encryption rules count before a statement runs, as they do in the catalog."""

from __future__ import annotations

from dataclasses import replace

from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import EncryptionSpec
from policy.encryption_rules import EncryptionRules
from policy.encryption_rules import TableFacts as RuleFacts
from policy.identifiers import TableName
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.sql_lint import LintContext, TableFacts
from policy.sql_lint.protection import with_columns
from policy.sql_lint.statements import AlterColumns, Column
from tests.support.ddl import ANN, BOB, KEY, answers, context, needs, rule, the_answer
from tests.support.lake import policy, tables
from tests.support.rules import rule as encryption_rule
from tests.support.rules import rules_of

RULES = rules_of(encryption_rule("personal", columns=["ssn"], mustEncrypt=True))
ENVELOPE = "TBLPROPERTIES ('encryption.mechanism'='envelope')"


def _ruled(user: str = ANN, *more: dict[str, object], **known: object) -> LintContext:
    return context(user, *more, encryption=RULES, **known)


def _table(spec: dict[str, str], *columns: str) -> TableFacts:
    parsed = EncryptionSpec.parse(spec, catalog_master_key_id=KEY)
    leaves = RuleFacts.of_names("s", "t", columns, parsed).columns
    return TableFacts(ANN, columns, (), leaves, spec=parsed)


def _known(facts: TableFacts, user: str = ANN, *more: dict[str, object]) -> LintContext:
    there = TableName(("s",), "t")
    return _ruled(user, *more, known=lambda name: facts if name == there else None)


def test_a_new_table_fits_the_rules() -> None:
    sql = "CREATE TABLE lake.s.n (id INT, person STRUCT<ssn: STRING>, ssn STRING) "
    assert rule(the_answer(sql, _ruled())) == "must-encrypt"
    assert "personal" in the_answer(sql, _ruled()).decision.explanation
    assert the_answer(sql + ENVELOPE, _ruled()).decision.allowed
    assert the_answer("CREATE TABLE lake.s.n (id INT)", _ruled()).decision.allowed
    hive = "CREATE TABLE s.n (id INT, SSN STRING) STORED BY ICEBERG "
    assert rule(the_answer(hive, _ruled(), "hive")) == "must-encrypt"
    assert the_answer(hive + ENVELOPE, _ruled(), "hive").decision.allowed


def _governed(spec: dict[str, str], *columns: str) -> TableFacts:
    """A table of which all is known."""
    here = Location.parse("s3://lake/s/t")
    return replace(_table(spec, *columns), allowed=AllowList.of([here]), location=here)


COLUMN_KEYS = "TBLPROPERTIES ('encryption.columns'='pii:{}')"


def test_a_statement_that_leaves_columns_in_plaintext_needs_unprotect() -> None:
    facts = _governed({"encryption.columns": "pii:ssn,email"}, "id", "ssn", "email")
    alter = f"ALTER TABLE lake.s.t SET {COLUMN_KEYS}"
    fewer, more = (the_answer(alter.format(names), _known(facts)) for names in ("ssn", "ssn,email,id"))
    assert "unprotect table s.t" in needs(fewer) and "unprotect table s.t" not in needs(more)


def test_columns_with_keys_are_there() -> None:
    facts = _governed({"encryption.mechanism": "envelope"}, "id", "ssn")
    alter = f"ALTER TABLE lake.s.t SET {COLUMN_KEYS}"
    assert rule(the_answer(alter.format("absent"), _known(facts))) == "unknown-column"
    known = the_answer(alter.format("ssn"), _known(facts))
    assert known.decision.allowed and not any("encryption.columns" in each for each in known.assumed)
    unknown = the_answer(alter.format("ssn"), context())
    assert "the table has every column that its properties name" in unknown.assumed


def test_a_column_with_a_key_is_left() -> None:
    drop, all_go = (f"ALTER TABLE lake.s.t DROP COLUMNS ({each})" for each in ("email", "email, SSN"))
    keyed = _governed({"encryption.columns": "pii:ssn,email"}, "id", "ssn", "email")
    whole = _governed({"encryption.mechanism": "envelope"}, "id", "ssn", "email")
    assert the_answer(drop, _known(keyed)).decision.allowed
    assert rule(the_answer(all_go, _known(keyed))) == "last-column"
    assert the_answer(all_go, _known(whole)).decision.allowed


_ALTER = "ALTER TABLE lake.s.t "
_UNPROTECT = "unprotect table s.t"


def _asks_unprotect(facts: TableFacts, *changes: str) -> bool:
    """Whether the last of these changes of a table needs the right."""
    told = answers("; ".join(_ALTER + each for each in changes), context(ANN, known=lambda _: facts))
    assert all(each.decision.allowed for each in told)
    return _UNPROTECT in needs(told[-1])


def test_keys_follow_columns_to_their_new_names() -> None:
    facts = _governed({"encryption.columns": "pii:ssn"}, "id", "ssn")
    moved, other = "RENAME COLUMN ssn TO old", "RENAME COLUMN id TO ssn"
    assert not _asks_unprotect(facts, moved, f"SET {COLUMN_KEYS.format('old')}")
    assert _asks_unprotect(facts, moved, other, f"SET {COLUMN_KEYS.format('ssn')}")
    inner = _governed({"encryption.columns": "pii:person.ssn"}, "id", "person.ssn")
    outer = "RENAME COLUMN PERSON TO who"
    assert not _asks_unprotect(inner, outer, f"SET {COLUMN_KEYS.format('who.ssn')}")
    unknown = replace(facts, columns=None, leaves=None)
    assert _asks_unprotect(unknown, moved, other, f"SET {COLUMN_KEYS.format('ssn')}")


def test_a_column_that_goes_leaves_the_list_of_keys_and_of_masks() -> None:
    facts = _governed({"encryption.columns": "pii:ssn,email"}, "id", "ssn", "email")
    gone = "DROP COLUMN email"
    assert not _asks_unprotect(facts, gone, f"SET {COLUMN_KEYS.format('ssn')}")
    assert _asks_unprotect(facts, gone, f"SET {COLUMN_KEYS.format('id')}")
    masks = {"encryption.masks": "sha256:ssn,email", "encryption.algorithm": "ORC_AES_CTR"}
    masked = _governed(masks, "id", "ssn", "email")
    new = "ADD COLUMN email STRING"
    again = "SET TBLPROPERTIES ('encryption.masks'='sha256:ssn,email')"
    assert _asks_unprotect(masked, gone, new, again) and not _asks_unprotect(masked, again)


def test_of_columns_that_are_replaced_it_is_not_known_which_have_keys() -> None:
    facts = _governed({"encryption.columns": "pii:ssn"}, "id", "ssn")
    replaced = "REPLACE COLUMNS (ssn STRING)"
    assert _asks_unprotect(facts, replaced, f"SET {COLUMN_KEYS.format('ssn')}")
    whole = _governed({"encryption.mechanism": "envelope"}, "id", "ssn")
    assert not _asks_unprotect(whole, replaced, "SET TBLPROPERTIES ('encryption.mechanism'='envelope')")


def test_a_rule_is_checked_against_keys_by_the_new_names_of_columns() -> None:
    facts = _governed({"encryption.columns": "pii:ssn"}, "id", "ssn")
    assert the_answer(f"{_ALTER}RENAME COLUMN ssn TO old", _known(facts)).decision.allowed


def test_a_table_in_plaintext_keeps_its_format() -> None:
    encrypted, orc = "SET TBLPROPERTIES ('encryption.mechanism'='envelope')", "'write.format.default'='orc'"
    never = "SET TBLPROPERTIES ('encryption.verify-digest'='never')"
    plain = _governed({}, "id")
    assert not _asks_unprotect(plain, encrypted, never)
    assert _asks_unprotect(replace(plain, file_format=FileFormat.ORC), encrypted, never)
    assert _asks_unprotect(plain, f"SET TBLPROPERTIES ({orc})", encrypted, never)
    parquet = "UNSET TBLPROPERTIES ('write.format.default')"
    assert not _asks_unprotect(plain, f"SET TBLPROPERTIES ({orc})", parquet, encrypted, never)
    made = f"CREATE TABLE lake.s.n (id INT) TBLPROPERTIES ({orc}); "
    told = answers(made + "; ".join(f"ALTER TABLE lake.s.n {each}" for each in (encrypted, never)), context())
    assert needs(told[-1]) == ["alter table s.n", "unprotect table s.n"]


def test_a_key_group_that_policies_split_is_noted() -> None:
    """At CREATE and at ALTER, and it denies nothing."""
    one = policy("one", {"database": ["s"], "table": ["*"], "column": ["ssn"]}, {BOB: ["select"]})
    create = f"CREATE TABLE lake.s.n (id INT, ssn STRING, email STRING) {COLUMN_KEYS}"
    made = the_answer(create.format("ssn,email"), context(ANN, one))
    assert made.decision.allowed
    (note,) = made.notes
    assert note.startswith(
        "The key 'pii' is split for user 'bob': SELECT is granted on 'ssn' but not on 'email'"
    )
    assert the_answer(create.format("ssn"), context(ANN, one)).notes == ()
    facts = _governed({}, "id", "ssn", "email")
    alter = f"ALTER TABLE lake.s.t SET {COLUMN_KEYS}"
    altered = the_answer(alter.format("ssn,email"), _known(facts, ANN, one))
    assert altered.notes == made.notes


def test_columns_that_come_from_a_query_count() -> None:
    assert (
        rule(the_answer("CREATE TABLE lake.s.n AS SELECT a AS ssn FROM lake.s.t", _ruled())) == "must-encrypt"
    )
    assert the_answer("CREATE TABLE lake.s.n AS SELECT a FROM lake.s.t", _ruled()).decision.allowed
    unknown = "CREATE TABLE lake.s.n AS SELECT * FROM VALUES (1)"
    assert rule(the_answer(unknown, _ruled())) == "encryption-rules"


def test_a_column_is_not_added_or_renamed_past_a_rule() -> None:
    plain, encrypted = _table({}, "id", "other"), _table({"encryption.mechanism": "envelope"}, "id", "other")
    for change in ("ADD COLUMN ssn STRING", "RENAME COLUMN other TO ssn"):
        sql = f"ALTER TABLE lake.s.t {change}"
        assert rule(the_answer(sql, _known(plain))) == "must-encrypt"
        assert the_answer(sql, _known(encrypted)).decision.allowed
    assert the_answer("ALTER TABLE lake.s.t ADD COLUMN more INT", _known(plain)).decision.allowed
    old = _table({}, "id", "ssn", "more")
    assert rule(the_answer("ALTER TABLE lake.s.t DROP COLUMN more", _known(old))) == "must-encrypt"
    assert the_answer("ALTER TABLE lake.s.t DROP COLUMN ssn", _known(old)).decision.allowed
    assert rule(the_answer("ALTER TABLE lake.s.t ADD COLUMN ssn INT", _ruled())) == "encryption-rules"


def test_protection_that_a_rule_asks_for_is_not_dropped() -> None:
    encrypted = _table({"encryption.mechanism": "envelope"}, "id", "ssn")
    dropped = "ALTER TABLE lake.s.t SET TBLPROPERTIES ('encryption.mechanism'='plaintext')"
    known = replace(encrypted, allowed=AllowList.of([]))
    assert rule(the_answer(dropped, _known(known))) == "must-encrypt"
    assert rule(the_answer(dropped, _ruled())) == "encryption-rules"
    assert the_answer("ALTER TABLE lake.s.t SET TBLPROPERTIES ('a'='b')", _known(known)).decision.allowed


def test_a_change_that_leaves_a_rule_for_encrypted_tables_takes_unprotect() -> None:
    rules = rules_of(encryption_rule("length", mustEncrypt=False, minDataKeyLength=16))
    facts = _governed({"encryption.mechanism": "envelope"}, "id")
    plaintext = "ALTER TABLE lake.s.t SET TBLPROPERTIES ('encryption.mechanism'='plaintext')"
    same = "ALTER TABLE lake.s.t SET TBLPROPERTIES ('encryption.footer'='encrypted')"
    judged_by = replace(_known(facts), encryption=rules)
    assert "unprotect table s.t" in needs(the_answer(plaintext, judged_by))
    assert "unprotect table s.t" not in needs(the_answer(same, judged_by))


def test_an_encrypted_column_does_not_partition_a_known_table() -> None:
    sql = "ALTER TABLE lake.s.t ADD PARTITION FIELD {}"
    for given in ({"encryption.columns": "pii:ssn"}, {"encryption.plaintext-columns": "id"}):
        keyed = _table(given, "id", "ssn")
        assert rule(the_answer(sql.format("bucket(4, SSN)"), _known(keyed))) == "encrypted-source"
        answer = the_answer(sql.format("ID"), _known(keyed))
        assert answer.decision.allowed
        assert answer.assumed == ("the columns and their types allow the change",)
        shown = _table({**given, "encryption.partition-values": "plaintext"}, "id", "ssn")
        assert "unprotect table s.t" in needs(the_answer(sql.format("SSN"), _known(shown)))
        assert "unprotect table s.t" not in needs(the_answer(sql.format("id"), _known(shown)))


def test_an_encrypted_column_sorts_a_table_if_no_plaintext_column_shows_its_order() -> None:
    keyed = _table({"encryption.plaintext-columns": "id"}, "id", "ssn")
    shown = "no plaintext column can show the order of an encrypted one"
    for column, assumed in (("SSN", True), ("Id", False)):
        answer = the_answer(f"ALTER TABLE lake.s.t WRITE ORDERED BY {column}", _known(keyed))
        assert answer.decision.allowed
        assert (shown in answer.assumed) is assumed


def test_plaintext_columns_follow_to_their_new_names_and_are_no_way_past_a_rule() -> None:
    rules = rules_of(encryption_rule("all", columns=["ssn"], mustEncrypt=True))
    keyed = _governed({"encryption.plaintext-columns": "day"}, "day", "ssn", "name")
    judged_by = replace(_known(keyed), encryption=rules)
    sets = "ALTER TABLE lake.s.t SET TBLPROPERTIES ('encryption.plaintext-columns'='{}')"
    assert rule(the_answer(sets.format("day,ssn"), judged_by)) == "must-encrypt"
    assert "unprotect table s.t" not in needs(the_answer(sets.format(""), judged_by))
    assert "unprotect table s.t" in needs(the_answer(sets.format("day,name"), judged_by))
    both = "ALTER TABLE lake.s.t RENAME COLUMN day TO ssn2; ALTER TABLE lake.s.t RENAME COLUMN ssn TO day"
    assert the_answer("ALTER TABLE lake.s.t ADD COLUMN iban STRING", judged_by).decision.allowed
    assert all(each.decision.allowed for each in answers(both, judged_by))


def test_a_name_out_of_a_rules_reach_takes_unprotect() -> None:
    rules = rules_of(encryption_rule("here", databases=["s"], mustEncrypt=True))
    facts = _table({"encryption.mechanism": "envelope"}, "id")
    may = policy("may", tables("*"), {BOB: ["alter", "create", "select"]})
    there = TableName(("s",), "t")
    judged_by = context(BOB, may, encryption=rules, known=lambda name: facts if name == there else None)
    assert rule(the_answer("ALTER TABLE lake.s.t RENAME TO other.t", judged_by)) == "policy-no-match"
    assert the_answer("ALTER TABLE lake.s.t RENAME TO u", judged_by).decision.allowed
    judged_by = context(ANN, encryption=rules, known=lambda name: facts if name == there else None)
    assert "unprotect table s.t" in needs(the_answer("ALTER TABLE lake.s.t RENAME TO other.t", judged_by))


def test_a_new_name_for_a_table_takes_the_right_to_read_what_is_known_of_it() -> None:
    facts = replace(_table({}, "id", "ssn"), owner=ANN)
    may = policy("may", tables("*"), {BOB: ["alter", "create"]})
    there = TableName(("s",), "t")
    judged_by = context(BOB, may, known=lambda name: facts if name == there else None)
    assert rule(the_answer("ALTER TABLE lake.s.t RENAME TO u", judged_by)) == "policy-no-match"
    judged_by = context(ANN, known=lambda name: facts if name == there else None)
    assert {"select column s.t.id", "select column s.t.ssn"} < set(
        needs(the_answer("ALTER TABLE lake.s.t RENAME TO u", judged_by))
    )


def test_without_rules_nothing_has_to_be_known() -> None:
    judged_by = context(encryption=EncryptionRules.empty())
    statements = "ALTER TABLE lake.s.t ADD COLUMN ssn INT; CREATE TABLE lake.s.n AS SELECT * FROM VALUES (1)"
    assert all(each.decision.allowed for each in answers(statements, judged_by))


def test_what_the_rules_need_to_know_is_told() -> None:
    answer = the_answer("ALTER TABLE lake.s.t RENAME TO u", _ruled())
    assert (rule(answer), answer.decision.explanation, answer.hint) == (
        "encryption-rules",
        "Encryption rules are in force, but the columns or the encryption of s.t are unknown.",
        "List the columns, or pass --live to look up the table.",
    )


def test_a_rule_that_is_broken_is_told_with_its_name() -> None:
    answer = the_answer("CREATE TABLE lake.s.n (id INT, ssn STRING)", _ruled())
    assert rule(answer) == "must-encrypt"
    assert answer.decision.explanation.startswith("Encryption rule 'personal': ")
    assert answer.hint == "Change the table so that it satisfies every encryption rule."


def test_columns_that_are_replaced_are_not_known_any_more() -> None:
    facts = _table({}, "id", "name")
    script = "ALTER TABLE lake.s.t REPLACE COLUMNS (id INT); SELECT * FROM lake.s.t"
    changed = answers(script, context(ANN, known=lambda _: facts))
    assert changed[0].decision.allowed and rule(changed[1]) == "columns-unknown"


def test_columns_that_are_added_have_field_ids_of_their_own() -> None:
    facts = _table({}, "id", "name")
    assert facts.leaves is not None
    added = AlterColumns(("s", "t"), added=(Column(("a",), ()), Column(("b",), ())))
    after = with_columns(facts, added)
    assert after.columns == ("id", "name", "a", "b") and after.leaves is not None
    assert [each.field_id for each in after.leaves] == [1, 2, 3, 4]
    alone = with_columns(replace(facts, columns=(), leaves=()), added)
    assert alone.leaves is not None and [each.field_id for each in alone.leaves] == [1, 2]


def test_columns_are_found_in_any_letter_case_and_keep_the_one_that_they_have() -> None:
    """The catalog, and the keys, go by names letter by letter; Spark hands them on as the table has them."""
    facts = _governed({"encryption.columns": "pii:who"}, "id", "who.ssn", "who.name")
    inside = f"{_ALTER}ADD COLUMN WHO.more STRING; {_ALTER}RENAME COLUMN Who.name TO ssn2; {_ALTER}"
    for change in ("RENAME COLUMN WHO.SSN TO tin", "RENAME COLUMN Who TO Person", "DROP COLUMN WHO.NAME"):
        assert all(each.decision.allowed for each in answers(inside + change, _known(facts))), change
    named = f"{_ALTER}RENAME COLUMN WHO TO Person; {_ALTER}SET {COLUMN_KEYS}"
    for column, allowed in (("Person.ssn,Person.name", True), ("person", False)):
        assert answers(named.format(column), _known(facts))[-1].decision.allowed is allowed
    after = with_columns(facts, AlterColumns(("s", "t"), renamed=(("WHO", "SSN"), ("WHO", "tin"))))
    assert after.columns == ("id", "who")


def test_hive_makes_small_letters_of_columns() -> None:
    sql = "CREATE TABLE s.n (id INT, Who STRUCT<SSN: STRING>) STORED BY ICEBERG TBLPROPERTIES ({})"
    for column, allowed in (("who.ssn", True), ("Who.SSN", False)):
        given = sql.format(f"'encryption.columns'='pii:{column}'")
        assert the_answer(given, _ruled(), "hive").decision.allowed is allowed
    made = f"CREATE TABLE s.n STORED BY ICEBERG {COLUMN_KEYS} AS SELECT 'a' AS SSN"
    for column, allowed in (("ssn", True), ("SSN", False)):
        assert the_answer(made.format(column), _ruled(), "hive").decision.allowed is allowed
