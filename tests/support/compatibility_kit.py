"""Runs Iceberg's REST Compatibility Kit against the real service.

The kit's tests write files at the bare path `/path/to`, and tables at `file:/tmp`. As published, these are
refused, and so are files of another size than the kit states. With places granted, its classes have other
constants there: places that the policies grant, and the size of the files.

`make interop` fetches the kit. To run some tests of it:

    python -m tests.support.compatibility_kit testRenameTable createView
    python -m tests.support.compatibility_kit --suite tables --form published
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from xml.etree import ElementTree

from spark_ext.runtime import find_java
from tests.support.class_files import with_constants
from tests.support.lake import ALICE
from tests.support.service import Service, open_service

JARS: Final = Path(sys.prefix) / "iceberg-kit"


class Form(StrEnum):
    """How the kit is run.

    Attributes:
        PUBLISHED: as it is.
        GRANTED: with places that the policies grant.
        PLANNED: the same, on a catalog that plans all scans.
    """

    PUBLISHED = "published"
    GRANTED = "granted"
    PLANNED = "planned"


@dataclass(frozen=True)
class Suite:
    """A part of the kit: its class, and the forms in which it is run."""

    tests: str
    forms: tuple[Form, ...]


SUITES: Final[Mapping[str, Suite]] = {
    "tables": Suite("org.apache.iceberg.rest.RESTCompatibilityKitCatalogTests", tuple(Form)),
    # They name no place of the kind.
    "views": Suite("org.apache.iceberg.rest.RESTCompatibilityKitViewCatalogTests", (Form.PUBLISHED,)),
}

_CLASS: Final = "org/apache/iceberg/catalog/CatalogTests.class"
_FILES: Final = "/path/to/"
_TABLES: Final = "file:/tmp"
#: What the kit says of each file; those that it creates itself are empty.
_STATED_SIZE: Final = 10
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


def run_kit(suite: str, form: Form, methods: Sequence[str] = ()) -> dict[str, Outcome]:
    """Run a part of the kit against a new service.

    Args:
        suite: a name in `SUITES`.
        form: how to run it.
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
    planning = {"PLANNING__MODE": "server"} if form is Form.PLANNED else {}
    with TemporaryDirectory(prefix="kit-") as name:
        root = Path(name)
        lake = root / "lake"
        lake.mkdir()
        with open_service(lake, **planning) as service:
            outcomes = _run(service, root, suite, form, methods)
            asked = "/plan" in service.client().get("/metrics").text
            assert asked == (form is Form.PLANNED), "the catalog and the client do not agree on who plans"
            return outcomes


def _run(service: Service, root: Path, suite: str, form: Form, methods: Sequence[str]) -> dict[str, Outcome]:
    properties = {"rck.local": "false", "rck.requires-namespace-create": "true"}
    if form is not Form.PUBLISHED:
        properties["table-default.read.allowed.data.paths"] = ",".join(_grant(service, root))
    tests = SUITES[suite].tests
    chosen = [f"--select-method={tests}#{each}" for each in methods] or [f"--select-class={tests}"]
    command = [
        str(find_java(os.environ)),
        *("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *(f"-D{name}={value}" for name, value in properties.items()),
        *("-cp", f"{root}/classes{os.pathsep}{JARS}/*"),
        "org.junit.platform.console.ConsoleLauncher",
        *("execute", "--disable-banner", "--details=none", f"--reports-dir={root}/reports"),
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
    outcomes = _outcomes(root / "reports")
    assert outcomes, f"The kit ran no test:\n{done.stdout}{done.stderr}"
    return outcomes


def _grant(service: Service, root: Path) -> list[str]:
    """Give the kit's classes other places; return the locations that its tables can be read from."""
    files, tables = f"file://{root}/files", f"file://{root}/tables"
    _replace_places(root / "classes", {_FILES: f"{files}/", _TABLES: tables})
    _write_files(root / "files")
    return [service.lake.settings.warehouse, files, tables]


def _replace_places(target: Path, places: Mapping[str, str]) -> None:
    """Write the kit's class with other beginnings of its texts, and the true size of its files."""

    def replaced(text: str) -> str:
        for old, new in places.items():
            if text.startswith(old):
                return new + text.removeprefix(old)
        return text

    (jar,) = JARS.glob("iceberg-core-*-tests.jar")
    with zipfile.ZipFile(jar) as archive:
        file = target / _CLASS
        file.parent.mkdir(parents=True)
        file.write_bytes(with_constants(archive.read(_CLASS), replaced, {_STATED_SIZE: 0}))


def _write_files(directory: Path) -> None:
    directory.mkdir()
    for each in "abc":
        (directory / f"data-{each}.parquet").touch()


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
    parser.add_argument("--form", type=Form, choices=list(Form), help="how to run it; by default each way")
    options = parser.parse_args()
    for suite in options.suite or SUITES:
        for form in [options.form] if options.form else SUITES[suite].forms:
            _print(f"{suite}, {form}", run_kit(suite, form, options.methods), whole=bool(options.methods))


def _print(title: str, outcomes: Mapping[str, Outcome], *, whole: bool) -> None:
    for name, outcome in sorted(outcomes.items()):
        if outcome.result != "passed" or whole:
            print(f"{outcome.result:8} {name}  {outcome.message}")
    passed = sum(each.result == "passed" for each in outcomes.values())
    print(f"{title}: {passed} of {len(outcomes)} passed")


if __name__ == "__main__":
    main()
