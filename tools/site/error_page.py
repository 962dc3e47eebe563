"""Writes the reference of error rules as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from catalog.http.errors import SHAPES
from policy.errors import LakewardenError
from tools.site import error_rules
from tools.site.error_rules import Rule
from tools.site.meanings import ADVICE, DECISION_ADVICE, MEANINGS

#: Classes of errors that the Spark plugin alone has.
OF_SPARK: Final[Mapping[str, str]] = {
    "CatalogNotTrusted": "The engine cannot verify that it speaks to the catalog that it was launched for.",
    "DeletesTooLarge": "The position deletes of a task are larger than its limit.",
    "NoSuchSnapshot": "The table has no such snapshot, branch or tag.",
    "ResultTooLarge": "The result of a procedure is larger than its limit.",
    "RewriteFailed": "A rewrite of files failed.",
}


def page() -> str:
    """The classes of errors, then each rule with its messages and advice."""
    meanings = error_rules.error_meanings() | dict(OF_SPARK)
    return "\n".join(
        (*_classes(meanings), *(line for rule in error_rules.collect().values() for line in _rule(rule)))
    )


def meaning(rule: Rule) -> list[str]:
    """What a rule means: the messages that name it, or the sentence that stands for them."""
    return list(rule.messages) or [MEANINGS[rule.name]]


def advice(rule: Rule) -> list[str]:
    """What to do: the advice of the errors, or else that of their classes."""
    return (
        list(rule.hints)
        or list(dict.fromkeys(_advice(kind) for kind in sorted(rule.kinds)))
        or [DECISION_ADVICE]
    )


def _classes(meanings: dict[str, str]) -> Iterator[str]:
    yield "## Classes of errors\n"
    yield "| class | HTTP status | meaning | what to do |\n|---|---|---|---|"
    for name, text in sorted(meanings.items()):
        yield f"| `{name}` | {_status(name)} | {_cell(text)} | {_cell(_advice(name))} |"
    yield "\n## Rules\n"


def _rule(rule: Rule) -> Iterator[str]:
    kinds = ", ".join(f"`{kind}`" for kind in sorted(rule.kinds))
    yield f"### `{rule.name}`\n"
    yield f"{kinds or 'decision'}\n"
    yield from (f"- {_text(each)}" for each in meaning(rule))
    yield "\n*What to do:*\n"
    yield from (f"- {_text(each)}" for each in advice(rule))
    yield ""


def _class(name: str) -> type[LakewardenError] | None:
    pending: list[type[LakewardenError]] = [LakewardenError]
    while pending:
        each = pending.pop()
        if each.__name__ == name:
            return each
        pending.extend(each.__subclasses__())
    return None


def _status(name: str) -> str:
    known = _class(name)
    return next((str(SHAPES[each].status) for each in known.__mro__ if each in SHAPES), "") if known else ""


def _advice(name: str) -> str:
    known = _class(name) or LakewardenError
    return next(ADVICE[each.__name__] for each in known.__mro__ if each.__name__ in ADVICE)


def _text(said: str) -> str:
    """A message as plain text: nothing in it is Markdown but inline code."""
    escaped = said.strip().replace("\\", "\\\\")
    for each in "*_<[]{|":
        escaped = escaped.replace(each, f"\\{each}")
    parts = escaped.split("`")
    code = [each.replace("\\", "") if at % 2 else each for at, each in enumerate(parts)]
    return "`".join(code) if len(parts) % 2 else escaped.replace("`", "\\`")


def _cell(said: str) -> str:
    return _text(said)
