"""What a command changes is on record before its effect, and closed by its outcome."""

from __future__ import annotations

from contextlib import suppress

import pytest

from catalog.audit.trail import read
from catalog.cli.session import calling, open_state, operating
from policy.decision import Reason
from policy.errors import CommitStateUnknown, RequestInvalid
from tests.support.host import ADMIN, Host


def shown(host: Host, action: str) -> list[tuple[bool, bool]]:
    """What the trail of a host says of an action, oldest first: begun, allowed."""
    with open_state(host.settings()) as engine:
        found = sorted(read(engine, limit=1000), key=lambda each: (each.record.at_ms, not each.record.begun))
    return [(each.record.begun, each.record.allowed) for each in found if each.record.action == action]


def test_commands_are_begun_and_closed(host: Host) -> None:
    host.make_table()
    host.run("table", "drop", "sales.orders", "--as", ADMIN)
    assert shown(host, "table.drop") == [(True, False), (False, True)]
    host.make_table("sales.kept", **{"encryption.mechanism": "envelope"})
    host.run("key", "disable", "sales.kept", "--as", ADMIN)
    assert shown(host, "key.disable") == [(True, False), (False, True)]
    host.run("key", "list", "sales.kept", "--as", ADMIN)
    assert shown(host, "key.list") == [(False, True)]
    host.run("key", "create-master", "more")
    assert shown(host, "master-key.create") == [(True, False), (False, True)]
    host.run("key", "create-master", "more", code=1)
    assert shown(host, "master-key.create")[2:] == [(True, False), (False, False)]


@pytest.mark.parametrize(
    ("failure", "closed"),
    [
        (None, [(False, True)]),
        (RequestInvalid("It cannot be done."), [(False, False)]),
        # Whether it was done is not known, and so is not said.
        (CommitStateUnknown("It is not known."), []),
        (OSError("the process ends here"), []),
    ],
)
def test_an_operators_record_is_closed_by_what_is_known(
    host: Host, failure: Exception | None, closed: list[tuple[bool, bool]]
) -> None:
    with (
        suppress(RequestInvalid, CommitStateUnknown, OSError),
        open_state(host.settings()) as engine,
        operating(engine, calling(None)) as begin,
    ):
        begin("test.run", "it", Reason("more", "for the record"))
        assert shown(host, "test.run") == [(True, False)]
        if failure is not None:
            raise failure
    assert shown(host, "test.run") == [(True, False), *closed]
