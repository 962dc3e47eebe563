"""The references of settings, variables, properties and privileges are complete, and as the code has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from catalog.settings.catalog import NOT_SETTINGS, Settings
from catalog.settings.console import ConsoleClient
from catalog.settings.identity import IssuerSettings
from catalog.settings.kms_options import AwsKmsOptions, HadoopKmsOptions, VaultKmsOptions
from policy.encryption import governed
from policy.errors import PropertyInvalid
from policy.privileges import operations
from policy.privileges.namespaces import PROTECTING
from policy.privileges.requests import ACCESS_TYPES
from tests.support.vectors import each_row
from tools.site import privilege_meanings, privilege_page, property_page, settings_page
from tools.site.environment import OPEN_TELEMETRY, VARIABLES
from tools.site.error_rules import PACKAGES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def _models(model: type[BaseModel]) -> set[type[BaseModel]]:
    """A model and those below it, found without the code that writes the page."""
    found, pending = {model}, [field.annotation for field in model.model_fields.values()]
    while pending:
        each = pending.pop()
        if isinstance(each, type) and issubclass(each, BaseModel):
            found |= _models(each)
        pending.extend(get_args(each))
    return found


def _code(suffix: str) -> str:
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob(f"*.{suffix}")))
    return "\n".join(file.read_text("utf-8") for file in files)


@each_row("model", sorted(_models(Settings), key=lambda each: each.__name__))
def test_every_setting_has_a_meaning(model: type[BaseModel]) -> None:
    meanings = settings_page.meanings(model)
    sections = {name for name in model.model_fields if model is Settings or name in ("sts", "tls", "calls")}
    assert set(model.model_fields) - sections <= {name for name, text in meanings.items() if text}
    assert set(meanings) <= set(model.model_fields)


def test_every_setting_is_in_the_reference() -> None:
    shown = {each.path for section in settings_page.sections() for each in section.settings}
    options = {
        *(
            f"kms.options.{name}"
            for kind in (AwsKmsOptions, HadoopKmsOptions, VaultKmsOptions)
            for name in kind.model_fields
        ),
        *(f"identity.issuers.NAME.{name}" for name in IssuerSettings.model_fields if name != "console"),
        *(f"identity.issuers.NAME.console.{name}" for name in ConsoleClient.model_fields),
    }
    assert options <= shown
    assert {path.partition(".")[0] for path in shown} == set(Settings.model_fields)
    fields = sum(len(model.model_fields) for model in _models(Settings))
    assert len(shown) > 130 and fields > len(shown)
    assert all(
        each.type and each.meaning for section in settings_page.sections() for each in section.settings
    )


def test_the_variable_of_a_setting_sets_it() -> None:
    (plain,) = (
        each
        for section in settings_page.sections()
        for each in section.settings
        if each.path == "http.max_connections"
    )
    assert (
        Settings.load(None, {plain.variable: "7", "LAKEWARDEN_CONFIG": "/dev/null"}).http.max_connections == 7
    )


def test_the_reference_shows_defaults_in_force_and_their_units() -> None:
    page = settings_page.page()
    assert "| location<br>default: `file:///DATA_DIR/warehouse` |" in page
    assert "| bytes, more than 0<br>default: `33554432` (32 MiB) |" in page
    assert "| seconds, at least 60, at most 86,400<br>default: `1800` |" in page


def test_a_guide_is_of_a_section_that_exists_and_a_page_that_exists() -> None:
    assert set(settings_page.GUIDES) <= {section.path for section in settings_page.sections()}
    assert all((DOCS / page.partition("#")[0]).is_file() for page in settings_page.GUIDES.values())


def test_every_variable_that_code_reads_is_in_the_reference() -> None:
    settings = {each.variable for section in settings_page.sections() for each in section.settings}
    literals = set(re.findall(r'"((?:LAKEWARDEN|OTEL)_[A-Z_]+)"', _code("py") + _code("scala")))
    read = set(re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"', _code("py")))
    assert len(literals) > 10 and len(read) > 8
    assert not (literals | read) - settings - {*VARIABLES, *OPEN_TELEMETRY} - {"LAKEWARDEN_"}


def test_variables_that_are_not_settings_are_none_to_the_service() -> None:
    assert {name for name in VARIABLES if name.startswith("LAKEWARDEN_")} == NOT_SETTINGS
    environ = {name: "" for name in NOT_SETTINGS if name.endswith(("TOKEN", "TOKEN_FILE", "CA_FILE"))}
    assert Settings.load(None, environ | {"LAKEWARDEN_CONFIG": "/dev/null"})


def test_every_governed_property_has_a_text_and_values() -> None:
    assert set(property_page.PROPERTIES) == set(governed.NAMES)
    assert all(property_page.values(name) for name in governed.NAMES)
    assert set(property_page.NAMESPACE_PROPERTIES) == set(PROTECTING)
    page = property_page.page()
    aliases = [alias for each in governed.NAMES.values() for alias in each]
    assert len(aliases) > 5
    assert all(f"`{name}`" in page for name in (*governed.NAMES, *aliases, *PROTECTING))


@each_row("name", sorted(governed.CHOICES))
def test_a_property_takes_the_values_of_the_reference_alone(name: str) -> None:
    for value in governed.CHOICES[name]:
        assert governed.split({name: value}) == ({name: value}, {})
    with pytest.raises(PropertyInvalid, match="is not an allowed value"):
        governed.split({name: "other"})


def test_every_privilege_and_operation_has_a_text() -> None:
    privileges = {(levels, access) for levels, accesses in ACCESS_TYPES.items() for access in accesses}
    assert set(privilege_meanings.PRIVILEGES) == privileges
    assert set(privilege_meanings.RESOURCES) == set(ACCESS_TYPES)
    assert set(privilege_meanings.OPERATIONS) == set(operations.OPERATIONS)


@each_row("operation", sorted(operations.OPERATIONS))
def test_the_reference_lists_an_operation_below_each_privilege_that_it_names(operation: str) -> None:
    needs, about = operations.OPERATIONS[operation], privilege_page.about(operation)
    for access in (*needs.access,):
        if access in ACCESS_TYPES[about]:
            assert operation in privilege_page.needed_by(about, access)
        else:
            assert access == "_any"
    if needs.on_keys:
        assert operation in privilege_page.needed_by(("key",), needs.on_keys)


def test_a_text_that_says_that_nothing_requires_a_privilege_is_true() -> None:
    for (levels, access), text in privilege_meanings.PRIVILEGES.items():
        if "no operation requires it" in text:
            assert not privilege_page.needed_by(levels, access)


@pytest.mark.parametrize("page", ["settings", "table-properties", "privileges"])
def test_guides_lead_to_the_reference(page: str) -> None:
    assert f"({page}.md" in "".join(
        (DOCS / f"{each}.md").read_text("utf-8") for each in ("operations", "policies")
    )
