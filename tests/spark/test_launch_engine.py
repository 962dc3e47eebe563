"""The credential of an engine: a key made at launch, which no user of the engine reaches."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from spark_ext.configuration import (
    ENGINE_CREDENTIAL,
    engine_token_file,
    launch_settings,
    shared_engine_settings,
)
from spark_ext.jar import spark_jar
from tests.support.class_files import Declared, declared_in
from tests.support.lake import policies_without_code, standard_policies
from tests.support.service import ENGINE
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_process import spark_process

_REST = "org.apache.spark.sql.lakewarden.rest"
_OURS = "org.apache.spark.sql.lakewarden.catalog"
#: Classes whose objects hold a credential, or lead to one.
CREDENTIALS = (
    f"{_REST}.EngineKey",
    f"{_REST}.EngineKeys",
    f"{_REST}.Credentials",
    f"{_REST}.CatalogClient",
    f"{_OURS}.SessionUserRule",
    f"{_OURS}.HeldTokens",
    f"{_OURS}.SessionTokens",
    "java.security.PrivateKey",
    "java.security.KeyPair",
)
#: What `reflect` can pass to a method: primitives and texts.
PASSED_BY_SQL = {*"BCDFIJSZ", "Ljava/lang/String;", "Ljava/lang/Object;"}


def _descriptor(name: str) -> str:
    return f"L{name.replace('.', '/')};"


def _launch(spark_lake: SparkLake, file: Path) -> Any:
    """Launches an engine with a file once more, in the same driver; answers its keys."""
    context: Any = spark_lake.spark.sparkContext
    environment = context._jvm.java.util.HashMap()
    environment.put(ENGINE_CREDENTIAL, str(file))
    scala = context._jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(environment)
    return context._jvm.org.apache.spark.sql.lakewarden.catalog.EngineLaunch(scala).registered()


@pytest.fixture(scope="module")
def declared() -> list[Declared]:
    found = list(declared_in(spark_jar()))
    assert len({each.owner for each in found}) > 100
    return found


def test_no_static_member_of_the_jar_reaches_a_credential(declared: list[Declared]) -> None:
    """`reflect` calls static methods, and Scala's `private[package]` is public in class files."""
    secret = {_descriptor(each) for each in CREDENTIALS}
    fields = [each for each in declared if not each.is_method]
    assert [each for each in fields if each.is_static and each.result in secret] == []
    callable_by_sql = [
        each
        for each in declared
        if each.is_method and each.is_static and PASSED_BY_SQL.issuperset(each.parameters)
    ]
    assert len(callable_by_sql) > 100
    assert [each for each in callable_by_sql if each.result in secret] == []


def test_no_object_that_a_static_field_holds_has_a_field_with_a_credential(declared: list[Declared]) -> None:
    secret = {_descriptor(each) for each in CREDENTIALS}
    fields: dict[str, list[Declared]] = {}
    for each in declared:
        if not each.is_method:
            fields.setdefault(_descriptor(each.owner), []).append(each)
    reached: set[str] = set()
    ahead = {each.result for each in declared if not each.is_method and each.is_static}
    while ahead:
        reached |= ahead
        ahead = {each.result for kind in ahead for each in fields.get(kind, ())} - reached
    assert _descriptor(f"{_REST}.EngineKey$") in reached
    assert reached & secret == set()


def test_nothing_hands_out_the_private_key_or_a_held_token(declared: list[Declared]) -> None:
    keys = {_descriptor("java.security.PrivateKey"), _descriptor("java.security.KeyPair")}
    assert [each for each in declared if each.is_method and each.result in keys] == []
    holders = {name: [] for name in CREDENTIALS[:3]} | {f"{_OURS}.HeldTokens": []}
    for each in declared:
        if each.owner in holders and not each.is_method:
            assert not each.is_public and not each.is_static, each
        if each.owner in holders and each.is_method and each.is_public and not each.parameters:
            holders[each.owner].append(each.name)
    assert {name for names in holders.values() for name in names} <= {
        "toString",
        "isEmpty",
        "isEngine",
        "holder",
    }


def test_what_sql_can_call_shows_no_token(spark_lake: SparkLake, declared: list[Declared]) -> None:
    """Calls each static method without parameters, as `reflect` does."""
    java: Any = spark_lake.spark.sparkContext._jvm
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    nothing = spark_lake.spark.sparkContext._gateway.new_array(java.java.lang.Object, 0)
    called = 0
    for each in declared:
        initializer = each.name == "<clinit>"
        if each.is_method and each.is_static and each.is_public and not each.parameters and not initializer:
            holder = java.java.lang.Class.forName(each.owner, True, loader)
            method = holder.getMethod(
                each.name, spark_lake.spark.sparkContext._gateway.new_array(java.java.lang.Class, 0)
            )
            try:
                shown = str(method.invoke(None, nothing))
            except (Py4JJavaError, PySparkException) as error:  # some only refuse
                shown = str(error)
            assert not _is_secret(shown), each
            called += 1
    assert called > 20


@pytest.mark.nightly
def test_no_static_field_holds_a_credential_inside_of_anything(
    spark_lake: SparkLake, declared: list[Declared]
) -> None:
    """Types do not tell what is in an `Option`, a `Map` or a function."""
    java: Any = spark_lake.spark.sparkContext._jvm
    loader = java.java.lang.Thread.currentThread().getContextClassLoader()
    fields = [each for each in declared if each.is_static and not each.is_method and len(each.result) > 1]
    assert len(fields) > 100
    for each in fields:
        field = java.java.lang.Class.forName(each.owner, True, loader).getDeclaredField(each.name)
        field.setAccessible(True)
        assert not _is_secret(str(field.get(None))), each


def _is_secret(shown: str) -> bool:
    """Whether a text holds a token, a key, or what objects with one show of themselves."""
    return any(each in shown for each in ("lw_", "PrivateKey", "(***)"))


@pytest.mark.nightly
def test_variables_of_sql_do_not_hold_the_token(spark_lake: SparkLake) -> None:
    session = spark_lake.new_session()
    session.sql("SET spark.sql.variable.substitute=true")
    ((named,),) = session.sql(f"SELECT '${{env:{ENGINE_CREDENTIAL}}}'").collect()
    assert named.startswith("/")
    assert not Path(named).exists()
    ((older,),) = session.sql("SELECT '${env:LAKEWARDEN_ENGINE_TOKEN}'").collect()
    assert not older.startswith("lw_")


def test_the_key_is_not_shown_and_not_sent_to_executors(spark_lake: SparkLake) -> None:
    java: Any = spark_lake.spark.sparkContext._jvm
    keys = _launch(spark_lake, engine_token_file(spark_lake.service.engine_token()))
    assert keys.toString() == "EngineKeys(***)"
    address = java.org.apache.spark.sql.lakewarden.rest.CatalogAddress.parse(spark_lake.service.url)
    for each in (keys, keys.at(address).get()):
        stream = java.java.io.ObjectOutputStream(java.java.io.ByteArrayOutputStream())
        with pytest.raises(Exception, match="NotSerializableException"):
            stream.writeObject(each)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "host", ["lake.example", "10.0.0.1", "127.0.0.1.example", "localhost.example", "[::2]"]
)
def test_another_host_is_asked_over_tls_alone(spark_lake: SparkLake, host: str) -> None:
    """Attack: someone on the network takes the tokens of all users."""
    java: Any = spark_lake.spark.sparkContext._jvm
    addresses = java.org.apache.spark.sql.lakewarden.rest.CatalogAddress
    with pytest.raises(Exception, match="that of another host, and not https"):
        addresses.parse(f"http://{host}:8181")
    for good in (f"https://{host}", "http://127.0.0.9:1", "http://localhost:1", "http://[::1]:1"):
        assert addresses.parse(good).toString() == good


def test_a_one_time_token_serves_one_launch_and_its_file_is_deleted(spark_lake: SparkLake) -> None:
    token = spark_lake.service.engine_token()
    file = engine_token_file(token)
    assert file.stat().st_mode & 0o777 == 0o600
    _launch(spark_lake, file)
    assert not file.exists()
    again = engine_token_file(token)
    with pytest.raises(Exception, match=r"NotAuthenticated.*has already registered a key") as caught:
        _launch(spark_lake, again)
    assert token not in str(caught.value)
    again.unlink()


@pytest.mark.nightly
def test_a_reusable_token_serves_each_launch(spark_lake: SparkLake) -> None:
    token = spark_lake.service.engine_token(kind="engine-reusable")
    spark_lake.lake.set_policies(policies_without_code())
    try:
        for _ in range(2):
            _launch(spark_lake, engine_token_file(token))
    finally:
        spark_lake.lake.set_policies(standard_policies())


@pytest.mark.nightly
@pytest.mark.parametrize("mode", [0o400, 0o440, 0o640])
def test_a_file_that_its_group_alone_can_read_besides_is_taken(spark_lake: SparkLake, mode: int) -> None:
    """As Kubernetes mounts a secret for an `fsGroup`."""
    file = engine_token_file(spark_lake.service.engine_token())
    file.chmod(mode)
    _launch(spark_lake, file)
    assert not file.exists()


@pytest.mark.nightly
@pytest.mark.parametrize("mode", [0o604, 0o644, 0o620, 0o602, 0o660])
def test_a_file_that_others_can_use_is_not_taken(spark_lake: SparkLake, mode: int) -> None:
    file = engine_token_file("lw_seen_by_others")
    file.chmod(mode)
    with pytest.raises(Exception, match=r"CatalogNotTrusted.*users other than its") as caught:
        _launch(spark_lake, file)
    assert "lw_seen_by_others" not in str(caught.value)
    assert file.exists()
    file.unlink()


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_taken(spark_lake: SparkLake) -> None:
    file = engine_token_file("lw_planted")
    os.chown(file, 4711, -1)
    with pytest.raises(Exception, match=r"CatalogNotTrusted.*belongs to the user 4711") as caught:
        _launch(spark_lake, file)
    assert "lw_planted" not in str(caught.value)
    file.unlink()


@pytest.mark.nightly
def test_a_file_that_is_not_there_is_an_error(spark_lake: SparkLake, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"CatalogNotTrusted.*cannot be read"):
        _launch(spark_lake, tmp_path / "gone")


@dataclass(frozen=True)
class Launches:
    """How two launches ended, one after the other in one process.

    Attributes:
        without_extension: what a query said in a Spark that was launched without the extension.
        without_catalog: what the launch said at an address where no catalog answers.
        token: the file with the engine's token.
    """

    without_extension: str
    without_catalog: str
    token: Path


_LAUNCHES = """
def outcome(action):
    try:
        return f"answered {action()}"
    except Exception as error:
        return str(error)


answer(outcome(lambda: spark.sql("SHOW NAMESPACES IN lake").collect()))
spark.stop()
for name, value in told().items():
    builder = builder.config(name, value)
answer(outcome(builder.getOrCreate))
"""


@pytest.fixture(scope="module")
def launches(spark_lake: SparkLake) -> Launches:
    service = spark_lake.service
    file = engine_token_file(service.engine_token())
    nowhere = launch_settings(CATALOG, "http://127.0.0.1:1", spark_jar())
    environ = {ENGINE_CREDENTIAL: str(file)}
    unguarded = {**shared_engine_settings(), "spark.sql.extensions": ""}
    with spark_process(service, _LAUNCHES, engine=None, settings=unguarded, environ=environ) as process:
        process.tell({name: value for name, value in nowhere.items() if name != "spark.jars"})
        without_extension, without_catalog = process.finish()
    return Launches(without_extension, without_catalog, file)


@pytest.mark.nightly
@pytest.mark.slow
def test_an_engine_does_not_start_without_the_catalog_and_keeps_its_token(
    spark_lake: SparkLake, launches: Launches
) -> None:
    assert "CatalogUnavailable" in launches.without_catalog
    _launch(spark_lake, launches.token)
    assert not launches.token.exists()


@pytest.mark.nightly
def test_a_further_launch_of_the_extension_uses_the_key_that_there_is(spark_lake: SparkLake) -> None:
    """Spark applies extensions anew for a session that is not made from another one."""
    context: Any = spark_lake.spark.sparkContext
    made = context._jvm.org.apache.spark.sql.classic.SparkSession(context._jsc.sc())
    made.conf().set(f"lakewarden.catalog.{CATALOG}.token", spark_lake.service.token("alice"))
    assert made.sql(f"SHOW NAMESPACES IN {CATALOG}").count() >= 0


@pytest.mark.nightly
def test_a_driver_whose_clock_is_off_follows_the_catalogs(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.clock AS SELECT 1 AS id")
    java: Any = spark_lake.spark.sparkContext._jvm
    session = java.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    rule = java.org.apache.spark.sql.lakewarden.catalog.SessionUserRule.of(session).get()
    address = java.org.apache.spark.sql.lakewarden.rest.CatalogAddress.parse(spark_lake.service.url)
    key = rule.engine().at(address).get()
    assert key.follow(int(time.time()) + 300)
    assert [list(row) for row in spark_lake.rows(f"SELECT id FROM {namespace}.clock")] == [[1]]
    assert not key.follow(int(time.time()) + 3600)


def test_extension_that_is_not_in_force(launches: Launches) -> None:
    assert "CatalogNotTrusted: Spark was launched without" in launches.without_extension


@pytest.mark.nightly
def test_the_engine_acts_by_its_key(spark_lake: SparkLake, namespace: str) -> None:
    """Bob's own process would need `release` on the key of an encrypted table."""
    properties = "TBLPROPERTIES ('encryption.mechanism' = 'envelope')"
    spark_lake.rows(f"CREATE TABLE {namespace}.by_key {properties} AS SELECT 7 AS id")
    assert spark_lake.rows(f"SELECT id FROM {namespace}.by_key")[0][0] == 7
    with spark_lake.service.client() as alice:
        records: list[Mapping[str, Any]] = alice.get("/admin/v1/audit").json()["records"]
    assert ENGINE in {each["engine"] for each in records if each["action"] == "table.plan"}
