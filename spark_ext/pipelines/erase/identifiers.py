"""Identifiers whose rows are erased: read, converted to types of columns, and digested.

An identifier stands in no statement, plan, record, message or repr. What is recorded is its digest by scrypt
(RFC 7914) under a salt of the erasure. A holder of an identifier can compute it; to guess one takes about a
tenth of a second and 32 MiB for each guess.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
from pyiceberg.types import BinaryType, DecimalType, IcebergType, IntegerType, LongType, StringType

from policy.errors import RequestInvalid

#: The digests of all of them go into each certificate.
MOST: Final = 1_000
_COST: Final = 2**15
_BLOCK_SIZE: Final = 8
_PARALLELISM: Final = 1
_MEMORY: Final = 2**26
_LENGTH: Final = 16
#: Shorter ones are found in too many texts by chance.
_REDACTED: Final = 3
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d{0,37})")
_DECIMAL: Final = re.compile(r"-?(?:0|[1-9]\d{0,37})(?:\.\d{1,38})?")
#: What names of partitions that cannot be encoded have underscores for.
_ODD: Final = re.compile(r"[^0-9A-Za-z_=-]")
_PARAMETERS: Final = re.compile(r"\d+, scrypt N=(\d+) r=(\d+) p=(\d+) salt=([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Scrypt:
    """Parameters of scrypt (RFC 7914, section 2)."""

    salt: str
    cost: int = _COST
    block_size: int = _BLOCK_SIZE
    parallelism: int = _PARALLELISM

    def digest(self, text: str) -> str:
        """Return the digest of a text, in hexadecimal."""
        digest = hashlib.scrypt(
            text.encode(),
            salt=bytes.fromhex(self.salt),
            n=self.cost,
            r=self.block_size,
            p=self.parallelism,
            maxmem=_MEMORY,
            dklen=_LENGTH,
        )
        return digest.hex()


@dataclass(frozen=True)
class Identifiers:
    """Some identifiers, as texts.

    Attributes:
        texts: each once, sorted.
    """

    texts: tuple[str, ...] = field(repr=False)

    @classmethod
    def of(cls, given: Iterable[str | int] | Path) -> Identifiers:
        """Take identifiers.

        Args:
            given: the identifiers, or a file in UTF-8 that has one on each line.

        Raises:
            RequestInvalid: there is none, there are too many, or something is not an identifier.
        """
        texts = tuple(sorted(set(_lines(given) if isinstance(given, Path) else map(_text, _listed(given)))))
        if not texts or len(texts) > MOST:
            raise RequestInvalid(
                f"There are {len(texts)} identifiers.",
                rule="identifiers",
                hint=f"Give 1 to {MOST} identifiers for one erasure.",
            )
        return cls(texts)

    def values(self, kind: IcebergType) -> pa.Array | None:
        """Return those that can be values of a column, as the column has them.

        Args:
            kind: the column's type.

        Raises:
            RequestInvalid: columns of the type are not searched.
        """
        found = [value for text in self.texts if (value := _value(text, kind)) is not None]
        return pa.array(found, _arrow(kind)) if found else None

    def digests(self, scrypt: Scrypt) -> tuple[str, ...]:
        """Return the digest of each, sorted."""
        return tuple(sorted(map(scrypt.digest, self.texts)))

    def redacted(self, text: str) -> str:
        """Return a text with stars in the place of identifiers, such as in the names of partitions."""
        return self._pattern.sub("***", text)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        spellings = {each for text in self.texts for each in _spellings(text)}
        longest_first = sorted((each for each in spellings if len(each) >= _REDACTED), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _spellings(text: str) -> tuple[str, ...]:
    """Return a text, and as URIs and names of partitions have it: see PartitionLayout.scala."""
    encoded = quote(text, safe="").replace("~", "%7E")
    java = encoded.replace("%20", "+").replace("%2A", "*")
    return text, quote(text), quote(text, safe=""), encoded, java, _ODD.sub("_", text)


def combined(digests: Sequence[str]) -> str:
    """Return one digest of sorted digests, in hexadecimal."""
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def was_erased(identifier: str | int, reasons: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether a certificate is about an identifier.

    Args:
        identifier: the identifier.
        reasons: the reasons of the certificate's records in the audit log, with `rule` and `detail`.

    Raises:
        RequestInvalid: they are not those of a certificate.
    """
    details: dict[str, list[str]] = {}
    for each in reasons:
        details.setdefault(each["rule"], []).append(each["detail"])
    if "not-erased" in details or not details.get("identifiers"):
        raise _not_certified("The records are not those of a certificate of erasure.")
    digests = " ".join(details.get("identifier-digests", [])).split()
    # One for each certificate: two erasures of one table have salts of their own.
    own = [_digest(_text(identifier), each) for each in dict.fromkeys(details["identifiers"])]
    return any(hmac.compare_digest(mine, each) for mine in own for each in digests)


def _digest(text: str, parameters: str) -> str:
    """Return the digest of an identifier with the parameters that a certificate names."""
    found = _PARAMETERS.fullmatch(parameters)
    if found is None:
        raise _not_certified("The certificate does not name parameters of scrypt.")
    cost, block_size, parallelism = map(int, found.groups()[:3])
    try:
        return Scrypt(found.group(4), cost, block_size, parallelism).digest(text)
    except ValueError:
        raise _not_certified("The certificate names parameters of scrypt that erase does not use.") from None


def _not_certified(problem: str) -> RequestInvalid:
    return RequestInvalid(
        problem,
        rule="certificate",
        hint="Give the reasons of all records of the action table.certify, of a table that was erased.",
    )


def _listed(given: Iterable[str | int]) -> Iterable[object]:
    if isinstance(given, (str, bytes)):
        raise _not_identifiers(f"One value of type {type(given).__name__} is not a list of identifiers.")
    return given


def _text(given: object) -> str:
    """Return an identifier as text. Other types are refused: `None` would be the text "None"."""
    if not isinstance(given, (str, int)) or isinstance(given, bool) or given == "":
        kind = "An empty text" if given == "" else f"A value of type {type(given).__name__}"
        raise _not_identifiers(f"{kind} is not an identifier.")
    text = str(given)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Its text has the identifier.
        raise _not_identifiers("An identifier is not valid Unicode.") from None
    return text


def _not_identifiers(problem: str) -> RequestInvalid:
    return RequestInvalid(
        problem,
        rule="identifiers",
        hint='Give texts and whole numbers, such as ["4711", "ann@example.com"], or the Path of a file.',
    )


def _lines(file: Path) -> list[str]:
    """Return the lines of a file that are not empty. A line feed ends one, also after a carriage return."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        # The text of the second one has bytes of the file.
        raise RequestInvalid(
            f"The file of identifiers {str(file)!r:.200} cannot be read ({type(error).__name__}).",
            rule="identifiers",
            hint="Give a file in UTF-8 with one identifier on each line.",
        ) from None
    return [line for each in text.split("\n") if (line := each.removesuffix("\r"))]


def _value(text: str, kind: IcebergType) -> Any:
    """Return the value of a column that a text writes; None if there is none."""
    match kind:
        case StringType():
            return text
        case BinaryType():
            return text.encode()
        case IntegerType():
            return _whole(text, 31)
        case LongType():
            return _whole(text, 63)
        case DecimalType():
            return _decimal(text, kind)
    raise RequestInvalid(
        f"Columns of type {kind} are not searched for identifiers.",
        rule="identifier-type",
        hint="Name columns of type string, int, long, decimal or binary.",
    )


def _whole(text: str, bits: int) -> int | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(2**bits) <= number < 2**bits else None


def _decimal(text: str, kind: DecimalType) -> Decimal | None:
    if _DECIMAL.fullmatch(text) is None:
        return None
    whole, _, fraction = text.lstrip("-").partition(".")
    fraction = fraction.rstrip("0")
    fits = len(fraction) <= kind.scale and len(whole.lstrip("0")) <= kind.precision - kind.scale
    return Decimal(text) if fits else None


def _arrow(kind: IcebergType) -> pa.DataType:
    match kind:
        case BinaryType():
            return pa.binary()
        case IntegerType():
            return pa.int32()
        case LongType():
            return pa.int64()
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
    return pa.string()
