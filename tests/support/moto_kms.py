"""AWS KMS as moto serves it, over real HTTP, with what moto leaves out.

moto's KMS opens with disabled keys, does not say which key does not fit, ignores SourceKeyId, and wraps by
one key material for ever. Here it answers as AWS documents.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto.core.exceptions import JsonRESTError
from moto.kms.models import KmsBackend
from moto.kms.responses import KmsResponse
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from catalog.kms.aws import AwsKms
from catalog.settings.kms_options import AwsKmsOptions
from tests.support.kms_backends import Backend
from tests.support.moto_server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY

ACCOUNT = "123456789012"


class _Refusal(JsonRESTError):
    code = 400


@dataclass
class MotoKms:
    """A running server with two master keys, known by their aliases.

    Attributes:
        endpoint: its URL.
        admin: a boto3 client for what administrators do.
        lake: an alias.
        pii: another one.
        materials: for each ciphertext, how often its key had been rotated when it was made.
        stop: ends the server.
    """

    endpoint: str
    admin: Any
    stop: Callable[[], None]
    lake: str = field(default_factory=lambda: f"alias/lake-{uuid4().hex}")
    pii: str = field(default_factory=lambda: f"alias/pii-{uuid4().hex}")
    materials: dict[bytes, int] = field(default_factory=dict)

    def create(self, alias: str) -> str:
        """A new master key behind an alias; returns its id."""
        key_id = str(self.admin.create_key()["KeyMetadata"]["KeyId"])
        self.admin.create_alias(AliasName=alias, TargetKeyId=key_id)
        return key_id

    def key_id(self, alias: str) -> str:
        """The id of the key behind an alias."""
        return str(self.admin.describe_key(KeyId=alias)["KeyMetadata"]["KeyId"])

    def arn(self, alias: str) -> str:
        """The ARN of the key behind an alias."""
        return str(self.admin.describe_key(KeyId=alias)["KeyMetadata"]["Arn"])

    def options(self, **others: Any) -> AwsKmsOptions:
        """How a client reaches it."""
        given = {
            "region": REGION,
            "endpoint": self.endpoint,
            "access_key_id": ACCESS_KEY_ID,
            "secret_access_key": SECRET_ACCESS_KEY,
        }
        return AwsKmsOptions.model_validate({**given, **others})


@contextmanager
def moto_kms() -> Iterator[MotoKms]:
    """Start a server of its own."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with pytest.MonkeyPatch.context() as patch:
        server = make_server("127.0.0.1", 0, _application(), threaded=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        endpoint = f"http://127.0.0.1:{server.port}"
        admin = boto3.client(
            "kms",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY_ID,
            aws_secret_access_key=SECRET_ACCESS_KEY,
        )
        kms = MotoKms(endpoint, admin, stop)
        _answer_as_aws_does(patch, kms)
        kms.create(kms.lake)
        kms.create(kms.pii)
        try:
            yield kms
        finally:
            if thread.is_alive():
                stop()


@cache
def _application() -> DomainDispatcherApplication:
    """Its state is moto's, of the whole process."""
    return DomainDispatcherApplication(create_backend_app)


def _answer_as_aws_does(patch: pytest.MonkeyPatch, kms: MotoKms) -> None:
    encrypt, decrypt, re_encrypt = KmsBackend.encrypt, KmsBackend.decrypt, KmsResponse.re_encrypt

    def usable(backend: KmsBackend, key_id: str) -> Any:
        key = backend.keys[backend.any_id_to_key_id(key_id)]
        if key.key_state != "Enabled":
            kind = "DisabledException" if key.key_state == "Disabled" else "KMSInvalidStateException"
            raise _Refusal(kind, f"{key.arn} is {key.key_state}.")
        return key

    def checked_encrypt(
        self: KmsBackend, key_id: str, plaintext: bytes, encryption_context: dict[str, str]
    ) -> tuple[bytes, str]:
        key = usable(self, key_id)
        blob, arn = encrypt(self, key_id, plaintext, encryption_context)
        kms.materials[blob] = len(key.rotations)
        return blob, arn

    def checked_decrypt(
        self: KmsBackend,
        ciphertext_blob: bytes,
        encryption_context: dict[str, str],
        key_id: str | None = None,
    ) -> tuple[bytes, str]:
        plaintext, arn = decrypt(self, ciphertext_blob, encryption_context)
        if key_id is not None and usable(self, key_id).arn != arn:
            raise _Refusal("IncorrectKeyException", "The key ID in the request does not identify a CMK.")
        usable(self, arn.rpartition("/")[2])
        return plaintext, arn

    def checked_re_encrypt(self: KmsResponse) -> str:
        self.kms_backend.decrypt(
            self._get_param("CiphertextBlob"),
            self._get_param("SourceEncryptionContext", {}),
            self._get_param("SourceKeyId"),
        )
        return str(re_encrypt(self))

    patch.setattr(KmsBackend, "encrypt", checked_encrypt)
    patch.setattr(KmsBackend, "decrypt", checked_decrypt)
    patch.setattr(KmsResponse, "re_encrypt", checked_re_encrypt)


@contextmanager
def aws(_: Path) -> Iterator[Backend]:
    """AWS KMS with the master keys behind two aliases."""
    with moto_kms() as kms:
        yield Backend(
            AwsKms.connect(kms.options()),
            kms.lake,
            kms.pii,
            again=lambda: AwsKms.connect(kms.options()),
            disable=lambda alias: kms.admin.disable_key(KeyId=kms.key_id(alias)),
            enable=lambda alias: kms.admin.enable_key(KeyId=kms.key_id(alias)),
            rotate=lambda alias: kms.admin.rotate_key_on_demand(KeyId=kms.key_id(alias)),
            version_of=lambda wrapped: kms.materials[_blob(wrapped)],
            stop=kms.stop,
        )


def _blob(wrapped: bytes) -> bytes:
    name_end = 2 + wrapped[1]
    return wrapped[name_end + 1 + wrapped[name_end] :]
