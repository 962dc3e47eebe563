"""Public encrypted Parquet files, read by the engine's own judge of files and Spark's own reader.

The engine finds the keys of columns by field id, which these files do not have. Where columns have keys, the
footer is opened, gets field ids and is sealed again; pages, indexes and statistics stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyspark.sql import SparkSession

VECTORS = Path(__file__).parents[1] / "vectors" / "parquet-testing"
FOOTER_MODULE = b"\0"
NONCE, TAG, TAIL = 12, 16, 8


@dataclass(frozen=True)
class Vector:
    """One file and how it is encrypted.

    Attributes:
        data: its bytes.
        keys: data keys by name; the footer's is `kf`.
        prefix: the AAD prefix; None for none.
        columns: the name of the key of each column, None in plaintext; by path.
    """

    name: str
    data: bytes
    algorithm: str
    footer: str
    keys: dict[str, bytes]
    prefix: bytes | None
    stored: bool
    rows: int
    columns: dict[str, str | None]
    expected: dict[str, Any]

    @property
    def uniform(self) -> bool:
        """Whether all columns are under the footer's key."""
        return set(self.columns.values()) == {"kf"}

    def but(self, **changed: Any) -> Vector:
        """The vector with something else said of it."""
        return replace(self, **changed)


def vectors() -> list[Vector]:
    """All encrypted files."""
    return [_vector(each) for each in json.loads((VECTORS / "vectors.json").read_text())["vectors"]]


def _vector(said: dict[str, Any]) -> Vector:
    return Vector(
        name=said["file"].removeprefix("data/").removesuffix(".parquet.encrypted"),
        data=(VECTORS / said["file"]).read_bytes(),
        algorithm=said["algorithm"],
        footer=said["footer"],
        keys={name: bytes.fromhex(key) for name, key in said["keys"].items()},
        prefix=None if said["aad_prefix"] is None else said["aad_prefix"].encode(),
        stored=said["aad_prefix_stored"],
        rows=said["rows"],
        columns={path: column["key"] for path, column in said["columns"].items()},
        expected={path: (c["first"], c["last"]) for path, c in said["columns"].items() if "first" in c},
    )


class Hooks:
    """The engine's side, in a JVM.

    Args:
        spark: whose.
        directory: for files.
    """

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._context = spark.sparkContext
        self.jvm = jvm = self._context._jvm
        self._directory = directory
        self._format = jvm.org.apache.parquet.format
        self._read = jvm.org.apache.spark.sql.lakewarden.read

    def with_ids(self, vector: Vector) -> Vector:
        """The vector with a field id on each column: its place among them, from 1 on."""
        length = int.from_bytes(vector.data[-TAIL:-4], "little")
        body, footer = vector.data[: -TAIL - length], vector.data[-TAIL - length : -TAIL]
        sealed = (
            self._encrypted(vector, footer) if vector.footer == "encrypted" else self._signed(vector, footer)
        )
        tail = len(sealed).to_bytes(4, "little") + vector.data[-4:]
        return vector.but(data=body + sealed + tail)

    def plain_with_ids(self, data: bytes, ids: dict[str, int]) -> bytes:
        """A file in plaintext with field ids on the fields of these names, and others on all other fields."""
        length = int.from_bytes(data[-TAIL:-4], "little")
        footer = self._format.Util.readFileMetaData(self._stream(data[-TAIL - length : -TAIL]))
        for place, element in enumerate(footer.getSchema()):
            if place:
                element.setField_id(ids.get(element.getName(), 1000 + place))
        written = self._bytes(footer)
        return data[: -TAIL - length] + written + len(written).to_bytes(4, "little") + data[-4:]

    def _encrypted(self, vector: Vector, footer: bytes) -> bytes:
        stream = self._stream(footer)
        crypto = self._format.Util.readFileCryptoMetaData(stream)
        rest = footer[len(footer) - stream.available() :]
        aes, aad = AESGCM(vector.keys["kf"]), self._aad(vector, crypto.getEncryption_algorithm())
        nonce, sealed = rest[4 : 4 + NONCE], rest[4 + NONCE :]
        named = self._named(self._format.Util.readFileMetaData(self._stream(aes.decrypt(nonce, sealed, aad))))
        module = nonce + aes.encrypt(nonce, named, aad)
        return footer[: len(footer) - len(rest)] + len(module).to_bytes(4, "little") + module

    def _signed(self, vector: Vector, footer: bytes) -> bytes:
        read = self._format.Util.readFileMetaData(self._stream(footer))
        nonce, named = footer[-NONCE - TAG : -TAG], self._named(read)
        aad = self._aad(vector, read.getEncryption_algorithm())
        return named + nonce + AESGCM(vector.keys["kf"]).encrypt(nonce, named, aad)[-TAG:]

    def _aad(self, vector: Vector, algorithm: Any) -> bytes:
        said = algorithm.getFieldValue()
        return (vector.prefix or b"") + bytes(said.getAad_file_unique()) + FOOTER_MODULE

    def _named(self, footer: Any) -> bytes:
        leaves = [element for element in footer.getSchema() if not element.isSetNum_children()]
        for place, element in enumerate(leaves, 1):
            element.setField_id(place)
        return self._bytes(footer)

    def _bytes(self, footer: Any) -> bytes:
        sink = self.jvm.java.io.ByteArrayOutputStream()
        self._format.Util.writeFileMetaData(footer, sink)
        return bytes(sink.toByteArray())

    def _stream(self, data: bytes) -> Any:
        return self.jvm.java.io.ByteArrayInputStream(data)

    def open(self, vector: Vector) -> Opened:
        """The file, judged.

        Raises:
            Py4JJavaError: it is refused.
        """
        path = self._directory / "vector.parquet"
        path.write_bytes(vector.data)
        conf = self._read.ReadConfiguration.of(self._context._jsc.hadoopConfiguration())
        util = self.jvm.org.apache.parquet.hadoop.util
        source = util.HadoopInputFile.fromPath(self.jvm.org.apache.hadoop.fs.Path(path.as_uri()), conf)
        stream = source.newStream()
        footers = self._read.FooterReader(source, stream, conf, 0, len(vector.data))
        return Opened(self.jvm, conf, source, stream, self._encryption(vector).read(footers, vector.rows))

    def _encryption(self, vector: Vector) -> Any:
        errors = self._read.ReadErrors("lake.db.t", "file:///vector.parquet", True)
        footer = self.jvm.org.apache.spark.sql.lakewarden.crypto.Footer.named(vector.footer).get()
        ids = {path: place for place, path in enumerate(vector.columns, 1)}
        own = {ids[path]: key for path, key in vector.columns.items() if key is not None}
        keys = self._option(None if vector.uniform else self._map(vector, own))
        return self._read.FileEncryption(
            vector.algorithm,
            footer,
            self._secret(vector, "kf"),
            keys,
            vector.prefix,
            self._schema(ids),
            self._map(vector, {}).keySet(),
            errors,
        )

    def _secret(self, vector: Vector, key: str) -> Any:
        return self.jvm.org.apache.spark.sql.lakewarden.crypto.Secret(vector.keys[key])

    def _map(self, vector: Vector, own: dict[int, str]) -> Any:
        pairs = self.jvm.java.util.ArrayList()
        for field_id, key in own.items():
            pairs.add(self.jvm.scala.Tuple2(field_id, self._secret(vector, key)))
        seen = self.jvm.scala.jdk.javaapi.CollectionConverters.asScala(pairs)
        return getattr(self.jvm.scala.collection.immutable.HashMap, "from")(seen)

    def _schema(self, ids: Mapping[str, int]) -> Any:
        """Of columns with these ids that are read; the footer says of which types they are."""
        fields = [
            {"name": path, "type": "string", "nullable": True, "metadata": {"parquet.field.id": each}}
            for path, each in ids.items()
        ]
        types = self.jvm.org.apache.spark.sql.types
        return types.DataType.fromJson(json.dumps({"type": "struct", "fields": fields}))

    def _option(self, value: Any) -> Any:
        return self.jvm.scala.Option.apply(value)


@dataclass
class Opened:
    """A file that was judged, to be read by Spark's vectorized reader."""

    jvm: Any
    conf: Any
    source: Any
    stream: Any
    footer: Any

    def columns(self, ddl: str, predicate: Any = None) -> list[list[str]]:
        """The values of columns as texts.

        Args:
            ddl: names and types of the columns, as Spark writes them.
            predicate: a Parquet predicate by which row groups and pages are left out.

        Raises:
            Py4JJavaError: the file is refused.
        """
        types = self.jvm.org.apache.spark.sql.types.StructType
        wanted = types.fromDDL(ddl)
        reader = self._reader(wanted.json(), predicate)
        try:
            reader.initBatch(self.jvm.org.apache.spark.sql.types.StructType(), self._no_values())
            reader.enableReturningBatches()
            values: list[list[str]] = [[] for _ in wanted.fieldNames()]
            while reader.nextKeyValue():
                batch = reader.resultBatch()
                for place, found in enumerate(values):
                    found += self._texts(batch.column(place), batch.numRows())
            return values
        finally:
            reader.close()

    def _reader(self, wanted: str, predicate: Any) -> Any:
        hadoop = self.jvm.org.apache.hadoop
        conf = hadoop.mapred.JobConf(self.conf)
        conf.set("org.apache.spark.sql.parquet.row.requested_schema", wanted)
        if predicate is not None:
            self.jvm.org.apache.parquet.hadoop.ParquetInputFormat.setFilterPredicate(conf, predicate)
        parquet = self.jvm.org.apache.spark.sql.execution.datasources.parquet
        reader = parquet.VectorizedParquetRecordReader(
            None, "CORRECTED", "UTC", "CORRECTED", "UTC", False, 4096
        )
        some = self.jvm.scala.Option.apply
        reader.initialize(
            hadoop.mapred.FileSplit(self.source.getPath(), 0, self.source.getLength(), None),
            hadoop.mapreduce.task.TaskAttemptContextImpl(conf, hadoop.mapreduce.TaskAttemptID()),
            some(self.source),
            some(self.stream),
            some(self.footer),
        )
        return reader

    def _no_values(self) -> Any:
        return self.jvm.org.apache.spark.sql.catalyst.InternalRow.empty()

    def _texts(self, column: Any, count: int) -> list[str]:
        kind = column.dataType().simpleString()
        arrays = self.jvm.java.util.Arrays
        if kind == "binary":
            return [bytes(column.getBinary(place)).hex() for place in range(count)]
        if kind == "string":
            return [column.getUTF8String(place).toString() for place in range(count)]
        taken = getattr(
            column, {"int": "getInts", "float": "getFloats", "double": "getDoubles"}.get(kind, "getBooleans")
        )
        text: str = arrays.toString(taken(0, count))
        return text[1:-1].split(", ") if count else []
