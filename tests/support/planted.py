"""Personal and secret data of every kind, made up, and data that looks like it and is none."""

from __future__ import annotations

import base64
import json
import random
import uuid
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Final

from stdnum import iban, luhn
from stdnum.es import dni
from stdnum.iso7064 import mod_97_10
from stdnum.us import ssn

Make = Callable[[random.Random], object]

_FIRST: Final = ("ada", "bob", "carol", "dmitri", "eve", "fatima", "grace", "heidi", "ivan", "judy")
_LAST: Final = ("turing", "hopper", "lovelace", "knuth", "liskov", "dijkstra", "hamilton", "perlman")


def _digits(rng: random.Random, count: int) -> str:
    return "".join(rng.choices("0123456789", k=count))


def _token(rng: random.Random, count: int) -> str:
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", k=count))


def email(rng: random.Random) -> str:
    return f"{rng.choice(_FIRST)}.{rng.choice(_LAST)}{rng.randrange(10**6)}@mail{rng.randrange(99)}.example"


def card(rng: random.Random) -> str:
    head = rng.choice(("4", "51", "55")) + _digits(rng, 14)
    head = head[:15]
    return head + luhn.calc_check_digit(head)


def grouped_card(rng: random.Random) -> str:
    digits = card(rng)
    return " ".join(digits[at : at + 4] for at in range(0, 16, 4))


def account(rng: random.Random) -> str:
    bban = "37040044" + _digits(rng, 10)
    number = f"DE{98 - int(mod_97_10.checksum(bban + 'DE00')):02d}{bban}"
    found: str = iban.validate(number)
    return found


def social_security(rng: random.Random) -> str:
    while True:
        number = f"{rng.randrange(1, 666):03d}-{rng.randrange(1, 100):02d}-{rng.randrange(1, 10_000):04d}"
        if ssn.is_valid(number):
            return number


def spanish_id(rng: random.Random) -> str:
    digits = _digits(rng, 8)
    return digits + dni.calc_check_digit(digits)


def phone(rng: random.Random) -> str:
    return f"+49 30 {rng.randrange(10**5, 10**6)}{rng.randrange(10):d}"


def access_key(rng: random.Random) -> str:
    return "AKIA" + "".join(rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", k=16))


def web_token(rng: random.Random) -> str:
    parts = ({"alg": "HS256"}, {"sub": _digits(rng, 8)})
    head, claims = (
        base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts
    )
    return f"{head}.{claims}.{_token(rng, 43)}"


def password_hash(rng: random.Random) -> str:
    return f"$2b$12${_token(rng, 53)}"


def private_key(rng: random.Random) -> bytes:
    return f"-----BEGIN PRIVATE KEY-----\n{_token(rng, 64)}\n-----END PRIVATE KEY-----".encode()


def remark(rng: random.Random) -> str:
    return f"asked to be called back, wrote from {email(rng)} on Monday"


def document(rng: random.Random) -> str:
    return json.dumps({"id": rng.randrange(10**9), "contact": {"mail": email(rng)}})


#: Values by their kind, for columns whose names say nothing.
BY_VALUE: Final[Mapping[str, tuple[str, Make]]] = {
    "c1": ("email", email),
    "c2": ("payment-card", card),
    "c3": ("payment-card", grouped_card),
    "c4": ("payment-card", lambda rng: int(card(rng))),
    "c5": ("bank-account", account),
    "c6": ("national-id", social_security),
    "c7": ("national-id", spanish_id),
    "c8": ("phone", phone),
    "c9": ("secret", access_key),
    "c10": ("secret", web_token),
    "c11": ("secret", password_hash),
    "c12": ("secret", private_key),
    "c13": ("email", remark),
    "c14": ("email", document),
}
#: Values by their kind, that a name tells of.
BY_NAME: Final[Mapping[str, tuple[str, Make]]] = {
    "userPassword": ("secret", lambda rng: _token(rng, 9)),
    "DATE_OF_BIRTH": ("birth-date", lambda rng: date(1950, 1, 1) + timedelta(rng.randrange(20_000))),
    "last_name": ("person-name", lambda rng: rng.choice(_LAST)),
    "home_address": ("address", lambda rng: f"{rng.randrange(1, 99)} {rng.choice(_LAST)} street"),
    "client_ip": ("ip-address", lambda rng: f"10.{rng.randrange(256)}.{rng.randrange(256)}.7"),
}
#: Values that are none of it.
GOOD: Final[Mapping[str, Make]] = {
    "id": lambda rng: rng.randrange(10**6),
    "number8": lambda rng: rng.randrange(10**7, 10**8),
    "number9": lambda rng: rng.randrange(10**8, 10**9),
    "number10": lambda rng: rng.randrange(10**9, 10**10),
    "number11": lambda rng: rng.randrange(10**10, 10**11),
    "number13": lambda rng: rng.randrange(10**12, 10**13),
    "number16": lambda rng: rng.randrange(10**15, 10**16),
    "digits9": lambda rng: _digits(rng, 9),
    "digits11": lambda rng: _digits(rng, 11),
    "digits16": lambda rng: _digits(rng, 16),
    "sequence": lambda rng: 4_000_000_000_000_000 + rng.randrange(1_000),
    "uuid": lambda rng: str(uuid.UUID(int=rng.getrandbits(128))),
    "hash": lambda rng: sha256(rng.randbytes(8)).hexdigest(),
    "base64": lambda rng: base64.b64encode(rng.randbytes(30)).decode(),
    "blob": lambda rng: rng.randbytes(40),
    "epoch_ms": lambda rng: 1_700_000_000_000 + rng.randrange(10**10),
    "epoch_s": lambda rng: 1_700_000_000 + rng.randrange(10**8),
    "at": lambda rng: (datetime(2020, 1, 1) + timedelta(seconds=rng.randrange(10**8))).isoformat(),
    "day": lambda rng: str(date(2020, 1, 1) + timedelta(rng.randrange(3_000))),
    "yyyymmdd": lambda rng: int(
        f"{2000 + rng.randrange(26)}{rng.randrange(1, 13):02d}{rng.randrange(1, 29):02d}"
    ),
    "version": lambda rng: f"{rng.randrange(9)}.{rng.randrange(30)}.{rng.randrange(200)}",
    "build": lambda rng: f"{rng.randrange(9)}.{rng.randrange(200)}.{rng.randrange(200)}.{rng.randrange(200)}",
    "price": lambda rng: f"{rng.randrange(10**6) / 100:.2f}",
    "flight": lambda rng: f"{rng.choice(('UA', 'AA', 'DL', 'B6'))}{rng.randrange(1, 9_999)}",
    "tail_number": lambda rng: f"N{rng.randrange(100, 999)}{rng.choice('ABC')}{rng.choice('XYZ')}",
    "sku": lambda rng: f"{_token(rng, 3).upper()}-{_digits(rng, 6)}",
    "file": lambda rng: f"img{rng.randrange(999)}@2x.png",
    "path": lambda rng: f"s3://bucket/sales/{_token(rng, 12)}.parquet",
    "coordinates": lambda rng: f"{rng.uniform(-90, 90):.6f},{rng.uniform(-180, 180):.6f}",
    "product_name": lambda rng: rng.choice(("chair", "table", "lamp")),
    "email_verified": lambda rng: rng.choice(("yes", "no")),
    "handle": lambda rng: f"@{rng.choice(_FIRST)}",
}
