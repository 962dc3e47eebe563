"""Every statement of the corpus is answered as it says there, word for word: what it needs and what is
assumed, or where and why it is denied and what to do.

Ann, who may do everything with tables, locations and keys, would run it, so that what is denied is denied
whatever the policies say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from policy.sql_lint import StatementDecision
from tests.support.ddl import answers, needs, rule
from tests.support.vectors import each_row

CORPUS = json.loads((Path(__file__).parents[1] / "vectors" / "ddl" / "statements.json").read_text("utf-8"))

PARTS = 20
"""In so many tests the corpus is asked, each of which has some of every kind of statement."""


def _told(answer: StatementDecision) -> dict[str, Any]:
    """The whole answer; what it has not is left out."""
    told: dict[str, Any] = {"at": f"{answer.line}:{answer.column}", "kind": answer.kind}
    if answer.decision.allowed:
        told["needs"] = needs(answer)
    else:
        told |= {"denied": rule(answer), "why": [reason.detail for reason in answer.decision.reasons]}
    if answer.assumed:
        told["assumed"] = list(answer.assumed)
    if answer.hint is not None:
        told["hint"] = answer.hint
    return told


@each_row("part", range(PARTS), count=20)
def test_statements_of_the_corpus(part: int) -> None:
    assert len(CORPUS) > 400
    wrong = {}
    for each in CORPUS[part::PARTS]:
        told = [_told(answer) for answer in answers(each["sql"], dialect=each["dialect"])]
        if told != each["answers"]:
            wrong[each["sql"]] = told
    assert not wrong


def test_a_denial_says_what_to_do() -> None:
    denied = [answer for each in CORPUS for answer in each["answers"] if "denied" in answer]
    assert len(denied) > 200
    assert not [answer for answer in denied if not answer["why"][0]]
    assert not [answer for answer in denied if "hint" not in answer and answer["denied"] != "identifier"]


def test_the_way_to_ask_for_orc_encryption() -> None:
    sql = """CREATE TABLE encrypted (ssn STRING, email STRING, name STRING) USING {} OPTIONS (
                 hadoop.security.key.provider.path "kms://http@localhost:9600/kms", orc.key.provider "hadoop",
                 orc.encrypt "pii:ssn,email", orc.mask "nullify:ssn;sha256:email")"""
    (in_orc,), (in_parquet,) = answers(sql.format("ORC")), answers(sql.format("iceberg"))
    assert "use key pii" in _told(in_orc)["needs"]
    assert rule(in_parquet) == "format-property"


def test_the_proposal_for_hive() -> None:
    sql = (
        "CREATE TABLE sales.t (id INT) STORED BY ICEBERG TBLPROPERTIES ("
        "'read.allowed.data.paths'='{}/some/old/loc/icebergtbl1,{}/new/loc/icebergtbl1')"
    )
    (bare,) = answers(sql.format("", ""), dialect="hive")
    assert rule(bare) == "location-invalid"
    (answer,) = answers(sql.format("s3://lake", "s3://lake"), dialect="hive")
    assert needs(answer) == [
        "create table sales.t",
        "rwstorage storage-url s3://lake/new/loc/icebergtbl1",
        "rwstorage storage-url s3://lake/some/old/loc/icebergtbl1",
    ]
