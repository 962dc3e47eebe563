"""Vectors of what the catalog tells engines: scan plans, begun writes and write settings.

`python -m tests.support.plan_vectors` has a service make the valid ones again, with other keys and ids.
"""

from __future__ import annotations

import base64
import copy
import json
import tempfile
from collections.abc import Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.transport import KeyLabel, open_transported
from catalog.http.engine_models import WriteBegun
from catalog.http.plan_stream import HEADER, SPLIT_PATH, TRANSPORT_KEY, stream
from catalog.http.table_answers import Viewer, loaded_table
from catalog.planning.plan import Plan
from tests.support.column_keys import COLUMNS, PERSON, make_persons, open_lake_with_keys
from tests.support.delete_commits import EQUALITY, POSITIONS, DeleteCommit
from tests.support.lake import ALICE, Lake
from tests.support.plan_streams import ROWS_OF_PLANS
from tests.support.plans import plan
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of

PATH: Final = Path(__file__).parents[1] / "vectors" / "plans.json"
SCHEMA: Final = pa.schema([*SPLIT_PATH, *(field for field in ROWS_OF_PLANS if field.name != "file_path")])
_ROOT: Final = "/lake"
_ORC: Final = {
    "write.format.default": "orc",
    COLUMNS: "pii:ssn;hr:email",
    "encryption.masks": "nullify:ssn;sha256:email",
}


def vectors() -> dict[str, Any]:
    """The vectors."""
    loaded: dict[str, Any] = json.loads(PATH.read_text())
    return loaded


def stream_of(vector: Mapping[str, Any]) -> bytes:
    """The Arrow stream of a plan."""
    said = {HEADER: json.dumps(vector["header"])}
    if vector["transport-key"] is not None:
        said[TRANSPORT_KEY] = json.dumps(vector["transport-key"])
    fields = list(SCHEMA)
    rows = [_decoded(row) for row in vector["rows"]]
    unknown = {name for row in rows for name in row} - set(SCHEMA.names)
    fields += [pa.field(name, pa.string()) for name in sorted(unknown)]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema(fields, said)) as writer:
        writer.write_table(pa.Table.from_pylist(rows, pa.schema(fields, said)))
    return bytes(sink.getvalue())


def changed(valid: Mapping[str, Any], case: Mapping[str, Any]) -> Any:
    """A message that is to be refused: the valid one with other values at some places."""
    made = copy.deepcopy(valid[case["of"]])
    for place, value in case["changes"].items():
        *above, last = _steps(place)
        within = reduce(getitem, above, made)
        if value == {"drop": True}:
            del within[last]
        else:
            copied = isinstance(value, dict) and "copy" in value
            within[last] = reduce(getitem, _steps(value["copy"]), valid) if copied else value
    return made


def _steps(place: str) -> list[str | int]:
    return [int(each) if each.isdigit() else each for each in place.split(".")]


def as_vector(made: Plan) -> dict[str, Any]:
    """A plan, out of the bytes that the service sends."""
    table = pa.ipc.open_stream(b"".join(stream(made))).read_all()
    said = {name.decode(): json.loads(value) for name, value in table.schema.metadata.items()}
    rows = [_encoded(row) for row in table.to_pylist()]
    return {"header": said[HEADER], "transport-key": said.get(TRANSPORT_KEY), "rows": rows}


def _expected(made: Plan) -> list[dict[str, Any]]:
    """What a reader makes of each file."""
    rows = made.files.to_pylist()
    absent = made.header.to_json()["absent-with-values"]
    return [
        _file(made, row, absent[str(row["spec_id"])])
        | {"deletes": [_delete(made, rows[each]) for each in row["deletes"] or ()]}
        for row in rows
        if row["content"] == 0
    ]


def _delete(made: Plan, row: Mapping[str, Any]) -> dict[str, Any]:
    compared = row["equality_ids"] or []
    return _file(made, row, compared) | {"equality-ids": compared}


def _file(made: Plan, row: Mapping[str, Any], absent: list[int]) -> dict[str, Any]:
    return {
        "path": row["file_path"],
        "location": row["location"] or row["file_path"],
        "format": row["file_format"].lower(),
        "size": row["file_size_in_bytes"],
        "records": row["record_count"],
        "algorithm": row["algorithm"],
        "footer": row["footer"],
        "column-keys": bool(row["column_keys"]),
        "keys": _opened(made, row),
        "absent-with-values": absent,
    }


def _opened(made: Plan, row: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for key in row["keys"] or ():
        assert made.header.transport is not None
        label = KeyLabel(key["key_name"], tuple(key["field_ids"]))
        identity = FileIdentity.of(made.header.table.record.table_uuid, row["file_path"])
        dek = open_transported(made.header.transport, key["wrapped"], identity, label).reveal().hex()
        found |= dict.fromkeys(map(str, label.field_ids), dek) if label.field_ids else {"": dek}
    return found


def _encoded(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = (
        None if row["keys"] is None else [each | {"wrapped": _text(each["wrapped"])} for each in row["keys"]]
    )
    digests = {name: row[name] and _text(row[name]) for name in ("digest", "footer_digest")}
    return dict(row) | digests | {"keys": keys}


def _decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = row["keys"] and [each | {"wrapped": base64.b64decode(each["wrapped"])} for each in row["keys"]]
    digests = {name: row[name] and base64.b64decode(row[name]) for name in ("digest", "footer_digest")}
    return dict(row) | digests | {"keys": keys}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _tables(lake: Lake) -> dict[str, Table]:
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    made = {
        "plaintext": make(lake, partition_spec=by_id),
        "encrypted": make(lake, properties=ENCRYPTED),
        "signed-footer": make(lake, properties=ENCRYPTED | {"encryption.footer": "plaintext"}),
        "column-keys": make_persons(lake),
        "orc": make(lake, schema=PERSON, properties=_ORC),
        "respelled": make(lake),
        "empty": make(lake),
        "deletes": make(lake, properties=ENCRYPTED),
    }
    append_files(lake, name_of(made["plaintext"]), 2, partition={"id": 7})
    for name in ("encrypted", "signed-footer", "column-keys"):
        append_files(lake, name_of(made[name]), 2)
    append_files(lake, name_of(made["orc"]), file_format="orc", sha256=bytes(range(32)))
    append_files(lake, name_of(made["deletes"]), 2)
    engine = Engine.begin(lake, name_of(made["deletes"]))
    deletes = DeleteCommit(lake.services, lake.caller(ALICE), engine.session)
    deletes.add(engine.file(), POSITIONS)
    deletes.add(engine.file(), EQUALITY, [2])
    deletes.commit()
    engine = Engine.begin(lake, name_of(made["respelled"]))
    engine.append(engine.file(engine.path().replace("file:///", "file:/")))
    return made


def _settings(lake: Lake, table: Table) -> Any:
    caller = lake.caller(ALICE, "spark")
    found = lake.services.access.load(caller, name_of(table))
    answer = loaded_table(found, Viewer.of(caller, lake.services), masked=())
    return json.loads(bytes(answer.body))["write-settings"]


def _written(lake: Lake, table: Table) -> Any:
    session = lake.services.writes.begin(lake.caller(ALICE, "spark"), name_of(table))
    return json.loads(WriteBegun.of(session).model_dump_json())


def made() -> dict[str, Any]:
    """New vectors, from a service of their own."""
    with tempfile.TemporaryDirectory() as root, open_lake_with_keys(Path(root)) as lake:
        tables = _tables(lake)
        found = {name: plan(lake, table) for name, table in tables.items()}
        found["some-columns"] = plan(lake, tables["column-keys"], "id", "email")
        plans = {name: as_vector(each) | {"files": _expected(each)} for name, each in found.items()}
        writes = {name: _written(lake, table) for name, table in tables.items() if name != "respelled"}
        bloom = {"write.parquet.bloom-filter-enabled.column.name": "true"}
        level = {"write.parquet.compression-level": "5", "write.spark.fanout.enabled": "true"}
        settings = {
            "defaults": _settings(lake, tables["plaintext"]),
            "orc": _settings(lake, tables["orc"]),
            "chosen": _settings(lake, make(lake, properties=bloom | level)),
            "refused": _settings(lake, make(lake, properties={"write.format.default": "avro"})),
        }
        text = json.dumps({"plans": plans, "writes": writes, "settings": settings})
        valid = json.loads(text.replace(str(root), _ROOT))
    return {**vectors(), **valid}


if __name__ == "__main__":
    PATH.write_text(json.dumps(made(), indent=1, ensure_ascii=False) + "\n")
