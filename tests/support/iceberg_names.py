"""Names of Iceberg's options, settings and table properties (tests/vectors/iceberg-names.txt)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

_NAMES: Final = Path(__file__).parents[1] / "vectors" / "iceberg-names.txt"
_SPARK: Final = "org.apache.iceberg.spark."
#: The class of each kind.
_CLASSES: Final = {
    "read": f"{_SPARK}SparkReadOptions",
    "write": f"{_SPARK}SparkWriteOptions",
    "setting": f"{_SPARK}SparkSQLProperties",
    "property": "org.apache.iceberg.TableProperties",
}
_CONSTANT: Final = re.compile(r'static final java\.lang\.String (\w+) = "(.*)";')
#: Constants that are values.
_VALUES: Final = re.compile(r"_DEFAULT(_SINCE_\w+)?$|^WRITE_DISTRIBUTION_MODE_")
#: A prefix that Iceberg has without its dot.
_PREFIX: Final = "snapshot-property"


def iceberg_names(kind: str) -> set[str]:
    """The names of a kind: `read`, `write`, `setting` or `property`."""
    lines = (line.split() for line in _NAMES.read_text().splitlines())
    return {line[1] for line in lines if line[0] == kind}


def names_in(jar: Path, kind: str) -> set[str]:
    """The names of a kind that a jar of Iceberg has."""
    command = ["javap", "-constants", "-cp", str(jar), _CLASSES[kind]]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {value for name, value in _CONSTANT.findall(shown) if _VALUES.search(name) is None}
    return {f"{_PREFIX}." if name == _PREFIX else name for name in names}
