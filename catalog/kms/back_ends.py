"""Functions that the back ends share.

Of several calls for one caller, some are made at a time; the first that fails ends the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from catalog.base.ca_files import why_unusable
from policy.errors import LakewardenError, PropertyInvalid

T = TypeVar("T")
R = TypeVar("R")

_AT_A_TIME: Final = 8


def some_at_a_time(name: str, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Apply a function to each item concurrently, and return the results in order.

    Args:
        name: of the threads.
        do: asks the KMS.
        items: what it is asked about.

    Raises:
        LakewardenError: what `do` raised first, in the order of the items.
    """
    with ThreadPoolExecutor(_AT_A_TIME, name) as threads:
        running = [threads.submit(do, item) for item in items]
        try:
            return [each.result() for each in running]
        except LakewardenError:
            threads.shutdown(wait=False, cancel_futures=True)
            raise


def by_master_key(
    items: Sequence[T],
    master_key_of: Callable[[T], str],
    do: Callable[[str, list[T]], list[R]],
) -> list[R]:
    """Apply a function to the items of each master key together, and return the results in the order of the
    items.

    Args:
        items: of any master keys.
        master_key_of: an item's master key id.
        do: takes a master key id and its items, and returns as many answers.
    """
    done: dict[int, R] = {}
    for name in dict.fromkeys(map(master_key_of, items)):
        places = [place for place, item in enumerate(items) if master_key_of(item) == name]
        done.update(zip(places, do(name, [items[place] for place in places]), strict=True))
    return [done[place] for place in range(len(items))]


def require_ca_file(path: Path | None) -> None:
    """Check that the file with certificate authorities can be used, if one is set.

    Raises:
        PropertyInvalid: it cannot.
    """
    if (why := why_unusable(path)) is not None:
        raise misconfigured(why)


def misconfigured(
    message: str, hint: str = "Correct the [kms.options] settings of the catalog."
) -> PropertyInvalid:
    """The error for settings with which no KMS can be called."""
    return PropertyInvalid(message, rule="kms-configuration", hint=hint)
