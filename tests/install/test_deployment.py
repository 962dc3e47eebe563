"""The examples of deployments: settings load, the tools of others accept the files, secrets stay closed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from catalog.audit.checkpoints import Signer
from catalog.settings.catalog import Settings
from tests.support.environments import ROOT

DEPLOYMENT = ROOT / "examples" / "deployment"
DOCKER = DEPLOYMENT / "docker"
CHART = DEPLOYMENT / "helm" / "lakewarden"
UNIT = DEPLOYMENT / "systemd" / "lakewarden.service"
BIN = Path(sys.executable).parent
REQUIRED = {"image.repository": "registry.example/lakewarden", "existingSecret": "main", "tlsSecret": "tls"}


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_settings_and_secrets_of_compose_are_accepted(tmp_path: Path) -> None:
    shutil.copytree(DOCKER, tmp_path / "docker")
    run(tmp_path / "docker" / "make-secrets")
    environ = dict(
        line.split("=", 1) for line in (tmp_path / "docker/secrets/catalog.env").read_text().splitlines()
    )
    settings = Settings.load(DOCKER / "lakewarden.toml", environ)
    password = (tmp_path / "docker/secrets/database-password").read_text()
    assert f":{password}@database/" in settings.database.url.get_secret_value()
    assert (tmp_path / "docker/secrets/catalog.env").stat().st_mode & 0o077 == 0
    composed = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    build = composed["services"]["catalog"]["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).resolve() == DOCKER / "Dockerfile"


def test_clients_of_compose_reach_the_catalog_where_tokens_are_sent() -> None:
    """Clients refuse to send tokens over plain HTTP to the host `catalog`."""
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"]
    assert services["notebook"]["network_mode"] == "service:catalog"
    assert not {"networks", "ports"} & services["notebook"].keys()
    assert services["notebook"]["depends_on"] == {"catalog": {"condition": "service_healthy"}}
    assert "healthcheck" in services["catalog"]


def test_the_image_assumes_no_address_that_settings_change() -> None:
    assert "HEALTHCHECK" not in (DOCKER / "Dockerfile").read_text()


def test_the_unit_reads_secrets_where_commands_beside_it_do() -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    for variable in ("LAKEWARDEN_CONFIG=", "LAKEWARDEN_SECRETS_DIRECTORY="):
        (line,) = [each for each in UNIT.read_text().splitlines() if variable in each]
        assert line.removeprefix("Environment=") in page


@pytest.mark.interop
def test_the_dockerfile_has_no_findings() -> None:
    if not (BIN / "hadolint").is_file():
        pytest.skip("hadolint is not installed: make interop installs it")
    run(BIN / "hadolint", DOCKER / "Dockerfile")


@pytest.mark.interop
def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("there is no systemd-analyze on the PATH")
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/lakewarden/bin/lakewarden", shutil.which("true") or ""))
    run(program, "verify", unit)
    assert "OK" in run(program, "security", "--offline=yes", unit).splitlines()[-1]


def rendered(**values: str) -> list[dict[str, Any]]:
    """The resources of the chart."""
    given = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    options = ["--kube-version", "1.31.0", "--set-string", "image.tag=1", *given]
    return list(yaml.safe_load_all(run(helm(), "template", "lake", CHART, *options)))


def helm() -> str:
    built = Path(sys.prefix) / "helm" / "helm"
    found = str(built) if built.is_file() else shutil.which("helm")
    if found is None:
        pytest.skip("there is no helm on the PATH, and no Go to build it")
    return found


@pytest.mark.interop
@pytest.mark.parametrize("values", [{}, {"replicas": "1", "extraSecrets": "{vault}"}], ids=["least", "more"])
def test_resources_of_the_chart_are_valid(tmp_path: Path, values: dict[str, str]) -> None:
    if not (BIN / "kubernetes-validate").is_file():
        pytest.skip("kubernetes-validate is not installed: make interop installs it")
    resources = tmp_path / "resources.yaml"
    resources.write_text(yaml.safe_dump_all(rendered(**REQUIRED, **values)))
    run(BIN / "kubernetes-validate", "--strict", resources)


@pytest.mark.interop
@pytest.mark.parametrize("missing", REQUIRED)
def test_a_chart_without_what_it_needs_is_not_installed(missing: str) -> None:
    given = {name: value for name, value in REQUIRED.items() if name != missing}
    with pytest.raises(AssertionError, match=missing.replace(".", r"\.")):
        rendered(**given)


@pytest.mark.interop
def test_secrets_of_the_chart_reach_the_settings_closed_to_others(tmp_path: Path) -> None:
    """Kubernetes shows a Secret as links to files that the group can read."""
    resources = {each["kind"]: each for each in rendered(**REQUIRED)}
    pod = resources["Deployment"]["spec"]["template"]["spec"]
    main = tmp_path / "secrets" / "main"
    shown = main / "..2026"
    shown.mkdir(parents=True)
    (main / "..data").symlink_to("..2026")
    secret = {"LAKEWARDEN_DATABASE__URL": "postgresql://u:p@h/d", "audit.key": "1f" * 32 + "\n"}
    for name, text in secret.items():
        (shown / name).write_text(text)
        (shown / name).chmod(0o440)
        (main / name).symlink_to(f"..data/{name}")
    private = tmp_path / "private"

    def moved(text: str) -> str:
        return text.replace("/secrets/", f"{tmp_path}/secrets/").replace("/run/lakewarden", str(private))

    copies = pod["initContainers"][0]
    run(*copies["command"], moved(copies["args"][0]))
    environ = {each["name"]: moved(each["value"]) for each in pod["containers"][0]["env"]}
    (tmp_path / "lakewarden.toml").write_text(resources["ConfigMap"]["data"]["lakewarden.toml"])
    settings = Settings.load(tmp_path / "lakewarden.toml", environ)
    assert settings.database.url.get_secret_value() == secret["LAKEWARDEN_DATABASE__URL"]
    assert settings.audit.key_file is not None
    assert Signer(settings.audit.key_file).public_key
