"""Signs S3 requests with the catalog's own credentials, by Signature Version 4 of botocore.

Source: Amazon S3 API Reference, "Authenticating Requests: Using the Authorization Header".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from catalog.crypto.secret import hush
from catalog.settings.sections import S3Settings
from catalog.storage_access.s3_requests import S3Request
from policy.errors import NotSupportedYet, StorageUnavailable

if TYPE_CHECKING:
    from botocore.credentials import Credentials

_SERVICE: Final = "s3"


class BotoSigner:
    """Signs by botocore.

    Args:
        settings: region, and fixed credentials; without these, the standard chain of the AWS SDK applies.

    Raises:
        NotSupportedYet: botocore is not installed.
    """

    def __init__(self, settings: S3Settings) -> None:
        try:
            from botocore import auth, awsrequest, session
        except ModuleNotFoundError:
            raise NotSupportedYet(
                "Signing requests to S3 needs botocore, which is not installed.",
                rule="s3-signing",
                hint="Run `pip install 'lakewarden[aws]'`, or set s3.signing to false.",
            ) from None
        # At DEBUG, botocore logs signatures and session tokens.
        hush("botocore.auth")

        class Payload(auth.S3SigV4Auth):  # type: ignore[misc]
            """The signature of a request whose body the catalog does not have."""

            def payload(self, request: Any) -> str:
                """Return the digest that the request says."""
                return str(request.context["payload"])

        self._auth, self._request = Payload, awsrequest.AWSRequest
        self._region = settings.region
        self._session = session.Session()
        if settings.access_key_id is not None and settings.secret_access_key is not None:
            self._session.set_credentials(
                settings.access_key_id, settings.secret_access_key.get_secret_value()
            )

    def sign(self, request: S3Request) -> dict[str, str]:
        """Return the headers that a request has to be sent with, by name in small letters.

        Raises:
            StorageUnavailable: the catalog has no credentials.
        """
        made = self._request(method=request.method, url=request.uri, headers=dict(request.headers))
        made.context["payload"] = request.payload
        self._auth(self._credentials(), _SERVICE, self._region).add_auth(made)
        return {name.lower(): value for name, value in made.headers.items()}

    def _credentials(self) -> Credentials:
        credentials = self._session.get_credentials()
        if credentials is None:
            raise StorageUnavailable(
                "The catalog has no credentials for S3.",
                rule="s3-signing",
                hint="Set s3.access_key_id and s3.secret_access_key, or give the process a role.",
            )
        return credentials.get_frozen_credentials()
