"""The search for secrets itself: a canary that cannot be found proves nothing."""

from __future__ import annotations

import base64
import pickle
import textwrap
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from catalog.crypto.secret import SecretBytes
from tests.support.canary import WINDOW, Canary, recorded_secrets

SECRET = Random(7).randbytes(32)
TOKEN = b"lw_0123456789abcdef0123456789abcdef_Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmF"
NOISE = Random(8).randbytes(997)


def _signed(secret: bytes) -> list[int]:
    return [each - 256 if each > 127 else each for each in secret]


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "raw": lambda secret: secret,
    "python pickle": lambda secret: pickle.dumps({"key": secret}),
    "hex": lambda secret: secret.hex().encode(),
    "HEX": lambda secret: secret.hex().upper().encode(),
    "hex with colons": lambda secret: secret.hex(":").encode(),
    "hex dump": lambda secret: textwrap.fill(secret.hex(" "), 24).encode(),
    "hex numbers": lambda secret: ", ".join(f"0x{each:02x}" for each in secret).encode(),
    "base64": base64.b64encode,
    "base64 url": base64.urlsafe_b64encode,
    "base64 without padding": lambda secret: base64.urlsafe_b64encode(secret).rstrip(b"="),
    "base64, second place": lambda secret: base64.b64encode(b"x" + secret + b"yz"),
    "base64, third place": lambda secret: base64.urlsafe_b64encode(b"xy" + secret + b"z"),
    "Arrays.toString": lambda secret: str(_signed(secret)).encode(),
    "ArraySeq": lambda secret: f"ArraySeq({', '.join(map(str, _signed(secret)))})".encode(),
    "cut off": lambda secret: f"Array({', '.join(map(str, _signed(secret)[:25]))}, ... 7 more)".encode(),
    "JSON": lambda secret: str(list(secret)).replace(" ", "").encode(),
    "JSON, indented": lambda secret: str(list(secret)).replace(" ", "\n    ").encode(),
    "repr": lambda secret: repr(secret).encode(),
    "the end": lambda secret: secret[-WINDOW:],
}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", [SECRET, SECRET[:16], TOKEN], ids=["key", "short-key", "token"])
def test_a_secret_is_found_in_each_form(form: str, secret: bytes) -> None:
    if form == "cut off" and len(secret) < 25:
        pytest.skip("too short to be cut off")
    written = NOISE + b" key=" + FORMS[form](secret) + b"\n" + NOISE
    assert {each.secret for each in Canary({"planted": secret}).search("here", written)} == {"planted"}


def test_nothing_is_found_where_nothing_is() -> None:
    secrets = {str(number): Random(number).randbytes(32) for number in range(100, 600)}
    written = b"".join(form(SECRET) for form in FORMS.values()) + Random(9).randbytes(1 << 20)
    assert Canary(secrets).search("here", written) == []


def test_one_secret_among_many_is_named_with_its_place(tmp_path: Path) -> None:
    secrets = {str(number): Random(number).randbytes(32) for number in range(100, 600)}
    (tmp_path / "clean").write_bytes(NOISE)
    (tmp_path / "leak").write_bytes(NOISE + secrets["321"].hex().encode())
    [found] = Canary(secrets).search_files([tmp_path / "clean", tmp_path / "leak"])
    assert (found.secret, found.form, found.where) == ("321", "hexadecimal", str(tmp_path / "leak"))


def test_a_secret_in_the_name_of_a_file_is_found(tmp_path: Path) -> None:
    (tmp_path / SECRET.hex()).touch()
    assert Canary({"planted": SECRET}).search_files(tmp_path.iterdir()) != []


def test_what_the_catalog_takes_for_a_secret_is_recorded() -> None:
    with recorded_secrets() as secrets:
        SecretBytes(SECRET)
    SecretBytes(TOKEN)
    assert secrets == {SECRET}
