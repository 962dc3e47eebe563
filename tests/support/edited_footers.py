"""Parquet footers that somebody writes anew who has their key, and not those of the columns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import catalog
from catalog.client import footers, thrift
from tests.support.lake import ALICE
from tests.support.spark import SparkLake
from tests.support.spark_tables import data_files, local_path

Change = Callable[[thrift.Struct], None]
"""Changes Parquet's FileMetaData (parquet.thrift)."""

_TYPE, _NAME, _CONVERTED, _SCALE, _PRECISION, _LOGICAL = 1, 4, 6, 7, 8, 10
_DECIMAL = 5


def number(value: int) -> thrift.Value:
    """A number of 32 bits."""
    return thrift.Value(thrift.I32, value)


def structure(fields: dict[int, thrift.Value]) -> thrift.Value:
    """A structure with these fields."""
    return thrift.Value(thrift.STRUCT, thrift.Struct(fields))


def elements(kind: int, values: list[object]) -> thrift.Value:
    """A list."""
    return thrift.Value(thrift.LIST, thrift.Items(kind, values))


def column(footer: thrift.Struct, name: str) -> thrift.Struct:
    """What the schema says of a column (SchemaElement)."""
    (found,) = [each for each in footer.structs(2) if each.get(_NAME, thrift.BINARY) == name.encode()]
    return found


def typed(footer: thrift.Struct, name: str, converted: int, logical: dict[int, thrift.Value]) -> None:
    """Another logical type of a column."""
    column(footer, name).fields |= {_CONVERTED: number(converted), _LOGICAL: structure(logical)}


def decimal(footer: thrift.Struct, name: str, precision: int, scale: int) -> None:
    """Another precision and scale of a column."""
    said = {1: number(scale), 2: number(precision)}
    column(footer, name).fields |= {_SCALE: said[1], _PRECISION: said[2]}
    typed(footer, name, _DECIMAL, {_DECIMAL: structure(said)})


def footer_of(data: bytes) -> tuple[int, bytes]:
    """How many bytes the footer of a file has, and their SHA-256."""
    length = int.from_bytes(data[-8:-4], "little") + 8
    return length, hashlib.sha256(data[-length:]).digest()


def only_file(spark_lake: SparkLake, table: str) -> Path:
    """The one data file of a table."""
    (file,) = data_files(spark_lake, table)
    return local_path(file)


def edited(spark_lake: SparkLake, table: str, change: Change) -> bytes:
    """The table's file with a footer that was changed and sealed with the footer's key; it keeps its size."""
    mine = catalog.connect(spark_lake.service.url, spark_lake.service.token(ALICE))
    plan = mine.table(table.split(".", 1)[1]).scan()._plan()
    (file,) = plan.files
    keys = plan.keys(file, plan.location(file))
    data, filling = only_file(spark_lake, table).read_bytes(), 0
    while True:
        footer = footers.read(lambda start, length: data[start : start + length], len(data), keys)
        change(footer.metadata)
        for each in footer.metadata.structs(2):
            each.fields = dict(sorted(each.fields.items()))
        footer.metadata.fields[6] = thrift.Value(thrift.BINARY, b"x" * filling)
        footer.metadata.fields = dict(sorted(footer.metadata.fields.items()))
        unique = footer.aad.removeprefix(keys.aad_prefix)
        forged = data[: footer.start] + footers.sealed(footer.metadata, unique, keys)
        if len(forged) == len(data):
            return forged
        filling += len(data) - len(forged)
        assert filling >= 0
