"""A whole catalog over each KMS elsewhere, as the settings describe it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from catalog.cli.first_use import make_catalog
from catalog.cli.session import open_kms, open_local_kms
from catalog.kms.interface import KmsClient
from catalog.kms.local import EmbeddedKmsWarning
from catalog.planning.request import ScanRequest
from catalog.service.services import Services
from catalog.settings.catalog import Settings
from policy.errors import KeyNotUsable, KmsUnavailable, PropertyInvalid, RequestInvalid
from policy.principal import Principal
from tests.support.documented_kms import PAGE, code
from tests.support.lake import ALICE, Lake, lake_settings, standard_policies, upgrade, write_policies
from tests.support.moto_kms import moto_kms
from tests.support.moto_server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY
from tests.support.tables import ENCRYPTED, append_files, make, name_of
from tests.support.transit_server import TransitKey, transit_server

ROOT = Path(__file__).parents[2]


@dataclass
class Elsewhere:
    """Settings of a KMS elsewhere, and its administrator's side."""

    settings: dict[str, Any]
    disable: Callable[[], object]
    renew: Callable[[], object]
    end_old: Callable[[], object]
    stop: Callable[[], object]


@contextmanager
def aws() -> Iterator[Elsewhere]:
    with moto_kms() as kms:
        settings = {
            "KMS__KIND": "aws",
            "KMS__DEFAULT_MASTER_KEY_ID": kms.lake,
            "KMS__OPTIONS__REGION": REGION,
            "KMS__OPTIONS__ENDPOINT": kms.endpoint,
            "KMS__OPTIONS__ACCESS_KEY_ID": ACCESS_KEY_ID,
            "KMS__OPTIONS__SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        }
        first = kms.key_id(kms.lake)

        def renew() -> None:
            second = kms.admin.create_key()["KeyMetadata"]["KeyId"]
            kms.admin.update_alias(AliasName=kms.lake, TargetKeyId=second)

        yield Elsewhere(
            settings,
            lambda: kms.admin.disable_key(KeyId=kms.key_id(kms.lake)),
            renew,
            lambda: kms.admin.disable_key(KeyId=first),
            kms.stop,
        )


@contextmanager
def vault() -> Iterator[Elsewhere]:
    with transit_server() as (server, stop):
        server.keys["lake"] = TransitKey(derived=True)
        role, secret = server.role()
        settings = {
            "KMS__KIND": "vault",
            "KMS__DEFAULT_MASTER_KEY_ID": "lake",
            "KMS__OPTIONS__URL": server.url,
            "KMS__OPTIONS__ROLE_ID": role,
            "KMS__OPTIONS__SECRET_ID": secret,
        }
        key = server.keys["lake"]
        yield Elsewhere(
            settings,
            lambda: server.denied.add("lake"),
            lambda: key.versions.append(os.urandom(32)),
            lambda: setattr(key, "min_decryption_version", 2),
            stop,
        )


@contextmanager
def opened(root: Path, settings: dict[str, Any]) -> Iterator[Lake]:
    """A catalog as `lakewarden serve` would open it."""
    write_policies(root, standard_policies())
    loaded = lake_settings(root, **settings, KMS__CALLS__ATTEMPTS=1)
    upgrade(loaded.database.url)
    kms: KmsClient = open_kms(loaded.kms)
    lake = Lake(root, loaded, Services.open(loaded, kms), kms)  # type: ignore[arg-type]
    try:
        yield lake
    finally:
        lake.services.close()


def planned(lake: Lake, name: Any) -> int:
    found = lake.services.planner.plan(lake.caller(ALICE), name, ScanRequest())
    return int(found.files.num_rows)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [aws, vault], ids=lambda kind: kind.__name__)
def test_encrypted_tables_live_under_a_master_key_elsewhere(tmp_path, kind):
    with kind() as elsewhere, opened(tmp_path, elsewhere.settings) as lake:
        lake.catalog().create_namespace("db")
        name = name_of(make(lake, properties=ENCRYPTED))
        append_files(lake, name, 2)
        with opened(tmp_path, elsewhere.settings) as other:
            assert planned(other, name) == 2
        elsewhere.disable()
        assert planned(lake, name) == 2, "a key that is kept serves for its time"
        with opened(tmp_path, elsewhere.settings) as other, pytest.raises(KeyNotUsable):
            planned(other, name)
        elsewhere.stop()
        with opened(tmp_path, elsewhere.settings) as other, pytest.raises(KmsUnavailable):
            planned(other, name)
        assert not (tmp_path / "keystore.json").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [aws, vault], ids=lambda kind: kind.__name__)
def test_old_master_key_can_end_once_what_it_wrapped_is_rewrapped(tmp_path, kind):
    with kind() as elsewhere, opened(tmp_path, elsewhere.settings) as lake:
        lake.catalog().create_namespace("db")
        names = [name_of(make(lake, properties=ENCRYPTED)) for _ in range(3)]
        for name in names:
            append_files(lake, name)
        elsewhere.renew()
        done = lake.services.master_keys.rewrap(elsewhere.settings["KMS__DEFAULT_MASTER_KEY_ID"])
        assert (done.rewrapped, done.failed) == (3, ())
        late = name_of(make(lake, properties=ENCRYPTED))
        append_files(lake, late)
        elsewhere.end_old()
        with opened(tmp_path, elsewhere.settings) as other:
            assert [planned(other, name) for name in (*names, late)] == [1] * 4


@pytest.mark.nightly
@pytest.mark.parametrize("kind", [aws, vault], ids=lambda kind: kind.__name__)
def test_first_use_leaves_master_keys_elsewhere_alone(tmp_path, kind, recwarn):
    with kind() as elsewhere:
        environ = {f"LAKEWARDEN_{name}": str(value) for name, value in elsewhere.settings.items()}
        said: list[str] = []
        make_catalog(tmp_path / "lakewarden.toml", environ, Principal(ALICE), tmp_path / "data", said.append)
        settings = lake_settings(tmp_path / "data", **elsewhere.settings)
    wanted = elsewhere.settings["KMS__DEFAULT_MASTER_KEY_ID"]
    assert any(f"Create the master key {wanted} there." in sentence for sentence in said)
    assert not list(tmp_path.rglob("keystore*"))
    assert not [each for each in recwarn if each.category is EmbeddedKmsWarning]
    with pytest.raises(RequestInvalid, match="not in the local KMS"):
        open_local_kms(settings)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package of `docs/kms.md`, installed."""
    site = tmp_path / "site"
    info = site / "directory_kms-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: directory_kms\nVersion: 1.0\n")
    points = PAGE.partition('[project.entry-points."lakewarden.kms"]\n')[2].partition("```")[0]
    (info / "entry_points.txt").write_text("[lakewarden.kms]\n" + points.replace('"', ""))
    (site / "directory_kms.py").write_text(code())
    monkeypatch.syspath_prepend(str(site))
    master = tmp_path / "keys" / "lake"
    master.mkdir(parents=True)
    (master / "1").write_bytes(os.urandom(32))
    yield tmp_path / "keys"
    sys.modules.pop("directory_kms", None)


@pytest.mark.nightly
def test_installed_package_serves_a_catalog_by_its_name(tmp_path, package):
    settings = {
        "KMS__KIND": "directory",
        "KMS__DEFAULT_MASTER_KEY_ID": "lake",
        "KMS__OPTIONS__DIRECTORY": package,
    }
    with opened(tmp_path, settings) as lake:
        lake.catalog().create_namespace("db")
        name = name_of(make(lake, properties=ENCRYPTED))
        append_files(lake, name)
        with opened(tmp_path, settings) as other:
            assert planned(other, name) == 1
        package.rename(tmp_path / "gone")
        with opened(tmp_path, settings) as other, pytest.raises(KmsUnavailable):
            planned(other, name)


@pytest.mark.nightly
def test_documented_settings_are_settings(tmp_path, package):
    given = {"local": {}, "aws": {}, "vault": {"SECRET_ID": "s"}, "hadoop": {"TOKEN": "t"}, "directory": {}}
    shown = [each.partition("```")[0] for each in PAGE.split("```toml\n")[1:]]
    kinds = [(tomllib.loads(text)["kms"]["kind"], text) for text in shown if "[kms]" in text]
    assert {kind for kind, _ in kinds} == set(given)
    for kind, text in kinds:
        path = tmp_path / f"{kind}.toml"
        path.write_text(text)
        environ = {f"LAKEWARDEN_KMS__OPTIONS__{name}": value for name, value in given[kind].items()}
        settings = Settings.load(path, environ)
        assert open_kms(settings.kms).identifier == kind
        assert {name: open_kms(each).identifier for name, each in settings.other_kms.items()} in (
            {},
            {"aws": "aws"},
        )


def test_secrets_of_a_package_mask_themselves(tmp_path, package):
    settings = lake_settings(
        tmp_path, KMS__KIND="directory", KMS__OPTIONS__DIRECTORY=package, KMS__SECRETS__TOKEN="hush"
    )
    assert "hush" not in repr(settings) and "hush" not in str(settings.model_dump())


def test_kms_that_nobody_installed_is_refused_by_name(tmp_path):
    with pytest.raises(PropertyInvalid, match="absent"):
        open_kms(lake_settings(tmp_path, KMS__KIND="absent").kms)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("import nothing_of_the_kind\n", "ModuleNotFoundError"),
        ("no = thing\n", "NameError"),
        ("def connect(options): raise ValueError(options['token'].reveal())\n", "ValueError"),
        ("connect = None\n", "TypeError"),
    ],
)
def test_entry_point_that_fails_is_refused_and_shows_no_secret(tmp_path, monkeypatch, source, kind):
    info = tmp_path / "failing_kms-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: failing_kms\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lakewarden.kms]\nfailing = failing_kms:connect\n")
    (tmp_path / "failing_kms.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        with pytest.raises(PropertyInvalid, match=f"failing_kms:connect.* {kind}") as refusal:
            open_kms(lake_settings(tmp_path, KMS__KIND="failing", KMS__SECRETS__TOKEN="hush").kms)
    finally:
        sys.modules.pop("failing_kms", None)
    assert refusal.value.hint and "hush" not in str(refusal.value)
    assert refusal.value.__cause__ is None and refusal.value.__suppress_context__


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("extra", "module", "options"),
    [
        ("aws", "boto3", {"region": REGION}),
        ("vault", "hvac", {"url": "https://vault.example", "token": "t"}),
    ],
)
def test_missing_extra_is_named_and_no_other_kms_needs_it(extra, module, options):
    script = (
        "import sys; sys.modules[sys.argv[2]] = None\n"
        "from catalog.kms.registry import load_kms; from policy.errors import PropertyInvalid\n"
        "import catalog.settings.catalog\n"
        "try: load_kms(sys.argv[1], eval(sys.argv[3]))\n"
        "except PropertyInvalid as refused: print(refused)\n"
    )
    arguments = [sys.executable, "-c", script, extra, module, repr(options)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, cwd=ROOT, check=True)
    assert f'pip install "lakewarden[{extra}]"' in done.stdout
