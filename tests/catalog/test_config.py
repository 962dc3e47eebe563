"""Settings: file and environment in one frozen object, and nothing mistyped stays silent."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from catalog.settings import catalog
from catalog.settings.catalog import Settings
from policy.errors import RequestInvalid


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    return path


def _refusal(path: Path | None, environ: dict[str, str]) -> str:
    with pytest.raises(RequestInvalid) as refused:
        Settings.load(path, environ)
    assert refused.value.hint
    assert refused.value.__cause__ is None or not isinstance(refused.value.__cause__, ValidationError)
    return str(refused.value)


def test_without_any_setting_everything_lies_in_the_data_directory(tmp_path: Path) -> None:
    settings = Settings.load(None, {})
    base = tmp_path / "lakewarden-data"
    assert settings.data_dir == base
    assert settings.warehouse == f"file://{base}/warehouse"
    assert settings.database.url.get_secret_value() == f"sqlite:///{base}/lakewarden.db"
    assert settings.kms.options.keystore == base / "keystore.json"
    assert settings.kms.options.key_file == base / "keystore.key"
    assert settings.catalog.name == "lakewarden"
    assert settings.policies == ()
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 8181)
    assert settings.unsealed_metadata is None
    assert settings.kms.pek_ttl_s == 60


def test_the_example_of_the_documentation_is_valid(tmp_path: Path) -> None:
    assert catalog.__doc__ is not None
    example = catalog.__doc__.split("::\n", 1)[1].replace("\n    ", "\n")
    settings = Settings.load(_file(tmp_path, example), {})
    assert settings.warehouse == "s3://lake/warehouse"
    assert settings.catalog.name == "prod"
    assert settings.kms.options.key_file == Path("/etc/lakewarden/keystore.key")
    assert settings.http.host == "0.0.0.0"


def test_the_environment_wins_and_is_merged_setting_by_setting(tmp_path: Path) -> None:
    path = _file(tmp_path, '[http]\nhost = "h"\nport = 1\n[s3]\nregion = "r"\n')
    environ = {
        "LAKEWARDEN_HTTP__PORT": "8282",
        "LAKEWARDEN_KMS__OPTIONS__PASSPHRASE": "hush",
        "LAKEWARDEN_POLICIES": '["/a.json", "/b"]',
        "LAKEWARDEN_LIMITS__MANIFEST_ENTRIES": "7",
        "PATH": "/bin",
    }
    settings = Settings.load(path, environ)
    assert (settings.http.host, settings.http.port, settings.s3.region) == ("h", 8282, "r")
    assert settings.policies == (Path("/a.json"), Path("/b"))
    assert settings.limits.manifest_entries == 7
    assert settings.kms.options.passphrase is not None
    assert settings.kms.options.passphrase.get_secret_value() == "hush"
    assert settings.kms.options.key_file is None


def test_a_single_item_is_a_list() -> None:
    assert Settings.load(None, {"LAKEWARDEN_POLICIES": "/p"}).policies == (Path("/p"),)


def test_the_environment_of_the_process_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEWARDEN_WAREHOUSE", "s3://elsewhere")
    monkeypatch.setenv("WAREHOUSE", "s3://elsewhere")
    monkeypatch.setenv("DATA_DIR", "/elsewhere")
    assert "elsewhere" not in repr(Settings.load(None, {}))


def test_the_file_is_found_by_variable_or_in_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "lakewarden.toml").write_text('[catalog]\nname = "here"\n')
    assert Settings.load(None, {}).catalog.name == "here"
    named = _file(tmp_path, '[catalog]\nname = "named"\n')
    assert Settings.load(None, {"LAKEWARDEN_CONFIG": str(named)}).catalog.name == "named"
    assert "missing.toml" in _refusal(None, {"LAKEWARDEN_CONFIG": "missing.toml"})


@pytest.mark.parametrize(
    "text", ["wharehouse = 's3://b'", "[http]\nprot = 1", "[kms.options]\nkeyfile = '/k'"]
)
def test_an_unknown_key_names_itself_and_its_file(tmp_path: Path, text: str) -> None:
    message = _refusal(_file(tmp_path, text), {})
    assert "settings.toml" in message
    assert "there is no such setting" in message
    assert any(name in message for name in ("wharehouse", "http.prot", "kms.options.keyfile"))


@pytest.mark.parametrize(
    "name", ["LAKEWARDEN_WHAREHOUSE", "LAKEWARDEN_HTTP__PROT", "LAKEWARDEN_HTTP_PORT", "LAKEWARDEN_"]
)
def test_an_unknown_variable_names_itself(name: str) -> None:
    assert name in _refusal(None, {name: "hush"})


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "environ",
    [
        {"LAKEWARDEN_HTTP__PORT": "hush"},
        {"LAKEWARDEN_HTTP__PORT": "70000"},
        {"LAKEWARDEN_HTTP": "hush"},
        {"LAKEWARDEN_DATA_DIR__X": "hush"},
        {"LAKEWARDEN_DATABASE": "hush"},
        {"LAKEWARDEN_DATABASE__URL__X": "hush"},
        {"LAKEWARDEN_KMS": "hush"},
        {"LAKEWARDEN_KMS__OPTIONS": "hush"},
        {"LAKEWARDEN_KMS__KIND": ""},
        {"LAKEWARDEN_KMS__KIND": "aws", "LAKEWARDEN_KMS__OPTIONS__ENDPOINT": "http://hush.example"},
        {"LAKEWARDEN_KMS__KIND": "aws", "LAKEWARDEN_KMS__OPTIONS__ACCOUNTS": "hush"},
        {"LAKEWARDEN_KMS__KIND": "aws", "LAKEWARDEN_KMS__SECRETS__TOKEN": "hush"},
        {"LAKEWARDEN_KMS__KIND": "vault", "LAKEWARDEN_KMS__OPTIONS__TOKEN": "hush"},
        {"LAKEWARDEN_KMS__KIND": "vault", "LAKEWARDEN_KMS__OPTIONS__URL": "https://a:hush@b"},
        {
            "LAKEWARDEN_KMS__KIND": "mine",
            "LAKEWARDEN_KMS__OPTIONS__TOKEN": "hush",
            "LAKEWARDEN_KMS__SECRETS__TOKEN": "hush",
        },
        {"LAKEWARDEN_WAREHOUSE": "hush/../x"},
        {"LAKEWARDEN_UNSEALED_METADATA": "hush"},
        {"LAKEWARDEN_POLICIES_POLL_S": "0"},
        {"LAKEWARDEN_S3__SECRET_ACCESS_KEY": "hush"},
        {"LAKEWARDEN_KMS__OPTIONS__PASSPHRASE": "hush", "LAKEWARDEN_KMS__OPTIONS__KEY_FILE": "/k"},
        {"LAKEWARDEN_HTTP__PORT": "1", "LAKEWARDEN_http__port": "2"},
        {"LAKEWARDEN_HTTP": "hush", "LAKEWARDEN_HTTP__PORT": "2"},
        {"LAKEWARDEN_WRITE_TTL_S": str(3 * 24 * 3600)},
        {"LAKEWARDEN_STAGED_TTL_S": str(3 * 24 * 3600)},
        {"LAKEWARDEN_STANDARD_CLIENTS": "allow"},
    ],
)
def test_a_wrong_value_is_one_sentence_without_the_value(environ: dict[str, str]) -> None:
    message = _refusal(None, environ)
    assert "hush" not in message
    assert "LAKEWARDEN_" in message or "kms.options" in message or "s3" in message


@pytest.mark.parametrize("text", ["a = ", "a = 1\na = 2", "\x00", "[http]\nport = 'x'"])
def test_a_file_that_is_not_understood_names_itself(tmp_path: Path, text: str) -> None:
    assert "settings.toml" in _refusal(_file(tmp_path, text), {})


def test_a_file_that_is_not_utf_8_or_is_missing_names_itself(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'warehouse = "\xe9"')
    assert "latin.toml" in _refusal(tmp_path / "latin.toml", {})
    assert "gone.toml" in _refusal(tmp_path / "gone.toml", {})


def test_secrets_mask_themselves() -> None:
    settings = Settings.load(
        None,
        {
            "LAKEWARDEN_DATABASE__URL": "postgresql://u:hush@h/d",
            "LAKEWARDEN_S3__ACCESS_KEY_ID": "id",
            "LAKEWARDEN_S3__SECRET_ACCESS_KEY": "hush",
            "LAKEWARDEN_KMS__OPTIONS__PASSPHRASE": "hush",
        },
    )
    assert "hush" not in f"{settings!r} {settings} {settings.model_dump_json()}"


def test_settings_are_frozen() -> None:
    settings = Settings.load(None, {})
    with pytest.raises(ValidationError):
        settings.http.port = 1
    with pytest.raises(ValidationError):
        settings.warehouse = "s3://b"


def _secrets(tmp_path: Path, **files: str) -> dict[str, str]:
    directory = tmp_path / "secrets"
    directory.mkdir()
    for name, text in files.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o600)
    return {"LAKEWARDEN_SECRETS_DIRECTORY": str(directory)}


def test_a_private_file_holds_the_value_of_its_variable(tmp_path: Path) -> None:
    environ = _secrets(tmp_path, LAKEWARDEN_DATABASE__URL="postgresql://u:pa ss@h/d\n")
    (tmp_path / "secrets" / "..data").mkdir()
    path = _file(tmp_path, '[database]\nurl = "sqlite:////below"\n')
    assert Settings.load(path, environ).database.url.get_secret_value() == "postgresql://u:pa ss@h/d"


@pytest.mark.parametrize("mode", [0o640, 0o604], ids=["the group", "others"])
def test_a_secret_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    environ = _secrets(tmp_path, LAKEWARDEN_DATABASE__URL="postgresql://u:canary@h/d")
    (tmp_path / "secrets" / "LAKEWARDEN_DATABASE__URL").chmod(mode)
    said = _refusal(None, environ)
    assert "LAKEWARDEN_DATABASE__URL" in said
    assert "canary" not in said


@pytest.mark.parametrize("name", ["DATABASE_URL", "LAKEWARDEN_TOKEN", "LAKEWARDEN_CONFIG"])
def test_a_secret_that_no_setting_takes_is_refused(tmp_path: Path, name: str) -> None:
    assert f"{name} has not the name" in _refusal(None, _secrets(tmp_path, **{name: "canary"}))


def test_a_secret_in_a_file_and_in_a_variable_is_refused(tmp_path: Path) -> None:
    environ = _secrets(tmp_path, LAKEWARDEN_S3__REGION="a") | {"LAKEWARDEN_S3__REGION": "b"}
    assert "LAKEWARDEN_S3__REGION" in _refusal(None, environ)


def test_a_directory_of_secrets_that_is_missing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "names no directory" in _refusal(None, {"LAKEWARDEN_SECRETS_DIRECTORY": ""})
    assert "No such file" in _refusal(None, {"LAKEWARDEN_SECRETS_DIRECTORY": str(tmp_path / "none")})
