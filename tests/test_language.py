"""Messages, command help and documentation use the field's terms, each always in the same sense.

The words that are banned have a plain term in the field, named beside each. The test reads:

- error messages: text in `raise` statements, in calls that build an error, a `Reason` or a `Decision`, and in
  constants that these name; rule names (`rule=`) and names in backquotes are identifiers
- Scala messages: text of string literals
- the help of every command, as it is rendered
- the prose of README and docs, without code blocks and inline code

Source: Google developer documentation style guide.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from click import Command
from typer.main import get_command

from spark_ext.cli.main import app
from tests.support.command_line import CliRunner

ROOT = Path(__file__).parents[1]
PACKAGES = ("policy", "catalog", "spark_ext", "lakewarden")

#: The banned word, the pattern that finds it, and what to write instead.
BANNED: dict[str, tuple[str, str]] = {
    "in clear": (r"in (the )?clear\b", "in plaintext, unencrypted"),
    "right": (
        r"(rights|rights?(?= (on|to|that|in)\b)|(a|any|no|some|every|missing|its) right|right(?=:))\b",
        "permission, privilege",
    ),
    "may": (r"may\b", "can, must, or `has the permission`"),
    "may not": (r"may (not|never)\b", "cannot, must not, or `does not have the permission`"),
    "ways": (r"ways in(to)?\b", "permissions; how to read a table"),
    "stock client": (
        r"stock (iceberg )?((client|reader|engine|stack|tool|catalog)s?|spark|hadoop|pyiceberg|pyarrow)\b",
        "standard client",
    ),
    "its own key": (r"(its|their) own keys?\b", "PEK (key-encryption key of the table)"),
    "table's key": (r"table's (own )?keys?\b(?! group)", "PEK (key-encryption key of the table)"),
    "keys of their own": (r"keys? of (their|its) own\b", "column keys"),
    "anew": (r"anew\b", "again; for data keys, rewrap"),
    "regime": (r"regimes?\b", "encryption epoch"),
    "notice": (r"notic(e|es|ed|ing)\b", "detect; integrity protection"),
    "hold against": (r"(hold|holds|held|holding)( \w+){0,4} against\b", "verify, check, compare"),
    "least and greatest": (r"(least|greatest)\b(?<!at least)(?! privilege)", "minimum and maximum; bounds"),
    "sifting": (r"sift(s|ed|ing)?\b", "late materialization"),
    "places": (r"(?<!decimal )places\b", "bulkhead, limit of concurrent calls"),
    "patience": (r"(im)?patien(t|ce)\b", "retry policy, time-out"),
    "door": (r"doors?(man|men)?\b(?!/)", "KMS endpoint"),
    "takeover": (r"take-?overs?\b", "register, adopt"),
    "revival": (r"reviv(e|es|ed|al)\b", "undrop"),
    "land": (r"land(s|ed|ing)?\b", "publish a commit"),
    "clean_up": (r"sw(eep|eeps|ept|eeping|eeper)\b", "garbage collection, clean-up"),
    "composition root": (r"composition root\b", "services, service context"),
    "ground": (r"grounds?\b", "service context"),
    "trail that holds": (r"trails? that holds?\b", "tamper-evident audit log"),
    "weakening": (r"weaken(s|ed|ing)?\b", "downgrade"),
    "look-alike": (r"look-?alikes?\b", "confusables"),
    "gates": (r"gates?\b", "required privileges"),
    "who asks": (r"who(ever)? (asks|comes)\b", "user, principal, caller"),
    "whoever": (r"who(so)?ever\b", "users who, anyone who; or address the reader"),
    "somebody": (r"somebody\b", "a user, they"),
    "not carried out": (r"(not|never) carried out\b", "is refused, is not supported"),
    "goes past": (r"go(es)? past\b", "is refused, is not supported"),
}
PATTERNS = {word: re.compile(rf"\b{pattern}", re.IGNORECASE) for word, (pattern, _) in BANNED.items()}

ANY = re.compile(rf"\b({'|'.join(pattern for pattern, _ in BANNED.values())})", re.IGNORECASE)

ERROR_BASES = {"Exception", "LakewardenError"}
REFUSALS = {"Reason", "Decision", "NoReturn"}


@cache
def sources() -> dict[str, ast.Module]:
    """Every module of the packages, by its path from the root."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return {str(file.relative_to(ROOT)): ast.parse(file.read_text("utf-8")) for file in files}


def last_name(node: ast.expr | None) -> str:
    """`c` of `a.b.c`, of `c` and of `c | None`; empty for every other expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Constant(value=str(text)):
            return text
        case ast.BinOp(left=left):
            return last_name(left)
        case _:
            return ""


@cache
def nodes() -> list[ast.AST]:
    """Every node of every module."""
    return [node for module in sources().values() for node in ast.walk(module)]


@cache
def error_classes() -> set[str]:
    """The names of all exception classes, found by their bases."""
    classes = {
        node.name: {last_name(base) for base in node.bases}
        for node in nodes()
        if isinstance(node, ast.ClassDef)
    }
    found = set(ERROR_BASES)
    while more := {name for name, bases in classes.items() if bases & found} - found:
        found |= more
    return found


@cache
def builders() -> set[str]:
    """What a message is handed to: error classes, `Reason`, and the functions that return or raise one."""
    results = error_classes() | REFUSALS
    return results | {
        node.name
        for node in nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and last_name(node.returns) in results
    }


@cache
def constants() -> dict[str, str]:
    """The text of module constants by name, where a message can come from."""
    return {
        last_name(target): text
        for module in sources().values()
        for node in module.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if (text := " ".join(texts(node.value))) and last_name(target).strip("_").isupper()
    }


def texts(node: ast.AST) -> Iterator[str]:
    """The text in an expression, as it is written; rule names are left out."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            yield "".join(value.value if isinstance(value, ast.Constant) else "…" for value in values)
        case ast.keyword(arg="rule"):
            return
        case _:
            for child in ast.iter_child_nodes(node):
                yield from texts(child)


def messages(module: ast.Module) -> Iterator[str]:
    """Every message that a module can raise or give as a reason."""
    called = builders()
    for node in ast.walk(module):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and last_name(node.func) in called):
            yield from texts(node)
            yield from (
                constants()[each.id]
                for each in ast.walk(node)
                if isinstance(each, ast.Name) and each.id in constants()
            )
        elif isinstance(node, ast.keyword) and node.arg == "hint":
            yield from texts(node.value)


def literals(scala: str) -> list[str]:
    """The string literals of a Scala file that are more than one word."""
    code = re.sub(r"/\*.*?\*/|^\s*//.*$", "", scala, flags=re.DOTALL | re.MULTILINE)
    return [text for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', code) if " " in text]


def commands(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Every command and group with its words."""
    yield path, command
    for name, each in getattr(command, "commands", {}).items():  # Typer's groups are not click's `Group`
        yield from commands(each, (*path, name))


def rendered(path: tuple[str, ...]) -> str:
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "400", "TERMINAL_WIDTH": "400"})
    assert shown.exit_code == 0, path
    return re.sub(r"[│╭╮╰╯─\s]+", " ", shown.output)


def help_texts() -> Iterator[tuple[str, str]]:
    """The help of every command, with the file that defines it."""
    for path, command in commands(get_command(app)):
        defined = inspect.getsourcefile(inspect.unwrap(command.callback)) if command.callback else None
        where = Path(defined).relative_to(ROOT) if defined else Path("catalog/cli/main.py")
        yield str(where), rendered(path)


def pages() -> Iterator[tuple[str, str]]:
    """The prose of the documentation."""
    for page in (*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/**/*.md"))):
        prose = re.sub(
            r"^ *```.*?^ *```|^    .*?$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        yield str(page.relative_to(ROOT)), re.sub(r"\]\([^)]*\)", "]", prose)


def prose() -> Iterator[tuple[str, str]]:
    """All text that the test reads, with the file that it is from."""
    for path, module in sources().items():
        yield from ((path, text) for text in messages(module))
    for file in sorted((ROOT / "spark_ext/scala").rglob("*.scala")):
        yield from ((str(file.relative_to(ROOT)), text) for text in literals(file.read_text("utf-8")))
    yield from help_texts()
    yield from pages()


@cache
def violations() -> dict[str, dict[str, set[str]]]:
    """The sentences that use a banned word: by word, then by file."""
    found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, text in prose():
        plain = re.sub(r"``.*?``|`[^`]*`", "`…`", text)
        if not ANY.search(plain):
            continue
        for word, pattern in PATTERNS.items():
            for match in pattern.finditer(plain):
                about = plain[max(0, match.start() - 60) : match.end() + 40]
                found[word][path].add(" ".join(about.split()))
    return found


@pytest.mark.parametrize("word", BANNED)
def test_the_text_that_users_read_uses_the_term_of_the_glossary(word: str) -> None:
    found = {path: sorted(texts) for path, texts in violations()[word].items()}
    assert not found, f"Instead of “{word}”, write: {BANNED[word][1]}."


@pytest.mark.parametrize(
    "text",
    [
        'raise Refused(f"{user} may not read {table}.")',
        'raise Refused("It is refused.", hint="Ask whoever owns it.")',
        'return Reason("some-rule", "Somebody changed it.")',
        'HINT = "x"\ncheck(hint="Wrap it anew.")',
        'raise Refused("one", rule="x") from problem("It was held against the list.")',
    ],
)
def test_a_banned_word_in_a_message_is_found(text: str) -> None:
    assert any(pattern.search(said) for said in messages(ast.parse(text)) for pattern in PATTERNS.values())


@pytest.mark.parametrize(
    "text",
    ['raise Refused("A sentence.", rule="encryption-regime")', '"""Whoever reads this."""', 'x = "may"'],
)
def test_rule_names_and_other_strings_are_no_messages(text: str) -> None:
    assert not any(
        pattern.search(said) for said in messages(ast.parse(text)) for pattern in PATTERNS.values()
    )
