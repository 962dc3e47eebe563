"""A real Transit engine says what `tests.support.transit_server` says: one server for all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from catalog.kms.interface import KeyContext
from catalog.kms.vault import VaultKms
from catalog.settings.kms_options import VaultKmsOptions
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable
from tests.support.vault_server import RealVault, documented_policy, real_vault

pytestmark = pytest.mark.interop
CONTEXT = KeyContext("prod", UUID(int=1))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealVault]:
    with real_vault(tmp_path_factory.mktemp("vault")) as running:
        yield running


@pytest.fixture
def lake(server: RealVault) -> str:
    """A new derived Transit key."""
    name = f"lake-{uuid4().hex}"
    server.call("POST", f"transit/keys/{name}", {"derived": True})
    return name


def client(server: RealVault, **options: Any) -> VaultKms:
    if not {"token", "role_id"} & set(options):
        options["token"] = server.token(documented_policy())
    return VaultKms.connect(VaultKmsOptions.model_validate({"url": server.url, **options}))


def test_token_that_is_unknown_or_revoked_is_an_outage(server, lake):
    kms = client(server)
    token = server.token(documented_policy())
    kms = client(server, token=token)
    wrapped, key = kms.create_key(lake, 32, CONTEXT)
    assert kms.get_key(wrapped, CONTEXT) == key
    server.call("POST", "auth/token/revoke", {"token": token})
    for each in (kms, client(server, token="hvs.unknown")):
        with pytest.raises(KmsUnavailable, match="token"):
            each.get_key(wrapped, CONTEXT)


def test_missing_right_is_no_outage(server, lake):
    wrapped, _ = client(server).create_key(lake, 32, CONTEXT)
    kms = client(server, token=server.token('path "transit/keys/+" { capabilities = ["read"] }'))
    with pytest.raises(KeyNotUsable, match="no permission"):
        kms.get_key(wrapped, CONTEXT)
    with pytest.raises(KeyNotUsable, match="no permission"):
        kms.rewrap_keys([(wrapped, CONTEXT)])


def test_approle_logs_in_again_when_its_token_is_revoked(server, lake):
    if "approle/" not in server.call("GET", "sys/auth")["data"]:
        server.call("POST", "sys/auth/approle", {"type": "approle"})
    policy = server.policy(documented_policy())
    server.call("POST", "auth/approle/role/catalog", {"token_policies": [policy], "token_ttl": "10m"})
    role = server.call("GET", "auth/approle/role/catalog/role-id")["data"]["role_id"]
    secret = server.call("POST", "auth/approle/role/catalog/secret-id", {})["data"]["secret_id"]
    kms = client(server, role_id=role, secret_id=secret)
    wrapped, key = kms.create_key(lake, 32, CONTEXT)
    token = kms._identity.token().reveal().decode()
    server.call("POST", "auth/token/revoke", {"token": token})
    assert kms.get_key(wrapped, CONTEXT) == key
    with pytest.raises(KmsUnavailable):
        client(server, role_id=role, secret_id="wrong").get_key(wrapped, CONTEXT)


def test_namespaces_part_keys(server, lake):
    spaces = server.call("GET", "sys/mounts")
    assert "transit/" in spaces["data"]
    name = f"team-{uuid4().hex}"
    try:
        server.call("POST", f"sys/namespaces/{name}", {})
    except httpx.HTTPStatusError:
        pytest.skip("this server has no namespaces")
    with server.inside(name) as inner:
        inner.call("POST", "sys/mounts/transit", {"type": "transit"})
        inner.call("POST", f"transit/keys/{lake}", {"derived": True})
        kms = client(server, namespace=name, token=inner.token(documented_policy()))
    wrapped, key = kms.create_key(lake, 32, CONTEXT)
    assert kms.get_key(wrapped, CONTEXT) == key
    with pytest.raises(DecryptionRefused):
        client(server).get_key(wrapped, CONTEXT)


def test_key_that_is_not_derived_is_refused(server):
    server.call("POST", "transit/keys/flat", {})
    with pytest.raises(KeyNotUsable, match="derived"):
        client(server).create_key("flat", 32, CONTEXT)


@pytest.mark.parametrize("kind", ["aes128-gcm96", "aes256-gcm96", "chacha20-poly1305"])
def test_every_kind_of_derived_key_serves(server, lake, kind):
    server.call("POST", f"transit/keys/{lake}-k", {"derived": True, "type": kind})
    kms = client(server)
    wrapped, key = kms.create_key(f"{lake}-k", 24, CONTEXT)
    (moved,) = kms.rewrap_keys([(wrapped, CONTEXT)])
    assert kms.get_key(moved, CONTEXT) == kms.get_key(wrapped, CONTEXT) == key


def test_version_below_the_smallest_allowed_is_not_usable(server, lake):
    kms = client(server)
    wrapped, key = kms.create_key(lake, 32, CONTEXT)
    server.call("POST", f"transit/keys/{lake}/rotate", {})
    (moved,) = kms.rewrap_keys([(wrapped, CONTEXT)])
    server.call("POST", f"transit/keys/{lake}/config", {"min_decryption_version": 2})
    assert kms.get_key(moved, CONTEXT) == key
    with pytest.raises(KeyNotUsable):
        kms.get_key(wrapped, CONTEXT)
    with pytest.raises(KeyNotUsable):
        kms.rewrap_keys([(moved, CONTEXT), (wrapped, CONTEXT)])


def test_deleted_key_is_not_usable(server, lake):
    kms = client(server)
    wrapped, _ = kms.create_key(lake, 32, CONTEXT)
    server.call("POST", f"transit/keys/{lake}/config", {"deletion_allowed": True})
    server.call("DELETE", f"transit/keys/{lake}")
    for call in (
        lambda: kms.get_key(wrapped, CONTEXT),
        lambda: kms.create_key(lake, 32, CONTEXT),
        lambda: kms.rewrap_keys([(wrapped, CONTEXT)]),
    ):
        with pytest.raises(KeyNotUsable):
            call()
    server.call("POST", f"transit/keys/{lake}", {"derived": True})
    with pytest.raises(DecryptionRefused):
        kms.get_key(wrapped, CONTEXT)


def test_absent_engine_is_no_outage(server, lake):
    wrapped, _ = client(server).create_key(lake, 32, CONTEXT)
    with pytest.raises(KeyNotUsable):
        client(server, mount="absent").get_key(wrapped, CONTEXT)


def test_sealed_server_is_an_outage(tmp_path):
    with real_vault(tmp_path) as server:
        server.call("POST", "transit/keys/lake", {"derived": True})
        kms = client(server)
        wrapped, _ = kms.create_key("lake", 32, CONTEXT)
        server.call("POST", "sys/seal", {})
        with pytest.raises(KmsUnavailable, match="503"):
            kms.get_key(wrapped, CONTEXT)
