"""Which files a rewrite takes, and in what groups: Iceberg's rules, decided without a table."""

from __future__ import annotations

import pytest

from catalog.maintenance.compaction import Candidate, Compaction
from policy.errors import LakewardenError, NotSupportedYet, RequestInvalid

_TARGET = 1000


def parse(**options: str) -> Compaction:
    given = {name.replace("_", "-"): value for name, value in options.items()}
    return Compaction.parse(given, _TARGET, 0, "db.t")


def files(*sizes: int, partition: str | None = "", must: bool = False) -> list[Candidate]:
    return [Candidate(str(at), size, 10, partition, must) for at, size in enumerate(sizes)]


def sizes(compaction: Compaction, some: list[Candidate]) -> list[list[int]]:
    return [[file.size for file in group] for group in compaction.groups(some)]


@pytest.mark.parametrize(
    ("options", "given", "expected"),
    [
        ({}, files(10, 10, 10, 10), []),
        ({}, files(10, 10, 10, 10, 10), [[10] * 5]),
        ({}, files(10, 10, 10, 10, 800, 1800), []),
        ({"min_input_files": "2"}, files(10, 749, 750, 1800), [[10, 749]]),
        ({"min_input_files": "1"}, files(10), []),
        ({}, files(700, 700), [[700, 700]]),
        ({}, files(1801), [[1801]]),
        ({"rewrite_all": "true"}, files(1000), [[1000]]),
        ({}, [*files(10, must=True), *files(10, 20)], [[10]]),
        ({"max_file_group_size_bytes": "1500"}, files(700, 700, 700, 700), [[700, 700], [700, 700]]),
        ({"rewrite_all": "true", "max_file_group_input_files": "1"}, files(5, 6), [[5], [6]]),
        ({}, [*files(10, 10, 10, partition="a"), *files(10, 10, 10, partition="b")], []),
        ({}, [*files(10, 10, 10, partition=None), *files(10, 10, partition=None)], [[10] * 5]),
        (
            {"rewrite_all": "true", "max_file_group_size_bytes": "50", "rewrite_job_order": "bytes-desc"},
            files(10, 40, 50, 5),
            [[10, 40], [50], [5]],
        ),
        ({"min_file_size_bytes": "0", "max_file_size_bytes": "1001"}, files(1, 2, 3, 4, 5), []),
    ],
    ids=str,
)
def test_groups(options: dict[str, str], given: list[Candidate], expected: list[list[int]]) -> None:
    assert sizes(parse(**options), given) == expected


def test_files_with_deletes() -> None:
    few = Candidate("few", 1000, 10, "", deletes=1, deleted=2)
    many = Candidate("many", 1000, 10, "", deletes=1, deleted=3)
    assert sizes(parse(), [few, many]) == [[1000]]
    assert parse().groups([few, many])[0] == [many]
    assert len(parse(delete_file_threshold="1").groups([few, many])[0]) == 2
    assert parse(delete_ratio_threshold="0.2").is_candidate(few)
    assert not parse().is_candidate(Candidate("empty", 1000, 0, "", deletes=1, deleted=1))


@pytest.mark.parametrize(
    ("size", "outputs"),
    [(0, 1), (999, 1), (1000, 1), (1050, 1), (1500, 2), (1800, 2), (10_100, 10)],
)
def test_number_of_files(size: int, outputs: int) -> None:
    assert parse().outputs(size) == outputs
    assert parse().file_size == 1400


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("option", "value", "error"),
    [
        ("target-file-size-bytes", "0", RequestInvalid),
        ("target-file-size-bytes", "1e9", RequestInvalid),
        ("target-file-size-bytes", "9" * 30, RequestInvalid),
        ("min-file-size-bytes", "1000", RequestInvalid),
        ("max-file-size-bytes", "1000", RequestInvalid),
        ("delete-ratio-threshold", "nan", RequestInvalid),
        ("delete-ratio-threshold", "0", RequestInvalid),
        ("rewrite-all", "yes", RequestInvalid),
        ("rewrite-job-order", "random", RequestInvalid),
        ("partial-progress.enabled", "no", RequestInvalid),
        ("partial-progress.max-commits", "0", RequestInvalid),
        ("max-concurrent-file-group-rewrites", "0", RequestInvalid),
        ("use-starting-sequence-number", "true", NotSupportedYet),
        ("output-spec-id", "1", NotSupportedYet),
        ("Rewrite-All", "true", NotSupportedYet),
    ],
)
def test_options_are_obeyed_or_refused_by_name(option: str, value: str, error: type[LakewardenError]) -> None:
    with pytest.raises(error) as refused:
        Compaction.parse({option: value}, _TARGET, 0, "db.t")
    assert refused.value.rule == "rewrite-option"
    assert "file-size-bytes" in refused.value.message or option in refused.value.message


def test_options_with_the_one_value_that_they_have_here() -> None:
    given = {
        "partial-progress.enabled": "true",
        "max-concurrent-file-group-rewrites": "1",
        "use-starting-sequence-number": "false",
        "output-spec-id": "0",
        "remove-dangling-deletes": "false",
    }
    assert Compaction.parse(given, _TARGET, 0, "db.t").dangling is False
