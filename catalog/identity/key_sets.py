"""Reads a provider's document of public keys (RFC 7517, section 5); nothing here does I/O.

Keys that cannot check a signature of the accepted algorithms are passed over, as the RFC says: keys for
encryption, secret keys, keys of other kinds or sizes. So nothing that a provider publishes becomes a key of
HMAC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from policy import strict_json
from policy.errors import InvalidInput

PublicKey: TypeAlias = RSAKey | ECKey | OKPKey

_MOST_KEYS: Final = 100
_MOST_ELEMENTS: Final = 10_000
#: Below, a signature can be forged; above, checking one costs more than a request.
_RSA_BITS: Final = range(2048, 8193)
#: The members of a key that are read (RFC 7517, section 4; RFC 7518, section 6), all of them texts.
_MEMBERS: Final = ("kty", "kid", "use", "alg", "n", "e", "crv", "x", "y")
_PRIVATE: Final = "d"
_TO_VERIFY: Final = ["verify"]
_KINDS: Final[Mapping[str, type[PublicKey]]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_KIND_OF_ALGORITHM: Final[Mapping[str, str]] = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class KeySetInvalid(Exception):
    """The document is no set of keys; the error does not quote it."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys of a provider."""

    keys: tuple[PublicKey, ...]

    @classmethod
    def parse(cls, document: bytes) -> KeySet:
        """Read a document.

        Raises:
            KeySetInvalid: it is no JSON, no set of keys, or too large.
        """
        try:
            found = strict_json.parse(document, what="The key set", max_elements=_MOST_ELEMENTS)
        except InvalidInput as error:
            raise KeySetInvalid("it is not the JSON that was expected") from error
        keys = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(keys, list) or len(keys) > _MOST_KEYS:
            raise KeySetInvalid(f"it is no list of at most {_MOST_KEYS} keys")
        usable = (_usable(each) for each in keys)
        return cls(tuple(each for each in usable if each is not None))

    def find(self, key_id: str | None, algorithm: str) -> PublicKey | None:
        """Return the only key that a signature can be by; None if there is none, or more than one.

        Args:
            key_id: the `kid` of the token, compared and used for nothing else.
            algorithm: the `alg` of the token, one that is accepted.
        """
        kind = _KIND_OF_ALGORITHM[algorithm[:2]]
        fitting = [
            each
            for each in self.keys
            if each.key_type == kind and each.alg in (None, algorithm) and key_id in (None, each.kid)
        ]
        return fitting[0] if len(fitting) == 1 else None


def _usable(given: object) -> PublicKey | None:
    if not isinstance(given, dict) or _PRIVATE in given or given.get("key_ops", _TO_VERIFY) != _TO_VERIFY:
        return None
    members = {name: given[name] for name in _MEMBERS if name in given}
    if not all(isinstance(each, str) for each in members.values()) or members.get("use", "sig") != "sig":
        return None
    kind = _KINDS.get(members.get("kty", ""))
    try:
        key = None if kind is None else kind.import_key(members)
    except (JoseError, ValueError, LookupError):
        return None
    return key if key is not None and _is_strong(key) else None


def _is_strong(key: PublicKey) -> bool:
    if isinstance(key, RSAKey):
        return key.public_key.key_size in _RSA_BITS
    return isinstance(key, ECKey) or isinstance(key.public_key, Ed25519PublicKey)
