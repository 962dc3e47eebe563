"""Options and session settings of Iceberg on Spark: the engine honours these, and every other one is denied.

`WITH (name = value, …)` stands behind the table of a query or an INSERT. docs/spark-options.md lists the
names for users; a test compares them with the plugin's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from policy.sql_lint.cursor import Cursor
from policy.sql_lint.lexer import Kind, Token
from policy.sql_lint.problems import Problem

#: Names in lower case with the one value that is supported; None if the engine checks the value. A name that
#: ends with a dot stands for all names that begin with it.
Names = Mapping[str, str | None]

#: One of these at most: they name the state of the table that is read.
_STATES: Final = ("branch", "tag", "snapshot-id", "as-of-timestamp", "versionasof", "timestampasof")

READ: Final[Names] = {
    **dict.fromkeys(_STATES),
    "aggregate-push-down-enabled": None,
    "async-micro-batch-planning-enabled": "false",
    "batch-size": None,
    "end-snapshot-id": None,
    "end-timestamp": None,
    "file-open-cost": None,
    "locality": "false",
    "split-size": None,
    "start-snapshot-id": None,
    "start-timestamp": None,
    "vectorization-enabled": "true",
}
"""Options of a query."""

#: The table whose rows are changes of another one.
_CHANGES: Final = "changes"
_OF_CHANGES: Final = ("end-timestamp", "start-timestamp")
_OF_ROWS: Final[Names] = {name: only for name, only in READ.items() if name not in _OF_CHANGES}
_OF_VIEWS: Final[Names] = {
    name: only for name, only in READ.items() if name == "branch" or name not in _STATES
}
#: One at most of each.
_APART: Final = (_STATES, ("start-snapshot-id", "start-timestamp"), ("end-snapshot-id", "end-timestamp"))

#: They say how an overwrite conflicts.
_OVERWRITES: Final = ("isolation-level", "overwrite-mode", "validate-from-snapshot-id")

WRITE: Final[Names] = {
    **dict.fromkeys(_OVERWRITES),
    "advisory-partition-size": None,
    "branch": None,
    "check-nullability": "true",
    "check-ordering": "true",
    "compression-codec": None,
    "compression-level": None,
    "distribution-mode": None,
    "fanout-enabled": None,
    "merge-schema": "false",
    "mergeschema": "false",
    "shred-variants": "false",
    "snapshot-property.": None,
    "target-file-size-bytes": None,
    "use-merge-append-for-streaming": "false",
    "use-table-distribution-and-ordering": "true",
}
"""Options of an INSERT."""

_ICEBERG: Final = "spark.sql.iceberg."
SETTINGS: Final[Names] = {
    f"{_ICEBERG}advisory-partition-size": None,
    f"{_ICEBERG}aggregate-push-down.enabled": None,
    f"{_ICEBERG}async-micro-batch-planning-enabled": "false",
    f"{_ICEBERG}check-nullability": "true",
    f"{_ICEBERG}check-ordering": "true",
    f"{_ICEBERG}compression-codec": None,
    f"{_ICEBERG}compression-level": None,
    f"{_ICEBERG}data-planning-mode": "auto",
    f"{_ICEBERG}delete-planning-mode": "auto",
    f"{_ICEBERG}distribution-mode": None,
    f"{_ICEBERG}executor-cache.delete-files.enabled": "true",
    f"{_ICEBERG}executor-cache.enabled": "true",
    f"{_ICEBERG}executor-cache.locality.enabled": "false",
    f"{_ICEBERG}identifier-fields-rely": "false",
    f"{_ICEBERG}locality.enabled": "false",
    f"{_ICEBERG}merge-schema": "false",
    f"{_ICEBERG}planning.preserve-data-grouping": None,
    f"{_ICEBERG}planning.preserve-data-ordering": None,
    f"{_ICEBERG}read.split-size": None,
    f"{_ICEBERG}report-column-stats": None,
    f"{_ICEBERG}shred-variants": "false",
    f"{_ICEBERG}snapshot-property.": None,
    f"{_ICEBERG}vectorization.enabled": "true",
    "spark.wap.branch": None,
    "spark.wap.id": None,
}
"""Session settings."""

#: Tokens of VERSION AS OF 7.
_TIME_TRAVEL: Final = 4
_TRAVELS: Final = ("VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME")

SETTINGS_BELOW: Final = (_ICEBERG, "spark.wap.")
"""What names of Iceberg's settings begin with."""


def is_honoured(names: Names, name: str, value: str) -> bool:
    """Whether a name has an effect, or the value that is always so."""
    for known, only in names.items():
        if name == known or (known.endswith(".") and name.startswith(known)):
            return only is None or value.lower() == only
    return False


def took_options(cursor: Cursor, names: Names) -> frozenset[str]:
    """Take the options behind a table, if any come next; their names in lower case.

    Raises:
        Problem: an option is not supported, stands twice, or contradicts another.
    """
    if cursor.hive or not _is_ahead(cursor):
        return frozenset()
    start = cursor.expect("WITH").next.start
    return _checked(cursor.properties(), names, start)


def refuse_of_changes(given: Mapping[str, str], start: int) -> None:
    """Refuse options that a view of changes does not honour.

    Raises:
        Problem: as `took_options`.
    """
    _checked(given, _OF_VIEWS, start)


def _checked(given: Mapping[str, str], names: Names, start: int) -> frozenset[str]:
    folded = frozenset(name.lower() for name in given)
    for name, value in given.items():
        if not is_honoured(names, name.lower(), value):
            raise Problem(
                start,
                "option",
                f"The option {name[:80]!a} with the value {value[:80]!a} is not supported.",
                "Remove it. docs/spark-options.md lists the options.",
            )
    if len(folded) < len(given) or any(len(folded.intersection(each)) > 1 for each in _APART):
        raise Problem(
            start, "option", "The options contradict each other.", "Keep one option, and one state."
        )
    return folded


def without_options(
    start: int, text: str, tokens: Sequence[Token]
) -> tuple[str, Sequence[Token], Mapping[int, int]]:
    """A query without the options behind its tables, all of which are supported.

    The caller must check that these names are those of tables: a function can be called `with`, too.

    Args:
        start: where its text begins in the script.
        text: its text.
        tokens: its tokens.

    Returns:
        the text, of the same length; the tokens; where in the script options stood, by where in the text the
        name in front of them ends.

    Raises:
        as `took_options`.
    """
    cursor = Cursor(tokens, start + len(text), text, hive=False)
    kept: list[Token] = []
    stood: dict[int, int] = {}
    while cursor.next.kind is not Kind.END:
        if not _is_ahead(cursor):
            kept.append(cursor.take())
            continue
        begin = cursor.next.start - start
        stood[_end_of_name(kept) - start] = begin + start
        took_options(cursor, READ if kept and kept[-1].text.lower() == _CHANGES else _OF_ROWS)
        end = cursor.next.start - start
        text = text[:begin] + " " * (end - begin) + text[end:]
    return text, kept, stood


def _end_of_name(before: Sequence[Token]) -> int:
    """Where the name ends behind which options stand; `AS OF` and a number or string can be between."""
    if len(before) > _TIME_TRAVEL and before[-1].kind in (Kind.NUMBER, Kind.STRING):
        version, *as_of = before[-_TIME_TRAVEL:-1]
        if version.is_word(*_TRAVELS) and [each.text.upper() for each in as_of] == ["AS", "OF"]:
            before = before[:-_TIME_TRAVEL]
            before = before[:-1] if before[-1].is_word("FOR") else before
    return before[-1].end if before else 0


def refuse_of_overwrites(cursor: Cursor, options: frozenset[str]) -> None:
    """Refuse options of overwrites on an append.

    Raises:
        Problem: there is one.
    """
    for name in _OVERWRITES:
        if name in options:
            cursor.refuse(f"the option {name} has no effect on an append")


def _is_ahead(cursor: Cursor) -> bool:
    """Whether `WITH (` comes next: a WITH of queries has a name in between."""
    return cursor.ahead("WITH") and len(cursor.rest) > 1 and cursor.rest[1].is_symbol("(")
