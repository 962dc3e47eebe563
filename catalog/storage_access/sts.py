"""Gets storage credentials from AWS STS: AssumeRole with a session policy.

- A credential can do what both the role and the session policy allow, and ends by itself.
- The session's name, which the store's logs show, names the principal.
- Secrets are masked in `repr`, and no cause of an error holds an answer.

Source: AWS STS API Reference, AssumeRole.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from pydantic import SecretStr

from catalog.base.addresses import is_private_way
from catalog.crypto.secret import hush
from catalog.settings.sections import S3Settings, StsSettings
from catalog.storage_access.session_policy import RULE, USE_SIGNING
from policy.errors import NotAuthorized, PropertyInvalid, StorageUnavailable

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{2,64}")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_.@-]")
_INEXPRESSIBLE: Final = frozenset({"MalformedPolicyDocument", "PackedPolicyTooLarge"})
_PARTITION: Final = re.compile(r"arn:(aws(?:-[a-z-]+)?):")


@dataclass(frozen=True, slots=True)
class Credential:
    """A storage credential.

    Attributes:
        access_key_id: its id.
        secret_access_key: the key that signs requests.
        session_token: what is sent with them.
        expires_ms: when it ends, in milliseconds since 1970.
    """

    access_key_id: str = field(repr=False)
    secret_access_key: SecretStr
    session_token: SecretStr
    expires_ms: int


class TokenService:
    """AWS STS, or the STS of another store.

    Args:
        client: a boto3 client of ``sts``, such as `connect` makes.
        settings: which role is assumed, and how.
    """

    def __init__(self, client: Any, settings: StsSettings) -> None:
        # At DEBUG, botocore logs whole answers, and requests with session tokens.
        for logger in ("botocore.parsers", "botocore.auth", "botocore.endpoint"):
            hush(logger)
        self._client = client
        self._settings = settings

    @classmethod
    def connect(cls, s3: S3Settings, sts: StsSettings) -> TokenService:
        """Return a client with the catalog's own credentials; sends nothing yet.

        Raises:
            PropertyInvalid: boto3 is not installed, the AWS configuration of the process is broken, or the
                endpoint, which can come from it, is neither TLS nor on this machine.
        """
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ModuleNotFoundError as failure:
            raise _misconfigured(
                "Storage credentials need boto3.", 'Run `pip install "lakewarden[aws]"`.'
            ) from failure
        config = Config(
            connect_timeout=s3.connect_timeout_s,
            read_timeout=s3.request_timeout_s,
            retries={"total_max_attempts": 2, "mode": "standard"},
        )
        secret = s3.secret_access_key
        try:
            client = boto3.client(
                "sts",
                endpoint_url=sts.endpoint,
                region_name=s3.region,
                aws_access_key_id=s3.access_key_id,
                aws_secret_access_key=None if secret is None else secret.get_secret_value(),
                config=config,
            )
        except (BotoCoreError, ValueError) as failure:
            problem = f"The client of AWS STS cannot be created: {type(failure).__name__}."
            raise _misconfigured(problem, "Check s3.region and s3.sts.") from None
        if not is_private_way(client.meta.endpoint_url):
            raise _misconfigured(
                "The endpoint of AWS STS is not private.", "Use https, or a loopback address."
            )
        return cls(client, sts)

    @property
    def partition(self) -> str:
        """The partition of the role, for ARNs of objects; stores other than Amazon's use `aws`."""
        found = _PARTITION.match(self._settings.role_arn)
        return "aws" if found is None else found[1]

    def issue(self, policy: str, principal: str) -> Credential:
        """Get a credential.

        Args:
            policy: the session policy.
            principal: for whom.

        Raises:
            NotAuthorized: STS cannot express the policy.
            StorageUnavailable: STS does not answer, or refuses the role.
        """
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        external = self._settings.external_id
        try:
            answer = self._client.assume_role(
                RoleArn=self._settings.role_arn,
                RoleSessionName=session_name(principal),
                Policy=policy,
                DurationSeconds=self._settings.duration_s,
                **({} if external is None else {"ExternalId": external}),
            )
        except ClientError as failure:
            code = str(failure.response.get("Error", {}).get("Code", "error without a code"))
            raise _translated(code) from None
        except (BotoCoreError, ResponseParserError, ValueError) as failure:
            raise _unavailable(type(failure).__name__) from None
        return _credential(answer)


def session_name(principal: str) -> str:
    """The name of a principal's sessions: 2 to 64 characters of those that STS takes.

    No two principals have one name: a name that STS does not take is given with a digest, after `=`, which
    names that STS takes as they are cannot have.
    """
    if _PLAIN_NAME.fullmatch(principal):
        return principal
    return f"{_FOREIGN.sub('_', principal)[:23]}={_digest(principal)}"


def _digest(principal: str) -> str:
    return hashlib.sha256(principal.encode()).hexdigest()[:40]


def _credential(answer: Any) -> Credential:
    try:
        found = answer["Credentials"]
        parts = [found[name] for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")]
        expires = found["Expiration"]
    except (KeyError, TypeError):
        raise _unavailable("answer without a credential") from None
    if not all(isinstance(part, str) and part for part in parts) or not isinstance(expires, datetime):
        raise _unavailable("answer without a credential")
    key_id, secret, token = parts
    return Credential(key_id, SecretStr(secret), SecretStr(token), int(expires.timestamp() * 1000))


def _translated(code: str) -> NotAuthorized | StorageUnavailable:
    if code.removesuffix("Exception") in _INEXPRESSIBLE:
        message = f"No storage credential is issued. AWS STS does not take the session policy: {code}."
        return NotAuthorized(message, rule=RULE, hint=USE_SIGNING)
    return _unavailable(code)


def _unavailable(what: str) -> StorageUnavailable:
    return StorageUnavailable(
        f"AWS STS issued no storage credential: {what[:80]}.",
        rule="sts",
        hint="Check s3.sts, the role's trust policy, and the status of AWS STS.",
    )


def _misconfigured(message: str, hint: str) -> PropertyInvalid:
    return PropertyInvalid(message, rule="settings", hint=hint)
