"""A real OpenBao or Vault in development mode on this machine, where its program is on the PATH."""

from __future__ import annotations

import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from catalog.kms.vault import VaultKms
from catalog.settings.kms_options import VaultKmsOptions
from tests.support.kms_backends import Backend
from tests.support.transit_backends import version_of

_PROGRAMS = ("bao", "vault")
_PATIENCE_S = 60.0


@dataclass
class RealVault:
    """A running server with a mounted Transit engine.

    Attributes:
        url: its address.
        process: the server.
        root: its root token.
    """

    url: str
    process: subprocess.Popen[bytes]
    root: str
    _http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self._http = httpx.Client(
            base_url=f"{self.url}/v1/", headers={"X-Vault-Token": self.root}, timeout=30
        )

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """What an administrator does."""
        answer = self._http.request(method, path, json=body)
        answer.raise_for_status()
        return dict(answer.json()) if answer.content else {}

    def token(self, policy: str) -> str:
        """A new token with a policy of this text."""
        name = self.policy(policy)
        made = self.call("POST", "auth/token/create", {"policies": [name], "ttl": "1h"})
        return str(made["auth"]["client_token"])

    def policy(self, text: str, name: str | None = None) -> str:
        """Writes a policy and returns its name."""
        name = name or f"p-{uuid4().hex}"
        self.call("PUT", f"sys/policies/acl/{name}", {"policy": text})
        return name

    @contextmanager
    def inside(self, namespace: str) -> Iterator[RealVault]:
        """The administrator of a namespace."""
        inner = RealVault(self.url, self.process, self.root)
        inner._http.headers["X-Vault-Namespace"] = namespace
        yield inner

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            return self._http.get("sys/health").status_code == 200
        except httpx.TransportError:
            return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def real_vault(directory: Path) -> Iterator[RealVault]:
    """Start one; the test is skipped where there is none."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.skip("neither bao nor vault is on the PATH")
    address, root = f"127.0.0.1:{free_port()}", secrets.token_hex(16)
    arguments = [
        "-dev",
        "-dev-no-store-token",
        f"-dev-listen-address={address}",
        f"-dev-root-token-id={root}",
    ]
    with (directory / "vault.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "server", *arguments],
            stdout=log,
            stderr=log,
            cwd=directory,
            env={"HOME": str(directory), "PATH": "/usr/bin:/bin"},
        )
    try:
        server = RealVault(f"http://{address}", process, root)
        end = time.monotonic() + _PATIENCE_S
        while not server.ready():
            assert process.poll() is None and time.monotonic() < end, (directory / "vault.log").read_text()
            time.sleep(0.1)
        server.call("POST", "sys/mounts/transit", {"type": "transit"})
        yield server
    finally:
        process.kill()
        process.wait()


@contextmanager
def vault(directory: Path) -> Iterator[Backend]:
    """A real server; the catalog's token has the policy of the documentation."""
    with real_vault(directory) as server:
        for name in ("lake", "pii"):
            server.call("POST", f"transit/keys/{name}", {"derived": True})
        allowed = {"lake", "pii"}
        policy = server.policy(documented_policy())

        def grant() -> None:
            denied = [
                f'path "transit/{what}/{name}" {{ capabilities = ["deny"] }}'
                for what in ("keys", "datakey/plaintext", "decrypt", "rewrap")
                for name in {"lake", "pii"} - allowed
            ]
            server.policy("\n".join([documented_policy(), *denied]), policy)

        def again() -> VaultKms:
            made = server.call("POST", "auth/token/create", {"policies": [policy], "ttl": "1h"})
            token = made["auth"]["client_token"]
            return VaultKms.connect(VaultKmsOptions.model_validate({"url": server.url, "token": token}))

        def stop() -> None:
            server.process.kill()
            server.process.wait()

        yield Backend(
            again(),
            "lake",
            "pii",
            again=again,
            disable=lambda name: (allowed.discard(name), grant()),
            enable=lambda name: (allowed.add(name), grant()),
            rotate=lambda name: server.call("POST", f"transit/keys/{name}/rotate", {}),
            version_of=version_of,
            stop=stop,
        )


def documented_policy() -> str:
    """The policy that `docs/kms.md` shows."""
    page = (Path(__file__).parents[2] / "docs" / "kms.md").read_text("utf-8")
    return page.partition("```hcl\n")[2].partition("```")[0]
