"""The expected and the actual outcome of each attempt.

- An attempt is a record: what was tried, by whom, what a standard stack answered, what Lakewarden answered.
- An answer that is not the expected one ends the demonstration: it must not pass on a check that is off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from py4j.protocol import Py4JJavaError
from pyiceberg.exceptions import RESTError
from pyspark.errors import PySparkException

from policy.errors import LakewardenError

_RULE = re.compile(r"\brule=([a-z0-9-]+)")


class Unexpected(LakewardenError):
    """A step of the demonstration did not end as it has to."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How an attempt ended.

    Attributes:
        text: in a few words; of a refusal its class and rule.
        error: the class of the error, or None if it was answered with rows.
        sentence: what the error says, without its class.
    """

    text: str
    error: str | None = None
    sentence: str = ""

    def __str__(self) -> str:
        return self.text if self.error is None else f"{self.error}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt.

    Attributes:
        what: what was tried.
        who: by whom.
        stock: what a standard stack answered.
        expected: the refusal that Lakewarden has to answer with, class and rule; or None for no refusal.
        seen: what Lakewarden answered.
    """

    what: str
    who: str
    stock: Answer
    expected: str | None
    seen: Answer


@dataclass
class Ledger:
    """The attempts so far."""

    attempts: list[Attempt] = field(default_factory=list)

    def add(self, attempt: Attempt) -> None:
        """Take an attempt down.

        Raises:
            Unexpected: it did not end as it has to.
        """
        self.attempts.append(attempt)
        refusal = attempt.seen.text if attempt.seen.error else None
        if refusal != attempt.expected:
            wanted = attempt.expected or "no refusal"
            raise Unexpected(
                f"{attempt.what}, by {attempt.who}: expected {wanted}, but the answer was: {attempt.seen}",
                rule="demo",
            )


def expect(holds: bool, sentence: str) -> None:
    """Compare what was seen with what the demonstration expects.

    Raises:
        Unexpected: it does not hold.
    """
    if not holds:
        raise Unexpected(f"An expected outcome did not occur: {sentence}", rule="demo")


def attempted(action: Callable[[], str]) -> Answer:
    """The answer to an action, which answers in a few words or is refused."""
    try:
        return Answer(action())
    except (LakewardenError, RESTError, PySparkException, Py4JJavaError) as refusal:
        return _refused(refusal)


def _refused(refusal: Exception) -> Answer:
    kind, text = type(refusal).__name__, str(refusal)
    if not isinstance(refusal, LakewardenError):
        named = _kind().search(text)
        kind, text = (named.group(1), text[named.end() :]) if named else (kind, text)
    # What follows the first line is Spark's stack of tasks.
    sentence = text.strip().partition("\n")[0]
    rule = _RULE.search(sentence)
    return Answer(f"{kind} ({rule.group(1)})" if rule else kind, kind, sentence)


def _classes(root: type[LakewardenError]) -> Iterator[str]:
    for each in root.__subclasses__():
        yield each.__name__
        yield from _classes(each)


def _kind() -> re.Pattern[str]:
    """The name of one of our errors, as clients and engines put it before the sentence."""
    return re.compile(rf"\b({'|'.join(sorted(set(_classes(LakewardenError))))}): ")
