"""Collects the rules of errors and decisions from the source code, with their messages and advice.

An error names the rule that decided: `LakewardenError(…, rule="allowed-paths", hint="…")`. A rule is found
wherever an argument is called `rule`, by its name or by the position of a parameter of that name: in Python
by the syntax tree, in Scala by the text of the calls that build a `LakewardenException`. A value that is
known only at run time is shown as `…`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from tools.site import scala_rules

ROOT = Path(__file__).parents[2]
PACKAGES = ("policy", "catalog", "spark_ext", "lakewarden")
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_MESSAGES = ("message", "problem", "detail", "text", "said")
#: Facts and findings that have a name called `rule`, which is no rule of an error or decision.
_OTHERS = frozenset({"Finding", "Document", "note", "_listed"})
#: What is raised as another error, or is part of a decision.
_RAISED_AS = {
    "Malformed": {"MetadataInvalid"},
    "Misfit": {"PolicyInvalid"},
    "Problem": set(),
    "Refusal": set(),
    "Reason": set(),
}
_Variables = Mapping[str, list[ast.expr]]
_NONE: _Variables = {}


@dataclass
class Rule:
    """One rule: the kinds of errors that name it, what they say, and what they advise."""

    name: str
    kinds: set[str] = field(default_factory=set)
    messages: dict[str, None] = field(default_factory=dict)
    hints: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True)
class _Found:
    rule: str
    kind: str | None
    message: str | None
    hint: str | None


@dataclass(frozen=True)
class _Builder:
    """A function or class with a parameter `rule`, and what its own calls add."""

    parameters: tuple[str, ...]
    kind: str | None
    prefix: str
    hint: str | None


def collect() -> dict[str, Rule]:
    """All rules by name, sorted."""
    rules: dict[str, Rule] = {}
    for found in (*_in_python(), *_in_scala()):
        rule = rules.setdefault(found.rule, Rule(found.rule))
        if found.kind in _RAISED_AS:
            rule.kinds |= _RAISED_AS[found.kind]
        elif found.kind and found.kind != "…":
            rule.kinds.add(found.kind)
        if found.message and found.message != "…":
            rule.messages[found.message] = None
        if found.hint and found.hint != "…":
            rule.hints[found.hint] = None
    return dict(sorted(rules.items()))


def error_meanings() -> dict[str, str]:
    """The first sentence of each error class."""
    source = Source.of_packages()
    return {name: doc for name in source.errors if (doc := _first(source.classes[name]))}


def _first(node: ast.ClassDef) -> str:
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())


class Source:
    """The syntax trees of the packages, and what names stand for in them."""

    def __init__(self, modules: dict[str, ast.Module]) -> None:
        self.modules = modules
        self.nodes = {path: list(ast.walk(module)) for path, module in modules.items()}
        self.classes = {
            node.name: node
            for nodes in self.nodes.values()
            for node in nodes
            if isinstance(node, ast.ClassDef)
        }

    @classmethod
    @cache
    def of_packages(cls) -> Source:
        """Of the packages of this checkout."""
        files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
        return cls({str(file.relative_to(ROOT)): ast.parse(file.read_text("utf-8")) for file in files})

    @cached_property
    def errors(self) -> set[str]:
        """The names of the error classes."""
        found = {"LakewardenError"}
        bases = {name: {_last(base) for base in node.bases} for name, node in self.classes.items()}
        while more := {name for name, above in bases.items() if above & found} - found:
            found |= more
        return found

    @cached_property
    def constants(self) -> dict[str, dict[str, ast.expr]]:
        """What constants of modules and classes are, by module."""
        return {path: dict(_assigned(nodes)) for path, nodes in self.nodes.items()}

    @cached_property
    def everywhere(self) -> dict[str, ast.expr]:
        """What constants of all modules are, for names that a module imports."""
        return {name: value for each in self.constants.values() for name, value in each.items()}

    @cached_property
    def builders(self) -> dict[str, dict[str, _Builder]]:
        """What has a parameter `rule`, by module and name."""
        found: dict[str, dict[str, _Builder]] = defaultdict(dict)
        for path, nodes in self.nodes.items():
            for node in nodes:
                if isinstance(node, ast.ClassDef):
                    parameters = _fields(node)
                elif isinstance(node, ast.FunctionDef) and node.name != "__init__":
                    parameters = _parameters(node)
                else:
                    continue
                if "rule" in parameters and node.name not in _OTHERS:
                    found[path][node.name] = self._builder(path, node, parameters)
        return found

    def builder(self, path: str, name: str) -> _Builder | None:
        """What a call of `name` in a module builds; errors have `rule` as a keyword alone."""
        if name in self.errors and name not in self.builders[path]:
            return self.all_builders.get(name) or _Builder(("message",), name, "", None)
        return self.builders[path].get(name) or self.all_builders.get(name)

    @cached_property
    def all_builders(self) -> dict[str, _Builder]:
        """What has a parameter `rule`, for names that a module imports."""
        return {name: builder for each in self.builders.values() for name, builder in each.items()}

    def texts(
        self, path: str, node: ast.expr | None, local: Mapping[str, list[ast.expr]] = _NONE
    ) -> list[str]:
        """The values that an expression can have, `…` for what is known at run time alone.

        Args:
            path: of the module that the expression is in.
            node: the expression.
            local: what is assigned to variables of the function.
        """
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=values):
                return [
                    "".join(
                        self.texts(path, each)[0] if isinstance(each, ast.Constant) else "…"
                        for each in values
                    )
                ]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                firsts, seconds = self.texts(path, left, local), self.texts(path, right, local)
                return [one + other for one in firsts for other in seconds]
            case ast.IfExp(body=body, orelse=orelse):
                return [*self.texts(path, body, local), *self.texts(path, orelse, local)]
            case ast.BoolOp(values=values):
                return [text for each in values for text in self.texts(path, each, local)]
            case ast.Name(id=name) if name in local:
                return [text for each in local[name] for text in self.texts(path, each)]
            case ast.Attribute(value=value, attr="value"):
                return self.texts(path, value)
            case ast.Name() | ast.Attribute():
                name = _last(node)
                known = self.constants.get(path, {}).get(name) or self.everywhere.get(name)
                return self.texts(path, known) if known is not None and name.strip("_").isupper() else ["…"]
            case _:
                return ["…"]

    def _builder(
        self, path: str, node: ast.ClassDef | ast.FunctionDef, parameters: tuple[str, ...]
    ) -> _Builder:
        if isinstance(node, ast.ClassDef):
            return _Builder(parameters, node.name, "", None)
        kind, prefix, hint = _last(node.returns), "", None
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and _last(call.func) in self.errors:
                kind = _last(call.func)
                given = {each.arg: each.value for each in call.keywords}
                match given.get("rule"):
                    case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
                        prefix = text
                hint = next((each for each in self.texts(path, given.get("hint")) if each != "…"), None)
        return _Builder(parameters, kind if kind in self.errors else None, prefix, hint)


def _assigned(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from _one_by_one(target, node.value)


def _one_by_one(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values):
            for each, of_it in zip(targets, values, strict=False):
                yield from _one_by_one(each, of_it)


def _variables(function: _Function | None) -> dict[str, list[ast.expr]]:
    """What a function assigns to its variables, in all of its branches."""
    found: dict[str, list[ast.expr]] = defaultdict(list)
    for name, value in _assigned(ast.walk(function) if function else ()):
        found[name].append(value)
    return found


def _fields(node: ast.ClassDef) -> tuple[str, ...]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return _parameters(each)
    return tuple(
        each.target.id
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    )


def _parameters(node: ast.FunctionDef) -> tuple[str, ...]:
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    return tuple(names[1:] if names[:1] in (["self"], ["cls"]) else names) + tuple(
        each.arg for each in node.args.kwonlyargs
    )


def _last(node: ast.expr | None) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _in_python() -> Iterator[_Found]:
    source = Source.of_packages()
    for path, module in source.modules.items():
        for call, function in _calls(module, None):
            yield from _of_call(source, path, call, function)
    # The requirements of encryption rules are values of an enumeration, and rules of errors by these values.
    for _, value in _assigned(ast.walk(source.classes["Requirement"])):
        yield from (_Found(text, "EncryptionPolicyViolation", None, None) for text in source.texts("", value))


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _calls(node: ast.AST, function: _Function | None) -> Iterator[tuple[ast.Call, _Function | None]]:
    """Every call below a node, with the function around it."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node
    if isinstance(node, ast.Call):
        yield node, function
    for each in ast.iter_child_nodes(node):
        yield from _calls(each, function)


def _of_call(source: Source, path: str, call: ast.Call, function: _Function | None) -> Iterator[_Found]:
    builder = source.builder(path, _last(call.func))
    given = dict(zip(builder.parameters, call.args, strict=False)) if builder else {}
    given |= {each.arg: each.value for each in call.keywords if each.arg}
    if "rule" not in given:
        return
    local = _variables(function)
    said = next((given[name] for name in _MESSAGES if name in given), call.args[0] if call.args else None)
    hints = source.texts(path, given.get("hint"), local)
    for rule in source.texts(path, given["rule"], local):
        if NAME.fullmatch(rule):
            for message in source.texts(path, said, local):
                for hint in hints:
                    known = hint if hint != "…" else builder and builder.hint
                    yield _Found(
                        (builder.prefix if builder else "") + rule,
                        builder and builder.kind,
                        message,
                        known or None,
                    )


def _in_scala() -> Iterator[_Found]:
    for each in scala_rules.found(ROOT / "spark_ext" / "scala"):
        yield _Found(*each)
