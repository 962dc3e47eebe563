"""Hadoop's own client against the KMS endpoint: the classes that Spark brings along."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from catalog.kms_server.hadoop_token import credentials_file
from tests.support.jvm import open_jvm
from tests.support.kms_endpoint import make_key
from tests.support.lake import ALICE, BOB
from tests.support.service import Service

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with open_jvm() as gateway:
        yield gateway.jvm


def provider(
    jvm: Any, served: Service, user: str, credentials: bytes | None = None, at: Path | None = None
) -> Any:
    """A client as `user`, by name or by a file of credentials."""
    security = jvm.org.apache.hadoop.security
    ugi = security.UserGroupInformation.createRemoteUser(user)
    conf = jvm.org.apache.hadoop.conf.Configuration()
    if credentials is not None and at is not None:
        (at / "credentials").write_bytes(credentials)
        path = jvm.java.io.File(str(at / "credentials"))
        ugi.addCredentials(security.Credentials.readTokenStorageFile(path, conf))
    # A client takes the user of the thread that makes it, or who logged in; py4j's threads have none.
    security.UserGroupInformation.setLoginUser(ugi)
    made = jvm.org.apache.hadoop.util.KMSUtil.createKeyProviderFromUri(
        conf, jvm.java.net.URI.create(uri(served))
    )
    extension = jvm.org.apache.hadoop.crypto.key.KeyProviderCryptoExtension
    return extension.createKeyProviderCryptoExtension(made)


def uri(served: Service) -> str:
    return f"kms://http@localhost:{served.url.rpartition(':')[2]}/kms"


def options(jvm: Any) -> Any:
    conf = jvm.org.apache.hadoop.conf.Configuration()
    return jvm.org.apache.hadoop.crypto.key.KeyProvider.options(conf).setBitLength(256)


def failure(call: Any) -> tuple[str, str]:
    """The Java exception that a call throws."""
    with pytest.raises(Py4JJavaError) as caught:
        call()
    thrown = caught.value.java_exception
    return thrown.getClass().getName(), thrown.getMessage()


def test_client_makes_lists_rolls_and_describes_keys(jvm: Any, served: Service, name: str) -> None:
    client = provider(jvm, served, ALICE)
    made = client.createKey(name, options(jvm).setDescription("of people"))
    assert (made.getVersionName(), made.getMaterial()) == (f"{name}@0", None)
    assert client.rollNewVersion(name).getVersionName() == f"{name}@1"
    metadata = client.getMetadata(name)
    assert (metadata.getBitLength(), metadata.getDescription()) == (256, "of people")
    assert (metadata.getVersions(), metadata.getCipher()) == (2, "AES/CTR/NoPadding")
    assert [each.getVersionName() for each in client.getKeyVersions(name)] == [f"{name}@0", f"{name}@1"]
    assert client.getCurrentKey(name).getVersionName() == f"{name}@1"
    assert client.getKeyVersion(f"{name}@0").getVersionName() == f"{name}@0"
    assert name in list(client.getKeys())
    assert client.getMetadata("unmade") is None


def test_client_generates_decrypts_and_reencrypts(jvm: Any, served: Service, name: str) -> None:
    make_key(served.lake, name)
    client = provider(jvm, served, ALICE)
    made = client.generateEncryptedKey(name)
    inside = client.decryptEncryptedKey(made).getMaterial()
    assert len(inside) == 32 and inside != made.getEncryptedKeyVersion().getMaterial()
    client.rollNewVersion(name)
    moved = client.reencryptEncryptedKey(made)
    assert moved.getEncryptionKeyVersionName() == f"{name}@1"
    batch = jvm.java.util.ArrayList()
    for each in (made, moved):
        batch.add(each)
    client.reencryptEncryptedKeys(batch)
    assert [each.getEncryptionKeyVersionName() for each in batch] == [f"{name}@1"] * 2
    opened = [client.decryptEncryptedKey(each).getMaterial() for each in (made, moved, *batch)]
    assert opened == [inside] * 4


def test_client_without_the_right_throws_what_orc_does_not_take_for_masks(
    jvm: Any, served: Service, name: str
) -> None:
    make_key(served.lake, name)
    made = provider(jvm, served, ALICE).generateEncryptedKey(name)
    kind, message = failure(lambda: provider(jvm, served, BOB).decryptEncryptedKey(made))
    assert kind == "java.lang.SecurityException"
    assert "bob is not authorized" in message and "release" in message


def test_client_with_a_file_of_credentials_needs_no_name(
    jvm: Any, served: Service, name: str, tmp_path: Path
) -> None:
    make_key(served.lake, name)
    now = datetime.now(UTC)
    tokens = served.lake.services.tokens
    issued = tokens.issue(served.lake.caller(ALICE).principal, "kms", None)
    given = credentials_file(issued.text, ALICE, uri(served), now, None)
    # Whatever user the process names, the token says who calls.
    client = provider(jvm, served, "dave", given, tmp_path)
    made = client.generateEncryptedKey(name)
    assert len(client.decryptEncryptedKey(made).getMaterial()) == 32
    tokens.revoke(issued.id)
    kind, message = failure(lambda: client.decryptEncryptedKey(made))
    assert kind == "java.lang.SecurityException" and "token" in message


def test_client_shows_an_outage_as_an_error_of_its_own(jvm: Any, served: Service, name: str) -> None:
    make_key(served.lake, name)
    client = provider(jvm, served, ALICE)
    made = client.generateEncryptedKey(name)
    services, keystore = served.lake.services, served.lake.settings.kms.options.keystore
    services.keyring._cache.forget(services.endpoint_keys.find(name).wrapping.id)
    away = keystore.rename(keystore.with_name("away"))
    try:
        assert failure(lambda: client.decryptEncryptedKey(made))[0] == "java.lang.IllegalStateException"
    finally:
        away.rename(keystore)
