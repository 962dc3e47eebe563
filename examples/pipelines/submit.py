"""Runs a pipeline on a cluster, by `spark-submit submit.py TOKEN_FILE PIPELINE TABLES`.

The settings of the catalog `lake` are launch settings (docs/spark.md). TOKEN_FILE has the user's token.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from lakewarden import pipelines

token_file, name, tables = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.conf.set("lakewarden.catalog.lake.token", Path(token_file).read_text().strip())
report = getattr(pipelines, name)(spark, tables, catalog="lake")
sys.exit(0 if report.state == "complete" else 3)
