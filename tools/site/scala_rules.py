"""Finds the rules of errors in the Spark plugin, by the text of the calls that build them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_DEF = re.compile(r"\bdef (\w+)\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_VAL = re.compile(r'\bval (\w+)(?:: String)? =\s+"([^"\n]*)"')
_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_EXCEPTION = ("kind", "problem", "rule", "hint")


class Found(NamedTuple):
    """One call that builds an error; what is known at run time alone is None or `…`."""

    rule: str
    kind: str | None
    message: str | None
    hint: str | None


def found(folder: Path) -> Iterator[Found]:
    """The rules of all errors below a folder of sources."""
    texts = [file.read_text("utf-8") for file in sorted(folder.rglob("*.scala"))]
    # Comments can hold quotes and brackets that belong to no call.
    texts = [re.sub(r"(?m:^\s*)/\*.*?\*/|(?m:^\s*)//[^\n]*", "", text, flags=re.DOTALL) for text in texts]
    everywhere = {name: parameters for text in texts for name, parameters in _builders(text)}
    for text in texts:
        builders = everywhere | dict(_builders(text)) | {"LakewardenException": _EXCEPTION}
        constants = dict(_VAL.findall(text))
        calls = re.compile(rf"(?<!def )\b({'|'.join(builders)})\(")
        for call in calls.finditer(text):
            given = dict(zip(builders[call[1]], _arguments(text, call.end()), strict=False))
            if ".get(" in given.get("rule", ""):  # what an answer of the catalog says
                continue
            kind = {"notSupportedYet": "NotSupportedYet"}.get(call[1]) or _text(
                given.get("kind", ""), constants
            )
            for rule in _LITERAL.findall(given.get("rule", "")) or [_text(given.get("rule", ""), constants)]:
                if rule and re.fullmatch(r"[a-z][a-z0-9-]*", rule):
                    yield Found(
                        rule,
                        kind,
                        _text(given.get("problem", ""), constants),
                        _text(given.get("hint", ""), constants),
                    )


def _builders(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The functions with a parameter `rule`, with the names of their parameters."""
    for name, parameters in _DEF.findall(text):
        names = tuple(re.findall(r"(\w+): ", parameters))
        if "rule" in names:
            yield name, tuple("problem" if each == "what" else each for each in names)


def _arguments(text: str, start: int) -> list[str]:
    """The arguments of a call, as they are written; `start` is after the opening bracket."""
    arguments, depth, at = [""], 0, start
    while at < len(text) and not (depth == 0 and text[at] == ")"):
        literal = _LITERAL.match(text, at)
        part = literal[0] if literal else text[at]
        depth += (part in ("(", "{", "[")) - (part in (")", "}", "]"))
        if part == "," and depth == 0:
            arguments.append("")
        else:
            arguments[-1] += part
        at += len(part)
    return arguments


def _text(argument: str, constants: dict[str, str]) -> str | None:
    """The literals of an argument put together, or the constant that it names."""
    literals = [re.sub(r"\$\{[^}]*\}|\$\w+(?:\.\w+)*", "…", each) for each in _LITERAL.findall(argument)]
    if literals:
        return "".join(literals)
    name = re.sub(r"^Some\((.*)\)$", r"\1", argument.strip()).rpartition(".")[2]
    return constants.get(name)
