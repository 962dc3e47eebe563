"""Bodies and answers of `/kms/v1`, in the format of Hadoop's KMS.

Bytes are base64: standard with padding, or url-safe without, because standard clients send both. Each text
has one meaning or is refused. Answers are url-safe without padding, except keys of Parquet files.

Source: Hadoop 3.4.3, "Hadoop KMS", "KMS HTTP REST API"; `KMSClientProvider`, `KMSUtil`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from catalog.crypto import hadoop_base64
from catalog.crypto.secret import SecretBytes
from catalog.kms_server.encrypted_keys import EncryptedKey
from catalog.kms_server.names import VersionName, key_name
from catalog.kms_server.store import Denial, EndpointKey, KeySpec
from policy.errors import NotSupportedYet, RequestInvalid

CIPHER: Final = "AES/CTR/NoPadding"
#: The attribute of a key that says what readers without permission get.
DENIAL_ATTRIBUTE: Final = "lakewarden.denial"
#: The attribute that selects other access lists in Hadoop's KMS; here policies decide.
_ACL_ATTRIBUTE: Final = "key.acl.name"
_EEK: Final = "EEK"
_EK: Final = "EK"
_DEFAULT_BITS: Final = 256
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LONGEST: Final = 1_000


def _from_base64(value: object) -> bytes:
    if not isinstance(value, str):
        raise ValueError("not a text in base64")
    return hadoop_base64.decode(value)


def _line(value: str) -> str:
    if len(value) > _LONGEST or _CONTROL.search(value):
        raise ValueError(f"longer than {_LONGEST} characters, or with control characters")
    return value


KeyBytes = Annotated[bytes, BeforeValidator(_from_base64, json_schema_input_type=str)]


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, strict=True)


class CreateKey(_Body):
    """A key to create. `length` is in bits; 0 is the default, 256."""

    name: str
    cipher: str | None = None
    length: Literal[0, 128, 192, 256] = 0
    description: str | None = None
    attributes: Annotated[dict[str, str], Field(max_length=50)] | None = None
    material: str | None = Field(default=None, repr=False)

    @field_validator("description")
    @classmethod
    def _short(cls, value: str | None) -> str | None:
        return None if value is None else _line(value)

    @field_validator("attributes")
    @classmethod
    def _short_ones(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        for name, text in (value or {}).items():
            _line(name)
            _line(text)
        return value

    def to_spec(self) -> KeySpec:
        """Convert the body to a key specification.

        Raises:
            RequestInvalid: a name, cipher or attribute is not valid.
            NotSupportedYet: key material of the caller, or other access lists.
        """
        refuse_material(self.material)
        attributes = dict(self.attributes or {})
        if _ACL_ATTRIBUTE in attributes:
            raise NotSupportedYet(
                f"Keys have no attribute {_ACL_ATTRIBUTE!r}: policies decide.",
                rule="key-attribute",
                hint="Leave the attribute out.",
            )
        if self.cipher not in (None, CIPHER):
            raise RequestInvalid(
                "The cipher is not supported.",
                rule="key-cipher",
                hint=f"Use {CIPHER}, or leave the cipher out.",
            )
        denial = _denial(attributes.get(DENIAL_ATTRIBUTE, Denial.ERROR))
        return KeySpec(
            key_name(self.name), self.length or _DEFAULT_BITS, self.description, attributes, denial
        )


class RollKey(_Body):
    """A new version, with random key material."""

    material: str | None = Field(default=None, repr=False)


class EncryptedMaterial(_Body):
    """The body of one use of an encrypted key; the version is in the path."""

    name: str
    iv: KeyBytes
    material: KeyBytes = Field(repr=False)

    def to_encrypted(self, version_name: str) -> EncryptedKey:
        """Convert the body to an encrypted key.

        Raises:
            RequestInvalid: body and path name different keys, or a length is wrong.
        """
        version = VersionName.parse(version_name)
        if self.name != version.key:
            raise RequestInvalid(
                "The body and the address name different keys.",
                rule="key-name",
                hint="Give the same key in both.",
            )
        return EncryptedKey(version, self.iv, self.material)


class _Inner(_Body):
    name: str | None = None
    versionName: Literal["EEK"]
    material: KeyBytes = Field(repr=False)


class BatchItem(_Body):
    """One encrypted key of a batch."""

    versionName: str
    iv: KeyBytes
    encryptedKeyVersion: _Inner

    def to_encrypted(self) -> EncryptedKey:
        """Convert the item to an encrypted key.

        Raises:
            RequestInvalid: a name or length is not valid.
        """
        return EncryptedKey(VersionName.parse(self.versionName), self.iv, self.encryptedKeyVersion.material)


class WrappedKek(_Body):
    """A wrapped key of Parquet files: two members of the key material of Parquet's key tools."""

    master_key_id: Annotated[str, Field(alias="masterKeyID", min_length=1, max_length=255)]
    wrapped_kek: Annotated[str, Field(alias="wrappedKEK", min_length=1, max_length=1_000)]


class UnwrappedKek(_Body):
    """An unwrapped key of Parquet files."""

    material: str = Field(repr=False)

    @classmethod
    def of(cls, key: SecretBytes) -> UnwrappedKek:
        """Encode the key in base64, with padding, as most clients expect."""
        return cls(material=base64.b64encode(key.reveal()).decode("ascii"))


def refuse_material(material: str | None) -> None:
    """Refuse key bytes of the caller: the catalog creates keys of random bytes.

    Raises:
        NotSupportedYet: the caller sends key bytes.
    """
    if material is not None:
        raise NotSupportedYet(
            "Key material from the client is not supported.",
            rule="key-material",
            hint="Leave `material` out: the catalog generates it.",
        )


def metadata_of(key: EndpointKey | None) -> dict[str, Any]:
    """Convert a key to its metadata; empty if there is no key, as standard clients expect."""
    if key is None:
        return {}
    return {
        "name": key.name,
        "cipher": CIPHER,
        "length": key.spec.bits,
        "description": key.spec.description,
        "attributes": dict(key.spec.attributes),
        "created": key.created_ms,
        "versions": key.versions,
    }


def version_of(version: VersionName | None) -> dict[str, str]:
    """Convert a version, without its material; empty if there is none."""
    return {} if version is None else {"name": version.key, "versionName": str(version)}


def encrypted_of(items: Sequence[EncryptedKey]) -> list[dict[str, Any]]:
    """Convert encrypted keys to an answer."""
    return [
        {
            "versionName": str(each.version),
            "iv": hadoop_base64.encode_url_safe(each.iv),
            "encryptedKeyVersion": {
                "versionName": _EEK,
                "material": hadoop_base64.encode_url_safe(each.material),
            },
        }
        for each in items
    ]


def decrypted_of(version: VersionName, key: SecretBytes) -> dict[str, str]:
    """Convert a decrypted key to an answer."""
    return {"name": version.key, "versionName": _EK, "material": hadoop_base64.encode_url_safe(key.reveal())}


def _denial(text: str) -> Denial:
    try:
        return Denial(text)
    except ValueError:
        raise RequestInvalid(
            f"The attribute {DENIAL_ATTRIBUTE} is neither `error` nor `mask`.",
            rule="key-attribute",
            hint="Give one of them. The default is `error`.",
        ) from None
