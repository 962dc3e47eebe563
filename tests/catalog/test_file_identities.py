"""What tells the files of a table apart: spellings of a path and neighbors in a manifest do not."""

from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.snapshot_checks.identities import identities, index
from policy.location.allow_list import AllowList

DATA, POSITION_DELETES, EQUALITY_DELETES = 0, 1, 2


def entries(
    *files: tuple[int, str], referenced: str | None = None, offset: int | None = None, status: int = 1
) -> pa.Table:
    return pa.table(
        {
            "status": pa.array([status] * len(files), pa.int8()),
            "content": pa.array([content for content, _ in files], pa.int8()),
            "file_path": [path for _, path in files],
            "referenced_data_file": pa.array([referenced] * len(files), pa.string()),
            "content_offset": pa.array([offset] * len(files), pa.int64()),
        }
    )


@pytest.mark.parametrize(
    "spellings",
    [
        ["file:/x/y", "file:///x/y"],
        ["s3://bucket/x/y", "s3a://bucket/x/y", "s3n://bucket/x/y"],
        ["hdfs://host/x/y", "hdfs://HOST/x/y"],
        ["abfss://cont@acct.dfs.core.windows.net/x/y", "abfss://cont@ACCT.dfs.core.windows.net/x/y"],
        ["abfss://cont@acct.dfs.core.windows.net/x/y", "abfs://cont@Acct.dfs.core.windows.net/x/y"],
    ],
    ids=lambda spellings: spellings[0],
)
def test_spellings_of_one_path_are_one_file(spellings: list[str]) -> None:
    allowed = AllowList.of([spellings[0].rpartition("/")[0]])
    assert all(allowed.decide(path).allowed for path in spellings)
    assert len(set(identities(entries(*((DATA, path) for path in spellings))).to_pylist())) == 1


def test_capitals_in_a_path_tell_files_apart() -> None:
    paths = ["s3://bucket/x/Y", "s3://bucket/x/y", "file:///X/y", "file:///x/y"]
    assert len(set(identities(entries(*((DATA, path) for path in paths))).to_pylist())) == 4


def test_an_equality_delete_is_one_file_beside_a_position_delete_and_without() -> None:
    alone = entries((EQUALITY_DELETES, "s3://bucket/e"))
    beside = entries((POSITION_DELETES, "s3://bucket/p"), (EQUALITY_DELETES, "s3://bucket/e"))
    assert identities(alone)[0] == identities(beside)[1]
    assert set(index(alone)) <= set(index(beside))


def test_deletes_of_two_files_in_one_puffin_file_are_two() -> None:
    one, other = (
        entries((POSITION_DELETES, "s3://bucket/p"), referenced=path, offset=4) for path in ("a", "b")
    )
    assert identities(one) != identities(other)


@pytest.mark.parametrize("referenced", [None, "s3://bucket/d"])
def test_a_path_is_one_file_whatever_its_content(referenced: str | None) -> None:
    """Readers keep the rows of a delete file by its path."""
    contents = (DATA, POSITION_DELETES, EQUALITY_DELETES)
    listed = [entries((content, "s3://bucket/x"), referenced=referenced) for content in contents]
    assert len({identities(each)[0].as_py() for each in listed}) == 1
