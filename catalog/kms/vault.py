"""HashiCorp Vault and OpenBao: data keys of the Transit engine.

Rules:
- A new key is a data key of Transit, a given one is encrypted by it. A Transit key must be *derived*: then
  what encrypts is a key that Transit derives from it and from the context, so a wrapped key opens for its own
  table, catalog and master key alone. Transit ignores the context of a key that is not derived, and `rewrap`
  takes no associated data.
- Vault's answer is read strictly: what is not as documented is `KmsUnavailable`.
- No redirection is followed and no proxy or setting of the environment is used: the token goes to the
  configured server alone.
- One attempt with a bounded time, and answers of a bounded size (`answers`); who retries is `resilient`.

A wrapped key is: 0x01 | length of the key, u8 | length of the master key id, u8 | id | version, u32 |
Transit's ciphertext. Transit gets all before the version, then the context, as the context to derive from.
Its data key has 32 bytes; a shorter key is the beginning of it.

Sources: Vault API documentation, "Transit secrets engine" (datakey, decrypt, rewrap, read key), "AppRole".
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import requests
from hvac.adapters import RawAdapter
from hvac.api.auth_methods.approle import AppRole as AppRoleApi
from hvac.api.auth_methods.token import Token as TokenApi
from hvac.api.secrets_engines.transit import Transit
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from catalog.base.http_answers import POOLS, AnswerOutOfBounds, read_answer
from catalog.crypto.aead import KEY_LENGTHS, refused, require_key_length
from catalog.crypto.secret import SecretBytes
from catalog.kms.back_ends import by_master_key, misconfigured, require_ca_file
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from catalog.kms.vault_identity import AppRole, FixedToken, Identity, TokenFile, is_token
from catalog.settings.kms_options import VaultKmsOptions
from policy.errors import KeyNotUsable, KmsUnavailable, LakewardenError

_FORMAT: Final = 0x01
_CONTEXT: Final = b"lakewarden/vault-kms/1\0"
_DATA_KEY_LENGTH: Final = 32
_LONGEST_CIPHERTEXT: Final = 1024
_CONNECTIONS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9_])?")
_CIPHERTEXT: Final = re.compile(r"vault:v([1-9][0-9]{0,9}):([A-Za-z0-9+/=]+)")
#: Transit's message for a foreign ciphertext; every other refusal concerns the key.
_DOES_NOT_OPEN: Final = ("message authentication failed", "invalid ciphertext")


class _Wrapped(NamedTuple):
    length: int
    master_key_id: str
    version: int
    ciphertext: bytes


class _Answer(NamedTuple):
    """A status, and a body that can hold a key."""

    status: int
    body: bytes

    def __repr__(self) -> str:
        return f"_Answer({self.status})"


class VaultKms(KmsClient):
    """The Transit engine of a Vault or OpenBao server.

    Args:
        options: where it is, and how long it may take.
        identity: where tokens come from; by default as the options say.
    """

    identifier = "vault"

    def __init__(self, options: VaultKmsOptions, identity: Identity | None = None) -> None:
        self._options = options
        self._session = _session(options)
        self._identity = identity or _identity(options, self._log_in)

    @classmethod
    def connect(cls, options: VaultKmsOptions) -> VaultKms:
        """Return a client; sends nothing yet.

        Raises:
            PropertyInvalid: the file of authorities is missing, or the token has characters that none has.
        """
        require_ca_file(options.ca_file)
        return cls(options)

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        """See `KmsClient.create_key`; the Transit key must be derived."""
        require_key_length(length)
        _require_named_well(master_key_id)
        self._require_derived(master_key_id)
        parts = _Wrapped(length, master_key_id, 0, b"")
        data = self._transit(
            parts.master_key_id,
            lambda transit: transit.generate_data_key(
                name=master_key_id,
                key_type="plaintext",
                context=_derivation_context(parts, context),
                bits=_DATA_KEY_LENGTH * 8,
                mount_point=self._options.mount,
            ),
        )
        return CreatedKey(_rewrapped(parts, data), _key(data, length))

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        """See `KmsClient.get_key`."""
        parts = _from_bytes(wrapped)
        data = self._transit(
            parts.master_key_id,
            lambda transit: transit.decrypt_data(
                name=parts.master_key_id,
                ciphertext=_ciphertext(parts),
                context=_derivation_context(parts, context),
                mount_point=self._options.mount,
            ),
        )
        return _key(data, parts.length)

    def wrap_key(self, master_key_id: str, key: SecretBytes, context: KeyContext) -> bytes:
        """See `KmsClient.wrap_key`; the Transit key must be derived."""
        parts = _Wrapped(require_key_length(len(key)), master_key_id, 0, b"")
        _require_named_well(master_key_id)
        self._require_derived(master_key_id)
        # Transit's data keys have 32 bytes, of which a shorter key is the first.
        plaintext = base64.b64encode(key.reveal().ljust(_DATA_KEY_LENGTH, b"\0")).decode("ascii")
        data = self._transit(
            master_key_id,
            lambda transit: transit.encrypt_data(
                name=master_key_id,
                plaintext=plaintext,
                context=_derivation_context(parts, context),
                mount_point=self._options.mount,
            ),
        )
        return _rewrapped(parts, data)

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        """See `KmsClient.rewrap_keys`; one request per master key."""
        parsed = [(_from_bytes(wrapped), context) for wrapped, context in items]
        return by_master_key(parsed, lambda each: each[0].master_key_id, self._rewrap)

    def _rewrap(self, master_key_id: str, items: list[tuple[_Wrapped, KeyContext]]) -> list[bytes]:
        batch = [
            {"ciphertext": _ciphertext(parts), "context": _derivation_context(parts, context)}
            for parts, context in items
        ]
        data = self._transit(
            master_key_id,
            lambda transit: transit.rewrap_data(
                name=master_key_id, ciphertext="", batch_input=batch, mount_point=self._options.mount
            ),
        )
        results = data.get("batch_results")
        if not isinstance(results, list) or len(results) != len(items):
            raise _unavailable("response without a result for each key")
        return [_one_of_batch(parts, result) for (parts, _), result in zip(items, results, strict=True)]

    def _require_derived(self, master_key_id: str) -> None:
        """Refuse a key without derivation, because it binds nothing to the context."""
        data = self._transit(
            master_key_id,
            lambda transit: transit.read_key(name=master_key_id, mount_point=self._options.mount),
        )
        if data.get("derived") is not True:
            raise KeyNotUsable(
                f"The Transit key {master_key_id!r} is not derived, so it cannot bind keys to a table.",
                rule="master-key",
                hint="Create a Transit key with derived=true.",
            )

    def _transit(self, master_key_id: str, ask: Callable[[Transit], requests.Response]) -> Mapping[str, Any]:
        """Return the data of Transit's response; tries a second token if the server rejects the first."""
        token = self._identity.token()
        answer = self._send(token, lambda adapter: ask(Transit(adapter)))
        if answer.status == 403 and not self._is_known(token):
            fresh = self._identity.renewed(token)
            if fresh is None:
                raise _unavailable("the token has expired, or has no permission to look itself up")
            if fresh != token:
                answer = self._send(fresh, lambda adapter: ask(Transit(adapter)))
                if answer.status == 403:
                    self._identity.renewed_in_vain()
        return _data(answer, master_key_id)

    def _is_known(self, token: SecretBytes) -> bool:
        """Return whether the server knows the token; a missing permission gives the same status."""
        return self._send(token, lambda adapter: TokenApi(adapter).lookup_self()).status == 200

    def _log_in(self) -> tuple[SecretBytes, float]:
        options = self._options
        secret_id = None if options.secret_id is None else options.secret_id.get_secret_value()
        answer = self._send(
            None,
            lambda adapter: AppRoleApi(adapter).login(
                options.role_id, secret_id, use_token=False, mount_point=options.auth_mount
            ),
        )
        if answer.status != 200:
            raise _unavailable(f"the login failed with status {answer.status}")
        auth = _body(answer).get("auth")
        token, lease = (auth.get("client_token"), auth.get("lease_duration")) if auth else (None, None)
        if not isinstance(token, str) or not is_token(token.encode()) or not isinstance(lease, int):
            raise _unavailable("login response without a token")
        return SecretBytes(token.encode("ascii")), float(lease)

    def _send(self, token: SecretBytes | None, ask: Callable[[RawAdapter], requests.Response]) -> _Answer:
        """Send one request; the adapter is created per request, because tokens change while other threads
        send.
        """
        adapter = RawAdapter(
            base_uri=self._options.url,
            token=None if token is None else token.reveal().decode("ascii"),
            timeout=(self._options.connect_timeout_s, self._options.request_timeout_s),
            allow_redirects=False,
            session=self._session,
            namespace=self._options.namespace,
            ignore_exceptions=True,
        )
        until = time.monotonic() + self._options.request_timeout_s
        try:
            response = ask(adapter)
            return _Answer(response.status_code, read_answer(response.raw, until))
        except (requests.RequestException, HTTPError, OSError, AnswerOutOfBounds) as failure:
            # The cause holds the request with its token.
            raise _unavailable(type(failure).__name__) from None


class _BoundedAdapter(HTTPAdapter):
    """Closes a connection whose response does not begin in time."""

    def init_poolmanager(self, *given: Any, **more: Any) -> None:
        """See `HTTPAdapter.init_poolmanager`."""
        super().init_poolmanager(*given, **more)
        self.poolmanager.pool_classes_by_scheme = POOLS


def _session(options: VaultKmsOptions) -> requests.Session:
    session = requests.Session()
    session.trust_env = False
    session.stream = True
    session.headers["Accept-Encoding"] = "identity"
    session.mount(options.url, _BoundedAdapter(pool_maxsize=_CONNECTIONS, max_retries=0))
    if options.ca_file is not None:
        session.verify = str(options.ca_file)
    return session


def _identity(options: VaultKmsOptions, log_in: Callable[[], tuple[SecretBytes, float]]) -> Identity:
    if options.token_file is not None:
        return TokenFile(options.token_file)
    if options.token is None:
        return AppRole(log_in)
    token = options.token.get_secret_value().encode("utf-8")
    if not token or not is_token(token):
        raise misconfigured("The Vault token is empty, or contains characters that a token cannot have.")
    return FixedToken(SecretBytes(token))


def _require_named_well(master_key_id: str) -> None:
    if _NAME.fullmatch(master_key_id) is None:
        raise KeyNotUsable(
            f"{master_key_id[:80]!r} is not a valid name of a Transit key.",
            rule="master-key",
            hint="Use at most 128 letters, digits and _ . -",
        )


def _header(parts: _Wrapped) -> bytes:
    name = parts.master_key_id.encode("ascii")
    return bytes([_FORMAT, parts.length, len(name)]) + name


def _derivation_context(parts: _Wrapped, context: KeyContext) -> str:
    return base64.b64encode(_CONTEXT + _header(parts) + context.to_bytes()).decode("ascii")


def _from_bytes(wrapped: bytes) -> _Wrapped:
    if not 3 < len(wrapped) <= 3 + 255 + 4 + _LONGEST_CIPHERTEXT:
        raise refused()
    end = 3 + wrapped[2]
    name, version, ciphertext = wrapped[3:end], wrapped[end : end + 4], wrapped[end + 4 :]
    if wrapped[0] != _FORMAT or wrapped[1] not in KEY_LENGTHS or not name.isascii() or len(version) != 4:
        raise refused()
    number = int.from_bytes(version, "big")
    if (
        not _NAME.fullmatch(name.decode("ascii"))
        or number == 0
        or not 0 < len(ciphertext) <= _LONGEST_CIPHERTEXT
    ):
        raise refused()
    return _Wrapped(wrapped[1], name.decode("ascii"), number, ciphertext)


def _ciphertext(parts: _Wrapped) -> str:
    """Encode a ciphertext as Transit does."""
    return f"vault:v{parts.version}:{base64.b64encode(parts.ciphertext).decode('ascii')}"


def _rewrapped(parts: _Wrapped, data: Mapping[str, Any]) -> bytes:
    """Return the rewrapped ciphertext in a response."""
    match = _CIPHERTEXT.fullmatch(str(data.get("ciphertext"))[: 2 * _LONGEST_CIPHERTEXT])
    version = 0 if match is None else int(match[1])
    ciphertext = b"" if match is None else _decoded(match[2])
    if not 0 < version < 2**32 or not 0 < len(ciphertext) <= _LONGEST_CIPHERTEXT:
        raise _unavailable("response without a ciphertext")
    return _header(parts) + version.to_bytes(4, "big") + ciphertext


def _one_of_batch(parts: _Wrapped, result: object) -> bytes:
    if not isinstance(result, dict):
        raise _unavailable("response without a result for each key")
    if result.get("error"):
        raise _refusal(str(result["error"]), parts.master_key_id)
    return _rewrapped(parts, result)


def _key(data: Mapping[str, Any], length: int) -> SecretBytes:
    plaintext = data.get("plaintext")
    key = _decoded(plaintext) if isinstance(plaintext, str) else b""
    if len(key) != _DATA_KEY_LENGTH:
        raise _unavailable("response without a key of the right length")
    return SecretBytes(key[:length])


def _decoded(text: str) -> bytes:
    """Decode a base64 text; empty if it is malformed."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _body(answer: _Answer) -> dict[str, Any]:
    """Parse a response as a JSON object."""
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError):
        # The cause holds the text.
        raise _unavailable("the response is not JSON") from None
    if not isinstance(body, dict):
        raise _unavailable("the response is not a JSON object")
    return body


def _data(answer: _Answer, master_key_id: str) -> Mapping[str, Any]:
    """Return the data of a response, or raise what its status means.

    Raises:
        KeyNotUsable: the key is unknown, or the token has no right to it.
        DecryptionRefused: the ciphertext does not open.
        KmsUnavailable: anything else.
    """
    status = answer.status
    if status in (400, 403, 404):
        raise _refusal(_said(answer), master_key_id, status)
    if status != 200:
        raise _unavailable(f"status {status}")
    data = _body(answer).get("data")
    if not isinstance(data, dict):
        raise _unavailable("response without data")
    return data


def _said(answer: _Answer) -> str:
    """Return the errors in a response; not shown, because they can quote the request."""
    errors = _body(answer).get("errors")
    return ", ".join(map(str, errors)) if isinstance(errors, list) else ""


def _refusal(said: str, master_key_id: str, status: int = 400) -> LakewardenError:
    if status == 400 and any(reason in said for reason in _DOES_NOT_OPEN):
        return refused()
    what = {403: "the token has no permission for it", 404: "there is no such key"}.get(
        status, "Transit refused the request"
    )
    return KeyNotUsable(
        f"The Transit key {master_key_id!r} cannot be used: {what}.",
        rule="master-key",
        hint="Check the mount, the key, its min_decryption_version, and the policies of the catalog's "
        "token, which also needs Vault's `default` policy.",
    )


def _unavailable(what: str) -> KmsUnavailable:
    return KmsUnavailable(
        f"The call to Vault failed: {what}.",
        rule="kms",
        hint="Check address, certificate and credentials, and whether the server is sealed.",
    )
