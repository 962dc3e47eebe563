"""No key, token or passphrase is found in anything that a run leaves or shows.

One Spark with an executor of its own works, is attacked and is looked at from all sides, with the event log,
the UI, and logging at DEBUG on, in Spark as in the service. Then everything is searched for every secret that
the catalog made, opened or was given meanwhile. That the search finds what is there is shown in
`test_canary_searcher.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from pyarrow.parquet.encryption import create_decryption_properties
from pyiceberg.table import Table

from catalog.crypto.secret import SecretBytes
from catalog.envelope.file_ids import FileIdentity, parquet_aad_prefix
from catalog.kms.local import LocalKms
from catalog.kms.root_key import Passphrase
from catalog.service.services import Services
from tests.support.attacker import Attacker, data_file, entry, local
from tests.support.canary import Canary, debug_log, files_below, recorded_secrets
from tests.support.canary_run import script
from tests.support.lake import (
    BOB,
    CAROL,
    MASTER_KEY,
    Lake,
    lake_settings,
    standard_policies,
    upgrade,
    write_policies,
)
from tests.support.service import Service, running
from tests.support.spark_process import SparkProcess, spark_process

pytestmark = pytest.mark.nightly

PASSPHRASE = b"canary-Dm3kfWq8-passphrase"
WRONG_TOKEN = "lw_" + "0123456789abcdef" * 2 + "_" + "Q7canaryXz" * 4 + "abc"
TYPED_TOKEN = "lw_" + "0123456789abcdef" * 2 + "_" + "T9typedXzQ" * 4 + "abc"
#: A token is `lw_<id>_<secret>`; the id is no secret.
TOKEN_ID_ENDS = len("lw_") + 32 + len("_")
ENCRYPTED = "TBLPROPERTIES ('encryption.mechanism' = 'envelope')"
UNCOMPRESSED = (
    "TBLPROPERTIES ('encryption.mechanism' = 'envelope', 'write.parquet.compression-codec' = 'uncompressed')"
)
#: What the executors of local-cluster say lies with their workers, below Spark's home.
EXECUTOR_ERRORS = str(Path("home", "work", "*", "*", "stderr"))

STATEMENTS = (
    "CREATE NAMESPACE lake.n",
    "CREATE NAMESPACE lake.bobs WITH PROPERTIES ('lakewarden.unsealed' = 'allow')",
    f"CREATE TABLE lake.n.t {ENCRYPTED} AS SELECT id, concat('name-', id) AS name FROM range(0, 100, 1, 2)",
    "INSERT INTO lake.n.t VALUES (1000, 'a'), (1001, NULL)",
    f"CREATE TABLE lake.n.other {ENCRYPTED} AS SELECT id, id % 7 AS day FROM range(0, 100, 1, 2)",
    f"CREATE TABLE lake.n.swapped {UNCOMPRESSED} AS SELECT id FROM range(0, 10, 1, 2)",
    "CREATE TABLE lake.n.plain (id BIGINT, name STRING) PARTITIONED BY (bucket(2, id))",
    "INSERT INTO lake.n.plain SELECT * FROM lake.n.t",
    "CREATE TABLE lake.bobs.mine AS SELECT id FROM range(2)",
    "CACHE TABLE lake.n.other",
    "SELECT count(*) FROM lake.n.other WHERE day = 3",
    "ALTER TABLE lake.n.other ADD COLUMN more STRING",
    "DESCRIBE TABLE EXTENDED lake.n.t",
    "DESCRIBE TABLE lake.n.t",
    "SHOW CREATE TABLE lake.n.t",
    "SHOW TBLPROPERTIES lake.n.t",
    "SHOW TABLE EXTENDED IN lake.n LIKE '*'",
    "SHOW TABLES IN lake.n",
    "DESCRIBE NAMESPACE EXTENDED lake.n",
    "SHOW CATALOGS",
)
QUERIES = (
    "SELECT id, name FROM lake.n.t WHERE id > 40 AND name LIKE 'name-4%' OR name IS NULL",
    "SELECT day, count(*), max(name) FROM lake.n.t JOIN lake.n.other USING (id) WHERE id > 3 GROUP BY day",
    "SELECT /*+ MERGE(o) */ sum(t.id) FROM lake.n.t t JOIN lake.n.other o ON t.id = o.id",
    "SELECT * FROM lake.n.t VERSION AS OF 'main' WHERE id IN (SELECT id FROM lake.n.plain)",
    "INSERT INTO lake.n.t SELECT id + 5000, name FROM lake.n.t WHERE id = 1",
)
ATTACKS = (
    ("SELECT * FROM lake.bobs.mine", None, "LocationNotAllowed"),
    ("SELECT sum(id) FROM lake.n.swapped", None, "DecryptionRefused"),
    ("SELECT * FROM lake.n.t", BOB, "NotAuthorized"),
    ("SELECT * FROM lake.n.t", CAROL, "NotAuthenticated"),
    ("CREATE TABLE lake.n.mine AS SELECT 1 AS a", CAROL, "NotAuthenticated"),
)
REVOKED = (
    ("SELECT sum(id) FROM lake.n.t", None, "KeyNotUsable"),
    ("INSERT INTO lake.n.t VALUES (1, 'a')", None, "KeyNotUsable"),
)

LOG4J = """\
rootLogger.level = debug
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c: %m%n%ex
"""


@dataclass
class Haystack:
    """Everything that the run left and showed.

    Attributes:
        root: where all files are.
        shown: what was seen only while it ran, by what it is.
        secrets: what must not be in it.
        pages: how many pages the UI had.
    """

    root: Path
    service: Service
    shown: dict[str, bytes]
    secrets: dict[str, bytes]
    pages: int

    def text(self, pattern: str) -> str:
        """What is in the files whose names match."""
        found = [each.read_bytes() for each in sorted(self.root.glob(pattern)) if each.is_file()]
        return b"\n".join(found).decode("utf-8", "replace")


@contextmanager
def _service(root: Path) -> Iterator[Service]:
    """A service whose keystore has a passphrase, and which forgets keys at once."""
    root.mkdir()
    write_policies(root, standard_policies())
    settings = lake_settings(root, KMS__PEK_TTL_S="0.001")
    kms = LocalKms.create(settings.kms.options.keystore, Passphrase(SecretBytes(PASSPHRASE)))
    kms.create_master_key(MASTER_KEY)
    upgrade(settings.database.url)
    lake = Lake(root, settings, Services.open(settings, kms), kms)
    try:
        with running(lake) as service:
            yield service
    finally:
        lake.services.close()


def _spark_home(root: Path) -> Path:
    """A Spark in which workers may have their directories."""
    home = root / "home"
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    return home


def _settings(root: Path) -> dict[str, str]:
    for name in ("events", "local", "pages"):
        (root / name).mkdir()
    (root / "log4j2.properties").write_text(LOG4J)
    java = (
        f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile=file:{root}/log4j2.properties"
    )
    return {
        "spark.master": "local-cluster[1,2,1024]",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{root}/events",
        "spark.eventLog.logBlockUpdates.enabled": "true",
        "spark.local.dir": str(root / "local"),
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        **{
            f"spark.{each}.compress": "false"
            for each in ("eventLog", "shuffle", "shuffle.spill", "broadcast")
        },
    }


def _prepare_attacks(service: Service) -> None:
    """A foreign file in Bob's table, and two files that changed places."""
    attacker = Attacker(service.lake, "bobs.mine")
    foreign = data_file(_files(service, "n.plain")[0])
    attacker.commit_behind(*attacker.appending(entry(foreign)))
    one, other = (local(path) for path in _files(service, "n.swapped"))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)


def _files(service: Service, name: str) -> list[str]:
    paths: list[str] = _table(service, name).inspect.files()["file_path"].to_pylist()
    return paths


def _table(service: Service, name: str) -> Table:
    return service.lake.catalog().load_table(name)


def _told(process: SparkProcess, attacks: tuple[tuple[str, str | None, str], ...]) -> list[str | None]:
    """What each statement was refused with."""
    process.tell([(statement, user) for statement, user, _ in attacks])
    return list(process.answer())


def _assert_refused(problems: list[str | None], attacks: tuple[tuple[str, str | None, str], ...]) -> None:
    for problem, (statement, user, error) in zip(problems, attacks, strict=True):
        assert problem is not None and error in problem, (statement, user, problem)


def _command_lines(process: SparkProcess) -> bytes:
    """What every user of the machine can see of the processes of the run."""
    group, lines = process.group, []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            fields = (each / "stat").read_text().rsplit(")", 1)[1].split()
            if int(fields[2]) == group:
                lines.append((each / "cmdline").read_bytes())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return b"\n".join(lines)


@pytest.fixture(scope="module")
def haystack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Haystack]:
    root = tmp_path_factory.mktemp("canary")
    work = script(
        SAID=str(root / "said.txt"),
        PAGES=str(root / "pages"),
        STATEMENTS=STATEMENTS,
        QUERIES=QUERIES,
    )
    with (
        recorded_secrets() as secrets,
        debug_log(root / "service.log"),
        _service(root / "lake") as service,
        spark_process(
            service,
            work,
            settings=_settings(root),
            users=(BOB, CAROL),
            environ={"SPARK_HOME": str(_spark_home(root))},
        ) as process,
    ):
        process.tell([WRONG_TOKEN, TYPED_TOKEN])
        assert process.answer() == "worked"
        _prepare_attacks(service)
        _assert_refused(_told(process, ATTACKS), ATTACKS)
        service.lake.kms.disable_master_key(MASTER_KEY)
        _assert_refused(_told(process, REVOKED), REVOKED)
        service.lake.kms.enable_master_key(MASTER_KEY)
        process.tell("crawl")
        pages = process.answer()
        shown = {"command lines": _command_lines(process)}
        shown |= {f"live {each}": each.read_bytes() for each in files_below(root / "local")}
        process.finish()
        named = {f"secret {number}": each for number, each in enumerate(sorted(secrets))}
        tokens = {name: service.token(*name) for name in service._tokens} | {("wrong", "user"): WRONG_TOKEN}
        named |= {str(name): token[TOKEN_ID_ENDS:].encode() for name, token in tokens.items()}
        yield Haystack(root, service, shown, named, pages)


def test_nothing_secret_is_found_anywhere(haystack: Haystack) -> None:
    canary = Canary(haystack.secrets)
    found = canary.search_files(files_below(haystack.root))
    for what, content in haystack.shown.items():
        found += canary.search(what, content)
    assert found == [], "\n".join(map(str, found))


def test_a_token_in_the_text_of_a_statement_gets_into_no_event_and_no_page(haystack: Haystack) -> None:
    """Spark's parser writes every text into the driver's DEBUG log; the statement itself is refused."""
    searched = files_below(*(haystack.root / each for each in ("events", "pages", "home", "local")))
    canary = Canary({"typed": TYPED_TOKEN[TOKEN_ID_ENDS:].encode()})
    assert canary.search_files([*searched, haystack.root / "said.txt", haystack.root / "service.log"]) == []


def test_what_was_searched_is_all_there(haystack: Haystack) -> None:
    events, driver = haystack.text("events/**/*"), haystack.text("lake/spark-*.log")
    executor, service = haystack.text(EXECUTOR_ERRORS), haystack.text("service.log")
    said, pages = haystack.text("said.txt"), haystack.text("pages/*")
    assert "SparkListenerJobStart" in events and "BatchScan lake.n.t" in events
    assert " DEBUG " in driver and "BatchScan lake.n.t" in driver
    assert " DEBUG " in executor and "lakewarden.read.ReadErrors" in executor
    assert "DEBUG sqlalchemy" in service and "INFO lakewarden.http" in service
    assert all(error in said for _, _, error in (*ATTACKS, *REVOKED)) and "== Physical Plan ==" in said
    assert haystack.pages > 50 and "/SQL/execution/?id=" in pages and "/threads\n" in pages
    assert b"CoarseGrainedExecutorBackend" in haystack.shown["command lines"]
    assert any(what.startswith("live") and content for what, content in haystack.shown.items())
    assert (haystack.root / "lake" / "lakewarden.db").stat().st_size > 0


def test_what_was_searched_for_are_the_keys_of_the_files(haystack: Haystack) -> None:
    table = _table(haystack.service, "n.t")
    keys = [each for each in haystack.secrets.values() if len(each) == 32]
    for path in _files(haystack.service, "n.t"):
        file = FileIdentity.of(table.metadata.table_uuid, path)
        assert len([key for key in keys if _opens(path, key, parquet_aad_prefix(file))]) == 1


def _opens(path: str, key: bytes, aad_prefix: bytes) -> bool:
    properties = create_decryption_properties(footer_key=key, aad_prefix=aad_prefix)
    try:
        pq.ParquetFile(local(path), decryption_properties=properties)
    except OSError:
        return False
    return True


def test_the_passphrase_and_the_engine_are_among_them(haystack: Haystack) -> None:
    assert PASSPHRASE in haystack.secrets.values()
    assert "('spark', 'engine')" in haystack.secrets
