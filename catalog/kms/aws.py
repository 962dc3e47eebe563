"""AWS KMS: data keys of symmetric master keys, bound to an encryption context.

Rules:
- A new key is a data key (GenerateDataKey); a given one is encrypted (Encrypt). Its encryption context names
  catalog, table and master key, so it opens for no other, and CloudTrail shows which table was opened.
- The key that decrypts is named in the request (Decrypt with KeyId, ReEncrypt with SourceKeyId), and the one
  that AWS says it used is compared: a blob does not choose its key.
- An ARN is used only if it is of the client's region and its account is listed in the settings. Ids and
  aliases are looked up by AWS in the caller's own account. So neither a table's property nor a stored blob
  can send the catalog to a key of another account.
- A wrapped key names the KMS key behind an alias: when the alias points to a new key, new keys are wrapped by
  it, what the old one wrapped still opens, and `rewrap_keys` moves to the new one.
- Without TLS, which is for this machine alone, no proxy of the environment is used: answers hold keys.
- One attempt with a bounded time, and answers of a bounded size (`answers`); who retries is `resilient`.

A wrapped key is: 0x01 | length of the master key id, u8 | master key id | length of the KMS key id, u8 | KMS
key id | AWS's ciphertext blob, which names the version of the key material by itself.

Sources: AWS KMS API Reference (GenerateDataKey, Encrypt, Decrypt, ReEncrypt); AWS KMS Developer Guide,
"Encryption context", "Rotate keys manually".
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple

import boto3
import urllib3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError
from botocore.httpsession import URLLib3Session
from botocore.parsers import ResponseParserError

from catalog.base.addresses import is_private_way
from catalog.base.http_answers import AnswerOutOfBounds, read_answer
from catalog.crypto.aead import KEY_LENGTHS, refused, require_key_length
from catalog.crypto.secret import SecretBytes, hush
from catalog.kms.back_ends import misconfigured, some_at_a_time
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from catalog.settings.kms_options import AwsKmsOptions
from policy.errors import KeyNotUsable, KmsUnavailable, LakewardenError

_FORMAT: Final = 0x01
#: The maximum ciphertext length of Decrypt.
_LONGEST_BLOB: Final = 6144
_KEY_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_NAME: Final = re.compile(rf"{_KEY_ID.pattern}|alias/[A-Za-z0-9/_-]{{1,249}}")
_ARN: Final = re.compile(
    rf"(arn:aws[a-z-]*:kms:([a-z0-9-]{{1,32}}):([0-9]{{12}}):)(?:key/{_KEY_ID.pattern}|alias/[A-Za-z0-9/_-]+)"
)
_DOES_NOT_OPEN: Final = frozenset({"InvalidCiphertextException", "IncorrectKeyException"})
#: What botocore raises for an unexpected response.
_MALFORMED: Final = (ResponseParserError, ValueError, TypeError, AttributeError, LookupError)
_NOT_USABLE: Final = frozenset(
    {
        "AccessDeniedException",
        "DisabledException",
        "InvalidArnException",
        "InvalidKeyUsageException",
        "KMSInvalidStateException",
        "NotFoundException",
        "UnsupportedOperationException",
        "ValidationException",
    }
)


class _Wrapped(NamedTuple):
    master_key_id: str
    key_id: str
    blob: bytes


class AwsKms(KmsClient):
    """AWS KMS through boto3.

    Args:
        client: a boto3 client of ``kms``, such as `connect` makes.
        accounts: accounts of 12 digits whose master keys may be named by ARN.
    """

    identifier = "aws"

    def __init__(self, client: Any, accounts: Sequence[str] = ()) -> None:
        # At DEBUG, botocore logs whole responses, and requests with session tokens.
        for logger in ("botocore.parsers", "botocore.auth", "botocore.endpoint"):
            hush(logger)
        self._client = client
        self._region: str = client.meta.region_name
        self._accounts = frozenset(accounts)

    @classmethod
    def connect(cls, options: AwsKmsOptions) -> AwsKms:
        """Return a separate client; sends nothing yet.

        Raises:
            PropertyInvalid: no region is known, the profile is missing, or the endpoint, which may come from
                the environment, is neither TLS nor on this machine.
        """
        secret = options.secret_access_key
        try:
            session = boto3.Session(
                aws_access_key_id=options.access_key_id,
                aws_secret_access_key=None if secret is None else secret.get_secret_value(),
                region_name=options.region,
                profile_name=options.profile,
            )
            client = session.client("kms", endpoint_url=options.endpoint, config=_config(options))
            if client.meta.endpoint_url.startswith("http:"):
                straight = _config(options).merge(Config(proxies={}))
                client = session.client("kms", endpoint_url=options.endpoint, config=straight)
        except (BotoCoreError, ValueError) as failure:
            raise misconfigured(f"The AWS KMS client cannot be created: {type(failure).__name__}.") from None
        if not is_private_way(client.meta.endpoint_url):
            raise misconfigured(
                "Check kms.options: the endpoint of AWS KMS must use https, or be a loopback address."
            )
        # botocore has no public interface to limit the size of a response.
        endpoint = client._endpoint
        endpoint.http_session = _BoundedSession(endpoint.http_session, options.request_timeout_s)
        return cls(client, options.accounts)

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        """See `KmsClient.create_key`."""
        require_key_length(length)
        self._require_named_well(master_key_id)
        answer = self._call(
            "generate_data_key",
            master_key_id,
            KeyId=master_key_id,
            NumberOfBytes=length,
            EncryptionContext=_encryption_context(master_key_id, context),
        )
        wrapped = _to_bytes(_Wrapped(master_key_id, _key_id(answer, "KeyId"), _blob(answer)))
        return CreatedKey(wrapped, _plaintext(answer, (length,)))

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        """See `KmsClient.get_key`."""
        parts = self._parse(wrapped)
        answer = self._call(
            "decrypt",
            parts.master_key_id,
            KeyId=_reference(parts),
            CiphertextBlob=parts.blob,
            EncryptionContext=_encryption_context(parts.master_key_id, context),
        )
        key = _plaintext(answer, KEY_LENGTHS)
        if _key_id(answer, "KeyId") != parts.key_id:
            key.wipe()
            raise refused()
        return key

    def wrap_key(self, master_key_id: str, key: SecretBytes, context: KeyContext) -> bytes:
        """See `KmsClient.wrap_key`; needs the permission kms:Encrypt."""
        require_key_length(len(key))
        self._require_named_well(master_key_id)
        answer = self._call(
            "encrypt",
            master_key_id,
            KeyId=master_key_id,
            Plaintext=key.reveal(),
            EncryptionContext=_encryption_context(master_key_id, context),
        )
        return _to_bytes(_Wrapped(master_key_id, _key_id(answer, "KeyId"), _blob(answer)))

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        """See `KmsClient.rewrap_keys`; AWS rewraps one key per call, so several calls run concurrently."""
        parsed = [(self._parse(wrapped), context) for wrapped, context in items]
        return some_at_a_time("aws-kms", lambda each: self._rewrap(*each), parsed)

    def _rewrap(self, parts: _Wrapped, context: KeyContext) -> bytes:
        encryption_context = _encryption_context(parts.master_key_id, context)
        answer = self._call(
            "re_encrypt",
            parts.master_key_id,
            CiphertextBlob=parts.blob,
            SourceKeyId=_reference(parts),
            SourceEncryptionContext=encryption_context,
            DestinationKeyId=parts.master_key_id,
            DestinationEncryptionContext=encryption_context,
        )
        if _key_id(answer, "SourceKeyId") != parts.key_id:
            raise refused()
        return _to_bytes(_Wrapped(parts.master_key_id, _key_id(answer, "KeyId"), _blob(answer)))

    def _call(self, operation: str, master_key_id: str, **request: Any) -> Mapping[str, Any]:
        """Send one request and translate its errors; no cause can hold bytes of a response."""
        try:
            answer: Mapping[str, Any] = getattr(self._client, operation)(**request)
        except ClientError as failure:
            raise _translated(failure, master_key_id) from None
        except (BotoCoreError, AnswerOutOfBounds, *_MALFORMED) as failure:
            raise _unavailable(type(failure).__name__) from None
        return answer

    def _require_named_well(self, master_key_id: str) -> None:
        """Check that a master key id is an id, an alias, or an ARN of a permitted account.

        Raises:
            KeyNotUsable: it is neither.
        """
        if _NAME.fullmatch(master_key_id):
            return
        arn = _ARN.fullmatch(master_key_id)
        if arn is None or len(master_key_id) > 255:
            raise KeyNotUsable(
                f"{master_key_id[:80]!r} is not a valid key id for AWS KMS.",
                rule="master-key",
                hint="Use a key id, alias/NAME, or an ARN.",
            )
        if arn[2] != self._region or arn[3] not in self._accounts:
            raise KeyNotUsable(
                f"Master key {master_key_id!r} is in another region, or in an account that is not listed.",
                rule="master-key",
                hint="To use keys of that account, add it to kms.options.accounts.",
            )

    def _parse(self, wrapped: bytes) -> _Wrapped:
        """Parse a wrapped key.

        Raises:
            DecryptionRefused: it is none.
            KeyNotUsable: it names a master key that may not be used here.
        """
        parts = _from_bytes(wrapped)
        self._require_named_well(parts.master_key_id)
        return parts


class _BoundedSession:
    """botocore's HTTP session, with bounds on responses.

    Args:
        session: botocore's.
        seconds: the time for an answer.
    """

    def __init__(self, session: URLLib3Session, seconds: float) -> None:
        self._session = session
        self._seconds = seconds

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """Send a request and return the response with its whole body."""
        until = time.monotonic() + self._seconds
        request.stream_output = True
        answer = self._session.send(request)
        try:
            body = read_answer(answer.raw, until)
        except (urllib3.exceptions.HTTPError, OSError) as failure:
            raise ConnectionClosedError(endpoint_url=request.url, error=type(failure).__name__) from None
        whole = urllib3.HTTPResponse(BytesIO(body), preload_content=False)
        return AWSResponse(answer.url, answer.status_code, answer.headers, whole)

    def close(self) -> None:
        """Close all connections."""
        self._session.close()


def _config(options: AwsKmsOptions) -> Config:
    return Config(
        connect_timeout=options.connect_timeout_s,
        read_timeout=options.request_timeout_s,
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=64,
    )


def _encryption_context(master_key_id: str, context: KeyContext) -> dict[str, str]:
    return {"catalog": context.catalog, "table": str(context.table_uuid), "master-key": master_key_id}


def _reference(parts: _Wrapped) -> str:
    """Return the KMS key in the account of the master key id."""
    arn = _ARN.fullmatch(parts.master_key_id)
    return parts.key_id if arn is None else f"{arn[1]}key/{parts.key_id}"


def _to_bytes(parts: _Wrapped) -> bytes:
    name, key_id = parts.master_key_id.encode("ascii"), parts.key_id.encode("ascii")
    return bytes([_FORMAT, len(name)]) + name + bytes([len(key_id)]) + key_id + parts.blob


def _from_bytes(wrapped: bytes) -> _Wrapped:
    if not 2 < len(wrapped) <= 2 + 255 + 1 + 255 + _LONGEST_BLOB or wrapped[0] != _FORMAT:
        raise refused()
    name_end = 2 + wrapped[1]
    key_end = name_end + 1 + (wrapped[name_end] if name_end < len(wrapped) else 0)
    blob = wrapped[key_end:]
    try:
        name = wrapped[2:name_end].decode("ascii")
        key_id = wrapped[name_end + 1 : key_end].decode("ascii")
    except UnicodeDecodeError:
        raise refused() from None
    named = _NAME.fullmatch(name) or _ARN.fullmatch(name)
    if named is None or not _KEY_ID.fullmatch(key_id) or not 0 < len(blob) <= _LONGEST_BLOB:
        raise refused()
    return _Wrapped(name, key_id, blob)


def _key_id(answer: Mapping[str, Any], member: str) -> str:
    """Return the id of the KMS key in a response, which contains its ARN."""
    arn = _ARN.fullmatch(str(answer.get(member)))
    if arn is None or ":key/" not in arn[0]:
        raise _unavailable("response without a key ARN")
    return arn[0].rpartition("/")[2]


def _blob(answer: Mapping[str, Any]) -> bytes:
    blob = answer.get("CiphertextBlob")
    if not isinstance(blob, bytes) or not 0 < len(blob) <= _LONGEST_BLOB:
        raise _unavailable("response without a ciphertext")
    return blob


def _plaintext(answer: Mapping[str, Any], lengths: Sequence[int]) -> SecretBytes:
    key = answer.get("Plaintext")
    if not isinstance(key, bytes) or len(key) not in lengths:
        raise _unavailable("response without a key of the right length")
    return SecretBytes(key)


def _translated(failure: ClientError, master_key_id: str) -> LakewardenError:
    code = str(failure.response.get("Error", {}).get("Code", "error without a code"))
    if code in _DOES_NOT_OPEN:
        return refused()
    if code in _NOT_USABLE:
        return KeyNotUsable(
            f"AWS KMS refused to use the master key {master_key_id!r}: {code}.",
            rule="master-key",
            hint="Check that the key exists and is enabled, and that its key policy grants the "
            "catalog's identity access.",
        )
    return _unavailable(code)


def _unavailable(what: str) -> KmsUnavailable:
    return KmsUnavailable(
        f"The call to AWS KMS failed: {what[:80]}.",
        rule="kms",
        hint="Check region, endpoint, credentials and the status of AWS KMS.",
    )
