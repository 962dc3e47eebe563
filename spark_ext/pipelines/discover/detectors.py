"""Detectors: whether a value is personal or secret data of some kind, by its form and its check digits.

A detector sees one value at a time, of at most `LONGEST` characters, and answers yes or no. The values are
foreign: what a library raises for one of them means no.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

import phonenumbers
from stdnum import iban, luhn

from policy.errors import RequestInvalid
from spark_ext.pipelines.discover import national_ids
from spark_ext.pipelines.discover.secret_formats import is_secret

LONGEST: Final = 4_096
"""Characters of a value that are looked at."""


class Strength(StrEnum):
    """What a match says.

    - CERTAIN: nothing else looks like this; one value is enough.
    - CHECKED: form and check exclude almost everything else; a part of the values is enough.
    - FORMED: form and check exclude most other data; many of the values must match.
    - WEAK: random values match sometimes; nearly all values must match.
    - NAMED: much other data matches; it counts only where a name, comment or tag suggests it.
    """

    CERTAIN = "certain"
    CHECKED = "checked"
    FORMED = "formed"
    WEAK = "weak"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class Detector:
    """Recognizes values of one form.

    Attributes:
        id: its name in messages.
        kind: the id of the kind of data.
        strength: what a match says.
        matches: whether a value is such data.
        digits: how many decimal digits such data has, at least.
        longest: how many characters such data has, at most.
    """

    id: str
    kind: str
    strength: Strength
    matches: Callable[[str], bool]
    digits: int = 0
    longest: int = LONGEST

    def match(self, text: str) -> bool:
        """Return whether a value is such data."""
        try:
            return self.matches(text)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            return False


def matching(known: Sequence[Detector], text: str) -> list[str]:
    """Return the ids of the detectors that match a value."""
    digits, length = sum(map(str.isdecimal, text)), len(text)
    return [
        each.id for each in known if digits >= each.digits and length <= each.longest and each.match(text)
    ]


def detectors(ids: Sequence[str] = national_ids.ALL, regions: Sequence[str] = ()) -> Sequence[Detector]:
    """Make the detectors.

    Args:
        ids: the national identification numbers to look for, such as ``us.ssn``.
        regions: regions whose telephone numbers are known as they are written there, such as ``US``.
    """
    return (*_FIXED, *_phones(regions), *_national(ids))


def require_regions(regions: Sequence[str]) -> None:
    """Refuse regions that are not known.

    Raises:
        RequestInvalid: one is not.
    """
    for region in regions:
        if region not in phonenumbers.SUPPORTED_REGIONS:
            raise RequestInvalid(
                f"{region!r:.40} is not a region with known telephone numbers.",
                rule="phone-region",
                hint="Use ISO 3166 codes, such as US or DE.",
            )


#: Letters of any script: names and domains can be internationalized (RFC 6531).
_EMAIL: Final = re.compile(
    r"(?<![\w.+%-])\w[\w.%+'-]{0,63}@((?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8})"
    r"([^\W\d_]{2,24})(?!\.?[\w:@-])"
)
#: Before a user's name and password in a URL, which are followed by @, too.
_USER_INFO: Final = re.compile(r"://[^\s/?#]{0,200}\Z")
#: What follows the last dot in names of files, such as logo@2x.png.
_NO_DOMAINS: Final = frozenset(
    ("css", "gif", "html", "ico", "jpeg", "jpg", "js", "json", "pdf", "png", "svg", "tiff", "webp", "xml")
)
_IBAN: Final = re.compile(
    r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![A-Za-z0-9])", re.IGNORECASE
)
_CARD: Final = re.compile(r"\d{13,19}")
_GROUPED_CARD: Final = re.compile(
    r"(?<![\w.-])(?:\d{4}([ -])\d{4}\1\d{4}\1\d{4}|3\d{3}([ -])\d{6}\2\d{5})(?![\w.-])"
)
#: Issuers by the first digits, with the lengths of their numbers (ISO/IEC 7812).
_ISSUERS: Final = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|(?:5[1-5]\d{2}|222[1-9]|22[3-9]\d|2[3-6]\d{2}|27[01]\d|2720)\d{12}|3[47]\d{13}|"
    r"(?:6011|64[4-9]\d|65\d{2})\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11}|62\d{14,17}"
)
_NATIONAL_INSURANCE: Final = re.compile(
    r"(?!BG|GB|NK|KN|TN|NT|ZZ)[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} ?[A-D]"
)
#: Also in a text, if it has groups.
_PHONE: Final = re.compile(r"(?<![\w+])\+[1-9]\d{0,2}[ ().\-/][\d ().\-/]{4,22}\d(?!\w)")
_WHOLE_PHONE: Final = re.compile(r"(?:\+|00)[1-9][\d ().\-/]{6,24}")
_LONGEST_IP: Final = 45
_AS_WRITTEN: Final = phonenumbers.PhoneNumberFormat.NATIONAL
_DIGITS: Final = re.compile(r"[\d ().\-/+]{7,24}")
_GROUPED: Final = re.compile(r"\(?\d+(?:[ ().\-/]+\d+){1,5}")
#: A payment card number beside a word for it.
_CARD_WORD: Final = re.compile(r"(?i)(?<![a-z])(?:amex|card|carte|karte|mastercard|tarjeta|visa)s?(?![a-z])")
_CARD_IN_TEXT: Final = re.compile(r"(?<![\w.-])\d{13,19}(?![\w-]|\.\d)")
#: A password, key or token with its name before it, as settings and logs have it.
_ASSIGNED: Final = re.compile(
    r"(?i)(?<![a-z])(?:pass_?word|passwd|pwd|(?:client|app)_?secret|(?:api|secret|private|access)[_-]?key|"
    r"(?:access|auth|refresh|api)[_-]?token)[\"']?(?:=|: ?[\"'])[\"']?(?![*<${\[xX]|null|none|true|false)"
    r"[^\s\"'&,;<>{}*]{6,}"
)


def _is_email(text: str) -> bool:
    return any(
        found.group(2).lower() not in _NO_DOMAINS and _USER_INFO.search(text, 0, found.start()) is None
        for found in _EMAIL.finditer(text)
    )


def _is_iban(text: str) -> bool:
    return any(iban.is_valid(found.group()) for found in _IBAN.finditer(text))


def _is_card(text: str) -> bool:
    return _CARD.fullmatch(text) is not None and _is_issued(text)


def _is_grouped_card(text: str) -> bool:
    return any(_is_issued(re.sub("[ -]", "", found.group())) for found in _GROUPED_CARD.finditer(text))


def _is_issued(digits: str) -> bool:
    return _ISSUERS.fullmatch(digits) is not None and luhn.is_valid(digits)


def _is_national_insurance(text: str) -> bool:
    return _NATIONAL_INSURANCE.fullmatch(text) is not None


def _is_ip_address(text: str) -> bool:
    return bool(ipaddress.ip_address(text))


def _is_international(text: str) -> bool:
    return any(_is_valid_number(found.group(), None) for found in _PHONE.finditer(text))


def _is_whole_international(text: str) -> bool:
    return _WHOLE_PHONE.fullmatch(text) is not None and _is_valid_number(re.sub("^00", "+", text), None)


def _is_national(region: str, text: str) -> bool:
    """Return whether a text is a number in the groups in which a region writes it."""
    if _GROUPED.fullmatch(text) is None:
        return False
    number = _parsed(text, region)
    written = "" if number is None else phonenumbers.format_number(number, _AS_WRITTEN)
    return _groups(written) == _groups(text) and _is_valid_number(text, region)


def _groups(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def _is_valid_number(text: str, region: str | None) -> bool:
    number = _parsed(text, region)
    return number is not None and phonenumbers.is_valid_number(number)


def _parsed(text: str, region: str | None) -> phonenumbers.PhoneNumber | None:
    try:
        return phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return None


def _is_like_a_number(text: str) -> bool:
    return _DIGITS.fullmatch(text) is not None and 7 <= sum(map(str.isdigit, text)) <= 15


def _is_card_in_text(text: str) -> bool:
    return _CARD_WORD.search(text) is not None and any(
        _is_issued(found.group()) for found in _CARD_IN_TEXT.finditer(text)
    )


def _is_assigned(text: str) -> bool:
    return _ASSIGNED.search(text) is not None


_FIXED: Final = (
    Detector("known-format", "secret", Strength.CERTAIN, is_secret),
    Detector("named-secret", "secret", Strength.CHECKED, _is_assigned),
    Detector("address-form", "email", Strength.CHECKED, _is_email),
    Detector("iban", "bank-account", Strength.CHECKED, _is_iban, 6),
    Detector("luhn-grouped", "payment-card", Strength.CHECKED, _is_grouped_card, 15),
    Detector("luhn-named", "payment-card", Strength.CHECKED, _is_card_in_text, 13),
    Detector("luhn", "payment-card", Strength.FORMED, _is_card, 13, 19),
    Detector("ip", "ip-address", Strength.NAMED, _is_ip_address, longest=_LONGEST_IP),
    Detector("gb.nino", "national-id", Strength.WEAK, _is_national_insurance, 6, 24),
)


def _phones(regions: Sequence[str]) -> Iterator[Detector]:
    yield Detector("international", "phone", Strength.CHECKED, _is_international, 7)
    yield Detector("e164", "phone", Strength.FORMED, _is_whole_international, 7, 26)
    yield Detector("digits", "phone", Strength.NAMED, _is_like_a_number, 7, 24)
    for region in regions:
        yield Detector(f"national-{region}", "phone", Strength.WEAK, partial(_is_national, region), 7, 24)


def _national(ids: Sequence[str]) -> Iterator[Detector]:
    for name in ids:
        matches, digits = partial(national_ids.is_valid, name), national_ids.DIGITS
        if name in national_ids.STRONG:
            yield Detector(name, "national-id", Strength.CHECKED, matches, digits)
        else:
            yield Detector(name, "national-id", Strength.WEAK, matches, digits, national_ids.LONGEST)
