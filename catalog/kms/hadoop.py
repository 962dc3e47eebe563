"""Hadoop KMS and Ranger KMS, over their REST protocol.

Rules:
- A new key, or a given one, is sealed by AES-GCM under a key that the KMS generates and gives out encrypted
  (an EEK), never under the master key itself, which stays where it is. An EEK has no authentication and
  belongs to no table: the seal binds master key, version, EEK and context together.
- The hosts of the URL are asked one after the other, first the one that answered last, until one answers or
  the time is up; each call has one bounded time for all of it. Who retries is `resilient`.
- Answers are read strictly and up to a bound; what is not as documented is `KmsUnavailable`. No redirection
  is followed, no proxy of the environment used: the credential goes to the configured hosts alone.

A wrapped key is: 0x01 | length of the version's name, u8 | name, such as ``lake@0`` | length of the EEK's
key, u8 | iv 16 | the EEK's key, encrypted | nonce 12 | ciphertext | tag 16. The AAD is ASCII
``lakewarden/hadoop-kms/pek/1`` NUL | all bytes before the nonce | the context.

Sources: Hadoop 3.4.3, "Hadoop KMS", "KMS HTTP REST API"; `KMSExceptionsProvider` for what errors mean.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from catalog.crypto import hadoop_base64
from catalog.crypto.aead import KEY_LENGTHS, Aead, refused, require_key_length
from catalog.crypto.secret import SecretBytes
from catalog.kms.back_ends import by_master_key, some_at_a_time
from catalog.kms.hadoop_rest import Answer, HadoopRest, unexpected
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from catalog.settings.kms_options import HadoopKmsOptions
from policy.encryption.governed_values import is_master_key_id
from policy.errors import KeyNotUsable, KmsUnavailable

_FORMAT: Final = 0x01
_PEK_AAD: Final = b"lakewarden/hadoop-kms/pek/1\0"
_IV_LENGTH: Final = 16
_LONGEST_VERSION_NAME: Final = 255
_LONGEST_WRAPPED: Final = 1024
_MOST_DIGITS: Final = 9
_EEK: Final = "EEK"
_NAME: Final = re.compile(r"[a-z0-9_][a-z0-9_.-]*", re.ASCII)
#: The number of keys in a re-encryption request.
_BATCH: Final = 500


@dataclass(frozen=True, slots=True)
class _Eek:
    """A key that the KMS generated, encrypted under a version of a master key."""

    version_name: str
    iv: bytes
    material: bytes

    @property
    def master_key_id(self) -> str:
        return self.version_name.rpartition("@")[0]

    @property
    def number(self) -> int:
        return int(self.version_name.rpartition("@")[2])

    def header(self) -> bytes:
        """Encode the first part of a wrapped key."""
        name = self.version_name.encode("ascii")
        sizes = bytes([_FORMAT, len(name)]), bytes([len(self.material)])
        return sizes[0] + name + sizes[1] + self.iv + self.material


class HadoopKms(KmsClient):
    """A Hadoop or Ranger KMS, or the catalog's own `/kms/v1`.

    Args:
        options: where it is, who asks, and how long it may take.
    """

    identifier = "hadoop"

    def __init__(self, options: HadoopKmsOptions) -> None:
        self._rest = HadoopRest(options)
        self._time_s = options.request_timeout_s

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        """See `KmsClient.create_key`; needs the permissions generate-EEK and decrypt-EEK."""
        require_key_length(length)
        _require_name(master_key_id)
        until = self._until()
        eek = self._generate(master_key_id, until)
        key = SecretBytes(secrets.token_bytes(length))
        return CreatedKey(_sealed(eek, self._decrypt(eek, until), key, context), key)

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        """See `KmsClient.get_key`; needs the permission decrypt-EEK."""
        eek, sealed = _parse(wrapped)
        return _opened(eek, self._decrypt(eek, self._until()), sealed, context)

    def wrap_key(self, master_key_id: str, key: SecretBytes, context: KeyContext) -> bytes:
        """See `KmsClient.wrap_key`; needs the permissions generate-EEK and decrypt-EEK."""
        require_key_length(len(key))
        _require_name(master_key_id)
        until = self._until()
        eek = self._generate(master_key_id, until)
        return _sealed(eek, self._decrypt(eek, until), key, context)

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        """See `KmsClient.rewrap_keys`; re-encrypts EEKs in batches, then decrypts each once, because the seal
        names the version. What comes back opens to the same key, or nothing comes back.
        """
        parsed = [(*_parse(wrapped), context) for wrapped, context in items]
        newest = by_master_key([eek for eek, _, _ in parsed], lambda eek: eek.master_key_id, self._newest)
        moves = list(zip(parsed, newest, strict=True))
        return some_at_a_time("hadoop-kms", lambda move: self._resealed(*move[0], move[1]), moves)

    def _resealed(self, old: _Eek, sealed: bytes, context: KeyContext, new: _Eek) -> bytes:
        wrapping = self._decrypt(new, self._until())
        return _sealed(new, wrapping, _opened(old, wrapping, sealed, context), context)

    def _generate(self, master_key_id: str, until: float) -> _Eek:
        parameters = {"eek_op": "generate", "num_keys": "1"}
        path = ("key", master_key_id, "_eek")
        answer = self._ask("GET", path, until, _Named(master_key_id), parameters)
        if not isinstance(answer, list) or len(answer) != 1:
            raise unexpected()
        return _read_eek(answer[0], master_key_id)

    def _decrypt(self, eek: _Eek, until: float) -> SecretBytes:
        body = {
            "name": eek.master_key_id,
            "iv": hadoop_base64.encode(eek.iv),
            "material": hadoop_base64.encode(eek.material),
        }
        named = _Named(eek.master_key_id, eek.number)
        path = ("keyversion", eek.version_name, "_eek")
        answer = self._ask("POST", path, until, named, {"eek_op": "decrypt"}, body)
        key = _member(answer, "material")
        if len(key) != len(eek.material):
            raise unexpected()
        return SecretBytes(key)

    def _newest(self, name: str, eeks: list[_Eek]) -> list[_Eek]:
        """Re-encrypt EEKs under the newest version of their master key, in order."""
        batches = (eeks[at : at + _BATCH] for at in range(0, len(eeks), _BATCH))
        return [moved for batch in batches for moved in self._reencrypt(name, batch)]

    def _reencrypt(self, name: str, eeks: Sequence[_Eek]) -> list[_Eek]:
        body = [
            {
                "versionName": eek.version_name,
                "iv": hadoop_base64.encode(eek.iv),
                "encryptedKeyVersion": {
                    "versionName": _EEK,
                    "material": hadoop_base64.encode(eek.material),
                },
            }
            for eek in eeks
        ]
        named = _Named(name, max(eek.number for eek in eeks))
        answer = self._ask("POST", ("key", name, "_reencryptbatch"), self._until(), named, {}, body)
        if not isinstance(answer, list) or len(answer) != len(eeks):
            raise unexpected()
        return [_read_eek(each, name) for each in answer]

    def _ask(
        self,
        method: str,
        path: Sequence[str],
        until: float,
        named: _Named,
        parameters: Mapping[str, str],
        body: object = None,
    ) -> object:
        answer = self._rest.ask(method, path, until, parameters, body)
        if answer.status == 200:
            return answer.document()
        if answer.denies_key():
            raise KeyNotUsable(
                f"The KMS denied this catalog the master key {named.key!r}.",
                rule="master-key",
                hint="Create the key, or grant this catalog generate-EEK and decrypt-EEK on it.",
            )
        if answer.status == 500:
            self._require_there(named, until)
        raise _failed(answer)

    def _require_there(self, named: _Named, until: float) -> None:
        """Distinguish a missing key from a failing KMS: Hadoop answers both with 500."""
        answer = self._rest.ask("GET", ("key", named.key, "_metadata"), until, {}, None)
        known = answer.document() if answer.status == 200 else None
        if known == {} or (isinstance(known, dict) and _lacks(known, named.number)):
            raise KeyNotUsable(
                f"The KMS has no such version of the master key {named.key!r}.",
                rule="master-key",
                hint="Create the key, or name another one.",
            )

    def _until(self) -> float:
        return time.monotonic() + self._time_s


@dataclass(frozen=True, slots=True)
class _Named:
    """A master key, and the version that a request needs."""

    key: str
    number: int = 0


def _lacks(metadata: Mapping[str, Any], number: int) -> bool:
    versions = metadata.get("versions")
    return isinstance(versions, int) and versions <= number


def _failed(answer: Answer) -> KmsUnavailable:
    if answer.status in (401, 403):
        return KmsUnavailable(
            "The KMS rejected this catalog's credential.",
            rule="kms-credential",
            hint="Renew the token, or set kms.options.user to a user that the KMS knows.",
        )
    return KmsUnavailable(f"The KMS responded with status {answer.status}.", rule="kms-answer")


def _require_name(master_key_id: str) -> None:
    # The KMS ignores case; here, a key must not have two names.
    if not is_master_key_id(master_key_id) or _NAME.fullmatch(master_key_id) is None:
        raise KeyNotUsable(
            f"{master_key_id[:80]!r} is not a valid key name in a Hadoop KMS.",
            rule="master-key",
            hint="Use lower-case letters, digits and _ . -",
        )


def _sealed(eek: _Eek, wrapping: SecretBytes, key: SecretBytes, context: KeyContext) -> bytes:
    header = eek.header()
    return header + Aead(wrapping).seal(key.reveal(), _PEK_AAD + header + context.to_bytes())


def _opened(eek: _Eek, wrapping: SecretBytes, sealed: bytes, context: KeyContext) -> SecretBytes:
    key = Aead(wrapping).open(sealed, _PEK_AAD + eek.header() + context.to_bytes())
    if len(key) not in KEY_LENGTHS:
        raise refused()
    return SecretBytes(key)


def _parse(wrapped: bytes) -> tuple[_Eek, bytes]:
    """Parse a wrapped key into the EEK and what is sealed under it."""
    if not 3 <= len(wrapped) <= _LONGEST_WRAPPED or wrapped[0] != _FORMAT:
        raise refused()
    end = 2 + wrapped[1]
    size = wrapped[end] if end < len(wrapped) else 0
    middle, last = end + 1 + _IV_LENGTH, end + 1 + _IV_LENGTH + size
    name = wrapped[2:end].decode("ascii", "replace")
    if size not in KEY_LENGTHS or last > len(wrapped) or not _is_version_name(name):
        raise refused()
    return _Eek(name, wrapped[end + 1 : middle], wrapped[middle:last]), wrapped[last:]


def _is_version_name(text: str) -> bool:
    name, separator, number = text.rpartition("@")
    digits = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
    if not separator or not digits or len(text) > _LONGEST_VERSION_NAME:
        return False
    try:
        _require_name(name)
    except KeyNotUsable:
        return False
    return True


def _read_eek(value: object, master_key_id: str) -> _Eek:
    """Parse an EEK in the answer of the KMS."""
    if not isinstance(value, dict) or not isinstance(value.get("encryptedKeyVersion"), dict):
        raise unexpected()
    name, inner = value.get("versionName"), value["encryptedKeyVersion"]
    if not isinstance(name, str) or not _is_version_name(name) or inner.get("versionName") != _EEK:
        raise unexpected()
    eek = _Eek(name, _member(value, "iv"), _member(inner, "material"))
    right_lengths = len(eek.iv) == _IV_LENGTH and len(eek.material) in KEY_LENGTHS
    if eek.master_key_id != master_key_id or not right_lengths:
        raise unexpected()
    return eek


def _member(document: object, name: str) -> bytes:
    text = document.get(name) if isinstance(document, dict) else None
    if not isinstance(text, str):
        raise unexpected()
    try:
        return hadoop_base64.decode(text)
    except ValueError:
        raise unexpected() from None
