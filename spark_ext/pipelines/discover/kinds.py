"""The kinds of data that are looked for, and what column names say about them.

Names are compared as words: ``customerEmail``, ``CUSTOMER_EMAIL`` and ``customer-email`` are the same. A name
that tells of a fact about such data, and not of the data (``email_verified``), is no hint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from spark_ext.pipelines.items import Rule, Severity

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
#: Levels of lists and maps in the names of columns.
_LEVELS: Final = frozenset({"element", "key", "value"})
#: Words of names that are about the data, and are not the data.
_ABOUT: Final = frozenset(
    re.findall(
        r"\w+",
        "at attempts bounced campaign category changed count counts days domain enabled expires expiry "
        "failed flag format has hint is length max min opens policy preference provider required sent "
        "status subject template type updated valid verified version ",
    )
)
#: Names of numbers that have check digits, too, and are of things and companies.
_OTHER_NUMBERS: Final = re.compile(
    r"(?:^|_)(?:barcode|duns|ean|gln|gtin|imei|invoice|isbn|isin|issn|lei|order|routing|serial|siren|siret|sku|"
    r"tracking|upc|vat|vin)\d*(?:$|_)"
)
_TEXT: Final = ("string", "binary")
_NUMBERS: Final = ("int", "long", "decimal")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of personal or secret data.

    Attributes:
        id: ends the id of its rule.
        what: the data, in the plural, for messages.
        severity: of its findings.
        names: a pattern of words, joined by underscores, that names of such columns have.
        types: the beginnings of the Iceberg types that hold it.
        mask: the mask type of the proposed policy for text.
        checked: whether detectors know every form of it, so that values can speak against a name.
    """

    id: str
    what: str
    severity: Severity
    names: str
    types: tuple[str, ...]
    mask: str
    checked: bool = False

    @property
    def rule(self) -> Rule:
        """The rule that a plaintext column with such data breaks."""
        return Rule(
            f"plaintext-{self.id}",
            self.severity,
            f"A plaintext column seems to hold {self.what}.",
            "Review the proposal, encrypt the column and mask it for users who do not need it.",
        )

    def fits(self, type_name: str) -> bool:
        """Return whether a column of an Iceberg type can hold such data."""
        return type_name.startswith(self.types)

    def named(self, words: str) -> bool:
        """Return whether words, joined by underscores, suggest such data."""
        return re.search(rf"(?:^|_)(?:{self.names})(?:$|_)", words) is not None


_PERSON: Final = (
    "first|last|given|family|middle|maiden|full|contact|customer|person|patient|employee|passenger|"
    "guest|cardholder|card_holder|account_holder|beneficiary|recipient|sender"
)
_NUMBER: Final = "(?:num|no|number)"

KINDS: Final[Sequence[Kind]] = (
    Kind(
        "secret",
        "passwords, keys or tokens",
        Severity.ERROR,
        "pass_?words?|passwd|pwd|passphrase|^secret$|passwort|kennwort|contrasena|mot_de_passe|(?:access|api|encryption|private|secret|signing)_?keys?|"
        "(?:client|api|app|shared)_secret|"
        "(?:access|api|auth|bearer|id|refresh|session)_token|credentials?|connection_string",
        _TEXT,
        "MASK_NULL",
    ),
    Kind(
        "email",
        "e-mail addresses",
        Severity.WARNING,
        "e_?mails?|mail_address|correo",
        _TEXT,
        "MASK_HASH",
        checked=True,
    ),
    Kind(
        "phone",
        "telephone numbers",
        Severity.WARNING,
        rf"(?:tele)?phones?|telefono?|(?:mobile|cell)_?(?:phone|num|no|number)|^mobile$|^fax(?:_{_NUMBER})?$|msisdn",
        _TEXT + _NUMBERS,
        "MASK_SHOW_LAST_4",
        checked=True,
    ),
    Kind(
        "payment-card",
        "payment card numbers",
        Severity.ERROR,
        rf"(?:credit|debit|payment|bank)_card|cc_{_NUMBER}|card_{_NUMBER}",
        _TEXT + _NUMBERS,
        "MASK_SHOW_LAST_4",
        checked=True,
    ),
    Kind(
        "bank-account",
        "bank account numbers",
        Severity.WARNING,
        "iban|bank_account",
        _TEXT + _NUMBERS,
        "MASK_SHOW_LAST_4",
    ),
    Kind(
        "national-id",
        "national identification numbers",
        Severity.WARNING,
        "ssn|social_security(?:_num|_no|_number)?|sin_number|national_id|national_insurance|nino|nhs_number|"
        "bsn|cpf|curp|pesel|personnummer|hetu|aadhaar|codice_fiscale|passport|driver_?s?_licen[cs]e|"
        "tax_(?:id|number|payer_id)|id_card|identity_card",
        _TEXT + _NUMBERS,
        "MASK_NULL",
    ),
    Kind(
        "person-name",
        "names of people",
        Severity.WARNING,
        rf"(?:{_PERSON})_?name|surname|forename|lastname|firstname",
        ("string",),
        "MASK_NULL",
    ),
    Kind(
        "birth-date",
        "dates of birth",
        Severity.WARNING,
        "birth_?da(?:te|y)|date_of_birth|^born(?:_on)?$|dob|geburtsdatum|fecha_nacimiento|date_naissance",
        ("date", "timestamp", "string"),
        "MASK_NULL",
    ),
    Kind(
        "address",
        "postal addresses",
        Severity.WARNING,
        "(?:street|postal|home|mailing|billing|shipping|residential|delivery)_address|address_line|"
        "street_name|^address$",
        ("string",),
        "MASK_NULL",
    ),
    Kind(
        "ip-address",
        "IP addresses of users",
        Severity.NOTE,
        "(?:client|customer|login|remote|source|user|visitor)_ip|ip_addr(?:ess)?|remote_addr",
        ("string",),
        "MASK_HASH",
        checked=True,
    ),
)

BY_ID: Final = {kind.id: kind for kind in KINDS}
"""The kinds by their ids."""


def words_of(name: str) -> str:
    """Return the words of a name in lower case, joined by underscores."""
    return "_".join(each.lower() for each in _WORD.findall(name))


def hinted(name: str, type_name: str) -> frozenset[str]:
    """Return the kinds that the name of a column suggests.

    Args:
        name: the column's full dotted name.
        type_name: its Iceberg type.
    """
    words = list(_last_words(name))
    if not words or _ABOUT.intersection(words[0].split("_")):
        return frozenset()
    return frozenset(
        kind.id for kind in KINDS if kind.fits(type_name) and any(kind.named(each) for each in words)
    )


def tells_of_other_numbers(name: str) -> bool:
    """Return whether a name tells of numbers of things or companies, such as ``isbn``."""
    return any(_OTHER_NUMBERS.search(words) for words in _last_words(name))


def mentioned(text: str) -> frozenset[str]:
    """Return the kinds that a text names, such as a comment or a tag."""
    words = words_of(text)
    return frozenset(kind.id for kind in KINDS if kind.named(words))


def _last_words(name: str) -> Iterator[str]:
    """Yield the words of the last part of a dotted name, then those with the part before it."""
    parts = [part for part in name.split(".") if part not in _LEVELS] or [name]
    yield words_of(parts[-1])
    yield "_".join(filter(None, map(words_of, parts[-2:])))
