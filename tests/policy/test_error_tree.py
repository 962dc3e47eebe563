"""An error says what was refused, about what, by which rule, and what to do."""

from __future__ import annotations

from policy.errors import LakewardenError, LocationInvalid
from tests.support.vectors import each_row

FULL = {"table": "db.t", "snapshot": 7, "path": "s3://b/x", "rule": "allowed-paths", "hint": "Ask for it."}


def test_an_error_shows_all_that_it_knows() -> None:
    error = LocationInvalid("No.", **FULL)
    assert str(error) == "No. [table=db.t, snapshot=7, path=s3://b/x, rule=allowed-paths] Ask for it."
    assert error.args == ("No.",) and error.message == "No."
    assert {name: getattr(error, name) for name in FULL} == FULL


@each_row("name", FULL)
def test_an_error_shows_nothing_that_it_does_not_know(name: str) -> None:
    text = str(LakewardenError("No.", **{name: FULL[name]}))
    assert text == ("No. Ask for it." if name == "hint" else f"No. [{name}={FULL[name]}]")
    assert str(LakewardenError("No.")) == "No."


def test_snapshot_zero_is_a_snapshot() -> None:
    assert str(LakewardenError("No.", snapshot=0)) == "No. [snapshot=0]"
