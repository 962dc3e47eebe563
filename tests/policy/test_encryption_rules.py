"""What encryption rules decide about a table: every kind of demand, scope by name and by tag, exceptions."""

from __future__ import annotations

from typing import Any

from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import EncryptionSpec
from policy.encryption_rules import Column, ColumnName, EncryptionRules, TableFacts, column_key
from tests.support.rules import rule, rules_of, tag
from tests.support.vectors import each_row

KEY = "footer-key"


def spec(**properties: str) -> EncryptionSpec:
    """A specification by governed properties, with underscores for dots and dashes as they are."""
    given = {f"encryption.{name.replace('_', '-')}": value for name, value in properties.items()}
    return EncryptionSpec.parse(given, catalog_master_key_id=KEY)


PLAIN = spec()
UNIFORM = spec(mechanism="envelope")


def facts(
    *names: str, of: EncryptionSpec = PLAIN, database: str = "finance", table: str = "pay"
) -> TableFacts:
    return TableFacts.of_names(database, table, names or ("id", "ssn"), of)


def broken(rules: EncryptionRules, found: TableFacts) -> list[tuple[str, str | None]]:
    """What is asked and broken, with the column."""
    return [(str(each.requirement), each.column) for each in rules.violations(found)]


def test_without_a_rule_nothing_has_to_be_encrypted() -> None:
    assert EncryptionRules.empty().decide(facts()).allowed


def test_a_table_must_be_encrypted() -> None:
    rules = rules_of(rule("all"))
    assert broken(rules, facts()) == [("must-encrypt", None)]
    assert broken(rules, facts(of=UNIFORM)) == []


def test_encrypting_some_column_is_not_encrypting_the_table() -> None:
    """A writer would otherwise encrypt a column that nobody needs."""
    partly = spec(columns="other:dummy")
    assert broken(rules_of(rule("all")), facts("id", "dummy", of=partly)) == [("must-encrypt", "id")]


def test_a_column_must_be_encrypted_and_the_others_need_not() -> None:
    rules = rules_of(rule("ssn", columns=["ssn"]))
    assert broken(rules, facts()) == [("must-encrypt", "ssn")]
    assert broken(rules, facts(of=UNIFORM)) == []
    assert broken(rules, facts(of=spec(columns="other:ssn"))) == []
    assert broken(rules, facts(of=spec(columns="other:id"))) == [("must-encrypt", "ssn")]
    assert broken(rules, facts("id", "name")) == []


def test_a_column_must_have_a_key_of_its_own() -> None:
    rules = rules_of(rule("ssn", columns=["ssn"], columnKey=True))
    assert broken(rules, facts()) == [("must-encrypt", "ssn"), ("column-key", "ssn")]
    assert broken(rules, facts(of=UNIFORM)) == [("column-key", "ssn")]
    assert broken(rules, facts(of=spec(columns="other:ssn"))) == []


def test_the_tables_own_master_key_is_no_column_key() -> None:
    """Who may use that one could read the column."""
    rules = rules_of(rule("ssn", columns=["ssn"], columnKey=True))
    assert broken(rules, facts(of=spec(columns=f"{KEY}:ssn"))) == [("column-key", "ssn")]


def test_a_key_of_a_struct_is_the_key_of_its_fields() -> None:
    rules = rules_of(rule("person", columns=["person"], columnKey=True))
    assert broken(rules, facts("person.ssn", "person.name", of=spec(columns="other:person"))) == []
    partly = facts("person.ssn", "person.name", of=spec(columns="other:person.ssn"))
    assert broken(rules, partly) == [("must-encrypt", "person.name"), ("column-key", "person.name")]


@each_row(
    ("demand", "properties", "ask"),
    [
        ({"algorithms": ["AES_GCM_V1"]}, {"algorithm": "AES_GCM_CTR_V1"}, "algorithm"),
        ({"masterKeys": ["payroll-*"]}, {"master_key_id": "other"}, "master-key"),
        ({"minDataKeyLength": 32}, {"data_key_length": "24"}, "data-key-length"),
        ({"plaintextFooter": False}, {"footer": "plaintext"}, "plaintext-footer"),
        ({"stockReaders": False}, {"stock_readers": "true"}, "stock-readers"),
        ({"partitionValues": False}, {"partition_values": "plaintext"}, "partition-values"),
    ],
)
@each_row("columns", [None, ["ssn"]])
def test_what_is_encrypted_is_encrypted_as_asked(
    demand: dict[str, Any], properties: dict[str, str], ask: str, columns: list[str] | None
) -> None:
    about = {} if columns is None else {"columns": columns}
    rules = rules_of(rule("r", mustEncrypt=False, **about, **demand))
    assert [each for each, _ in broken(rules, facts(of=spec(**properties)))] == [ask]
    assert broken(rules, facts(of=spec(master_key_id="payroll-1"))) == []
    assert broken(rules, facts()) == [], "a plaintext table has no algorithm, key or footer"
    if columns:
        assert broken(rules, facts("id", of=spec(**properties))) == []


def test_every_key_of_a_table_must_be_allowed_and_for_a_column_its_own() -> None:
    by_two = spec(columns="other:ssn")
    on_table = rules_of(rule("t", masterKeys=[KEY], mustEncrypt=False))
    on_column = rules_of(rule("c", masterKeys=[KEY], mustEncrypt=False, columns=["ssn"]))
    assert [each.found for each in on_table.violations(facts(of=by_two))] == ["other"]
    assert broken(on_column, facts(of=by_two)) == [("master-key", "ssn")]
    assert broken(on_column, facts(of=UNIFORM)) == []
    other_way = rules_of(rule("c", masterKeys=["other"], mustEncrypt=False, columns=["ssn"]))
    assert broken(other_way, facts(of=by_two)) == []


def test_master_keys_differ_in_letter_case() -> None:
    rules = rules_of(rule("r", masterKeys=["Payroll"], mustEncrypt=False))
    assert broken(rules, facts(of=spec(master_key_id="payroll"))) == [("master-key", None)]


@each_row(
    ("databases", "tables", "applies"),
    [
        (["finance"], ["pay"], True),
        (["FIN*"], ["p?y"], True),
        (["finance.eu"], ["*"], False),
        (["sales"], ["*"], False),
        (["*"], ["payroll"], False),
        (["sales", "finance"], ["x", "pay"], True),
    ],
)
def test_databases_and_tables_by_pattern(databases: list[str], tables: list[str], applies: bool) -> None:
    rules = rules_of(rule("r", databases=databases, tables=tables))
    assert rules.decide(facts()).allowed is not applies


@each_row("name", ["finance.eu", "eu.finance", "eu.finance.old", "eu.fіnance"])
def test_a_database_within_another_is_not_taken_for_it(name: str) -> None:
    assert rules_of(rule("r", databases=["finance"])).decide(facts(database=name)).allowed


def test_a_name_in_a_table_is_never_a_pattern() -> None:
    rules = rules_of(rule("r", databases=["finance"], columns=["ssn"]))
    assert rules.decide(facts("*")).allowed
    assert rules.decide(facts(database="*")).allowed


@each_row(
    "name",
    [
        "SSN",
        "s\u200bsn",  # zero-width space
        "ѕsn",  # Cyrillic
        "ｓｓｎ",  # fullwidth
        "ššn",
        " ssn ",
        "s\tsn",
        "person.ssn",
        "person.SSN.number",
        "people.element.ssn",
        "ssn.element",
        "by_key.value.ssn",
        "sѕո",  # an Armenian letter that no table of confusables has
        "person.ѕsn.number",
        "person.sѕո",
    ],
)
def test_a_column_is_found_whatever_its_name_looks_like(name: str) -> None:
    rules = rules_of(rule("ssn", columns=["ssn"]))
    assert broken(rules, facts("id", name)) == [("must-encrypt", name)]


@each_row("name", ["ssn2", "assn", "s_sn", "name", "社保号", "person.name", "s.sn"])
def test_another_column_is_not_taken_for_it(name: str) -> None:
    assert rules_of(rule("ssn", columns=["ssn"])).decide(facts("id", name)).allowed


def test_a_pattern_that_looks_like_something_finds_it() -> None:
    assert not rules_of(rule("r", columns=["Gehälter "])).decide(facts("gehalter")).allowed


@each_row("pattern", ["Gehälter", "s?n", "sѕո"])
def test_a_pattern_that_looks_like_something_is_about_nothing_else(pattern: str) -> None:
    assert rules_of(rule("r", columns=[pattern])).decide(facts("note", "sոոո", "id")).allowed


def test_a_dotted_pattern_is_about_any_part_of_a_path() -> None:
    rules = rules_of(rule("r", columns=["person.ssn"]))
    assert not rules.decide(facts("customer.person.ssn.number")).allowed
    assert rules.decide(facts("person.name", "ssn")).allowed


def test_every_name_of_a_column_counts() -> None:
    names = (ColumnName("note", "note"), ColumnName("ssn", "ssn"))
    found = TableFacts("finance", "pay", (Column(3, names),), PLAIN)
    (violation,) = rules_of(rule("ssn", columns=["ssn"])).violations(found)
    assert "'note', formerly 'ssn'," in violation.detail


def test_either_spelling_of_a_nested_column_counts() -> None:
    column = Column(3, (ColumnName("people.element.ssn", "people.ssn"),))
    found = TableFacts("finance", "pay", (column,), PLAIN)
    assert not rules_of(rule("r", columns=["people.ssn"])).decide(found).allowed
    excepted = rule("r", columns=["ssn"], **{"except": [{"columns": ["people.ssn"]}]})
    assert rules_of(excepted).decide(found).allowed


def test_tags_are_assigned_by_the_rules_and_add_to_columns() -> None:
    pii = (tag("pii", "email", "phone*", databases=["fin*"]), tag("pii", "iban", tables=["pay"]))
    rules = rules_of(rule("r", tags=["pii"], columns=["ssn"]), tags=pii)
    assert [column for _, column in broken(rules, facts("email", "phone2", "iban", "ssn", "id"))] == [
        "email",
        "phone2",
        "iban",
        "ssn",
    ]
    assert [column for _, column in broken(rules, facts("email", "iban", database="hr"))] == ["iban"]
    assert broken(rules, facts("email", "iban", database="hr", table="t")) == []


def test_the_tags_of_columns_are_told_by_field_id() -> None:
    pii = (tag("pii", "email", "phone*", databases=["fin*"]), tag("pii", "iban", tables=["pay"]))
    rules = rules_of(rule("r", tags=["pii", "mail"]), tags=(*pii, tag("mail", "e?ail")))
    assert rules.tags_of(facts("id", "email", "iban")) == {2: ("mail", "pii"), 3: ("pii",)}
    assert rules.tags_of(facts("email", database="hr")) == {1: ("mail",)}
    assert rules.tags_of(facts("id")) == {}


def test_a_tag_reaches_no_further_than_the_rule() -> None:
    rules = rules_of(rule("r", tags=["pii"], databases=["hr"]), tags=(tag("pii", "email"),))
    assert rules.decide(facts("email")).allowed


@each_row(
    ("exception", "taken_out"),
    [
        ({"databases": ["finance"]}, True),
        ({"databases": ["FINANCE"], "tables": ["p*"]}, True),
        ({"databases": ["finance"], "tables": ["other"]}, False),
        ({"tables": ["pay"]}, True),
        ({"columns": ["ssn"]}, True),
        ({"columns": ["s*"], "databases": ["hr"]}, False),
        ({"columns": ["ѕsn"]}, False),
        ({"databases": ["fіnance"]}, False),
    ],
)
def test_exceptions_take_out_what_they_name_and_nothing_that_looks_like_it(
    exception: dict[str, list[str]], taken_out: bool
) -> None:
    rules = rules_of(rule("r", columns=["ssn"], **{"except": [exception]}))
    assert rules.decide(facts()).allowed is taken_out


def test_an_excepted_column_of_a_whole_table_may_stay_in_plaintext() -> None:
    rules = rules_of(rule("r", **{"except": [{"columns": ["id"]}]}))
    assert broken(rules, facts()) == [("must-encrypt", None)]
    assert broken(rules, facts(of=spec(columns="other:ssn"))) == []


def test_a_column_that_no_property_names_is_encrypted_under_the_tables_key() -> None:
    named = facts("day", "ssn", of=spec(columns="other:ssn", plaintext_columns="day"))
    others = facts("day", "ssn", of=spec(plaintext_columns="day"))
    must, keyed = rules_of(rule("r", columns=["ssn"])), rules_of(rule("r", columns=["ssn"], columnKey=True))
    whole = rules_of(rule("r"))
    assert broken(must, others) == broken(must, named) == broken(keyed, named) == []
    assert broken(keyed, others) == [("column-key", "ssn")]
    (violation,) = whole.violations(others)
    assert (violation.column, violation.remedy) == ("day", "Remove it from encryption.plaintext-columns.")
    assert broken(rules_of(rule("r", **{"except": [{"columns": ["day"]}]})), others) == []
    gone = Column(3, (ColumnName("ssn", "ssn"),), column_key(others.spec, None), is_current=False)
    assert broken(must, TableFacts("finance", "pay", (gone,), others.spec)) == []


def test_a_column_that_was_excepted_under_another_name_is_not() -> None:
    """A rename into the exception, or out of it, opens nothing."""
    names = (ColumnName("id", "id"), ColumnName("ssn", "ssn"))
    found = TableFacts("finance", "pay", (Column(3, names),), PLAIN)
    rules = rules_of(rule("r", columns=["*"], **{"except": [{"columns": ["id"]}]}))
    assert broken(rules, found) == [("must-encrypt", "id")]


def test_reasons_name_rule_document_column_and_remedy() -> None:
    decision = rules_of(rule("personal data", columns=["ssn"])).decide(facts())
    (reason,) = decision.reasons
    assert (reason.rule, reason.policy, reason.item) == ("must-encrypt", "personal data", "rules.json")
    assert reason.detail == "Column 'ssn' must be encrypted. Set encryption.mechanism=envelope."


def test_a_column_of_snapshots_alone_is_told_apart() -> None:
    column = Column(3, (ColumnName("ssn", "ssn"),), None, is_current=False)
    found = TableFacts("finance", "pay", (column,), PLAIN)
    (violation,) = rules_of(rule("r", columns=["ssn"])).violations(found)
    assert "of a snapshot's schema" in violation.detail and "Expire" in violation.remedy


def test_the_key_of_a_column_is_that_of_the_struct_it_lies_in() -> None:
    by_struct = spec(columns="a:person;b:id")
    assert column_key(by_struct, "person.ssn") == "a"
    assert column_key(by_struct, "personal") is None


# -- what is told

_KEYED = {"columns": "other:ssn"}


@each_row(
    ("fields", "properties", "told"),
    [
        ({}, None, ("", "The table must be encrypted.", "Set encryption.mechanism=envelope.")),
        (
            {"columns": ["ssn"]},
            None,
            ("", "Column 'ssn' must be encrypted.", "Set encryption.mechanism=envelope."),
        ),
        (
            {"columns": ["id"]},
            _KEYED,
            (
                "",
                "Column 'id' must be encrypted.",
                "Add it to encryption.columns, or unset that property to encrypt all columns.",
            ),
        ),
        (
            {"columns": ["ssn"], "columnKey": True},
            {},
            (
                "",
                "Column 'ssn' must have a column key.",
                "Add it to encryption.columns under a key other than the table's encryption.master-key-id.",
            ),
        ),
        (
            {"masterKeys": ["b", "a"]},
            {},
            (KEY, f"The master key '{KEY}' is not allowed for the table.", "Use one of: a, b."),
        ),
        (
            {"masterKeys": ["a"], "columns": ["ssn"]},
            _KEYED,
            ("other", "The master key 'other' is not allowed for the column 'ssn'.", "Use one of: a."),
        ),
        (
            {"algorithms": ["AES_GCM_V1"]},
            {"algorithm": "AES_GCM_CTR_V1"},
            (
                "AES_GCM_CTR_V1",
                "The algorithm AES_GCM_CTR_V1 is not allowed.",
                "Set encryption.algorithm=AES_GCM_V1.",
            ),
        ),
        (
            {"minDataKeyLength": 24},
            {"data_key_length": "16"},
            (
                "16",
                "Data keys of 16 bytes are shorter than 24 bytes.",
                "Set encryption.data-key-length to 24 or more.",
            ),
        ),
        (
            {"plaintextFooter": False},
            {"footer": "plaintext"},
            ("", "A plaintext footer is not allowed.", "Set encryption.footer=encrypted."),
        ),
        (
            {"stockReaders": False},
            {"stock_readers": "true"},
            ("", "Standard readers are not allowed.", "Set encryption.stock-readers=false."),
        ),
        (
            {"partitionValues": False},
            {"partition_values": "plaintext"},
            (
                "",
                "Plaintext partition values of encrypted columns are not allowed.",
                "Unset encryption.partition-values.",
            ),
        ),
    ],
)
def test_what_is_broken_is_told_with_what_to_do(
    fields: dict[str, Any], properties: dict[str, str] | None, told: tuple[str, str, str]
) -> None:
    of = PLAIN if properties is None else spec(**({"mechanism": "envelope"} | properties))
    (found,) = rules_of(rule("r", **fields)).violations(facts(of=of))
    assert (found.found, found.detail, found.remedy) == told
    assert (found.rule, found.document) == ("r", "rules.json")


def test_orc_files_break_a_rule_that_demands_an_encrypted_footer() -> None:
    envelope = {"encryption.mechanism": "envelope"}
    orc = EncryptionSpec.parse(envelope, catalog_master_key_id=KEY, file_format=FileFormat.ORC)
    (found,) = rules_of(rule("r", plaintextFooter=False)).violations(facts(of=orc))
    assert (str(found.requirement), found.detail, found.remedy) == (
        "plaintext-footer",
        "A plaintext footer is not allowed.",
        "Set write.format.default=parquet: ORC footers are always in plaintext.",
    )
    assert not rules_of(rule("r")).violations(facts(of=orc))


def test_columns_of_snapshots_are_told_to_be_expired() -> None:
    column = Column(3, (ColumnName("ssn", "ssn"),), None, is_current=False)
    found = TableFacts("finance", "pay", (column,), PLAIN)
    broken_two = rules_of(rule("r", columns=["ssn"], columnKey=True)).violations(found)
    assert [each.remedy for each in broken_two] == ["Expire the snapshots that contain it."] * 2
    assert broken_two[0].detail == "Column 'ssn' of a snapshot's schema must be encrypted."


def test_what_is_told_of_a_column_is_bounded() -> None:
    """Names come from the user who made the table."""
    names = tuple(ColumnName(f"ssn.{number}{'x' * 400}", "x") for number in range(9))
    found = TableFacts("finance", "pay", (Column(3, names),), PLAIN)
    (violation,) = rules_of(rule("r", columns=["ssn"])).violations(found)
    assert len(violation.detail) < 500 and violation.detail.count("'ssn.") == 4


def test_demands_of_several_rules_on_one_thing_add_up() -> None:
    one = rule("r", databases=["finance"], minDataKeyLength=32)
    two = rule("s", databases=["finance"], algorithms=["AES_GCM_V1"])
    both = rule("t", databases=["hr"], minDataKeyLength=32, algorithms=["AES_GCM_V1"])
    assert not rules_of(one, two, both).downgraded(facts(of=UNIFORM), facts(of=UNIFORM, database="hr"))
    del both["algorithms"]
    assert rules_of(one, two, both).downgraded(facts(of=UNIFORM), facts(of=UNIFORM, database="hr"))
    assert not rules_of(one, both).downgraded(facts(of=UNIFORM), facts(of=UNIFORM, database="hr"))
