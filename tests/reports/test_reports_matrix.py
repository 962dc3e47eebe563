"""The access matrix of a real catalog says what the service says, for every table and column."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table

from catalog.reports.access_matrix import group_subject, matrix_report, user_subject
from policy.access import Asker
from policy.privileges.requests import Through
from tests.planning.test_what_a_user_sees import (
    ALL,
    CODE,
    COLUMNS,
    DAN,
    PROPERTIES,
    ROWS,
    filled,
    hiding,
    masking,
    of_service,
    policies_of_dan,
)
from tests.support.lake import MASTER_KEY, Lake, policy, standard_policies
from tests.support.tables import name_of

Json = dict[str, Any]
NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)
TOP: Final = tuple(each for each in COLUMNS if "." not in each)


@pytest.fixture(scope="module")
def tables(lake: Lake) -> dict[str, Table]:
    """A table with a file for each encryption."""
    return {kind: filled(lake, properties) for kind, properties in PROPERTIES.items()}


def report_of(lake: Lake, through: Through, **more: Any) -> Json:
    policies = lake.services.policies.current()
    subject = user_subject(lake.services, policies, DAN)
    engine = "spark" if through is Through.ENGINE else None
    asker = Asker(subject.principal, NOW, through, engine)
    return dict(matrix_report(lake.services, policies, subject, asker, **more).document)


def rows_of(document: Json, kind: str) -> dict[str, Json]:
    names = [name for each in document["answers"] if each["kind"] == kind for name in each["resources"]]
    assert len(names) == len(set(names))
    return {name: each for each in document["answers"] if each["kind"] == kind for name in each["resources"]}


@given(
    through=st.sampled_from([Through.ENGINE, Through.ENGINE, Through.PROCESS, Through.STANDARD_CLIENT]),
    policies=policies_of_dan(),
    keys=st.lists(st.sampled_from([MASTER_KEY, "pii", "hr", "place"]), unique=True),
)
@example(Through.ENGINE, [ALL, hiding("ssn")], [])
@example(Through.ENGINE, [ALL, masking("ssn"), ROWS], [])
@example(Through.ENGINE, [ALL, masking("ssn"), ROWS, CODE], [])
@example(Through.PROCESS, [ALL], [MASTER_KEY])
@settings(
    max_examples=max(1, settings.default.max_examples // 10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_a_matrix_says_of_each_column_what_the_service_says(
    lake: Lake, tables: dict[str, Table], through: Through, policies: list[Json], keys: list[str]
) -> None:
    release = [policy("release", {"key": keys}, {DAN: ["release"]})] if keys else []
    lake.set_policies([*standard_policies(), *policies, *release])
    found = rows_of(report_of(lake, through, show_all=True), "table")
    for table in tables.values():
        row = found[str(name_of(table))]
        shown = TOP if row["all-columns"] else row["columns"] or ()
        for column in TOP:
            served = of_service(lake, table, column, through)
            assert (column in shown) is (served != "refused"), (str(name_of(table)), column)


def test_a_table_that_cannot_be_loaded_is_named_and_not_left_out(lake: Lake) -> None:
    lake.set_policies([*standard_policies(), ALL])
    table = filled(lake, PROPERTIES["plaintext"])
    location = lake.services.loader.load(name_of(table)).metadata_location
    Path(location.removeprefix("file://")).write_text("{}", "utf-8")
    document = report_of(lake, Through.ENGINE)
    name = str(name_of(table))
    assert rows_of(document, "table")[name]["read"] == "unknown" and name in document["not-loaded"]


def test_a_group_gives_what_policies_give_to_it_alone(lake: Lake) -> None:
    resources = {"database": {"values": ["db"]}, "table": {"values": ["*"]}, "column": {"values": ["*"]}}
    items = [{"groups": [name], "accesses": [{"type": access}]} for name, access in GRANTS.items()]
    lake.set_policies([*standard_policies(), {"name": "g", "resources": resources, "policyItems": items}])
    filled(lake, PROPERTIES["plaintext"])
    policies = lake.services.policies.current()
    for group, access in GRANTS.items():
        subject = group_subject(lake.services, policies, group)
        report = matrix_report(lake.services, policies, subject, Asker(subject.principal, NOW))
        found = rows_of(dict(report.document), "table")
        assert {tuple(each["accesses"]) for each in found.values()} == {(access,)}
        assert any("no other group" in each for each in report.notes)
    nobodys = group_subject(lake.services, policies, "nobodys")
    assert any("no policy names it" in each for each in nobodys.notes)


GRANTS: Final = {"readers": "select", "writers": "update"}
