"""People, policies and contexts that the tests of lint share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from catalog.base.errors import NoSuchTable
from catalog.reports.table_facts import facts_of
from catalog.service.services import Services
from policy.encryption_rules import EncryptionRules
from policy.identifiers import TableName
from policy.principal import Principal
from policy.ranger import PolicySet
from policy.sql_lint import Dialect, LintContext, StatementDecision, TableFacts, lint
from tests.support.lake import policy, tables

NOW = datetime(2030, 1, 1, tzinfo=UTC)
KEY = "lakewarden"

#: Ann may do everything with tables, locations and keys; Bob owns what he makes, and looks after `bobs`.
ANN, BOB = "ann", "bob"

POLICIES = [
    policy("tables", tables("*"), {ANN: ["all"]}),
    policy("storage", {"storage-type": ["*"], "storage-url": ["*"]}, {ANN: ["rwstorage"]}),
    policy("keys", {"key": ["*"]}, {ANN: ["use"]}),
    policy("bobs", tables("bobs"), {BOB: ["all"]}),
    policy("owners", tables("*"), {"{OWNER}": ["all"]}),
    policy("shared", tables("shared"), {BOB: ["create", "select"]}),
]


def policies(*more: Mapping[str, Any]) -> PolicySet:
    """The policies above and others."""
    return PolicySet.parse({"lake.json": json.dumps({"policies": [*POLICIES, *more]})})


def context(user: str = ANN, *more: Mapping[str, Any], **known: Any) -> LintContext:
    """A context in which `lake` is the catalog and `db` the current namespace."""
    given: dict[str, Any] = {"encryption": EncryptionRules.empty(), "database": "db", "master_key_id": KEY}
    return LintContext(Principal(user), policies(*more), now=NOW, catalog="lake", **{**given, **known})


def answers(
    sql: str, judged_by: LintContext | None = None, dialect: Dialect = "spark"
) -> list[StatementDecision]:
    """What lint says of a script; by default of one that Ann would run."""
    return lint(sql, dialect, context() if judged_by is None else judged_by)


def the_answer(
    sql: str, judged_by: LintContext | None = None, dialect: Dialect = "spark"
) -> StatementDecision:
    """What lint says of the one statement of a script."""
    (answer,) = answers(sql, judged_by, dialect)
    return answer


def needs(answer: StatementDecision) -> Sequence[str]:
    """What a statement needs, as texts."""
    return [f"{each.access} {each.resource}" for each in answer.needed]


def rule(answer: StatementDecision) -> str:
    """By what a statement is denied."""
    assert not answer.decision.allowed, needs(answer)
    return answer.decision.reasons[0].rule


def context_of(services: Services, user: str, **more: Any) -> LintContext:
    """A context of the policies in force and the tables of a running catalog."""

    def known(name: TableName) -> TableFacts | None:
        try:
            return facts_of(services.loader.load(name))
        except NoSuchTable:
            return None

    in_force = services.policies
    return LintContext(
        Principal(user), in_force.current(), in_force.encryption(), datetime.now(UTC), known=known, **more
    )
