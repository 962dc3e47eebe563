"""Runs Iceberg's REST Compatibility Kit against the real service.

The kit's tests write files at the bare path `/path/to`, and tables at `file:/tmp`. As published, these are
refused.
With places granted, its classes have other texts there, which name places that the policies grant.

`make interop` fetches the kit. To run some tests of it:

    python -m tests.support.compatibility_kit testRenameTable createView
    python -m tests.support.compatibility_kit --published
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from xml.etree import ElementTree

from spark_ext.runtime import find_java
from tests.support.class_files import with_texts
from tests.support.lake import ALICE
from tests.support.service import Service, open_service

JARS: Final = Path(sys.prefix) / "iceberg-kit"
#: The classes of the kit, by the name of their part.
SUITES: Final[Mapping[str, str]] = {
    "tables": "org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests",
    "views": "org.apache.iceberg.rest.RESTCompatibilityKitViewCatalogTests",
}

_CLASSES: Final = (
    "org/apache/iceberg/catalog/CatalogTests.class",
    "org/apache/iceberg/view/ViewCatalogTests.class",
)
_FILES: Final = "/path/to/"
_TABLES: Final = "file:/tmp"
#: What the kit says of each file there.
_FILE_SIZE: Final = 10
_LIMIT_S: Final = 600


@dataclass(frozen=True)
class Outcome:
    """What became of a test.

    Attributes:
        result: `passed`, `failed` or `skipped`.
        message: why it failed, or was skipped.
    """

    result: str
    message: str = ""


class KitMissing(Exception):
    """The kit's jars are not there."""


def run_kit(suite: str, granted: bool, methods: Sequence[str] = ()) -> dict[str, Outcome]:
    """Run a part of the kit against a new service.

    Args:
        suite: a name in `SUITES`.
        granted: whether to replace the places that the kit writes to by granted ones.
        methods: names of tests; none: all.

    Returns:
        The outcomes by the names of the tests.

    Raises:
        KitMissing: the jars are not there.
    """
    if not any(JARS.glob("iceberg-open-api-*-tests.jar")):
        raise KitMissing(
            "Iceberg's compatibility kit is missing; `make interop` fetches it where Maven is installed"
        )
    with TemporaryDirectory(prefix="kit-") as name, _service(Path(name)) as service:
        return _run(service, suite, granted, methods)


@contextmanager
def _service(root: Path) -> Iterator[Service]:
    lake = root / "lake"
    lake.mkdir()
    with open_service(lake) as service:
        yield service


def _run(service: Service, suite: str, granted: bool, methods: Sequence[str]) -> dict[str, Outcome]:
    root = service.lake.root.parent
    classes, reports = root / "classes", root / "reports"
    properties = {
        "rck.local": "false",
        "rck.requires-namespace-create": "true",
    }
    if granted:
        files, tables = root / "files", root / "tables"
        _replace_places(classes, {_FILES: f"file://{files}/", _TABLES: f"file://{tables}"})
        _write_files(files)
        allowed = [service.lake.settings.warehouse, f"file://{files}", f"file://{tables}"]
        properties["table-default.read.allowed.data.paths"] = ",".join(allowed)
    chosen = [f"--select-method={SUITES[suite]}#{each}" for each in methods] or [
        f"--select-class={SUITES[suite]}"
    ]
    command = [
        str(find_java(os.environ)),
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *(f"-D{name}={value}" for name, value in properties.items()),
        "-cp",
        f"{classes}{os.pathsep}{JARS}/*",
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--disable-banner",
        "--details=none",
        f"--reports-dir={reports}",
        *chosen,
    ]
    environ = {
        **os.environ,
        "CATALOG_URI": service.url,
        "CATALOG_TOKEN": service.token(ALICE),
        "CATALOG_WAREHOUSE": service.lake.settings.catalog.name,
        "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
    }
    done = subprocess.run(
        command, env=environ, cwd=root, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    outcomes = _outcomes(reports)
    assert outcomes, f"The kit ran no test:\n{done.stdout}{done.stderr}"
    return outcomes


def _replace_places(target: Path, places: Mapping[str, str]) -> None:
    """Write the kit's classes with other texts at the beginning of their constants."""

    def replaced(text: str) -> str:
        for old, new in places.items():
            if text.startswith(old):
                return new + text.removeprefix(old)
        return text

    (jar,) = JARS.glob("iceberg-core-*-tests.jar")
    with zipfile.ZipFile(jar) as archive:
        for name in _CLASSES:
            file = target / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(with_texts(archive.read(name), replaced))


def _write_files(directory: Path) -> None:
    directory.mkdir()
    for each in "abc":
        (directory / f"data-{each}.parquet").write_bytes(bytes(_FILE_SIZE))


def _outcomes(reports: Path) -> dict[str, Outcome]:
    cases = ElementTree.parse(reports / "TEST-junit-jupiter.xml").iter("testcase")
    return {case.attrib["name"].replace("()", ""): _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> Outcome:
    for tag, result in {"failure": "failed", "error": "failed", "skipped": "skipped"}.items():
        found = case.find(tag)
        if found is not None:
            said = found.attrib.get("message") or found.text or ""
            return Outcome(result, " ".join(said.partition("\n\tat ")[0].split()))
    return Outcome("passed")


def main() -> None:
    """Run what the command line names, and print the outcomes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("methods", nargs="*", help="names of tests; by default all")
    parser.add_argument("--suite", choices=SUITES, action="append", help="the part; by default both")
    parser.add_argument("--published", action="store_true", help="leave the kit's places as they are")
    options = parser.parse_args()
    for suite in options.suite or SUITES:
        outcomes = run_kit(suite, not options.published, options.methods)
        for name, outcome in sorted(outcomes.items()):
            if outcome.result != "passed" or options.methods:
                print(f"{outcome.result:8} {name}  {outcome.message}")
        passed = sum(each.result == "passed" for each in outcomes.values())
        print(f"{suite}: {passed} of {len(outcomes)} passed")


if __name__ == "__main__":
    main()
