"""Creates and fills tables with Spark SQL, queries them, and shows them on disk, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from spark_ext.demo.flights import FILE_COLUMNS
from spark_ext.demo.outcome import expect
from spark_ext.demo.people import MALLORY, MASTER_KEY, OLGA
from spark_ext.demo.stage import ENCRYPTED, FLIGHTS, OWN_ROWS, PICKS, Stage

#: Of both tables, so that the bytes of one can be compared with those of the other.
_UNCOMPRESSED: Final = "'write.parquet.compression-codec' = 'uncompressed'"

#: The first columns of the flights are all that Mallory's own table has.
_FIRST: Final = (
    "carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, time_hour TIMESTAMP, "
    "dep_delay INT, arr_delay INT"
)
_REST: Final = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, arr_time INT, sched_arr_time INT, "
    "air_time INT, distance INT, hour INT, minute INT"
)
_TAIL_NUMBER: Final = "N14228"


def fill(stage: Stage) -> None:
    """Fill a plaintext and an encrypted table of operations with the same flights, and one of marketing."""
    screen = stage.screen
    screen.chapter("Two teams fill their tables through Spark SQL")
    screen.say(
        "Olga's team, operations, stores all flights. The input is the views flights_2013 and airlines. "
        "Each statement is shown with the user who runs it."
    )
    _open_input(stage)
    stage.run(OLGA, "CREATE NAMESPACE lake.operations")
    stage.run(
        OLGA,
        f"CREATE TABLE lake.{FLIGHTS} ({_FIRST}, {_REST}) USING iceberg TBLPROPERTIES ({_UNCOMPRESSED})",
    )
    with screen.working("Operations' flights, in plaintext:"):
        stage.run(OLGA, f"INSERT INTO lake.{FLIGHTS} SELECT /*+ REPARTITION(2) */ * FROM flights_2013")
    with screen.working("The same flights, encrypted under operations' master key, in one statement:"):
        stage.run(
            OLGA,
            f"CREATE TABLE lake.{ENCRYPTED} USING iceberg TBLPROPERTIES ("
            f"'encryption.mechanism' = 'envelope', 'encryption.master-key-id' = '{MASTER_KEY}', "
            f"{_UNCOMPRESSED}) AS SELECT /*+ REPARTITION(2) */ * FROM flights_2013",
        )
    with screen.working("Mallory's team, marketing, has a small table of its own:"):
        _fill_picks(stage)


def query(stage: Stage) -> None:
    """Query both tables, with the same result."""
    stage.screen.chapter("The worst delays by carrier")
    plain, encrypted = (_worst_delays(stage, table) for table in (FLIGHTS, ENCRYPTED))
    stage.screen.rows(("airline", "flights", "mean delay on arrival, minutes"), encrypted)
    expect(plain == encrypted, "the encrypted table answers what the plain one answers")
    for table in (FLIGHTS, ENCRYPTED):
        expect(stage.count(OLGA, table) == stage.flights.rows, f"{table} holds every flight")


def on_disk(stage: Stage) -> None:
    """Show that the files of the encrypted table are ciphertext."""
    stage.screen.chapter("The files on disk")
    lines = [_on_disk(stage, table) for table in (FLIGHTS, ENCRYPTED)]
    stage.screen.rows(("table", "files", "bytes", "first bytes", f"contains {_TAIL_NUMBER}"), lines)
    stage.screen.say(
        f"{_TAIL_NUMBER} is the aircraft of the first flight. Plaintext Parquet files begin with PAR1, "
        "encrypted ones with PARE. For this comparison, neither table is compressed."
    )
    expect([line[3:] for line in lines] == [("PAR1", "yes"), ("PARE", "no")], "only one table is ciphertext")


def _open_input(stage: Stage) -> None:
    for view, path, columns in (
        ("flights_csv", stage.flights.flights, FILE_COLUMNS),
        ("airlines", stage.flights.airlines, "carrier STRING, name STRING"),
    ):
        stage.sql(
            OLGA,
            f"CREATE TEMPORARY VIEW {view} ({columns}) USING csv "
            f"OPTIONS (path {literal(str(path))}, header 'true', nullValue 'NA')",
        )
    columns = ", ".join(column.split()[0] for column in f"{_FIRST}, {_REST}".split(", "))
    stage.sql(OLGA, f"CREATE TEMPORARY VIEW flights_2013 AS SELECT {columns} FROM flights_csv")


def _fill_picks(stage: Stage) -> None:
    stage.run(MALLORY, "CREATE NAMESPACE lake.marketing")
    stage.run(MALLORY, f"CREATE TABLE lake.{PICKS} ({_FIRST}) USING iceberg")
    stage.run(
        MALLORY,
        f"INSERT INTO lake.{PICKS} VALUES "
        "('UA', 1, 'N1', 'EWR', 'SFO', TIMESTAMP '2013-07-01 10:00:00', 0, -4), "
        "('B6', 2, 'N2', 'JFK', 'BOS', TIMESTAMP '2013-07-02 11:00:00', 5, 1), "
        "('DL', 3, 'N3', 'LGA', 'ATL', TIMESTAMP '2013-07-03 12:00:00', 2, 2)",
    )
    expect(stage.count(MALLORY, PICKS) == OWN_ROWS, f"{PICKS} holds {OWN_ROWS} rows")


def _worst_delays(stage: Stage, table: str) -> Sequence[Sequence[Any]]:
    with stage.screen.working(f"From {table}:"):
        return stage.run(
            OLGA,
            f"SELECT name, count(*) AS flights, round(avg(arr_delay), 1) AS delay FROM lake.{table} "
            "JOIN airlines USING (carrier) GROUP BY name ORDER BY delay DESC, name LIMIT 5",
        )


def _on_disk(stage: Stage, table: str) -> tuple[str, int, str, str, str]:
    contents = [path.read_bytes() for path in stage.data_files(table)]
    begin = sorted({content[:4].decode("ascii", "replace") for content in contents})
    found = any(_TAIL_NUMBER.encode() in content for content in contents)
    size = f"{sum(map(len, contents)):,}"
    return table, len(contents), size, ", ".join(begin), "yes" if found else "no"


def literal(text: str) -> str:
    """A text as a literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
