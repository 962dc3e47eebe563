"""Writes the reference of the HTTP interface as Markdown, from the description that the service serves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from catalog.cli.session import open_kms
from catalog.http.app import create_app
from catalog.service.services import Services
from catalog.settings.catalog import Settings

Description = Mapping[str, Any]


def page() -> str:
    """Each operation with its parameters, body and answers, by path."""
    with _services() as services:
        description = create_app(services).openapi()
    return "\n".join(
        line
        for path, item in sorted(description["paths"].items())
        for method, operation in item.items()
        for line in _operation(f"{method.upper()} {path}", operation, description)
    )


@contextmanager
def _services() -> Iterator[Services]:
    """A catalog that was just created: the description depends on no data."""
    with TemporaryDirectory() as folder:
        settings = Path(folder) / "lakewarden.toml"
        command = (str(Path(sys.executable).parent / "lakewarden"), "init", "--admin", "ann")
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        loaded = Settings.load(settings, {})
        with Services.open(loaded, open_kms(loaded.kms)) as services:
            yield services


def _operation(name: str, operation: Description, description: Description) -> Iterator[str]:
    yield f"## `{name}`\n"
    yield f"{_text(operation.get('description') or operation.get('summary', ''))}\n"
    parameters = [
        (each["name"], each["in"], each.get("schema", {}), each.get("required", False))
        for each in operation.get("parameters", [])
    ]
    fields = [
        (name, "body", schema, name in needed) for name, schema, needed in _fields(operation, description)
    ]
    if parameters or fields:
        yield "| parameter | in | type | required |\n|---|---|---|---|"
        yield from (
            f"| `{name}` | {where} | {_type(schema)} | {'yes' if required else ''} |"
            for name, where, schema, required in (*parameters, *fields)
        )
        yield ""
    yield f"Answers: {', '.join(f'`{status}`' for status in operation['responses'])}\n"


def _fields(operation: Description, description: Description) -> Iterator[tuple[str, Description, list[str]]]:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        schema = _resolved(content.get("schema", {}), description)
        for name, each in schema.get("properties", {}).items():
            yield name, each, schema.get("required", [])


def _resolved(schema: Description, description: Description) -> Description:
    if "$ref" not in schema:
        return schema
    found: Description = description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return found


def _type(schema: Description) -> str:
    for choice in ("anyOf", "oneOf", "allOf"):
        if choice in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[choice]))
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{each}`" for each in schema.get("enum", [schema.get("const")]))
    return str(schema.get("type", "any"))


def _text(said: str) -> str:
    return " ".join(said.replace("``", "`").replace("*", "\\*").replace("{", "\\{").split())
