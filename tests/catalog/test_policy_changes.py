"""Changes of the catalog's own policies: checked as a whole, and in force in every replica."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from catalog.authorization.authorizer import Caller
from catalog.authorization.principals import NO_PROVIDERS, principals_of
from catalog.base.errors import CommitConflict
from catalog.policy_store.changes import PolicyChanges, Prepared
from catalog.policy_store.documents import DocumentId, Edit, Kind, PolicyDocuments
from catalog.policy_store.in_force import MAX_AGE_S, PolicyStore
from catalog.service.services import Services
from policy.errors import LakewardenError, NotAuthorized, PolicyInvalid, RequestInvalid, StateUnavailable
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from tests.support.clock import Clock
from tests.support.lake import ALICE, BOB, Lake, open_lake, policy, tables, write_unchecked

pytestmark = pytest.mark.usefixtures("long_reload_wait")

MAIN = DocumentId(Kind.RANGER, "main")
OTHER = DocumentId(Kind.RANGER, "other")


@pytest.fixture
def replicas(
    url: str, catalog_name: str, tmp_path: Path, clock: Clock
) -> Iterator[tuple[Services, Services]]:
    """Two processes of one catalog, as far as policies can tell."""
    with (
        open_lake(tmp_path, DATABASE__URL=url, CATALOG__NAME=catalog_name) as lake,
        Services.open(lake.settings, lake.kms, seconds=clock) as first,
        Services.open(lake.settings, lake.kms, seconds=clock) as second,
    ):
        yield first, second


def _granting(user: str, name: str = "grant", **more: object) -> bytes:
    granted = policy(name, tables("db"), {user: ["select"]}, **more)
    return json.dumps({"policies": [granted]}).encode()


def _caller(user: str = ALICE) -> Caller:
    return Caller(Principal(user), None, "request")


def _unrecorded(_: Prepared) -> None:
    """Nothing is recorded here."""


def _make(
    services: Services, content: bytes | None, expected: int | None = None, *, force: bool = False
) -> Prepared:
    return services.policy_changes.make([Edit(MAIN, content, expected)], _caller(), _unrecorded, force=force)


def _may(services: Services, user: str) -> bool:
    request = AccessRequest(Principal(user), Resource.table("db", "t"), "select")
    return services.authorizer.decide([request]).allowed


def test_a_change_is_in_force_in_every_replica_within_a_minute(
    replicas: tuple[Services, Services], clock: Clock
) -> None:
    first, second = replicas
    _make(first, _granting(BOB))
    assert _may(first, BOB) and not _may(second, BOB)
    clock.now += first.settings.policies_poll_s
    assert _may(second, BOB)
    assert first.policies.current().version == second.policies.current().version
    _make(second, None, 2)
    clock.now += MAX_AGE_S
    assert not _may(first, BOB) and not _may(second, BOB)


def test_a_replica_that_cannot_ask_the_database_stops_deciding(
    replicas: tuple[Services, Services], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas
    _make(first, _granting(BOB))
    clock.now += 5
    assert _may(second, BOB)
    _make(first, None, 2)

    def lost() -> None:
        raise StateUnavailable("No answer.", rule="database")

    monkeypatch.setattr(second.policy_documents, "version", lost)
    clock.now += MAX_AGE_S
    with pytest.raises(StateUnavailable):
        _may(second, BOB)
    assert not _may(first, BOB)


def test_a_change_in_one_replica_is_seen_by_the_next_change_in_another(
    replicas: tuple[Services, Services],
) -> None:
    """The other one has not looked yet, and its change is checked against what there is all the same."""
    first, second = replicas
    _make(first, _granting(BOB))
    edit = Edit(OTHER, _granting("dave"), None)
    with pytest.raises(PolicyInvalid, match="grant"):
        second.policy_changes.make([edit], _caller(), _unrecorded)
    with pytest.raises(CommitConflict, match="revision 2"):
        _make(second, _granting("dave"))
    made = _make(second, _granting("dave"), 2)
    assert made.effect.changed == ("policy 'grant'",)
    assert _may(second, "dave") and not _may(second, BOB)


def test_a_change_that_another_one_overtakes_is_checked_again(replicas: tuple[Services, Services]) -> None:
    first, second = replicas
    recorded: list[int] = []

    def overtake(prepared: Prepared) -> None:
        recorded.append(prepared.after.stored.version.revision)
        if len(recorded) == 1:
            second.policy_changes.make(
                [Edit(OTHER, _granting("dave", "other"), None)], _caller(), _unrecorded
            )

    made = first.policy_changes.make([Edit(MAIN, _granting(BOB), None)], _caller(), overtake)
    assert recorded == [2, 3]
    assert {MAIN, OTHER} < set(made.after.stored.documents)
    assert _may(first, BOB) and _may(first, "dave")


def test_the_same_document_changed_meanwhile_is_not_overwritten(replicas: tuple[Services, Services]) -> None:
    first, second = replicas

    def overtake(_: Prepared) -> None:
        _make(second, _granting("dave"))

    with pytest.raises(CommitConflict, match="exists, at revision 2"):
        first.policy_changes.make([Edit(MAIN, _granting(BOB), None)], _caller(), overtake)
    stored = first.policy_documents.current().documents[MAIN]
    assert stored.content == _granting("dave")


def test_what_is_refused_while_it_is_recorded_does_not_happen(replicas: tuple[Services, Services]) -> None:
    first, _ = replicas

    def refuse(_: Prepared) -> None:
        raise NotAuthorized("No.")

    with pytest.raises(NotAuthorized):
        first.policy_changes.make([Edit(MAIN, _granting(BOB), None)], _caller(), refuse)
    assert first.policy_documents.version().revision == 1


def test_an_older_set_does_not_come_back_in_force(replicas: tuple[Services, Services], clock: Clock) -> None:
    """A change of this process is put in force after a newer one of another process was found."""
    first, second = replicas
    older = _make(first, _granting(BOB)).after
    _make(second, _granting("dave"), 2)
    clock.now += 5
    assert _may(first, "dave")
    first.policies.changed(older)
    assert _may(first, "dave") and not _may(first, BOB)


@pytest.mark.parametrize("effect", ["added", "removed", "changed", "none"])
def test_the_effect_names_what_decides_otherwise(lake: Lake, effect: str) -> None:
    before = _granting(BOB)
    after = {
        "added": json.dumps({"policies": json.loads(before)["policies"], "roles": [{"name": "r"}]}).encode(),
        "removed": _granting(BOB, isEnabled=False),
        "changed": _granting("dave"),
        "none": before.replace(b"}", b"} "),
    }[effect]
    wanted = {"added": "role 'r'", "removed": "policy 'grant'", "changed": "policy 'grant'"}
    services = lake.services
    stored = services.policy_documents.current().documents.get(MAIN)
    _make(services, before, stored.change.revision if stored else None)
    revision = services.policy_documents.current().documents[MAIN].change.revision
    found = services.policy_changes.prepare([Edit(MAIN, after, revision)], _caller()).effect
    for name in ("added", "removed", "changed"):
        assert getattr(found, name) == ((wanted[effect],) if name == effect else ())


def _denying(*users: str) -> bytes:
    item = {"users": list(users), "accesses": [{"type": "admin", "isAllowed": True}]}
    return json.dumps(
        {"policies": [policy("denial", {"service": ["*"]}, {}, denyPolicyItems=[item])]}
    ).encode()


def test_the_last_who_can_administer_is_not_shut_out_by_others(tmp_path: Path) -> None:
    """A user without the permission, or the command line, changes policies."""
    with open_lake(tmp_path) as lake:
        changes = lake.services.policy_changes

        def lockout(user: str, *, by_policy: bool) -> str | None:
            edit = Edit(MAIN, _denying(ALICE), None)
            return changes.prepare([edit], _caller(user), by_policy=by_policy).lockout

        # Nobody holds a token yet, so nobody loses anything by it but Alice, if she asks.
        assert lockout(BOB, by_policy=True) is None
        assert lockout(ALICE, by_policy=True) is not None
        assert lockout(ALICE, by_policy=False) is None
        token = lake.services.tokens.issue(Principal(ALICE), "user", None)
        assert lockout(BOB, by_policy=True) is not None
        assert lockout(ALICE, by_policy=False) is not None
        lake.services.tokens.revoke(token.id)
        assert lockout(ALICE, by_policy=False) is None


@pytest.mark.parametrize("kind", ["engine", "expired"])
def test_tokens_that_administer_nothing_do_not_count(tmp_path: Path, kind: str) -> None:
    moment = [datetime(2026, 1, 1, tzinfo=UTC)]
    with (
        open_lake(tmp_path) as lake,
        Services.open(lake.settings, lake.kms, now=lambda: moment[0]) as services,
    ):
        services.tokens.issue(Principal(ALICE), "user", timedelta(hours=1))
        edit = Edit(MAIN, _denying(ALICE), None)
        assert services.policy_changes.prepare([edit], _caller(BOB)).lockout is not None
        if kind == "expired":
            moment[0] += timedelta(hours=1)
        else:
            for each in services.tokens.list():
                services.tokens.revoke(each.id)
            services.tokens.issue(Principal(ALICE), "engine", None)
        assert services.policy_changes.prepare([edit], _caller(BOB)).lockout is None


def test_documents_that_make_no_set_any_more_can_be_mended(engine: Engine, catalog_name: str) -> None:
    """A newer release wrote them; no process starts, and the command line mends them."""
    documents = PolicyDocuments(engine, catalog_name)
    changes = PolicyChanges(
        documents, None, principals_of(engine, NO_PROVIDERS), catalog_name, lambda: datetime.now(UTC)
    )
    write_unchecked(documents, MAIN.name, _granting(BOB))
    write_unchecked(documents, OTHER.name, _granting("dave"))
    with pytest.raises(PolicyInvalid):
        PolicyStore(documents)
    with pytest.raises(PolicyInvalid):
        changes.make([Edit(DocumentId(Kind.RANGER, "third"), b"[]", None)], _caller(), _unrecorded)
    made = changes.make([Edit(MAIN, None, 1)], _caller(), _unrecorded)
    assert made.effect.added == ("policy 'grant'",)
    PolicyStore(documents)


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [Edit(MAIN, b"[]", None), Edit(MAIN, None, None)],
    ],
)
def test_a_change_names_each_document_once(lake: Lake, edits: list[Edit]) -> None:
    with pytest.raises(RequestInvalid):
        lake.services.policy_changes.prepare(edits, _caller())


def test_a_document_is_bounded() -> None:
    with pytest.raises(LakewardenError, match="is larger than"):
        Edit(MAIN, b"x" * (16 * 1024 * 1024 + 1), None)
