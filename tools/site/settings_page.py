"""Writes the reference of settings and environment variables as Markdown, from the models of the settings.

The meaning of a setting is in the section "Attributes" of its model's docstring.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from catalog.settings.catalog import ENVIRONMENT_PREFIX, Settings
from tools.site.environment import OPEN_TELEMETRY, VARIABLES

#: The page that guides through a section, by the section's path.
GUIDES: Final[Mapping[str, str]] = {
    "": "operations.md#settings",
    "audit": "audit.md",
    "console": "console.md",
    "database": "operations.md#databases",
    "http": "operations.md#limits-of-connections",
    "http.tls": "operations.md#tls",
    "identity": "identity.md",
    "identity.issuers.NAME": "identity.md#settings",
    "identity.issuers.NAME.console": "console.md#log-in-with-an-identity-provider",
    "kms": "kms.md",
    "kms_endpoint": "kms-endpoint.md",
    "log": "operations.md#log",
    "planning": "rest-api.md#plans",
    "ranger.NAME": "ranger.md#settings",
    "s3": "rest-api.md#signed-requests",
    "s3.sts": "operations.md#storage-credentials",
    "telemetry": "observability.md#opentelemetry",
}
_UNITS: Final = {"s": "seconds", "days": "days", "bytes": "bytes"}
_ATTRIBUTE: Final = re.compile(r"^    (\w+): (.*?)(?=^    \w+: |^\S|\Z)", re.MULTILINE | re.DOTALL)
_DATA_DIR: Final = "/DATA_DIR"

_Models = tuple[type[BaseModel], ...]


@dataclass(frozen=True)
class Setting:
    """One setting: its path in the file, and its type, default and meaning as Markdown."""

    path: str
    type: str
    default: str
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return ENVIRONMENT_PREFIX + self.path.upper().replace(".", "__")


@dataclass(frozen=True)
class Section:
    """A table of the file, for one kind of KMS where `kind` names it."""

    path: str
    kind: str
    text: str
    settings: tuple[Setting, ...]


def page() -> str:
    """Each section with its settings, then the variables that are no settings."""
    return "\n".join((*(line for each in sections() for line in _section(each)), *_environment()))


def sections() -> Iterator[Section]:
    """All sections, in the order of the models."""
    settings = Settings.load(
        None, {"LAKEWARDEN_CONFIG": os.devnull, f"{ENVIRONMENT_PREFIX}DATA_DIR": _DATA_DIR}
    )
    yield from _of((Settings,), "", settings, set())


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """What the docstrings of a model and its bases say of its fields, by name."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        text = inspect.cleandoc(each.__doc__ or "") if each.__module__.startswith("catalog.") else ""
        for name, meaning in _ATTRIBUTE.findall(text.partition("Attributes:\n")[2]):
            found[name] = " ".join(meaning.replace("``", "`").split())
    return found


def _of(models: _Models, path: str, loaded: object, shown: set[_Models]) -> Iterator[Section]:
    """The section of a model and those below it; of several kinds, what all have and then each alone."""
    own: list[Setting] = []
    below: list[tuple[_Models, str, object]] = []
    for name, field in models[0].model_fields.items():
        if not all(name in each.model_fields for each in models) or (len(models) > 1 and name == "options"):
            continue
        full, nested = f"{path}.{name}".lstrip("."), _models(field.annotation)
        value = getattr(loaded, name, None)
        if nested and nested not in shown:
            shown.add(nested)
            is_map = get_origin(field.annotation) is dict
            below.append((nested, f"{full}.NAME" if is_map else full, None if is_map else value))
        else:
            own.append(_setting(models, full, name, field, value))
    yield Section(path, "", _summary(models[0]) if len(models) == 1 else "", tuple(own))
    if len(models) > 1:
        for each in models:
            yield from _of_kind(each, path, models, loaded)
    for nested, full, value in below:
        yield from _of(nested, full, value, shown)


def _of_kind(model: type[BaseModel], path: str, kinds: _Models, loaded: object) -> Iterator[Section]:
    kind = getattr(model.model_fields["kind"].annotation, "__args__", ("another name",))[0]
    value = getattr(loaded, "options", None) if isinstance(loaded, model) else None
    (options,) = _models(model.model_fields["options"].annotation) or (None,)
    if options is not None:
        (section,) = _of((options,), f"{path}.options", value, set())
        yield Section(section.path, kind, section.text, section.settings)
    else:
        special = [name for name in model.model_fields if name in ("options", "secrets")]
        own = [_setting((model,), f"{path}.{name}", name, model.model_fields[name], None) for name in special]
        yield Section(f"{path}.options", kind, _summary(model), tuple(own))


def _models(annotation: object) -> _Models:
    """The models that a value can be, or that the values of a table can be."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(dict.fromkeys(model for each in get_args(annotation) for model in _models(each)))


def _summary(model: type[BaseModel]) -> str:
    text = inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0]
    return "" if model is Settings else " ".join(text.split())


def _setting(models: _Models, path: str, name: str, field: FieldInfo, value: object) -> Setting:
    said = "; ".join(dict.fromkeys(_type_of(each, name) for each in models))
    return Setting(path, said, _default(name, field, value), meanings(models[0]).get(name, ""))


def _type_of(model: type[BaseModel], name: str) -> str:
    schema = model.model_json_schema()
    said = _type(schema["properties"][name], schema.get("$defs", {}))
    unit = _UNITS.get(name.rpartition("_")[2])
    return re.sub("^(integer|number)", unit, said) if unit else said


def _type(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return _type(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if choices := schema.get("anyOf"):
        return " or ".join(_type(each, definitions) for each in choices if each.get("type") != "null")
    if "const" in schema or "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "table")
    if kind == "array":
        items = _type(schema.get("items", {}), definitions)
        return f"list of {items if ',' in items else items + 's'}"
    if kind == "object":
        return "table"
    return {"password": "secret string"}.get(schema.get("format", ""), schema.get("format", kind)) + _range(
        schema
    )


def _range(schema: Mapping[str, Any]) -> str:
    bounds = (
        ("minimum", "at least"),
        ("exclusiveMinimum", "more than"),
        ("maximum", "at most"),
        ("exclusiveMaximum", "less than"),
    )
    return "".join(f", {words} {_number(schema[name])}" for name, words in bounds if name in schema)


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def _default(name: str, field: FieldInfo, loaded: object) -> str:
    value = field.get_default(call_default_factory=True) if not field.is_required() else None
    value = loaded if value is None else value
    if value is None or value in ({}, (), "") or isinstance(value, BaseModel):
        return "required" if field.is_required() else "none"
    text = _text(value).replace(_DATA_DIR.lstrip("/"), "DATA_DIR")
    return f"`{text}`{_readable(name, value)}"


def _text(value: object) -> str:
    match value:
        case SecretStr():
            return value.get_secret_value()
        case Enum():
            return str(value.value)
        case bool() | tuple():
            return json.dumps(value)
        case float() if value.is_integer():
            return str(int(value))
    return str(value)


def _readable(name: str, value: object) -> str:
    """A large number in its unit, such as ` (256 MiB)`."""
    units = {
        "bytes": (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)),
        "s": (("days", 86_400), ("hours", 3600)),
    }
    if isinstance(value, int | float):
        for unit, size in units.get(name.rpartition("_")[2], ()):
            if value >= size and value % size == 0:
                count = int(value // size)
                return f" ({count} {unit if count > 1 else unit.removesuffix('s')})"
    return ""


def _section(section: Section) -> Iterator[str]:
    title = f"`{section.path}`" if section.path else "Top level"
    yield f"## {title}{f' for {_kind(section.kind)}' if section.kind else ''}\n"
    if section.text:
        yield f"{_cell(section.text)}\n"
    if not section.kind and section.path in GUIDES:
        yield f"Guide: [{GUIDES[section.path].partition('.md')[0]}]({GUIDES[section.path]})\n"
    yield "| setting and variable | type and default | meaning |\n|---|---|---|"
    for each in section.settings:
        default = each.default if each.default == "required" else f"default: {each.default}"
        yield f"| `{each.path}`<br>`{each.variable}` | {each.type}<br>{default} | {_sentence(each.meaning)} |"
    yield ""


def _kind(kind: str) -> str:
    return "another `kind`" if " " in kind else f"the kind `{kind}`"


def _environment() -> Iterator[str]:
    yield "## Environment variables that are not settings\n"
    yield "| variable | read by | meaning |\n|---|---|---|"
    yield from (f"| `{name}` | {by} | {_cell(meaning)} |" for name, (by, meaning) in VARIABLES.items())
    yield "\n## Variables of OpenTelemetry\n"
    yield (
        "The service supports these. Others of OpenTelemetry go to its libraries as they are. "
        "See [observability](observability.md#opentelemetry).\n"
    )
    yield "| variable | values |\n|---|---|"
    yield from (f"| `{name}` | {values} |" for name, values in OPEN_TELEMETRY.items())
    yield ""


def _sentence(text: str) -> str:
    return _cell(text[:1].upper() + text[1:])


def _cell(text: str) -> str:
    parts = text.split("`")
    return "`".join(
        each if at % 2 else re.sub(r"([*_<\[\]{}|])", r"\\\1", each) for at, each in enumerate(parts)
    )
