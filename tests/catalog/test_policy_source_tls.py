"""Ranger Admin is asked over TLS: its certificate is checked, and a client certificate is shown."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path

import pytest

from catalog.policy_sources.negotiate import require_kerberos
from catalog.policy_sources.ranger_admin import NO_VERSION, Part, RangerAdmin, SourceFailed
from catalog.settings.ranger import RangerSettings
from policy.errors import PropertyInvalid, RequestInvalid
from tests.support.certificates import certificate
from tests.support.ranger_admin import ranger_admin


def _settings(url: str, **more: object) -> RangerSettings:
    return RangerSettings.model_validate({"url": url, "service": "hive", **more})


def _download(settings: RangerSettings) -> bytes | None:
    client = RangerAdmin(settings)
    try:
        return client.download(Part.POLICIES, NO_VERSION, 0)
    finally:
        client.close()


def test_a_server_that_the_authority_does_not_vouch_for_is_not_asked(tmp_path: Path) -> None:
    own, other = certificate(tmp_path), certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(own)
    with ranger_admin(tls) as ranger:
        ranger.put("hive", 1, [])
        assert _download(_settings(ranger.url, ca_file=own)) is not None
        for settings in (_settings(ranger.url, ca_file=other), _settings(ranger.url)):
            asked = len(ranger.asked)
            with pytest.raises(SourceFailed, match="SSLError"):
                _download(settings)
            assert len(ranger.asked) == asked


def test_authorities_that_cannot_be_read_are_found_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(PropertyInvalid, match="does not exist"):
        RangerAdmin(_settings("https://127.0.0.1:1", ca_file=tmp_path / "none"))


def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    server, client = certificate(tmp_path), certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server)
    tls.load_verify_locations(client)
    tls.verify_mode = ssl.CERT_REQUIRED
    with ranger_admin(tls) as ranger:
        ranger.put("hive", 1, [])
        shown = _settings(ranger.url, ca_file=server, certificate_file=client, key_file=client)
        assert _download(shown) is not None
        with pytest.raises(SourceFailed):
            _download(_settings(ranger.url, ca_file=server))


@pytest.mark.parametrize(
    "given",
    [
        {"url": "http://ranger.example:6080"},
        {"url": "https://user:secret@ranger.example"},
        {"url": "https://ranger.example/?x"},
        {"service": "../admin"},
        {"service": "hive/x"},
        {"user": "ann"},
        {"password_file": "secret"},
        {"user": "ann:x", "password_file": "secret"},
        {"user": "ann", "password_file": "secret", "kerberos": True},
        {"certificate_file": "cert.pem"},
        {"max_age_s": 60, "poll_s": 30},
        {"tag": True},
    ],
)
def test_settings_that_cannot_mean_anything_good_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        _settings(**{"url": "https://ranger.example", **given})


def test_kerberos_without_its_extra_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(RequestInvalid, match="library"):
        require_kerberos()


def test_credentials_are_checked_and_shown_nowhere(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("wrong-password")
    password.chmod(0o600)
    with ranger_admin() as ranger:
        ranger.put("hive", 1, [])
        settings = _settings(ranger.url, user="lakewarden", password_file=password)
        with pytest.raises(SourceFailed, match="credentials") as refusal:
            _download(settings)
        assert ranger.asked[0].authorization is not None
        assert "wrong-password" not in str(refusal.value) + repr(settings)
        password.chmod(0o644)
        with pytest.raises(SourceFailed, match="group or others"):
            _download(settings)
        password.chmod(0o600)
        password.write_bytes("pässword\r".encode() + b"\x00")
        with pytest.raises(SourceFailed, match="credentials"):
            _download(settings)
