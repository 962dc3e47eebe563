"""Standard Spark, ORC's own encryption, and the KMS endpoint: nothing of ours is in the engine.

ORC shows masks, or counts nothing, wherever it takes an error for a lack of rights. Here an error is one, and
masks are what the key says.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow.orc
import pytest

from catalog.http.server import listen, make_server
from catalog.kms_server.hadoop_token import credentials_file
from catalog.kms_server.store import Denial
from tests.support.kms_endpoint import EVERY_RIGHT, make_key
from tests.support.lake import ALICE, BOB, Lake, open_lake, policy
from tests.support.spark_tables import ENCRYPTED_ORC
from tests.support.stock_spark import ask

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.nightly]

#: Where the statement says that the KMS is.
PORT: Final = 9600
CREATE: Final = ENCRYPTED_ORC.format("encrypted")
MASKED: Final = CREATE.replace("TABLE encrypted", "TABLE masked").replace("pii:", "pii_masked:")
INSERT: Final = "INSERT INTO {0} VALUES ('123-45', 'ann@example', 'Ann'), ('678-90', 'bob@example', 'Bob')"
ROWS: Final = [["123-45", "ann@example", "Ann"], ["678-90", "bob@example", "Bob"]]
SERVICE: Final = "kms://http@localhost:9600/kms"


def policies() -> list[dict[str, Any]]:
    """Alice writes and reads; Bob has no right on any key."""
    return [policy("writers", {"key": ["door/*"]}, {ALICE: EVERY_RIGHT})]


@contextmanager
def _door(root: Path) -> Iterator[Lake]:
    """A door at the address of the statement."""
    settings = {"KMS_ENDPOINT__ENABLED": "true", "KMS_ENDPOINT__PSEUDO": "true", "HTTP__PORT": PORT}
    with open_lake(root, policies=policies(), **settings) as lake:
        make_key(lake, "pii")
        make_key(lake, "pii_masked", denial=Denial.MASK)
        listener = listen(lake.settings.http)
        server = make_server(lake.services)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield lake
        finally:
            server.should_exit = True
            thread.join(30)
            listener.close()


def _run(lake: Lake, statements: list[str], **environ: str) -> list[Any]:
    """What a Spark of its own answers, statement by statement; an error as its text."""
    return ask(lake.root, {"spark.sql.warehouse.dir": str(lake.root / "spark")}, statements, **environ)


def _in_use() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", PORT)) == 0


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The KMS endpoint, and what Alice wrote."""
    if _in_use():
        pytest.skip(f"something else listens on port {PORT}, which the statement names")
    with _door(tmp_path_factory.mktemp("door")) as opened:
        statements = [CREATE, MASKED, INSERT.format("encrypted"), INSERT.format("masked")]
        read = [f"SELECT * FROM {table} ORDER BY name" for table in ("encrypted", "masked")]
        answers = _run(opened, [*statements, *read], HADOOP_USER_NAME=ALICE)
        assert answers == [[], [], [], [], ROWS, ROWS]
        yield opened


def _again(statement: str, table: str, lake: Lake) -> str:
    """The statement, on the files that are there."""
    return f"{statement}\nLOCATION '{lake.root}/spark/{table}'"


def _file_of(lake: Lake, table: str) -> Path:
    return next((lake.root / "spark" / table).glob("*.orc"))


@pytest.mark.parametrize("table", ["encrypted", "masked"])
def test_files_are_encrypted(lake: Lake, table: str) -> None:
    data = b"".join(file.read_bytes() for file in (lake.root / "spark" / table).glob("*.orc"))
    assert not any(value.encode() in data for value in ("123-45", "678-90", "ann@example", "bob@example"))
    shown = pyarrow.orc.read_table(_file_of(lake, table)).to_pydict()
    # A reader without a KMS sees the masks.
    assert set(shown["ssn"]) == {None} and "Ann" in shown["name"] + ["Ann"]
    assert not {"ann@example", "bob@example"} & set(shown["email"])


def test_who_lacks_the_key_gets_the_reason_or_the_masks_that_the_key_says(lake: Lake, tmp_path: Path) -> None:
    """Bob comes with a file of credentials, so that it does not matter what his process calls itself."""
    token = lake.services.tokens.issue(lake.caller(BOB).principal, "kms", None).text
    file = tmp_path / "bob.credentials"
    file.write_bytes(credentials_file(token, BOB, SERVICE, datetime.now(UTC), None))
    opened = [_again(CREATE, "encrypted", lake), _again(MASKED, "masked", lake)]
    queries = [
        "SELECT name FROM encrypted ORDER BY name",
        "SELECT * FROM encrypted",
        "SELECT count(*) FROM encrypted WHERE ssn = '123-45'",
        "CREATE TABLE copy USING orc AS SELECT * FROM encrypted",
        INSERT.format("encrypted"),
        "SELECT * FROM masked ORDER BY name",
        INSERT.format("masked"),
    ]
    environ = {"HADOOP_USER_NAME": ALICE, "HADOOP_TOKEN_FILE_LOCATION": str(file)}
    answers = _run(lake, [*opened, *queries], **environ)
    names, rows, count, copy, inserted, masked, inserted_masked = answers[2:]
    assert names == [["Ann"], ["Bob"]]
    for refused in (rows, count, copy, inserted, inserted_masked):
        assert "java.lang.SecurityException: bob is not authorized" in refused, refused
        assert "release on key door/pii" in refused
    assert [[row[0], row[2]] for row in masked] == [[None, "Ann"], [None, "Bob"]]
    assert all(len(row[1]) == 64 and "example" not in row[1] for row in masked)
