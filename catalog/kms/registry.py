"""Loads KMS back ends by name: built-in ones, and others by entry point.

Rules:
- A built-in name cannot be taken over by an installed package, and a name that two packages claim is refused.
- Nothing is imported but the one that is named. What it raises beside our errors is refused by its
  type alone: it was given secrets, and its message may show them.

Entry point group ``lakewarden.kms``: a callable that takes the options as a mapping, secrets in it as
`SecretBytes`, and returns a `KmsClient`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final, TypeVar

from pydantic import SecretStr, ValidationError

from catalog.crypto.secret import SecretBytes
from catalog.kms.back_ends import misconfigured
from catalog.kms.interface import KmsClient
from catalog.kms.local import LocalKms
from catalog.kms.root_key import KeyFile, Passphrase
from catalog.settings.kms_options import (
    AwsKmsOptions,
    BackendOptions,
    HadoopKmsOptions,
    LocalKmsOptions,
    OptionValue,
    VaultKmsOptions,
)
from policy.errors import LakewardenError, PropertyInvalid

KMS_GROUP: Final = "lakewarden.kms"

KmsOptions = Mapping[str, OptionValue | SecretBytes]

_Options = TypeVar("_Options", bound=BackendOptions)


def load_kms(name: str, options: KmsOptions) -> KmsClient:
    """Load a KMS client.

    Args:
        name: a built-in name, or the name of an entry point.
        options: the back end's options; those of a built-in one are in
            `catalog.settings.kms_options`.

    Raises:
        PropertyInvalid: an unknown name, options that the back end does not have, or a package that it needs
            and that is not installed; an entry point that fails.
    """
    built_in = _BUILT_IN.get(name)
    if built_in is not None:
        return built_in(options)
    client = from_entry_point(KMS_GROUP, name, options)
    if not isinstance(client, KmsClient):
        raise misconfigured(f"The entry point {name!r} of {KMS_GROUP} does not return a KmsClient.")
    return client


def from_entry_point(group: str, name: str, *arguments: KmsOptions) -> object:
    """Return the object that a named entry point creates."""
    found: set[EntryPoint] = set(entry_points(group=group, name=name))
    if len(found) != 1:
        state = "is claimed by more than one package" if found else "is not installed"
        raise misconfigured(f"The entry point {name!r} of {group} {state}.")
    point = found.pop()
    try:
        return point.load()(*arguments)
    except LakewardenError:
        raise
    except Exception as error:  # noqa: BLE001 - of a stranger, nothing passes but the type
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise misconfigured(
            f"The entry point {name!r} of {group} ({point.value}) failed with {type(error).__name__}.",
            hint=f"Correct the package or its options. It failed at {frame.filename}:{frame.lineno}.",
        ) from None


def _local(given: KmsOptions) -> KmsClient:
    options = _options(LocalKmsOptions, given)
    if options.passphrase is not None:
        secret = SecretBytes(options.passphrase.get_secret_value().encode("utf-8"))
        return LocalKms(options.keystore, Passphrase(secret))
    if options.key_file is None:
        raise misconfigured("The local KMS needs the options keystore, and either key_file or passphrase.")
    return LocalKms(options.keystore, KeyFile(options.key_file))


def _aws(given: KmsOptions) -> KmsClient:
    options = _options(AwsKmsOptions, given)
    try:
        from catalog.kms.aws import AwsKms
    except ModuleNotFoundError as failure:
        raise _missing("aws") from failure
    return AwsKms.connect(options)


def _vault(given: KmsOptions) -> KmsClient:
    options = _options(VaultKmsOptions, given)
    try:
        from catalog.kms.vault import VaultKms
    except ModuleNotFoundError as failure:
        raise _missing("vault") from failure
    return VaultKms.connect(options)


def _hadoop(given: KmsOptions) -> KmsClient:
    options = _options(HadoopKmsOptions, given)
    from catalog.kms.hadoop import HadoopKms

    return HadoopKms(options)


_BUILT_IN: Final[Mapping[str, Callable[[KmsOptions], KmsClient]]] = {
    "local": _local,
    "aws": _aws,
    "vault": _vault,
    "hadoop": _hadoop,
}


def _options(model: type[_Options], given: KmsOptions) -> _Options:
    """Parse the options into their types."""
    plain = {name: _plain(value) for name, value in given.items()}
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        # The cause holds the values, including secrets.
        raise misconfigured(f"The KMS option {name} is not valid: {first['msg']}.") from None


def _plain(value: OptionValue | SecretBytes) -> OptionValue | SecretStr:
    return SecretStr(value.reveal().decode("utf-8")) if isinstance(value, SecretBytes) else value


def _missing(extra: str) -> PropertyInvalid:
    return misconfigured(
        f"The KMS {extra!r} needs Python packages that are not installed.",
        hint=f'Run `pip install "lakewarden[{extra}]"`.',
    )
