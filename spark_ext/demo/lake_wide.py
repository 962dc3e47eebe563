"""Audits the whole lake after attacks, and encrypts a table that was in plaintext."""

from __future__ import annotations

from collections.abc import Sequence

from spark_ext.demo import stock
from spark_ext.demo.attacker import forged, in_place_of, overwritten, planted
from spark_ext.demo.outcome import expect
from spark_ext.demo.people import ANN, MASTER_KEY, OLGA
from spark_ext.demo.stage import ENCRYPTED, FLIGHTS, PICKS, Stage
from spark_ext.demo.workspace import REPORT
from spark_ext.pipelines.audit import audit
from spark_ext.pipelines.migrate import migrate
from spark_ext.pipelines.report import Report, place


def look_over(stage: Stage) -> None:
    """Find what attackers left in the lake, repair it, and encrypt operations' flights."""
    stage.screen.chapter("Ann audits the whole lake")
    attack_both(stage)
    stage.screen.say(f"{PICKS} is repaired as before, and the file of {ENCRYPTED} is put back.")
    stage.lake.administer(ANN, f"tables/{PICKS.replace('.', '/')}/restore")
    encrypt(stage)


def attack_both(stage: Stage) -> None:
    """Plant foreign files without the catalog, replace an encrypted file by a plaintext one, and audit."""
    stage.screen.say(
        f"Mallory commits files of {ENCRYPTED} to {PICKS} without the catalog, and Eve replaces one of them "
        "by a plaintext file. Nobody reads either table. In Python, Ann runs pipelines.audit(spark, "
        "verify=1.0), a Spark job over every table, snapshot and file. She needs no permission on rows."
    )
    foreign = stage.foreign_files(ENCRYPTED, stage.flights.rows)
    with stock.stock_catalog(stage.lake.settings.catalog.name, stage.lake.database_url) as catalog:
        stock.commit(catalog, PICKS, planted(catalog.load_table(PICKS), foreign))
    _, target = sorted(stage.data_files(ENCRYPTED), key=lambda path: path.stat().st_size)
    plaintext = forged(stage.data_files(FLIGHTS)[0])
    with overwritten(target, in_place_of(target.read_bytes(), plaintext)):
        report = _audit(stage)
    lines = [(each.rule, each.table, place(each).rpartition("/")[2]) for each in report.findings]
    stage.screen.rows(("rule", "table", "file"), lines)
    _expect(report, [("unsealed-metadata", PICKS), ("foreign-path", PICKS), ("plaintext-file", ENCRYPTED)])
    stage.screen.say(f"The report is {report.write(stage.directory / REPORT).name}, a page with charts.")


def encrypt(stage: Stage) -> None:
    """Encrypt the plaintext table of operations."""
    stage.screen.say(
        f"Olga encrypts {FLIGHTS}: pipelines.migrate sets the properties, rewrites the files, and compares "
        "the rows before and after."
    )
    properties = {"encryption.mechanism": "envelope", "encryption.master-key-id": MASTER_KEY}
    with stage.screen.working("Migrating:"):
        report = migrate(
            stage.session(OLGA), FLIGHTS, properties, forbid_old=False, catalog="lake", show=False
        )
    expect(report.items["done"] == 1, f"the table is migrated: {report.summary}")
    counts = report.counts
    stage.screen.result(
        f"{counts['rewritten-files']} files rewritten, {counts['compared-rows']:,} rows compared: no change"
    )


def _audit(stage: Stage) -> Report:
    with stage.screen.working("Auditing:"):
        return audit(stage.session(ANN), verify=1.0, fresh=True, catalog="lake", show=False)


def _expect(report: Report, wanted: Sequence[tuple[str, str]]) -> None:
    """Expect that the audit found these rules in these tables."""
    found = {(each.rule, each.table) for each in report.findings}
    expect(set(wanted) <= found, f"the audit finds {wanted}, but it found {sorted(found)}")
