"""The plugin reads the vectors of what the catalog tells engines, and refuses the refused ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from py4j.java_gateway import JavaObject

from tests.support.plan_streams import FORGED_DIRECTORIES, with_directories
from tests.support.plan_vectors import changed, stream_of, vectors
from tests.support.spark import SparkLake

VECTORS = vectors()


class Plugin:
    """The plugin's readers."""

    def __init__(self, spark_lake: SparkLake) -> None:
        self._jvm: Any = spark_lake.spark.sparkContext._jvm
        self._own = self._jvm.org.apache.spark.sql.lakewarden

    def plan(self, vector: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What is made of each file of a plan, its path checked and its keys opened."""
        read = self._own.read
        plan = self.read(stream_of(vector))
        uuid = self._jvm.java.util.UUID.fromString(vector["header"]["table-uuid"])
        gate = read.FileGate("lake.db.t", uuid, plan.allowed(), plan.transport(), None)
        return [self._file(gate, each) for each in self._list(plan.files())]

    def read(self, stream: bytes) -> JavaObject:
        """A plan."""
        return self._own.read.PlanStream("lake.db.t", True).read(
            self._jvm.java.io.ByteArrayInputStream(stream)
        )

    def write(self, answer: Mapping[str, Any]) -> JavaObject:
        """A begun write."""
        return self._own.write.BegunWrite.parse(self._json(answer))

    def settings(self, answer: Mapping[str, Any]) -> JavaObject:
        """Write settings."""
        return self._own.write.WriteSettings.of(self._json(answer))

    def _file(self, gate: JavaObject, file: JavaObject) -> dict[str, Any]:
        deletes = [self._delete(gate, each) for each in self._list(file.deletes())]
        return self._alike(gate, file) | {"deletes": deletes}

    def _delete(self, gate: JavaObject, file: JavaObject) -> dict[str, Any]:
        return self._alike(gate, file) | {"equality-ids": list(self._list(file.equalityIds()))}

    def _alike(self, gate: JavaObject, file: JavaObject) -> dict[str, Any]:
        location = gate.location(file).canonical()
        errors = self._own.read.ReadErrors("lake.db.t", file.path(), file.algorithm().nonEmpty())
        keys = gate.keys(file, errors)
        return {
            "path": file.path(),
            "location": location,
            "format": file.format().name(),
            "size": file.size(),
            "records": file.records(),
            "algorithm": self._one(file.algorithm()),
            "footer": file.footer().get().name() if file.footer().nonEmpty() else None,
            "column-keys": file.columnKeys(),
            "keys": self._opened(keys.get()) if keys.nonEmpty() else {},
            "absent-with-values": sorted(self._list(file.withoutLike().toSeq())),
        }

    def _opened(self, keys: JavaObject) -> dict[str, str]:
        found = {"": bytes(keys.whole().reveal()).hex()}
        for group in self._list(keys.columns().get()) if keys.columns().nonEmpty() else ():
            dek = bytes(group._2().reveal()).hex()
            found |= {str(field_id): dek for field_id in self._list(group._1().fieldIds())}
        return found

    def labels(self, keys: JavaObject) -> list[dict[str, Any]]:
        """Names of keys, with their columns."""
        found = [(each.keyName(), self._list(each.fieldIds())) for each in self._list(keys)]
        return [{"key-name": name, "field-ids": list(field_ids)} for name, field_ids in found]

    def _json(self, document: Mapping[str, Any]) -> JavaObject:
        return self._jvm.com.fasterxml.jackson.databind.ObjectMapper().readTree(json.dumps(document))

    def _list(self, sequence: JavaObject) -> Any:
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asJava(sequence)

    def _one(self, option: JavaObject) -> Any:
        return option.get() if option.nonEmpty() else None


@pytest.fixture(scope="module")
def plugin(spark_lake: SparkLake) -> Plugin:
    return Plugin(spark_lake)


def refusal(error: BaseException) -> tuple[str, str]:
    """Kind and rule of a refusal."""
    cause = getattr(error, "java_exception", None) or error._origin  # type: ignore[attr-defined]
    return cause.kind(), cause.rule().get()


def test_every_plan_is_read_as_the_service_meant_it(plugin: Plugin) -> None:
    for name, vector in VECTORS["plans"].items():
        assert plugin.plan(vector) == vector["files"], name


def test_every_refused_plan_is_refused(plugin: Plugin) -> None:
    for case in VECTORS["refused"]["plans"]:
        with pytest.raises(Exception) as raised:
            plugin.plan(changed(VECTORS["plans"], case))
        kind, rule = refusal(raised.value)
        assert case["error"] in ("", kind) and case["rule"] in ("", rule), (case["about"], kind, rule)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("forged", FORGED_DIRECTORIES)
def test_a_plan_with_a_forged_dictionary_of_directories_is_refused(plugin: Plugin, forged: str) -> None:
    with pytest.raises(Exception) as raised:
        plugin.read(with_directories(stream_of(VECTORS["plans"]["plaintext"]), *FORGED_DIRECTORIES[forged]))
    assert refusal(raised.value) == ("CatalogUnavailable", "catalog")


@pytest.mark.nightly
def test_every_begun_write_is_read_as_the_service_meant_it(plugin: Plugin) -> None:
    for name, answer in VECTORS["writes"].items():
        begun, said = plugin.write(answer), answer["encryption"]
        assert (begun.id(), begun.tableUuid().toString()) == (answer["write-id"], answer["table-uuid"])
        assert begun.location() == answer["location"]
        assert begun.encryption().isEmpty() == (said is None), name
        if said is not None:
            told = begun.encryption().get()
            assert (told.algorithm(), told.footer().name()) == (said["algorithm"], said["footer"])
            assert told.footerKey().keyName() == said["footer-key-name"]
            assert plugin.labels(told.columns()) == said["column-keys"]
            assert (told.dataKeyLength(), told.digest()) == (said["data-key-length"], said["digest"])
            assert told.masks().size() == sum(len(each["field-ids"]) for each in said["masks"])


@pytest.mark.nightly
def test_every_refused_write_is_refused(plugin: Plugin) -> None:
    for case in VECTORS["refused"]["writes"]:
        with pytest.raises(Exception) as raised:
            plugin.write(changed(VECTORS["writes"], case))
        assert refusal(raised.value) == (case["error"], case["rule"]), case["about"]


@pytest.mark.nightly
def test_settings_are_read_or_refused(plugin: Plugin) -> None:
    answers = VECTORS["settings"]
    defaults, orc, chosen = (plugin.settings(answers[each]) for each in ("defaults", "orc", "chosen"))
    assert (defaults.format().name(), orc.format().name()) == ("parquet", "orc")
    assert (defaults.targetFileSize(), defaults.codec().toString()) == (512 << 20, "ZSTD")
    assert (defaults.codecLevel().isEmpty(), chosen.codecLevel().get()) == (True, 5)
    assert (defaults.fanOut(), chosen.fanOut()) == (False, True)
    assert chosen.bloomFilters().contains("name")
    with pytest.raises(Exception) as raised:
        plugin.settings(answers["refused"])
    assert refusal(raised.value) == ("PropertyInvalid", "write-property")
