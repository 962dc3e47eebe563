"""A path of a plan is one directory and one segment, or the plan is refused."""

from __future__ import annotations

import io

import pytest

from catalog.client.plan import parse
from policy.errors import LakewardenError
from tests.support.plan_streams import FORGED_DIRECTORIES, with_directories
from tests.support.plan_vectors import stream_of, vectors

PLAN = stream_of(vectors()["plans"]["plaintext"])


def test_a_plan_whose_directories_are_encoded_otherwise_is_read() -> None:
    (file, other) = parse(io.BytesIO(PLAN)).files
    directory = file.path.rpartition("/")[0]
    plan = parse(io.BytesIO(with_directories(PLAN, ["file:///elsewhere", directory], [1, 1])))
    assert [each.path for each in plan.files] == [file.path, other.path]


@pytest.mark.parametrize("forged", FORGED_DIRECTORIES)
def test_a_plan_with_a_forged_dictionary_of_directories_is_refused(forged: str) -> None:
    known, indexes = FORGED_DIRECTORIES[forged]
    with pytest.raises(LakewardenError) as refusal:
        parse(io.BytesIO(with_directories(PLAN, known, indexes)))
    assert (type(refusal.value).__name__, refusal.value.rule) == ("CatalogUnavailable", "catalog")
