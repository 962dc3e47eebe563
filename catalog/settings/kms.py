"""The settings of the key management service: ``[kms]``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PositiveFloat,
    SecretStr,
    Tag,
    model_validator,
)

from catalog.crypto.secret import SecretBytes
from catalog.settings.kms_options import (
    AwsKmsOptions,
    HadoopKmsOptions,
    LocalKmsOptions,
    OptionValue,
    VaultKmsOptions,
)
from policy.errors import RequestInvalid

#: What a KMS can be called.
KMS_NAME: Final = r"^[a-z0-9][a-z0-9-]{0,62}$"
#: Settings that only the main KMS has.
_OF_MAIN: Final = frozenset({"name", "default_master_key_id", "pek_ttl_s"})


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class KmsCallSettings(_Section):
    """The time-outs, retries and limits of calls to a remote KMS; the local KMS is called directly.

    Attributes:
        attempts: maximum number of attempts of a call.
        attempt_s: seconds for one attempt.
        deadline_s: seconds for all attempts of a call. A call for the same key waits as long for its result.
        concurrency: maximum number of concurrent calls.
        failures: number of consecutive failures that opens the circuit breaker.
        open_s: seconds that the circuit breaker stays open before the first new attempt.
    """

    attempts: int = Field(default=3, ge=1, le=10)
    attempt_s: float = Field(default=4.0, gt=0, le=14)
    deadline_s: float = Field(default=5.0, gt=0, le=14)
    concurrency: int = Field(default=16, ge=1, le=256)
    failures: int = Field(default=5, ge=1, le=1000)
    open_s: float = Field(default=5.0, gt=0, le=300)


class _Kms(_Section):
    """Settings of every kind of KMS.

    Attributes:
        kind: where the master keys are: in a file (not for production), AWS KMS, HashiCorp Vault or OpenBao,
            a Hadoop or Ranger KMS, or the back end of an installed package, by its name.
        name: the name of the KMS beside each key that it wraps; its kind by default. For a KMS in
            `other_kms`, it is the name of the section.
        default_master_key_id: the master key of tables that name none.
        pek_ttl_s: seconds for which an unwrapped PEK is used. After that, a disabled master key takes effect.
        calls: the limits of calls.
    """

    name: str | None = Field(default=None, pattern=KMS_NAME)
    default_master_key_id: str = Field(default="lakewarden", min_length=1, max_length=255)
    pek_ttl_s: PositiveFloat = 60.0
    calls: KmsCallSettings = KmsCallSettings()


class LocalKmsSettings(_Kms):
    """The local KMS.

    Attributes:
        options: its options.
    """

    kind: Literal["local"] = "local"
    options: LocalKmsOptions


class AwsKmsSettings(_Kms):
    """AWS KMS.

    Attributes:
        options: its options.
    """

    kind: Literal["aws"]
    options: AwsKmsOptions = AwsKmsOptions()


class VaultKmsSettings(_Kms):
    """The Transit engine of HashiCorp Vault or OpenBao.

    Attributes:
        options: its options.
    """

    kind: Literal["vault"]
    options: VaultKmsOptions


class HadoopKmsSettings(_Kms):
    """A Hadoop or Ranger KMS.

    Attributes:
        options: its options.
    """

    kind: Literal["hadoop"]
    options: HadoopKmsOptions


class OtherKmsSettings(_Kms):
    """A back end of an installed package.

    Attributes:
        kind: the name of its entry point.
        options: its options, as its package defines them.
        secrets: those of its options that are secret. They are masked in output.
    """

    kind: str = Field(min_length=1, max_length=255)
    options: dict[str, OptionValue] = {}
    secrets: dict[str, SecretStr] = {}

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if both := set(self.options) & set(self.secrets):
            raise ValueError(f"{sorted(both)[0]} is set in both options and secrets; set it once")
        return self


_BUILT_IN: Final = ("local", "aws", "vault", "hadoop")
_OTHER: Final = "other"

#: Pydantic adds the kind between ``kms`` and the setting's name in the location of an error.
KINDS: Final = (*_BUILT_IN, _OTHER)


def _kind_of(kms: object) -> str:
    kind = kms.get("kind", "local") if isinstance(kms, dict) else getattr(kms, "kind", None)
    return kind if kind in _BUILT_IN else _OTHER


KmsSettings = Annotated[
    Annotated[LocalKmsSettings, Tag("local")]
    | Annotated[AwsKmsSettings, Tag("aws")]
    | Annotated[VaultKmsSettings, Tag("vault")]
    | Annotated[HadoopKmsSettings, Tag("hadoop")]
    | Annotated[OtherKmsSettings, Tag(_OTHER)],
    Discriminator(_kind_of),
]


def _without_main(kms: KmsSettings) -> KmsSettings:
    if wrong := kms.model_fields_set & _OF_MAIN:
        raise ValueError(f"{sorted(wrong)[0]} can be set only in [kms]")
    return kms


#: A KMS beside the main one.
OtherKms = Annotated[KmsSettings, AfterValidator(_without_main)]


def kms_options(kms: KmsSettings) -> dict[str, OptionValue | SecretBytes]:
    """The options of a back end as `registry.load_kms` takes them: secrets as `SecretBytes`."""
    given = kms.options if isinstance(kms, OtherKmsSettings) else kms.options.model_dump(exclude_none=True)
    secrets = kms.secrets if isinstance(kms, OtherKmsSettings) else {}
    return {name: _option(value) for name, value in {**given, **secrets}.items()}


def _option(value: OptionValue | Path | SecretStr) -> OptionValue | SecretBytes:
    if isinstance(value, SecretStr):
        return SecretBytes(value.get_secret_value().encode("utf-8"))
    return str(value) if isinstance(value, Path) else value


def local_kms_options(kms: KmsSettings) -> LocalKmsOptions:
    """The options of the local KMS.

    Raises:
        RequestInvalid: the settings name another KMS.
    """
    if not isinstance(kms, LocalKmsSettings):
        raise RequestInvalid(
            f"The master keys are in the KMS {kms.kind!r}, not in the local KMS.",
            rule="local-kms",
            hint="Manage them with the tools of that KMS.",
        )
    return kms.options
