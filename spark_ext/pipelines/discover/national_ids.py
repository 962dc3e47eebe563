"""National identification numbers, by the check digits of `python-stdnum`.

A number is looked at only in the form that it is written in. `STRONG` ones have a form that other data does
not have, and are found in texts, too. All others pass their check by chance in up to a tenth of random
numbers: a high share of the values must match (`evidence`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Final

from policy.errors import RequestInvalid

#: By the name of the module of `stdnum`: the form of the number.
STRONG: Final[Mapping[str, str]] = {
    "ch.ssn": r"756\.\d{4}\.\d{4}\.\d{2}|756\d{10}",
    "it.codicefiscale": r"[A-Z]{6}[\dLMNP-V]{2}[A-EHLMPRST][\dLMNP-V]{2}[A-Z][\dLMNP-V]{3}[A-Z]",
    "mx.curp": r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z\d]\d",
    "us.itin": r"9\d{2}-\d{2}-\d{4}",
    "us.ssn": r"\d{3}-\d{2}-\d{4}",
}
OTHERS: Final[Mapping[str, str]] = {
    "at.vnr": r"\d{4} ?\d{6}",
    "au.tfn": r"\d{3} ?\d{3} ?\d{3}",
    "be.nn": r"\d{2}\.?\d{2}\.?\d{2}-?\d{3}\.?\d{2}",
    "bg.egn": r"\d{10}",
    "br.cpf": r"\d{3}\.?\d{3}\.?\d{3}-?\d{2}",
    "ca.sin": r"\d{3}[ -]?\d{3}[ -]?\d{3}",
    "cl.rut": r"\d{1,2}\.?\d{3}\.?\d{3}-[\dKk]",
    "cn.ric": r"\d{17}[\dX]",
    "cz.rc": r"\d{6}/\d{3,4}",
    "de.idnr": r"\d{2} ?\d{3} ?\d{3} ?\d{3}",
    "dk.cpr": r"\d{6}-\d{4}",
    "ee.ik": r"\d{11}",
    "es.dni": r"\d{8}-?[A-Z]",
    "es.nie": r"[XYZ]-?\d{7}-?[A-Z]",
    "fi.hetu": r"\d{6}[-+A-FU-Y]\d{3}[\dA-Y]",
    "fr.nir": r"[12] ?\d{2} ?\d{2} ?\d[\dAB] ?\d{3} ?\d{3} ?\d{2}",
    "gb.nhs": r"[467]\d{2}[ -]?\d{3}[ -]?\d{4}",
    "gr.amka": r"\d{11}",
    "hr.oib": r"\d{11}",
    "ie.pps": r"\d{7}[A-W][A-IW]?",
    "il.idnr": r"\d{9}",
    "in_.aadhaar": r"\d{4}[ -]?\d{4}[ -]?\d{4}",
    "in_.pan": r"[A-Z]{3}P[A-Z]\d{4}[A-Z]",
    "kr.rrn": r"\d{6}-\d{7}",
    "lt.asmens": r"\d{11}",
    "my.nric": r"\d{6}-\d{2}-\d{4}",
    "nl.bsn": r"\d{9}",
    "no.fodselsnummer": r"\d{6} ?\d{5}",
    "pl.pesel": r"\d{11}",
    "pt.cc": r"\d{8} ?\d ?[A-Z\d]{2}\d",
    "ro.cnp": r"\d{13}",
    "se.personnummer": r"(?:\d{2})?\d{6}[-+]\d{4}",
    "th.pin": r"\d-?\d{4}-?\d{5}-?\d{2}-?\d",
    "tr.tckimlik": r"\d{11}",
    "za.idnr": r"\d{13}",
}
LONGEST: Final = 24
"""Characters that such a number has, at most, if it is not in a text."""

DIGITS: Final = 4
"""Decimal digits that such a number has, at least."""

ALL: Final = tuple(sorted({*STRONG, *OTHERS}))
"""The numbers that are known, by country and name."""


def require_known(names: tuple[str, ...]) -> None:
    """Refuse names of numbers that are not known.

    Raises:
        RequestInvalid: one is not.
    """
    for name in names:
        if name not in ALL:
            raise RequestInvalid(
                f"{name!r:.40} is not a national identification number that is looked for.",
                rule="national-id",
                hint=f"Use some of: {', '.join(ALL)}.",
            )


def is_valid(name: str, text: str) -> bool:
    """Return whether a text is such a number or has a strong one, in its form and with its check digits."""
    form, check = _check(name)
    if name in STRONG:
        return any(check(found.group()) for found in form.finditer(text))
    return form.fullmatch(text) is not None and check(text)


@cache
def _check(name: str) -> tuple[re.Pattern[str], Callable[[str], bool]]:
    strong = STRONG.get(name)
    form = OTHERS[name] if strong is None else rf"(?<![\w.-])(?:{strong})(?![\w-]|\.\d)"
    return re.compile(form), import_module(f"stdnum.{name}").is_valid
