"""What an audit sends to executors, byte for byte."""

from __future__ import annotations

import base64
import json

from pyspark import cloudpickle
from sqlalchemy import select

from catalog.db.engine import read
from catalog.db.schema import lw_pek
from spark_ext.pipelines.audit import Audit
from spark_ext.pipelines.lake import Lake
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import create_table


def test_executors_get_no_token_and_no_key_in_any_form(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, pay INT", {"encryption.mechanism": "envelope"})
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 2)")
    lake = Lake(spark_lake.spark, CATALOG)
    audit = Audit(f"{namespace.removeprefix(f'{CATALOG}.')}.*")
    facts = audit._source.facts(lake, list(audit.plan(lake)))
    assert len(facts) == 1
    sent = cloudpickle.dumps(audit._looking(lake.spark))
    sent += json.dumps([each.document() for each in facts.values()]).encode()
    with read(spark_lake.lake.services.engine) as connection:
        wrapped = [row.wrapped for row in connection.execute(select(lw_pek.c.wrapped)) if row.wrapped]
    assert wrapped
    for key in wrapped:
        for form in (key, base64.b64encode(key), key.hex().encode()):
            assert form not in sent
    assert b"lw_" not in sent  # what every token begins with
