"""Audits, discovers, encrypts and re-keys a small lake of flights, cell by cell.

Run it with `python examples/pipelines/flights.py [DIRECTORY]`. Install `lakewarden[demo,discover]` before.
It needs no service: the catalog lives in the directory.
"""

# %% A lake: real flights, and a table with made-up personal data, both in plaintext.
from __future__ import annotations

import sys
import tempfile
import webbrowser
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

import lakewarden
from catalog.settings.catalog import Settings
from lakewarden import pipelines
from spark_ext.demo.attacker import ForeignFile, planted
from spark_ext.demo.flights import unpack

root = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()).resolve()
spark = lakewarden.local_session(root / "lake")
flights = unpack(root / "input", 10_000)
spark.sql("CREATE NAMESPACE ops")
spark.sql("CREATE NAMESPACE marketing")
spark.read.csv(str(flights.flights), header=True, inferSchema=True).writeTo("ops.flights").create()
spark.sql(
    """
    CREATE TABLE ops.bookings AS
    SELECT id, concat('passenger', id, '@mail.example') AS email,
           concat('+1 212 736 ', lpad(cast(id + 1000 AS STRING), 4, '0')) AS contact,
           '4111 1111 1111 1111' AS card, 120 + id % 80 AS price
    FROM range(500)
    """
)
spark.sql("CREATE TABLE marketing.picks AS SELECT carrier, flight FROM ops.flights LIMIT 3")

# %% An attacker names files of `ops` in a manifest of `marketing`, without the catalog.
settings = Settings.load(root / "lake" / "lakewarden.toml", {})
files = spark.sql("SELECT file_path, record_count, file_size_in_bytes FROM ops.flights.files").collect()
pointers = SqlCatalog(settings.catalog.name, uri=settings.database.url.get_secret_value())
picks = pointers.load_table("marketing.picks")
pointers.commit_table(picks, (), tuple(planted(picks, [ForeignFile(*row) for row in files])))
pointers.close()

# %% The audit finds them, before anybody has read the table.
first = pipelines.audit(spark)
assert {"foreign-path", "unsealed-metadata"} <= first.found.keys()

# %% Personal data in plaintext, and policies to review.
personal = pipelines.discover(spark, "ops.*", proposal=root / "proposed")
assert {"email", "contact", "card"} <= {each.column for each in personal.findings}
print(*sorted(path.name for path in (root / "proposed").iterdir()), sep="\n")

# %% Encrypt everything in `ops`. Every row is compared with what it was before.
encrypted = pipelines.migrate(spark, "ops.*", {"encryption.mechanism": "envelope"}, history="expire")
assert encrypted.state == "complete"

# %% New keys for the new files; no data is rewritten.
rekeyed = pipelines.rekey(spark, "ops.*")
assert rekeyed.state == "complete"

# %% The last audit reads every page. Only the attacked table is left to repair: `lakewarden table restore`.
last = pipelines.audit(spark, verify=1.0, fresh=True)
assert {each.table for each in last.findings if each.severity == "error"} == {"marketing.picks"}
page = last.write(root / "audit.html")
print(f"The report is {page}.")
if sys.stdout.isatty():
    webbrowser.open(page.as_uri())
spark.stop()
