"""What becomes of a table by its state and by what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from policy.errors import RequestInvalid
from spark_ext.pipelines.audit import rules
from spark_ext.pipelines.audit.facts import Facts
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.pipeline import Audit
from spark_ext.pipelines.items import Item, Status
from spark_ext.pipelines.lake import Lake

ITEM = Item("n.t", "n.t")
NO_LAKE = cast(Lake, None)


def facts(**changes: Any) -> Facts:
    state = {"table": "n.t", "keys": [], "problem": None, "metadata-location": "m1"}
    state |= {"sealed-location": "m1", "governed": None, "table-uuid": None}
    return Facts(state | changes)


def test_a_table_whose_encryption_rules_were_not_checked_has_failed_unless_an_error_says_why() -> None:
    audit, part = Audit(), Partial("n.t")
    known = facts(problem="The master key cannot be found.")
    assert audit._outcome(ITEM, facts(), part).status is Status.DONE
    outcome = audit._outcome(ITEM, known, part)
    assert (outcome.status, outcome.reason) == (Status.FAILED, "The master key cannot be found.")
    part.add(rules.OVERLAP)
    assert audit._outcome(ITEM, known, part).status is Status.FAILED
    part.add(rules.SEAL_BROKEN)
    assert audit._outcome(ITEM, known, part).status is Status.DONE


class Written:
    """A source whose tables were written since."""

    def facts(self, lake: Lake, group: Sequence[Item]) -> dict[str, Facts]:
        return {item.table: facts(**{"metadata-location": "m2"}) for item in group}


def test_a_table_that_was_written_is_audited_again_if_anything_was_found() -> None:
    audit = Audit()
    audit._source = cast(Any, Written())
    found, failed, orphaned, fine = (Partial("n.t") for _ in range(4))
    found.add(rules.OVERLAP)
    failed.failed.append("Storage does not answer.")
    orphaned.orphan(["file:///a"], 1, 1)
    for part in (found, failed, orphaned):
        assert list(audit._moved(NO_LAKE, [ITEM], {"n.t": facts()}, {"n.t": part})) == ["n.t"]
    assert audit._moved(NO_LAKE, [ITEM], {"n.t": facts()}, {"n.t": fine}) == {}


def test_verify_is_refused_for_another_catalog_where_it_would_have_no_effect() -> None:
    with pytest.raises(RequestInvalid, match="verify has no effect"):
        Audit(other={"type": "sql"}, verify=0.5)
