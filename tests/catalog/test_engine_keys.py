"""Keys of engines: how long they last, what is remembered of their signatures, and what is signed."""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import Engine, func, select

from catalog.authorization.engine_keys import KEY_IDLE, WINDOW, EngineKeys
from catalog.authorization.nonces import SeenNonces, SharedNonces
from catalog.authorization.principals import NO_PROVIDERS
from catalog.authorization.tokens import IssuedToken, TokenStore
from catalog.authorization.user_deletion import delete_user
from catalog.crypto.request_signatures import RequestSignature, SignatureParameters, SignedRequest, sign
from catalog.db.engine import open_database, read
from catalog.db.schema import lw_engine_key
from policy.errors import NotAuthenticated, StateUnavailable
from policy.principal import Principal
from tests.support.databases import upgrade

BODY = hashlib.sha256(b"").digest()
REQUEST = SignedRequest("POST", "/engine/v1/tables/a/b/load", "", "Bearer lw_x", None, BODY)
KEY_ID = uuid.UUID(int=1)


class _Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class _Engines:
    """A store of keys with its clock, and an engine that signs by the same clock."""

    def __init__(self, database: Engine) -> None:
        self.clock, self.database = _Clock(), database
        self.tokens = TokenStore(database, self.clock)
        self.keys = EngineKeys(database, self.tokens, self.clock)
        self.private = Ed25519PrivateKey.generate()

    def issue(self, reusable: bool = False, ttl: timedelta | None = None) -> IssuedToken:
        kind = "engine-reusable" if reusable else "engine"
        return self.tokens.issue(Principal("spark"), kind, ttl)

    def start(self, token: IssuedToken) -> uuid.UUID:
        """Register a new key."""
        self.private = Ed25519PrivateKey.generate()
        public = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return self.keys.register(self.keys.bootstrap(token.text), public).id

    def ask(self, key_id: uuid.UUID) -> Principal:
        """Send a signed request."""
        created = int(self.clock.now.timestamp())
        headers = sign(REQUEST, self.private, SignatureParameters.new(key_id, created))
        signature = RequestSignature.parse(headers["Signature-Input"], headers["Signature"])
        return self.keys.authenticate(signature, REQUEST).principal

    def stored(self) -> int:
        with read(self.database) as connection:
            return connection.execute(select(func.count()).select_from(lw_engine_key)).scalar_one()


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[_Engines]:
    database = open_database(f"sqlite:///{tmp_path}/lakewarden.db")
    upgrade(database)
    yield _Engines(database)
    database.dispose()


def test_a_key_in_use_lasts_and_an_idle_one_ends(engines: _Engines) -> None:
    key_id = engines.start(engines.issue(ttl=timedelta(minutes=10)))
    for _ in range(4):
        engines.clock.now += KEY_IDLE - timedelta(hours=2)
        assert engines.ask(key_id) == Principal("spark")
    engines.clock.now += KEY_IDLE
    with pytest.raises(NotAuthenticated):
        engines.ask(key_id)


def test_an_expired_token_registers_nothing(engines: _Engines) -> None:
    token = engines.issue(ttl=timedelta(minutes=10))
    engines.clock.now += timedelta(minutes=10)
    with pytest.raises(NotAuthenticated):
        engines.start(token)


def test_a_token_revoked_between_two_steps_registers_nothing(engines: _Engines) -> None:
    for reusable in (False, True):
        token = engines.issue(reusable)
        known = engines.keys.bootstrap(token.text)
        engines.tokens.revoke(token.id)
        with pytest.raises(NotAuthenticated):
            engines.keys.register(known, bytes(32))
    assert engines.stored() == 0


@pytest.mark.parametrize("how", ["revoked", "deleted"])
def test_all_keys_of_an_engine_end_with_its_tokens_also_of_those_that_have_expired(
    engines: _Engines, how: str
) -> None:
    """Attack: a key that outlived its token answers for a later engine of the same name."""
    key_id = engines.start(engines.issue(ttl=timedelta(minutes=10)))
    engines.clock.now += timedelta(hours=1)
    assert engines.ask(key_id) == Principal("spark")
    if how == "revoked":
        assert engines.tokens.revoke_all("spark") == 0
    else:
        assert delete_user(engines.database, NO_PROVIDERS, engines.clock.now, "spark") == 0
    engines.issue()
    with pytest.raises(NotAuthenticated):
        engines.ask(key_id)


def test_a_key_of_two_tokens_ends_with_neither_for_the_other(engines: _Engines) -> None:
    """A token of one's own does not end, or take over, what another one registered."""
    private = Ed25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    one, other = engines.issue(), engines.issue()
    ids = [engines.keys.register(engines.keys.bootstrap(each.text), public).id for each in (one, other)]
    engines.private = private
    engines.tokens.revoke(one.id)
    assert engines.ask(ids[1]) == Principal("spark")
    with pytest.raises(NotAuthenticated):
        engines.ask(ids[0])


def test_earlier_keys_of_a_reusable_token_leave_nothing_behind(engines: _Engines) -> None:
    token = engines.issue(reusable=True)
    for _ in range(5):
        engines.start(token)
        engines.clock.now += KEY_IDLE
    assert engines.stored() == 1


def test_nonces_are_remembered_for_as_long_as_they_could_be_repeated() -> None:
    nonces = SeenNonces(keep_ms=100, capacity=3)
    assert nonces.is_first(KEY_ID, "a", 0)
    assert not nonces.is_first(KEY_ID, "a", 99)
    assert nonces.is_first(uuid.UUID(int=2), "a", 99)
    assert nonces.is_first(KEY_ID, "a", 100)


def test_nonces_that_are_too_many_to_remember_are_refused_and_none_is_forgotten() -> None:
    nonces = SeenNonces(keep_ms=100, capacity=3)
    assert all(nonces.is_first(KEY_ID, str(each), 0) for each in range(3))
    with pytest.raises(StateUnavailable):
        nonces.is_first(KEY_ID, "more", 50)
    assert not nonces.is_first(KEY_ID, "0", 50)
    assert nonces.is_first(KEY_ID, "more", 100)


def test_what_one_worker_has_taken_no_other_takes_and_none_that_takes_its_place() -> None:
    shared = SharedNonces(2)

    def worker(number: int) -> SeenNonces:
        nonces = SeenNonces(keep_ms=100)
        nonces.share(shared, number)
        return nonces

    one, other = worker(0), worker(1)
    assert one.is_first(KEY_ID, "a", 0)
    assert not other.is_first(KEY_ID, "a", 99)
    assert other.is_first(uuid.UUID(int=2), "a", 99)
    assert not worker(0).is_first(KEY_ID, "a", 99)
    assert not worker(1).is_first(uuid.UUID(int=2), "a", 99)
    assert worker(0).is_first(KEY_ID, "a", 300)


@pytest.mark.nightly
def test_workers_find_each_of_many_nonces() -> None:
    shared = SharedNonces(2)
    one, other = SeenNonces(keep_ms=100), SeenNonces(keep_ms=100)
    one.share(shared, 0)
    other.share(shared, 1)
    for start in (0, 100):
        taken = [str(each) for each in range(20_000)]
        assert all(one.is_first(KEY_ID, each, start) for each in taken)
        assert not any(other.is_first(KEY_ID, each, start) for each in taken[::50])


def test_a_signature_from_the_future_serves_once_too(engines: _Engines) -> None:
    key_id = engines.start(engines.issue())
    created = int((engines.clock.now + WINDOW).timestamp())
    headers = sign(REQUEST, engines.private, SignatureParameters.new(key_id, created))
    signature = RequestSignature.parse(headers["Signature-Input"], headers["Signature"])
    assert engines.keys.authenticate(signature, REQUEST)
    for _ in range(5):
        with pytest.raises(NotAuthenticated):
            engines.keys.authenticate(signature, REQUEST)
        engines.clock.now += WINDOW / 2


def test_what_is_signed_is_written_as_rfc_9421_says() -> None:
    """The private key is that of RFC 9421, appendix B.1.4; the base is spelled out here."""
    private = Ed25519PrivateKey.from_private_bytes(
        base64.urlsafe_b64decode("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU=")
    )
    body = hashlib.sha256(b"{}").digest()
    path = "/engine/v1/tables/a%1Fb/t/plan"
    request = SignedRequest("POST", path, "a=b", "Bearer lw_x", "018f3f3e", body)
    headers = sign(request, private, SignatureParameters(1618884473, "A" * 22, KEY_ID))
    parameters = (
        '("@method" "@path" "@query" "authorization" "idempotency-key" "content-digest")'
        ';created=1618884473;nonce="AAAAAAAAAAAAAAAAAAAAAA";keyid="00000000-0000-0000-0000-000000000001"'
        ';alg="ed25519";tag="lakewarden-engine"'
    )
    digest = "sha-256=:RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o=:"
    base = (
        '"@method": POST\n'
        '"@path": /engine/v1/tables/a%1Fb/t/plan\n'
        '"@query": ?a=b\n'
        '"authorization": Bearer lw_x\n'
        '"idempotency-key": 018f3f3e\n'
        f'"content-digest": {digest}\n'
        f'"@signature-params": {parameters}'
    )
    signed = base64.b64encode(private.sign(base.encode())).decode()
    assert headers == {
        "Content-Digest": digest,
        "Signature-Input": f"lakewarden={parameters}",
        "Signature": f"lakewarden=:{signed}:",
    }
