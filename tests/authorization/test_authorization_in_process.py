"""The doors beside the service: pyiceberg's interface in one's own process, and the command line.

Each method of the one, and each command of the other, has a row here; one without a row fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import click
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table.update import SetPropertiesUpdate
from typer.main import get_command

from catalog.cli.main import app
from catalog.service.pyiceberg_catalog import GuardedCatalog
from policy.errors import NotAuthorized, NotSupportedYet
from tests.authorization import model
from tests.authorization.roles import OWN, WITH_TOKEN
from tests.authorization.rows import EVERYBODY, Try
from tests.authorization.rows_keys import key_of, rotated
from tests.authorization.rows_kms_endpoint import movable
from tests.authorization.world import PLAIN, SPARE_KEY, UNSEALED, VAULT, World, open_world
from tests.support.command_line import CliRunner
from tests.support.tables import SCHEMA

_LOADERS: Final = "reader writer alterer owner keeper mason releaser sparked steward"
_ALTERERS: Final = "alterer owner keeper mason steward"
_LOOKERS: Final = "writer alterer owner keeper mason releaser sparked steward"
_CREATORS: Final = "creator keeper mason releaser sparked steward"
_DROPPERS: Final = "owner dropper steward"
_DESTROYERS: Final = "owner releaser steward"
_ANY_ON_DATABASE: Final = "reader writer alterer creator dropper keeper mason releaser sparked steward"


@dataclass(frozen=True)
class Case:
    """What a method or command needs, who may use it, and a use of it.

    Attributes:
        needs: what the model says that it needs.
        allowed: the roles that may.
        use: uses it.
    """

    needs: tuple[str, ...]
    allowed: str
    use: Callable[..., object]


def _commit(catalog: GuardedCatalog, attempt: Try) -> object:
    shown = attempt.world.lake.catalog("steward").load_table((OWN, PLAIN))
    return catalog.commit_table(shown, (), (SetPropertiesUpdate(updates={"comment": "x"}),))


def _drop_namespace(catalog: GuardedCatalog, attempt: Try) -> None:
    catalog.drop_namespace(attempt.world.new_namespace() if attempt.allowed else OWN)


def _register(catalog: GuardedCatalog, attempt: Try) -> object:
    where = attempt.world.metadata_file(attempt.world.directory("granted"))
    return catalog.register_table((OWN, attempt.world.new()), where)


def _new(attempt: Try) -> tuple[str, str]:
    return OWN, attempt.world.new()


#: By method of pyiceberg's interface.
METHODS: Final[Mapping[str, Case]] = MappingProxyType(
    {
        "commit_table": Case(("alter",), _ALTERERS, _commit),
        "create_namespace": Case(
            ("db:create",),
            _CREATORS,
            lambda catalog, attempt: catalog.create_namespace(attempt.world.new(f"{OWN}-")),
        ),
        "create_namespace_if_not_exists": Case(
            ("db:create",),
            _CREATORS,
            lambda catalog, attempt: catalog.create_namespace_if_not_exists(attempt.world.new(f"{OWN}-")),
        ),
        "create_table": Case(
            ("new:create",), _CREATORS, lambda catalog, attempt: catalog.create_table(_new(attempt), SCHEMA)
        ),
        "create_table_if_not_exists": Case(
            ("new:create",),
            _CREATORS,
            lambda catalog, attempt: catalog.create_table_if_not_exists(_new(attempt), SCHEMA),
        ),
        "create_table_transaction": Case(
            ("new:create",),
            _CREATORS,
            lambda catalog, attempt: catalog.create_table_transaction(_new(attempt), SCHEMA),
        ),
        "drop_namespace": Case(("db:drop",), "dropper steward", _drop_namespace),
        "drop_table": Case(
            ("drop",), _DROPPERS, lambda catalog, attempt: catalog.drop_table((OWN, attempt.table()))
        ),
        "list_namespaces": Case(
            ("db:any",), _ANY_ON_DATABASE, lambda catalog, attempt: catalog.list_namespaces(OWN)
        ),
        "list_tables": Case(("db:any",), _ANY_ON_DATABASE, lambda catalog, attempt: catalog.list_tables(OWN)),
        "load_namespace_properties": Case(
            ("db:any",), _ANY_ON_DATABASE, lambda catalog, attempt: catalog.load_namespace_properties(OWN)
        ),
        "load_table": Case(
            ("select|update|alter",),
            _LOADERS,
            lambda catalog, attempt: catalog.load_table((OWN, PLAIN)),
        ),
        "namespace_exists": Case(
            ("db:any",), _ANY_ON_DATABASE, lambda catalog, attempt: catalog.namespace_exists(OWN)
        ),
        "purge_table": Case(
            ("drop",), _DROPPERS, lambda catalog, attempt: catalog.purge_table((OWN, attempt.table()))
        ),
        "register_table": Case(("new:create", "storage"), "creator keeper steward", _register),
        "rename_table": Case(
            ("alter", "select", "new:create"),
            "steward",
            lambda catalog, attempt: catalog.rename_table((OWN, attempt.table()), _new(attempt)),
        ),
        "table_exists": Case(
            ("any",),
            "reader writer alterer owner creator dropper keeper mason releaser sparked steward",
            lambda catalog, attempt: catalog.table_exists((OWN, PLAIN)),
        ),
        "update_namespace_properties": Case(
            ("db:alter",),
            "alterer keeper mason steward",
            lambda catalog, attempt: catalog.update_namespace_properties(OWN, updates={"comment": "x"}),
        ),
    }
)
#: Views: none is made for any user.
UNSUPPORTED: Final = ("create_view", "drop_view", "load_view", "register_view")
#: What asks the catalog nothing.
SILENT: Final = frozenset(
    {
        "close",
        "identifier_to_database",
        "identifier_to_database_and_table",
        "identifier_to_tuple",
        "list_views",
        "namespace_from",
        "namespace_to_string",
        "supports_server_side_planning",
        "table_name_from",
        "view_exists",
    }
)


def _admin(*words: str) -> Callable[[Try], list[str]]:
    return lambda attempt: list(words)


def _on(*words: str) -> Callable[[Try], list[str]]:
    """Words with the table that it is tried on in place of TABLE."""
    return lambda attempt: [f"{OWN}.{attempt.table()}" if word == "TABLE" else word for word in words]


def _registering(attempt: Try) -> list[str]:
    file = attempt.world.metadata_file(attempt.world.directory("granted"))
    return ["table", "register", f"{OWN}.{attempt.world.new()}", file]


def _adopting(attempt: Try) -> list[str]:
    name = attempt.world.new()
    attempt.world.pointer(name, attempt.world.metadata_file(attempt.world.directory("granted")))
    return ["table", "adopt", f"{OWN}.{name}"]


def _key(*words: str) -> Callable[[Try], list[str]]:
    """A command about the keys of an encrypted table."""

    def command(attempt: Try) -> list[str]:
        table = rotated(attempt)
        named = {"TABLE": f"{OWN}.{table}", "KEY": str(key_of(attempt, table))}
        return ["key", *(named.get(word, word) for word in words)]

    return command


def _door(act: str) -> Callable[[Try], list[str]]:
    return lambda attempt: ["kms-endpoint", act, movable(attempt)]


def _forbidding(attempt: Try) -> list[str]:
    return ["table", "forbid-old-epochs", f"{OWN}.{attempt.table(encrypted=True)}"]


def _resealing(attempt: Try) -> list[str]:
    table = attempt.table() if attempt.allowed else UNSEALED
    if attempt.allowed:
        attempt.world.unseal(table)
    return ["table", "reseal", f"{OWN}.{table}"]


#: By command that policies decide, for the principal that `--as` names.
COMMANDS: Final[Mapping[str, Case]] = MappingProxyType(
    {
        "table list": Case(("audit",), "auditor steward", _admin("table", "list", "--encryption")),
        "table show": Case(("select|update|alter",), _LOADERS, _on("table", "show", "TABLE")),
        "table set": Case(("alter",), _ALTERERS, _on("table", "set", "TABLE", "comment=x")),
        "table unset": Case(("alter",), _ALTERERS, _on("table", "unset", "TABLE", "comment")),
        "table register": Case(("new:create", "storage"), "creator keeper steward", _registering),
        "table adopt": Case(("new:create", "storage"), "creator keeper steward", _adopting),
        "table reseal": Case(("alter", "update"), "owner steward", _resealing),
        "table restore": Case(("alter",), _ALTERERS, _on("table", "restore", "TABLE")),
        "table epochs": Case(("alter|update",), _LOOKERS, _on("table", "epochs", "TABLE")),
        "table forbid-old-epochs": Case(("alter",), _ALTERERS, _forbidding),
        "table clean-up": Case(
            ("alter", "drop"), "owner steward", _on("table", "clean-up", "TABLE", "--remove")
        ),
        "table drop": Case(("drop",), _DROPPERS, _on("table", "drop", "TABLE")),
        "key list": Case(("select|update|alter",), _LOADERS, _key("list", "TABLE")),
        "key show": Case(("select|update|alter",), _LOADERS, _key("show", "TABLE", "KEY")),
        "key create": Case(("alter", "use"), "mason steward", _key("create", "TABLE", SPARE_KEY)),
        "key rotate": Case(("alter", "rotate"), "owner steward", _key("rotate", "TABLE")),
        "key rewrap": Case(("alter", "rotate"), "owner steward", _key("rewrap", "TABLE")),
        "key disable": Case(("alter", "destroy"), "owner steward", _key("disable", "TABLE")),
        "key enable": Case(("alter", "destroy"), "owner steward", _key("enable", "TABLE")),
        "key destroy": Case(
            ("drop", "destroy"), "owner steward", _key("destroy", "TABLE", "--confirm", "TABLE")
        ),
        "key kms-keys": Case(("admin",), "admin steward", _admin("key", "kms-keys")),
        "key needs": Case(("admin",), "admin steward", _admin("key", "needs", "local")),
        "key assign-master": Case(
            ("admin", "rotate"), "steward", _admin("key", "assign-master", SPARE_KEY, "--kms", "local")
        ),
        "key move-master": Case(("admin", "rotate"), "steward", _admin("key", "move-master", SPARE_KEY)),
        "kms-endpoint list": Case(("token",), EVERYBODY, _admin("kms-endpoint", "list")),
        "kms-endpoint disable": Case(("destroy",), _DESTROYERS, _door("disable")),
        "kms-endpoint enable": Case(("destroy",), _DESTROYERS, _door("enable")),
        "policy report": Case(("admin",), "admin steward", _admin("policy", "report", "--json")),
    }
)
#: What the user of the host can do, with policies or without; every change of it is audited. What these
#: commands do is tested with them (tests/cli).
OPERATORS: Final = frozenset(
    {
        "init",
        "serve",
        "doctor",
        "access who-can",
        "access diff",
        "access matrix",
        "db upgrade",
        "db check",
        "db clean-up",
        "key masters",
        "key create-master",
        "key rotate-master",
        "key rewrap-master",
        "key disable-master",
        "key enable-master",
        "audit show",
        "audit verify",
        "audit checkpoint",
        "audit export",
        "audit report",
        "audit archive",
        "audit prune",
        "token rotate",
        "user list",
        "user assign",
        "user disable",
        "user enable",
        "user forget-claims",
        "user delete",
        "policy check",
        "policy show",
        "policy lint",
        "policy test",
        "policy list",
        "policy get",
        "policy apply",
        "policy put",
        "policy remove",
        "policy history",
        "policy import",
        "policy sources",
        "policy sync",
        "tag import",
        "tag list",
        "tag remove",
        "tag set",
        "token issue",
        "token list",
        "token revoke",
    }
)
#: Without any right, and with different ones; each command is allowed to one of them or to the steward.
_TRIED: Final = ("nobody", "owner", "keeper")
_FINDINGS: Final = 3


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root: Path = tmp_path_factory.mktemp("in-process")
    with open_world(root) as opened:
        yield opened


def test_every_method_has_a_row() -> None:
    known = {name for name in dir(GuardedCatalog) if not name.startswith("_")}
    assert known == {name for name in dir(Catalog) if not name.startswith("_")}
    assert known == METHODS.keys() | SILENT | set(UNSUPPORTED)


@pytest.mark.parametrize("name", METHODS)
def test_methods_agree_with_the_model(world: World, name: str) -> None:
    case = METHODS[name]
    assert set(case.allowed.split()) == {role for role in WITH_TOKEN if model.permits(role, case.needs)}
    for role in WITH_TOKEN:
        attempt = Try(world, role, role in case.allowed.split())
        catalog = world.lake.catalog(role)
        if attempt.allowed:
            case.use(catalog, attempt)
            continue
        before = world.changes()
        with pytest.raises(NotAuthorized):
            case.use(catalog, attempt)
        # What a registration is made from is made in the test, and lies in no table of the catalog.
        assert world.changes() == before, role


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_there_are_no_views(world: World, name: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"register_view": ("x",)}
    with pytest.raises(NotSupportedYet):
        getattr(world.lake.catalog(), name)((OWN, VAULT), *arguments.get(name, ()))


def test_every_command_has_a_row() -> None:
    assert set(_commands(get_command(app))) == COMMANDS.keys() | OPERATORS


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_agree_with_the_model(world: World, name: str) -> None:
    case = COMMANDS[name]
    assert set(case.allowed.split()) == {role for role in WITH_TOKEN if model.permits(role, case.needs)}
    for role in _TRIED:
        attempt = Try(world, role, role in case.allowed.split())
        words = case.use(attempt)
        assert isinstance(words, list)
        before = world.changes()
        result = CliRunner().invoke(app, [*words, "--as", role], env=_environment(world))
        if attempt.allowed:
            assert result.exit_code in (0, _FINDINGS), (role, result.stderr, result.exception)
        else:
            assert (result.exit_code, world.changes()) == (1, before), (role, result.stderr)
            assert f"{role} is not authorized" in " ".join(result.stderr.split())


def _environment(world: World) -> dict[str, str | None]:
    return {
        "LAKEWARDEN_DATA_DIR": str(world.root),
        "LAKEWARDEN_WAREHOUSE": f"file://{world.root}/warehouse",
    }


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The catalog's commands; Spark's stand beside them once anything imports them."""
    if isinstance(command, click.Group) or hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _commands(inner, (*path, name))
    elif command.callback.__module__.startswith("catalog."):
        yield " ".join(path)
