"""What becomes of an item that ended with an error."""

from __future__ import annotations

import pytest

from catalog.base.errors import CommitConflict, NoSuchTable
from catalog.client.errors import CatalogUnavailable, DataFileDamaged
from policy.errors import KmsUnavailable, LakewardenError, NotAuthenticated, NotAuthorized, StorageUnavailable
from spark_ext.pipelines.items import Item, Status
from spark_ext.pipelines.refusals import outcome_of, status_of_problem

ITEM = Item("i", "sales.orders")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KmsUnavailable("The KMS throttles."), Status.LEFT),
        (StorageUnavailable("Storage does not answer."), Status.LEFT),
        (CommitConflict("Another commit came first."), Status.LEFT),
        (NoSuchTable("There is no such table."), Status.LEFT),
        (NotAuthorized("No policy grants it."), Status.FAILED),
        (DataFileDamaged("The file is damaged."), Status.FAILED),
    ],
)
def test_what_passes_is_left_and_what_needs_a_person_has_failed(
    error: LakewardenError, status: Status
) -> None:
    outcome = outcome_of(ITEM, error)
    assert outcome.status is status
    assert outcome.reason


def test_an_error_that_concerns_all_items_ends_the_run() -> None:
    for error in (CatalogUnavailable("No answer."), NotAuthenticated("No token.")):
        with pytest.raises(type(error)):
            outcome_of(ITEM, error)


def test_groups_that_could_not_be_rewritten_are_left_if_only_commits_came_first() -> None:
    conflict = "CommitConflict: 1 of 2 files are no longer in the table."
    assert status_of_problem(conflict) is Status.LEFT
    assert status_of_problem(f"{conflict}\nDataFileDamaged: The file has 3 bytes.") is Status.FAILED
    assert status_of_problem(None) is Status.FAILED
