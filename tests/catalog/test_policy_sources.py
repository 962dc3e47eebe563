"""Policies of Ranger Admins: put in force in every process, kept during an outage, closed after it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from catalog.audit import reading as audit_reading
from catalog.authorization.authorizer import Caller
from catalog.policy_sources.synchronization import Synchronization
from catalog.policy_store.changes import Prepared
from catalog.policy_store.documents import DocumentId, Edit, Kind
from catalog.policy_store.source_states import SourceState
from catalog.service.policy_sync import PolicySync, SourceSync, sources_of, synchronizations
from catalog.service.services import Services
from policy.decision import Reason
from policy.errors import RequestInvalid, StateUnavailable
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from tests.support.clock import Clock, WallClock
from tests.support.lake import ALICE, BOB, Lake, lake_settings, open_lake, policy, tables
from tests.support.ranger_admin import PASSWORD, USER, Asked, RangerAdmin, ranger_admin

pytestmark = pytest.mark.usefixtures("long_reload_wait")

SERVICE = "hive"
DOCUMENT = DocumentId(Kind.RANGER, "ranger.prod")
MAX_AGE_S = 600


@dataclass
class Replica:
    """One process of a catalog, with its clocks."""

    services: Services
    seconds: Clock
    wall: WallClock
    source: SourceSync

    def passes(self, seconds: float) -> None:
        """Let time pass, in this process and in the database."""
        self.seconds.now += seconds
        self.wall.now += timedelta(seconds=seconds)

    def sync(self) -> SourceState:
        """Ask Ranger, since it is time."""
        self.passes(self.services.settings.ranger["prod"].poll_s)
        self.source.look()
        return self.state()

    def state(self) -> SourceState:
        """What the database knows."""
        (found,) = (each.state() for each in _synchronizations(self.services))
        return found

    def may(self, user: str, table: str = "t") -> bool:
        """Whether a user can select from a table of `db`, once this process has looked."""
        self.seconds.now += self.services.settings.policies_poll_s
        request = AccessRequest(Principal(user), Resource.table("db", table), "select")
        return self.services.authorizer.decide([request]).allowed


@pytest.fixture
def ranger() -> Iterator[RangerAdmin]:
    with ranger_admin() as running:
        running.put(SERVICE, 1, [_granting(BOB)])
        yield running


@pytest.fixture
def lake(tmp_path: Path, ranger: RangerAdmin) -> Iterator[Lake]:
    with open_lake(tmp_path, **_settings(ranger, tmp_path)) as opened:
        yield opened


@pytest.fixture
def replica(lake: Lake) -> Iterator[Replica]:
    """A process whose source was synchronized."""
    with _replica(lake) as opened:
        opened.sync()
        yield opened


def _settings(ranger: RangerAdmin, root: Path, name: str = "PROD", **more: object) -> dict[str, object]:
    password = root / "ranger.password"
    password.write_text(f"{PASSWORD}\n")
    password.chmod(0o600)
    settings = {
        "URL": ranger.url,
        "SERVICE": SERVICE,
        "USER": USER,
        "PASSWORD_FILE": password,
        "ROLES": "false",
        "MAX_AGE_S": MAX_AGE_S,
        "TIMEOUT_S": 5,
        **more,
    }
    return {f"RANGER__{name}__{key}": value for key, value in settings.items()}


@contextmanager
def _replica(lake: Lake, wall: WallClock | None = None) -> Iterator[Replica]:
    seconds, wall = Clock(), wall or WallClock()
    with Services.open(lake.settings, lake.kms, wall, seconds) as services:
        found = {each.name: each for each in sources_of(services)}
        yield Replica(services, seconds, wall, found["prod"])
        for each in found.values():
            each.close()


def _synchronizations(services: Services) -> Sequence[Synchronization]:
    found = synchronizations(
        services.settings, services.engine, None, services.principals, services.now, ["prod"]
    )
    return list(found.values())


def _granting(user: str, name: str = "of ranger", **more: Any) -> dict[str, Any]:
    return policy(name, tables("db"), {user: ["select"]}, **more)


def _unrecorded(_: Prepared, __: Sequence[Edit], ___: Sequence[Reason]) -> None:
    """Nothing is recorded here."""


@pytest.mark.nightly
def test_policies_of_ranger_are_in_force_in_every_replica(
    url: str, catalog_name: str, tmp_path: Path, ranger: RangerAdmin
) -> None:
    settings = _settings(ranger, tmp_path)
    with (
        open_lake(tmp_path, DATABASE__URL=url, CATALOG__NAME=catalog_name, **settings) as lake,
        _replica(lake) as first,
        _replica(lake) as second,
    ):
        first.source.look()
        assert first.may(BOB) and second.may(BOB)
        ranger.put(SERVICE, 2, [_granting("dave")])
        _sync_now(second.services)
        assert first.may("dave") and not first.may(BOB)
        assert second.may("dave") and not second.may(BOB)


def _sync_now(services: Services) -> None:
    (source,) = _synchronizations(services)
    claim = source.claim(force=True)
    assert claim is not None
    source.attempt(claim, Caller(Principal(ALICE), None, "request"), _unrecorded)
    source.close()


@pytest.mark.nightly
def test_one_process_at_a_time_asks_ranger(url: str, tmp_path: Path, ranger: RangerAdmin) -> None:
    settings = _settings(ranger, tmp_path)
    with (
        open_lake(tmp_path, DATABASE__URL=url, CATALOG__NAME="turns", **settings) as lake,
        _replica(lake) as first,
        _replica(lake) as second,
    ):
        for _ in range(3):
            first.source.look()
            second.source.look()
        assert len(ranger.asked) == 1


def test_what_has_not_changed_is_confirmed_without_a_change(replica: Replica, ranger: RangerAdmin) -> None:
    before = replica.state()
    revision = replica.services.policy_documents.version().revision
    after = replica.sync()
    assert replica.services.policy_documents.version().revision == revision
    assert after.confirmed_ms is not None and before.confirmed_ms is not None
    assert after.confirmed_ms > before.confirmed_ms and after.download == before.download
    first, last = ranger.asked[0], ranger.asked[-1]
    assert first.parameters["lastKnownVersion"] == "-1" and last.parameters["lastKnownVersion"] == "1"
    assert all(each.parameters["supportsPolicyDeltas"] == "false" for each in ranger.asked)
    assert last.parameters["pluginId"].startswith("lakewarden@")


JSON = "application/json"


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ((401, "text/html", b""), "credentials"),
        ((403, JSON, b""), "policy.download.auth.users"),
        ((404, JSON, b""), "no such service"),
        ((500, "text/html", b""), "500"),
        ((302, "text/html", b""), "redirects"),
        ((200, "text/html", b"<html>Sign in</html>"), "not JSON"),
        ((200, JSON, b"{"), "not JSON"),
        ((200, JSON, b"[]"), "not a JSON object"),
        ((200, JSON, b'{"policies": []}'), "not of the service"),
        ((200, JSON, b'{"serviceName": "hive", "policies": []}'), "policyVersion"),
        ((200, JSON, b'{"serviceName": "other", "policyVersion": 9, "policies": []}'), "not of the service"),
        ((200, JSON, b'{"serviceName": "hive", "policyVersion": 0, "policies": []}'), "went back from 1"),
        (
            (200, JSON, b'{"serviceName": "hive", "policyVersion": 9, "policyDeltas": [{"changeType": 2}]}'),
            "deltas",
        ),
        ((200, JSON, b'{"serviceName": "hive", "policyVersion": 9, "policies": [{}]}'), "policies"),
        ((200, JSON, b" " * (65 * 1024 * 1024)), "too long"),
    ],
)
def test_an_answer_that_cannot_be_taken_leaves_the_last_copy_in_force(
    replica: Replica, ranger: RangerAdmin, fault: tuple[int, str, bytes], says: str
) -> None:
    before = replica.state()
    ranger.fault, ranger.location = fault, "http://127.0.0.1:9/"
    state = replica.sync()
    assert state.problem is not None and says in state.problem
    assert PASSWORD not in state.problem
    assert (state.confirmed_ms, state.download) == (before.confirmed_ms, before.download)
    assert replica.may(BOB)
    ranger.fault = None
    assert replica.sync().problem is None


def test_an_answer_without_policies_before_any_download_is_no_answer(lake: Lake, ranger: RangerAdmin) -> None:
    with _replica(lake) as replica:
        for status in (304, 204):
            ranger.fault = status, JSON, b""
            assert replica.sync().confirmed_ms is None
        with pytest.raises(StateUnavailable):
            replica.may(BOB)


def test_a_ranger_that_is_slow_is_given_up(tmp_path: Path, ranger: RangerAdmin) -> None:
    with (
        open_lake(tmp_path, **_settings(ranger, tmp_path, TIMEOUT_S=0.2)) as lake,
        _replica(lake) as replica,
    ):
        ranger.drip = True
        state = replica.sync()
        assert state.problem is not None and "took too long" in state.problem
        ranger.chunked = True
        state = replica.sync()
        assert state.problem is not None and "cannot be asked" in state.problem
        ranger.drip = False
        ranger.hold.clear()
        state = replica.sync()
        assert state.problem is not None and "cannot be asked" in state.problem


def test_credentials_are_sent_to_no_other_address(replica: Replica, ranger: RangerAdmin) -> None:
    with ranger_admin() as other:
        ranger.fault, ranger.location = (
            (307, JSON, b""),
            f"{other.url}/service/plugins/policies/download/hive",
        )
        assert replica.sync().problem is not None
        assert not other.asked


def test_policies_that_ranger_does_not_confirm_decide_nothing_after_their_age(
    replica: Replica, ranger: RangerAdmin, lake: Lake
) -> None:
    ranger.fault = 500, "text/html", b""
    replica.passes(MAX_AGE_S - 60)
    replica.sync()
    assert replica.may(BOB)
    replica.passes(60)
    replica.sync()
    with pytest.raises(StateUnavailable) as refusal:
        replica.may(BOB)
    assert refusal.value.rule == "policy-source-age" and "prod" in refusal.value.message
    with pytest.raises(StateUnavailable):
        # Also what no policy of Ranger grants: a denial of Ranger could be missing.
        replica.may(ALICE)
    with _replica(lake, replica.wall) as restarted, pytest.raises(StateUnavailable):
        restarted.may(BOB)
    ranger.fault = None
    replica.sync()
    assert replica.may(BOB)


def test_a_process_that_cannot_look_closes_by_its_own_clock(replica: Replica) -> None:
    replica.seconds.now += 5
    replica.services.policies.current()
    replica.seconds.now += MAX_AGE_S
    replica.wall.now -= timedelta(seconds=5)
    with pytest.raises(StateUnavailable):
        replica.services.policies.current()


def test_a_clock_that_goes_back_makes_no_policies_younger(
    replica: Replica, ranger: RangerAdmin, lake: Lake
) -> None:
    ranger.fault = 500, "text/html", b""
    replica.passes(MAX_AGE_S / 2)
    replica.sync()
    assert replica.may(BOB)
    replica.wall.now -= timedelta(seconds=MAX_AGE_S / 2)
    with pytest.raises(StateUnavailable):
        replica.may(BOB)
    with _replica(lake, replica.wall) as restarted, pytest.raises(StateUnavailable):
        restarted.may(BOB)
    ranger.fault = None
    replica.sync()
    assert replica.may(BOB)


def test_nothing_is_decided_before_ranger_was_asked(lake: Lake) -> None:
    with _replica(lake) as replica, pytest.raises(StateUnavailable) as refusal:
        replica.may(ALICE)
    assert refusal.value.rule == "policy-source-age"


def test_an_attempt_without_its_turn_changes_nothing(replica: Replica, ranger: RangerAdmin) -> None:
    """It was too slow: another process asked meanwhile, and has newer policies in force."""
    (source,) = _synchronizations(replica.services)
    slow = source.claim(force=True)
    assert slow is not None
    ranger.put(SERVICE, 3, [_granting("dave")])
    _sync_now(replica.services)
    ranger.put(SERVICE, 4, [_granting("erin")])
    with pytest.raises(StateUnavailable, match="meanwhile"):
        source.attempt(slow, Caller(Principal(ALICE), None, "request"), _unrecorded)
    assert replica.may("dave") and not replica.may("erin")
    source.close()


def _without_the_source(lake: Lake) -> Services:
    """A process whose settings do not name the source."""
    environ = {"DATABASE__URL": lake.settings.database.url.get_secret_value()}
    return Services.open(lake_settings(lake.root, **environ), lake.kms)


def test_documents_of_a_source_change_by_its_synchronization_alone(replica: Replica, lake: Lake) -> None:
    changes = replica.services.policy_changes
    caller = Caller(Principal(ALICE), None, "request")
    revision = replica.services.policy_documents.version().revision
    for content in (None, b'{"policies": []}'):
        with pytest.raises(RequestInvalid, match="policy source prod"):
            changes.make([Edit(DOCUMENT, content, revision)], caller, lambda _: None)
    with _without_the_source(lake) as without:
        # The source was removed from the settings: its age counts no more.
        assert without.authorizer.grants(AccessRequest(Principal(BOB), Resource.table("db", "t"), "select"))
        without.policy_changes.make([Edit(DOCUMENT, None, revision)], caller, lambda _: None)


def test_documents_that_are_gone_are_downloaded_again_although_ranger_has_no_newer_version(
    replica: Replica, lake: Lake, ranger: RangerAdmin
) -> None:
    revision = replica.services.policy_documents.version().revision
    with _without_the_source(lake) as without:
        caller = Caller(Principal(ALICE), None, "request")
        without.policy_changes.make([Edit(DOCUMENT, None, revision)], caller, lambda _: None)
    assert not replica.may(BOB)
    replica.sync()
    assert ranger.asked[-1].parameters["lastKnownVersion"] == "-1" and replica.may(BOB)


def test_an_older_version_is_put_in_force_only_if_an_operator_accepts_it(
    replica: Replica, ranger: RangerAdmin
) -> None:
    ranger.put(SERVICE, 0, [_granting("dave")])
    assert "went back" in str(replica.sync().problem)
    (source,) = _synchronizations(replica.services)
    claim = source.claim(force=True)
    assert claim is not None
    caller = Caller(Principal(ALICE), None, "request")
    source.attempt(claim, caller, _unrecorded, accept_older=True)
    source.close()
    assert replica.may("dave") and replica.sync().problem is None


def test_a_version_that_went_back_and_came_again_by_other_changes_is_downloaded(
    replica: Replica, ranger: RangerAdmin
) -> None:
    ranger.put(SERVICE, 0, [])
    assert "went back" in str(replica.sync().problem)
    ranger.put(SERVICE, 1, [_granting("dave")])
    assert replica.sync().problem is None
    assert replica.may("dave") and not replica.may(BOB)


def test_policies_of_one_time_are_not_put_in_force_with_roles_of_another(
    tmp_path: Path, ranger: RangerAdmin
) -> None:
    granting = _granting("erin")
    granting["policyItems"][0]["roles"] = ["analyst"]
    ranger.put(SERVICE, 1, [granting])
    ranger.put_roles(SERVICE, 1, [])

    def change(asked: Asked) -> None:
        # Between the downloads, the role loses the table, and then gets a new member.
        if asked.what == "policies" and ranger.documents[SERVICE, "policies"]["policyVersion"] == 1:
            ranger.put(SERVICE, 2, [])
            ranger.put_roles(SERVICE, 2, [{"name": "analyst", "users": [{"name": "dave"}]}])

    ranger.after = change
    with open_lake(tmp_path, **_settings(ranger, tmp_path, ROLES="true")) as lake, _replica(lake) as replica:
        state = replica.sync()
        assert state.download is not None and state.download.versions == {"policies": 2, "roles": 2}
        assert not replica.may("dave")


def test_a_ranger_whose_policies_change_during_every_download_is_no_answer(
    tmp_path: Path, ranger: RangerAdmin
) -> None:
    ranger.put_roles(SERVICE, 1, [])
    versions = itertools.count(2)
    ranger.after = lambda asked: ranger.put(SERVICE, next(versions), [_granting(BOB)])
    with open_lake(tmp_path, **_settings(ranger, tmp_path, ROLES="true")) as lake, _replica(lake) as replica:
        assert "changed during every download" in str(replica.sync().problem)
        ranger.after = lambda asked: None
        assert replica.sync().problem is None and replica.may(BOB)


def test_a_role_that_cannot_be_taken_refuses_everything(tmp_path: Path, ranger: RangerAdmin) -> None:
    # Policies of another source, or of the catalog, can deny to it.
    ranger.put_roles(SERVICE, 1, [{"name": "intern", "users": [{"name": "dave"}], "isEnabled": False}])
    settings = _settings(ranger, tmp_path, ROLES="true", PARTIAL="true")
    with open_lake(tmp_path, **settings) as lake, _replica(lake) as replica:
        assert "disabled roles are not supported" in str(replica.sync().problem)


def test_policies_on_tags_that_deny_are_not_put_in_force_without_tags(
    tmp_path: Path, ranger: RangerAdmin
) -> None:
    denial = {"users": [BOB], "accesses": [{"type": "hive:select"}]}
    on_tag = {"name": "pii", "resources": {"tag": {"values": ["PII"]}}, "denyPolicyItems": [denial]}
    ranger.put(SERVICE, 2, [_granting(BOB)], tagPolicies={"policies": [on_tag]})
    with open_lake(tmp_path, **_settings(ranger, tmp_path)) as lake, _replica(lake) as replica:
        assert "for a source set `tags`" in str(replica.sync().problem)


def test_a_download_without_policies_is_put_in_force_and_told(
    replica: Replica, ranger: RangerAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    ranger.put(SERVICE, 2, [_granting(BOB, f"p{n}") for n in range(5)])
    replica.sync()
    ranger.put(SERVICE, 3, [])
    with caplog.at_level(logging.WARNING, "lakewarden.policies"):
        replica.sync()
    assert "0, from 5" in caplog.text
    assert not replica.may(BOB)
    found = audit_reading.read(
        replica.services.engine, since_ms=None, principal="lakewarden", table=None, before=None, limit=10
    )
    details = [reason.detail for each in found for reason in each.record.reasons]
    assert any("removed: policy 'p0'" in each for each in details)
    assert any("versions: policies 3; 0 policies" in each for each in details)


def test_a_lock_out_by_ranger_is_put_in_force_and_told(
    replica: Replica, ranger: RangerAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    """To keep the policies before would keep what Ranger revoked."""
    replica.services.tokens.issue(Principal(ALICE), "user", None)
    denial = policy("nobody", {"service": ["*"]}, {})
    denial["denyPolicyItems"] = [{"groups": ["public"], "accesses": [{"type": "admin"}]}]
    ranger.put(SERVICE, 2, [denial])
    with caplog.at_level(logging.WARNING, "lakewarden.policies"):
        assert replica.sync().problem is None
    assert "no current user could administer the catalog" in caplog.text
    assert not replica.may(BOB)


def test_failures_that_repeat_are_told_once(
    replica: Replica, ranger: RangerAdmin, caplog: pytest.LogCaptureFixture
) -> None:
    ranger.fault = 500, "text/html", b""
    with caplog.at_level(logging.WARNING, "lakewarden.policies"):
        for _ in range(3):
            replica.sync()
        ranger.fault = None
        replica.sync()
    told = [record.message for record in caplog.records]
    assert len(told) == 2 and "500" in told[0] and "again" in told[1]


def test_rules_for_encryption_of_the_same_name_are_left_alone(replica: Replica, ranger: RangerAdmin) -> None:
    rules = DocumentId(Kind.ENCRYPTION, "ranger.prod")
    caller = Caller(Principal(ALICE), None, "request")
    replica.services.policy_changes.make([Edit(rules, b'{"rules": []}', None)], caller, lambda _: None)
    ranger.put(SERVICE, 2, [])
    assert replica.sync().problem is None
    assert rules in replica.services.policy_documents.current().documents


def test_each_source_has_its_documents_and_its_age(tmp_path: Path, ranger: RangerAdmin) -> None:
    ranger.put("other", 7, [_granting("dave", "of the other")])
    both = _settings(ranger, tmp_path) | _settings(ranger, tmp_path, "TEST", SERVICE="other")
    with open_lake(tmp_path, **both) as lake, _replica(lake) as replica:
        replica.source.look()
        with pytest.raises(StateUnavailable, match="test"):
            replica.may(BOB)
        for each in sources_of(replica.services):
            each.look()
            each.close()
        assert replica.may(BOB) and replica.may("dave")


def test_the_service_synchronizes_in_the_background(lake: Lake, ranger: RangerAdmin) -> None:
    sync = PolicySync(lake.services)
    try:
        while not (found := lake.services.policies.sources.last) or found[0].confirmed_ms is None:
            lake.services.policies.sources.look()
    finally:
        sync.close()
    assert ranger.asked and lake.services.policies.current()


def test_a_process_that_heard_from_ranger_decides_at_once(lake: Lake) -> None:
    with _replica(lake) as replica:
        replica.source.look()
        assert replica.services.policies.current()


def test_roles_tags_and_users_come_with_the_policies(tmp_path: Path, ranger: RangerAdmin) -> None:
    granting = _granting(BOB)
    granting["policyItems"][0]["roles"] = ["analyst"]
    ranger.put(SERVICE, 1, [granting])
    ranger.put_roles(SERVICE, 1, [{"name": "analyst", "users": [{"name": "erin"}]}])
    ranger.documents[SERVICE, "tags"] = {
        "op": "add_or_update",
        "serviceName": SERVICE,
        "tagVersion": 1,
        "tagDefinitions": {},
        "tags": {},
        "serviceResources": [],
        "resourceToTagIds": {},
    }
    ranger.documents[SERVICE, "users"] = {"userStoreVersion": 1, "userAttrMapping": {BOB: {"dept": "a"}}}
    settings = _settings(ranger, tmp_path, ROLES="true", TAGS="true", USERS="true")
    with open_lake(tmp_path, **settings) as lake, _replica(lake) as replica:
        assert replica.sync().problem is None
        stored = replica.services.policy_documents.current().documents
        kinds = {each.kind for each in stored if each.name == "ranger.prod"}
        assert kinds == {Kind.RANGER, Kind.TAGS, Kind.USERS}
        assert replica.may("erin")
        ranger.put_roles(SERVICE, 2, [{"name": "analyst", "users": [{"name": "dave"}]}])
        state = replica.sync()
        assert state.download is not None and state.download.versions["roles"] == 2
        assert replica.may("dave") and not replica.may("erin")
        del ranger.documents[SERVICE, "roles"]
        assert "no such service" in str(replica.sync().problem) and replica.may("dave")


def test_refused_grants_are_left_out_only_if_the_settings_say_so(tmp_path: Path, ranger: RangerAdmin) -> None:
    odd = policy("odd", {"database": ["db"], "table": ["${{USER.x}}"], "column": ["*"]}, {BOB: ["select"]})
    ranger.put(SERVICE, 1, [_granting(BOB), odd])
    for partial in (False, True):
        root = tmp_path / str(partial)
        root.mkdir()
        settings = _settings(ranger, root, PARTIAL=str(partial).lower())
        with open_lake(root, **settings) as lake, _replica(lake) as replica:
            state = replica.sync()
            assert (state.problem is None) is partial
            if partial:
                assert state.download is not None and state.download.left_out == 1
                assert replica.may(BOB)
            else:
                assert "'odd'" in str(state.problem) and "`partial`" in str(state.problem)


def test_a_denial_that_cannot_be_taken_refuses_everything(tmp_path: Path, ranger: RangerAdmin) -> None:
    denial = policy("odd", tables("db"), {})
    denial["denyPolicyEntries"] = [{"groups": ["public"], "accesses": [{"type": "select"}]}]
    ranger.put(SERVICE, 1, [_granting(BOB), denial])
    settings = _settings(ranger, tmp_path, PARTIAL="true")
    with open_lake(tmp_path, **settings) as lake, _replica(lake) as replica:
        assert "'odd'" in str(replica.sync().problem)
        with pytest.raises(StateUnavailable):
            replica.may(BOB)
