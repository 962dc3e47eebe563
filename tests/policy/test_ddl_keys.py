"""Lint of CALL on a table's keys and snapshots, and of statements on its branches."""

from __future__ import annotations

from dataclasses import replace

from policy.encryption.specification import EncryptionSpec
from policy.sql_lint import TableFacts
from tests.support.ddl import ANN, BOB, answers, context, needs, rule, the_answer
from tests.support.lake import policy
from tests.support.vectors import each_row

MADE = (
    "CREATE TABLE lake.s.t (id INT, ssn STRING) TBLPROPERTIES "
    "('encryption.master-key-id' = 'main', 'encryption.mechanism' = 'envelope');"
)
ROTATES = policy("rotators", {"key": ["*"]}, {ANN: ["rotate"]})
SPEC = EncryptionSpec.parse({"encryption.mechanism": "envelope"}, catalog_master_key_id="main")


@each_row("procedure", ["rotate_key", "REWRAP_KEYS"])
@each_row("table", ["table => 's.t'", "TABLE=>'lake.s.t'", "'`s`.t'"])
def test_alter_and_rotate_on_the_master_keys_are_needed(procedure: str, table: str) -> None:
    sql = f"{MADE} CALL lake.system.{procedure}({table})"
    assert rule(answers(sql)[-1]) == "policy-no-match"
    answer = answers(sql, context(ANN, ROTATES))[-1]
    assert answer.decision.allowed
    assert needs(answer) == ["alter table s.t", "rotate key main"]
    before = ("the table has no key under an earlier master key",)
    assert answer.assumed == (before if procedure == "REWRAP_KEYS" else ())


def test_what_encrypts_a_table_is_looked_up() -> None:
    call = "CALL lake.system.rotate_key(table => 's.t')"
    assert rule(the_answer(call, context(ANN, ROTATES))) == "state-unknown"
    known = TableFacts(ANN, spec=SPEC)
    assert the_answer(call, context(ANN, ROTATES, known=lambda _: known)).decision.allowed
    assert rule(the_answer(call, context(BOB, ROTATES, known=lambda _: known))) == "policy-no-match"


def test_a_plaintext_table_has_no_key_to_rotate() -> None:
    plain = replace(TableFacts(ANN), spec=EncryptionSpec.parse({}, catalog_master_key_id="main"))
    judged_by = context(ANN, ROTATES, known=lambda _: plain)
    assert rule(the_answer("CALL lake.system.rotate_key('s.t')", judged_by)) == "plaintext"
    assert needs(the_answer("CALL lake.system.rewrap_keys('s.t')", judged_by)) == ["alter table s.t"]


@each_row(
    ("call", "expected"),
    [
        ("system.rotate_key('s.t')", "procedure"),
        ("rotate_key('s.t')", "procedure"),
        ("LAKE.system.rotate_key('s.t')", "procedure"),
        ("spark_catalog.system.rotate_key('s.t')", "procedure"),
        ("lake.a.system.rotate_key('s.t')", "procedure"),
        ("lake.system.rotate_key('t')", "identifier"),
        ("lake.system.rotate_key('')", "identifier"),
        ("lake.system.rotate_key('lake.t x')", "identifier"),
        ("lake.system.rotate_key('s.t; DROP TABLE s.u')", "identifier"),
        ("lake.system.rotate_key('s.`t')", "identifier"),
        ("lake.system.rotate_key('s.t', true)", "syntax"),
        ("lake.system.rotate_key()", "syntax"),
        ("lake.system.rotate_key(name => 's.t')", "syntax"),
        ("lake.system.rotate_key(table 's.t')", "syntax"),
        ("lake.system.rotate_key(table = 's.t')", "syntax"),
        ("lake.system.rotate_key('s.' 't')", "syntax"),
        ("lake.system.rotate_key(concat('s', '.t'))", "syntax"),
        ("lake.system.rotate_key('s.t') x", "syntax"),
        ("lake.system.destroy_key('s.t')", "not-supported-yet"),
    ],
)
def test_what_is_no_call_on_keys_is_denied(call: str, expected: str) -> None:
    known = TableFacts(ANN, spec=SPEC)
    judged_by = context(ANN, ROTATES, known=lambda _: known)
    assert rule(the_answer(f"CALL {call}", judged_by)) == expected


@each_row(
    ("call", "column", "why", "hint"),
    [
        (
            f"a.{'b' * 90}('s.t')",
            6,
            f"The procedure 'a.{'b' * 78}' is not supported, or bypasses the catalog.",
            "Use one of the procedures rotate_key, rewrap_keys, rewrite_data_files, "
            "rewrite_position_delete_files, compute_table_stats, rewrite_manifests, expire_snapshots, "
            "remove_orphan_files, "
            "rollback_to_snapshot, rollback_to_timestamp, "
            "set_current_snapshot, cherrypick_snapshot, publish_changes, fast_forward, ancestors_of, "
            "create_changelog_view, add_files, snapshot and migrate.",
        ),
        (
            f"{'b' * 90}.ROTATE_key('s.t')",
            1,
            f"'{'b' * 80}' can belong to another catalog than lake.",
            "Write lake.system.rotate_key.",
        ),
        (
            f"lake.system.rotate_key(table => 's.t {'x' * 90}')",
            38,
            f"'s.t {'x' * 76}' is not a table name.",
            "Write 'NAMESPACE.TABLE'.",
        ),
        (
            "lake.system.rewrap_keys('s.')",
            30,
            "'s.' is not a table name.",
            "Write 'NAMESPACE.TABLE'.",
        ),
        (
            "lake.system.rewrap_keys('t')",
            1,
            "The table name has no namespace.",
            "Write 'NAMESPACE.TABLE'.",
        ),
        (
            "lake.system.rewrap_keys('s.t')",
            1,
            "The master keys of the table are unknown.",
            "Pass --live to look it up.",
        ),
        (
            "lake.system.rotate_key('plain.t')",
            1,
            "The table is not encrypted, so it has no key to rotate.",
            "Remove the statement.",
        ),
    ],
)
def test_a_denied_call_says_where_and_why(call: str, column: int, why: str, hint: str) -> None:
    plain = TableFacts(ANN, spec=EncryptionSpec.parse({}, catalog_master_key_id="main"))
    judged_by = context(ANN, ROTATES, known=lambda name: plain if name.database == "plain" else None)
    answer = the_answer(f"CALL {call}", judged_by)
    assert (answer.column, answer.decision.explanation, answer.hint) == (column, why, hint)


def test_a_comment_beside_a_name_is_none_of_it() -> None:
    answer = answers(f"{MADE} CALL lake.system.rotate_key('s /* one; */ . t')", context(ANN, ROTATES))[-1]
    assert needs(answer) == ["alter table s.t", "rotate key main"]


def test_a_table_of_a_namespace_named_like_the_catalog() -> None:
    """As Spark does: with two parts there is no room for the catalog."""
    known = TableFacts(ANN, spec=SPEC)
    judged_by = context(ANN, ROTATES, known=lambda _: known)
    for written in ("lake.t", "lake.lake.t"):
        answer = the_answer(f"CALL lake.system.rotate_key('{written}')", judged_by)
        assert needs(answer)[0] == "alter table lake.t"


def test_hive_has_no_call() -> None:
    assert rule(the_answer("CALL lake.system.rotate_key('s.t')", dialect="hive")) == "not-supported-yet"


def test_after_a_call_nothing_else_is_known_to_have_changed() -> None:
    sql = f"USE lake.s; {MADE} CALL lake.system.rotate_key('s.t'); DROP TABLE t"
    assert answers(sql, context(ANN, ROTATES))[-1].decision.allowed


@each_row(
    ("call", "needed"),
    [
        ("rollback_to_snapshot('s.t', 5)", ["alter table s.t", "update table s.t"]),
        ("rollback_to_timestamp('s.t', TIMESTAMP '2030-01-01')", ["alter table s.t", "update table s.t"]),
        (
            "rollback_to_timestamp('s.t', timestamp => TIMESTAMP '2030-01-01')",
            ["alter table s.t", "update table s.t"],
        ),
        ("set_current_snapshot(table => 's.t', ref => 'v1')", ["alter table s.t", "update table s.t"]),
        ("fast_forward('s.t', 'main', 'audit')", ["update table s.t"]),
        ("publish_changes('s.t', wap_id => 'w')", ["update table s.t"]),
        ("cherrypick_snapshot('s.t', 5)", ["update table s.t"]),
        ("ancestors_of('s.t')", ["select table s.t"]),
    ],
)
def test_procedures_on_snapshots(call: str, needed: list[str]) -> None:
    answer = the_answer(f"CALL lake.system.{call}", context(ANN, known=lambda _: TableFacts(ANN)))
    assert answer.decision.allowed
    assert sorted(needs(answer)) == needed


@each_row(
    "call",
    [
        "fast_forward('s.t', to => 'a', 'main')",
        "fast_forward('s.t', 'a', 'b', 'c')",
        "ancestors_of('s.t', x)",
    ],
)
def test_arguments_that_no_procedure_takes(call: str) -> None:
    assert not the_answer(f"CALL lake.system.{call}", context(ANN)).decision.allowed


@each_row(
    ("statement", "needed"),
    [
        ("SELECT id FROM lake.s.t.branch_x", ["select column s.t.id"]),
        ("SELECT id FROM s.t.tag_x", ["select column s.t.id"]),
        ("SELECT id FROM s.t.snapshot_id_5", ["select column s.t.id"]),
        ("INSERT INTO lake.s.t.branch_x VALUES (1)", ["update table s.t"]),
        ("DELETE FROM lake.s.t.branch_x", ["update table s.t"]),
        ("SELECT id FROM s.t.other_x", ["select column s.t.other_x.id"]),
        ("SELECT id FROM s.n.branch_x", ["select column s.n.branch_x.id"]),
    ],
)
def test_a_state_of_a_table_needs_what_the_table_needs(statement: str, needed: list[str]) -> None:
    columns = frozenset({"id"})
    facts = TableFacts(ANN, columns=columns)
    known = {"s.t": facts, "s.t.other_x": facts, "s.n.branch_x": facts}
    answer = the_answer(statement, context(ANN, known=lambda name: known.get(str(name))))
    assert answer.decision.allowed
    assert [each for each in needs(answer) if not each.startswith("select table")] == needed
    is_state = "other" not in statement and "s.n" not in statement
    assert any(each.endswith("a state of it") for each in answer.assumed) is is_state


def test_maintenance_needs_what_the_service_requires() -> None:
    plain = TableFacts(ANN, spec=EncryptionSpec.parse({}, catalog_master_key_id="main"))
    judged_by = context(ANN, known=lambda _: plain)
    update, rest = "update table s.t", ["alter table s.t", "drop table s.t"]
    for arguments, needed in (
        ("rewrite_manifests('s.t', spec_id => 1)", [update]),
        ("expire_snapshots(table => 's.t')", [*rest, update]),
        ("expire_snapshots('s.t', older_than => TIMESTAMP '2030-01-01', retain_last => 3)", [*rest, update]),
        ("expire_snapshots('s.t', snapshot_ids => array(1, 2))", [*rest, update]),
        ("remove_orphan_files('s.t', dry_run => true, location => 's3://b/t')", rest),
    ):
        assert needs(the_answer(f"CALL lake.system.{arguments}", judged_by)) == needed
    by_id = context(ANN, known=lambda _: replace(plain, columns=("id", "name"), partitions=("id",)))
    listed = the_answer("CALL lake.system.remove_orphan_files('s.t')", by_id)
    assert "select column s.t.id" in needs(listed) and "select column s.t.name" not in needs(listed)
    options = "options => map('rewrite-all', 'true'), where => 'id < 3', sort_order => 'zorder(a, b)'"
    answer = the_answer(f"CALL lake.system.rewrite_data_files('s.t', {options})", judged_by)
    assert rule(answer) == "columns-unknown"  # The arguments are read.
    for arguments in (
        "expire_snapshots('s.t', older_than => current_timestamp())",
        "expire_snapshots('s.t', stream_results => true)",
        "rewrite_data_files('s.t', options => map('a', concat('b', 'c')))",
        "compute_table_stats('s.t')",
    ):
        assert not the_answer(f"CALL lake.system.{arguments}", judged_by).decision.allowed


def test_rows_are_copied_from_files_that_code_may_read() -> None:
    plain = TableFacts(ANN, spec=EncryptionSpec.parse({}, catalog_master_key_id="main"))
    in_engine = replace(context(ANN, known=lambda name: plain if name.name == "t" else None), engine="spark")
    code, create = "code engine spark", "create table s.new"
    master = "'encryption.mechanism', 'envelope', 'encryption.master-key-id', 'main'"
    for call, needed in (
        ("add_files('s.t', 'parquet.`/x`', map('p', '1'), false)", [code, "update table s.t"]),
        ("add_files(source_table => 'old.t', table => 'lake.s.t')", [code, "update table s.t"]),
        ("snapshot('spark_catalog.old.t', 's.new')", [code, create]),
        ("migrate('spark_catalog.s.new', drop_backup => true)", [code, create]),
        (f"migrate('s.new', map({master}))", [code, create, "use key main"]),
        (
            "snapshot('old.t', 's.new', 's3://b/new')",
            [code, create, "rwstorage storage-url s3://b/new"],
        ),
    ):
        assert needs(the_answer(f"CALL lake.system.{call}", in_engine)) == needed, call
    for call, expected in (
        ("add_files('s.t', 'parquet.`/x`', map('p', '1', 'p', '2'))", "duplicate-key"),
        ("add_files('s.t', 'csv.`/x`.y')", "not-supported-yet"),
        ("add_files('s.t', 'lake.s.t')", "not-supported-yet"),
        ("add_files('s.t', 'spark_catalog.t')", "not-supported-yet"),
        ("add_files('s.t', parallelism => 2)", "syntax"),
        ("add_files('s.t')", "syntax"),
        ("snapshot('parquet.`/x`', 's.new')", "not-supported-yet"),
        ("snapshot('old.t', 's.t')", "table-exists"),
        ("snapshot('old.t', 's.new', properties => map('location', 's3://b/x'))", "reserved-property"),
        ("migrate('s.new', backup_table_name => lower('x'))", "syntax"),
    ):
        assert rule(the_answer(f"CALL lake.system.{call}", in_engine)) == expected, call
    unnamed = context(ANN, known=lambda _: plain)
    assert rule(the_answer("CALL lake.system.add_files('s.t', 'orc.`/x`')", unnamed)) == "code"


def test_view_of_changes_needs_all_columns_of_the_table() -> None:
    known = {"s.t": TableFacts(ANN, columns=("id", "v"), spec=SPEC)}
    judged_by = context(ANN, known=lambda name: known.get(str(name)))
    options = "options => map('start-snapshot-id', '1'), identifier_columns => array('id')"
    for table in ("s.t", "lake.s.t"):
        call = f"CALL lake.system.create_changelog_view('{table}', 'w', {options}, net_changes => true)"
        found = answers("; ".join([call, "SELECT id FROM w"]), judged_by)
        assert [each.decision.allowed for each in found] == [True, True]
        columns = [each for each in needs(found[0]) if "column" in each]
        assert columns == ["select column s.t.id", "select column s.t.v"]
    for arguments in (
        "lake.system.create_changelog_view('s.t', changelog_view => 'a.b')",
        "lake.system.create_changelog_view('s.t', changelog_view => concat('a'))",
        "lake.system.create_changelog_view('s.t', nix => 1)",
        "lake.system.create_changelog_view('s.t', options => map('nix', '1'))",
        "lake.system.create_changelog_view('s.t', options => map('snapshot-id', '1'))",
        "lake.system.create_changelog_view('s.t', 'w', map('end-timestamp', '2', 'end-snapshot-id', '1'))",
        "other.system.create_changelog_view('s.t')",
    ):
        assert not the_answer(f"CALL {arguments}", judged_by).decision.allowed
