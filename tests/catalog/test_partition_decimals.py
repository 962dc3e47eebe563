"""Decimals that partition a table keep every digit: a reader prunes by them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pyiceberg.types import DecimalType

from catalog.iceberg.partition_values import stored_value

LONGEST = "123456789012345678901234567890123456.78"


@pytest.mark.parametrize("text", [LONGEST, f"-{LONGEST}", "9" * 36 + ".99", "0.01", "7", "0", "0.000"])
def test_a_decimal_keeps_every_digit(text: str) -> None:
    assert stored_value(DecimalType(38, 2), text) == Decimal(text)


@pytest.mark.parametrize(
    "text",
    [
        "9" * 36 + ".991",
        "1" * 37,
        "1E+80",
        "1E+900000000",
        "1E-80",
        f"1.{'0' * 150}1",
        "0." + "0" * 120 + "1",
    ],
)
def test_a_decimal_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="digits"):
        stored_value(DecimalType(38, 2), text)
