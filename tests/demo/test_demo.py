"""`lakewarden demo`, whole, with a Spark of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spark_ext.demo.workspace import remove
from spark_ext.jar import SOURCES, spark_jar

pytestmark = pytest.mark.nightly

ROWS = 2_000
_PATIENCE_S = 550

_DEMO = "from spark_ext.cli.main import main; main()"

#: Tells only how files of the encrypted table are changed, with another jar of the plugin.
_CHANGED_FILES = """
import sys
from functools import partial
from pathlib import Path

from spark_ext.cli.main import main
from spark_ext.demo import engine, story
from spark_ext.demo.tables import fill
from spark_ext.demo.tampering import tamper

engine.configure = partial(engine.configure, jar=Path(sys.argv.pop()))
story.STORY = (fill, tamper)
main()
"""


def _told(script: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, "demo", "--directory", str(directory), "--rows", str(ROWS)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=_PATIENCE_S)


@pytest.mark.slow
def test_demonstration_passes(tmp_path: Path) -> None:
    told = _told(_DEMO, tmp_path / "demo")
    assert told.returncode == 0, told.stderr
    text = " ".join(told.stdout.split())
    assert f"the first {ROWS:,} are taken" in text
    assert "Every answer was the expected one." in text
    assert "foreign-path marketing.picks" in text and "plaintext-file operations.flights_encrypted" in text
    assert "2,000 rows compared: no change" in text
    assert (tmp_path / "demo" / "audit.html").read_text().startswith("<!doctype html>")
    assert [said.split(" ")[0] for said in re.findall(r"Lakewarden: (\w+: |done)", text)] == [
        "LocationNotAllowed:",
        "MetadataUnsealed:",
        "MetadataTampered:",
        "NotAuthorized:",
        "done",
        "DecryptionRefused:",
        "DecryptionRefused:",
        "DecryptionRefused:",
        "KeyNotUsable:",
    ]
    assert re.findall(r"(?m)^ +[\d:]{8} (\w+) .* (granted|refused) +(\S+) *$", told.stdout) == [
        ("olga", "refused", "NoSuchTable"),
        ("olga", "refused", "NoSuchTable"),
        ("mallory", "refused", "NoSuchTable"),
        ("mallory", "refused", "allowed-paths"),
        ("mallory", "refused", "unsealed"),
        ("ann", "granted", "policy-allow"),
        ("mallory", "refused", "seal"),
        ("mallory", "refused", "policy-no-match"),
        ("sam", "granted", "policy-allow"),
        ("ann", "granted", "policy-allow"),
        ("olga", "refused", "master-key"),
        ("ann", "granted", "policy-allow"),
        ("ann", "refused", "policy-no-match"),
        ("ann", "granted", "policy-allow"),
    ]
    assert "\x1b" not in told.stdout
    lines = [line for line in told.stdout.splitlines() if "lakewarden --config" not in line]
    assert max(map(len, lines)) <= 100
    assert not re.search(
        r"lw_[0-9a-f]{32}_", told.stdout + (tmp_path / "demo" / "spark" / "spark.log").read_text()
    )
    remove(tmp_path / "demo")  # It knows everything that the demonstration leaves.
    assert not (tmp_path / "demo").exists()


@pytest.mark.slow
def test_plaintext_not_refused_by_the_engine(tmp_path: Path) -> None:
    """With the check of a file's encryption taken out of the plugin, the demonstration fails."""
    sources = shutil.copytree(SOURCES, tmp_path / "scala")
    guard = next(sources.rglob("FileEncryption.scala"))
    for check, instead in (
        ("getEncryptionType != wantedType", "getEncryptionType != wantedType && false"),
        ("if (rows != records)", "if (false)"),
        ("found.getBlocks.asScala.foreach(_.getColumns.asScala.foreach(judge(_, found)))", ""),
        (".withAADPrefix(aadPrefix)", ".withAADPrefix(aadPrefix).withPlaintextFilesAllowed()"),
    ):
        assert check in guard.read_text()
        guard.write_text(guard.read_text().replace(check, instead))
    jar = spark_jar(sources=sources)
    told = _told(_CHANGED_FILES, tmp_path / "demo", str(jar))
    assert told.returncode == 1, told.stdout
    failure = "An encrypted file replaced by a plaintext file, by eve: expected DecryptionRefused"
    assert failure in told.stderr and "but the answer was: checksum" in told.stderr
