"""Vectors that one test reads as rows: thousands of small cases cost pytest more than what they check."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

_NAMED = type(pytest.param())
_OWN = (AssertionError, pytest.fail.Exception)


def each_row(
    names: str | Sequence[str],
    values: Iterable[Any],
    *,
    ids: Callable[[Any], str] = repr,
    count: int | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call the test for every row, as `pytest.mark.parametrize` would, but in one test.

    Every row runs. The first failed assertion is raised, with a note that names each failed row. The rows
    share the fixtures of the test, so a row must not change what the next one reads.

    Args:
        names: the parameters, separated by commas or as a sequence.
        values: the rows: a value each, a sequence of values if there are several names, or `pytest.param`.
        ids: how a row is called in the note.
        count: how many rows there are at least; for vectors in a file, so that none gets lost.
    """
    split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = list(values)
    assert table, "a table of vectors has rows"
    assert count is None or len(table) >= count, f"{len(table)} rows, but there were {count}"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*instance: Any, **fixtures: Any) -> None:
            _run(functools.partial(test, *instance, **fixtures), split, table, ids)

        signature = inspect.signature(test)
        kept = [each for name, each in signature.parameters.items() if name not in split]
        assert len(kept) == len(signature.parameters) - len(split), f"{test.__name__} takes {split}"
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        del run.__wrapped__  # pytest would read the fixtures from it
        return run

    return decorate


def _run(
    test: Callable[..., None],
    names: Sequence[str],
    table: Sequence[Any],
    ids: Callable[[Any], str],
) -> None:
    failed: list[tuple[str, BaseException]] = []
    for row in table:
        values = _values(row, names)
        try:
            test(**dict(zip(names, values, strict=True)))
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (raised below)
            failed.append((_name(row, ids), error))
    if failed:
        told = "\n".join(f"  {name:.200}: {_told(error)}" for name, error in failed)
        first = next((error for _, error in failed if isinstance(error, _OWN)), failed[0][1])
        first.add_note(f"{len(failed)} of {len(table)} rows failed:\n{told}")
        raise first


def _values(row: Any, names: Sequence[str]) -> list[Any]:
    if isinstance(row, _NAMED):
        return list(row.values)
    return [row] if len(names) == 1 else list(row)


def _name(row: Any, ids: Callable[[Any], str]) -> str:
    return str(row.id) if isinstance(row, _NAMED) and row.id else ids(row)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
