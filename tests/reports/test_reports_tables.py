"""Reports on the tables of a catalog: encryption, epochs and keys, as the commands on one table say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from catalog.base.identifiers import TableName
from catalog.reports.table_encryption import encryption_report
from catalog.reports.tables import tables_report
from tests.support.lake import ALICE, Lake
from tests.support.rules import put_rules, rule
from tests.support.table_keys import rotate
from tests.support.tables import ENCRYPTED, append_files, make, name_of

Json = dict[str, Any]


def of(lake: Lake, name: TableName) -> Json:
    (found,) = [
        each for each in encryption_report(lake.services).document["tables"] if each["table"] == str(name)
    ]
    return dict(found)


def encrypted_since(lake: Lake) -> TableName:
    """A table with two files in plaintext and one that is encrypted."""
    table = make(lake)
    append_files(lake, name_of(table), 2)
    with lake.catalog().load_table(table.name()).transaction() as transaction:
        transaction.set_properties(ENCRYPTED)
    append_files(lake, name_of(table))
    return name_of(table)


def test_leftover_files_are_those_that_the_service_counts(lake: Lake) -> None:
    name = encrypted_since(lake)
    found, told = of(lake, name), lake.services.old_epochs.report(lake.caller(ALICE), name)
    assert (found["old-files"], found["old-plaintext-files"]) == (2, 2)
    assert found["old-files"] == sum(each.old_files for each in told.branches)
    assert found["snapshots-with-old-files"] == len(told.snapshots) > 0
    assert found["old-epochs-forbidden"] is told.forbidden is False


def test_a_table_that_was_always_encrypted_has_no_leftovers(lake: Lake) -> None:
    name = name_of(make(lake, properties=ENCRYPTED))
    append_files(lake, name)
    found = of(lake, name)
    assert (found["old-files"], found["old-epochs-forbidden"]) == (0, True)
    plain = of(lake, name_of(make(lake)))
    assert (plain["encryption"], plain["old-files"], plain["keys"]) == ("plaintext", None, [])


def test_an_epoch_begins_when_encryption_changes_and_not_when_keys_rotate(lake: Lake) -> None:
    name = encrypted_since(lake)
    before = of(lake, name)
    rotate(lake, name)
    after = of(lake, name)
    assert after["since"] == before["since"]
    in_force = [(each["version"], each["state"]) for each in after["keys"] if each["in-force"]]
    assert in_force == [(2, "active")] and len(after["keys"]) == 2
    assert before["epochs"] == 2


def test_the_rules_in_force_are_satisfied_broken_or_unknown(lake: Lake) -> None:
    encrypted, plain = name_of(make(lake, properties=ENCRYPTED)), name_of(make(lake))
    assert of(lake, plain)["rules"] is None
    put_rules(lake, rule("all"))
    try:
        assert of(lake, encrypted)["rules"] == "satisfied"
        assert of(lake, plain)["rules"] == "broken" and of(lake, plain)["violations"]
    finally:
        put_rules(lake)


def test_a_table_that_cannot_be_loaded_is_listed_with_the_reason(lake: Lake) -> None:
    name = name_of(make(lake, properties=ENCRYPTED))
    location = lake.services.loader.load(name).metadata_location
    Path(location.removeprefix("file://")).write_text("{}", "utf-8")
    (listed,) = [
        each for each in tables_report(lake.services).document["tables"] if each["table"] == str(name)
    ]
    assert listed["problem"] and listed["encryption"] is None
    found = of(lake, name)
    assert found["problem"] and found["old-files"] is None and found["encryption"] == "envelope"


def test_progress_reaches_the_number_of_tables(lake: Lake) -> None:
    make(lake)
    for make_report in (tables_report, encryption_report):
        told: list[tuple[int, int]] = []
        report = make_report(lake.services, lambda done, total, told=told: told.append((done, total)))
        assert told[-1] == (len(report.rows), len(report.rows))
