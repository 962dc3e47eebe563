"""`lakewarden doctor`: tries the parts of a catalog on its host, and says what to do.

- A part that cannot be opened ends the checks that need it. All others are made.
- What works, but is not for production, is a warning.
- The same functions check a part here and in the service, so that both say the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from uuid import UUID

import typer

from catalog.cli import output
from catalog.cli.arguments import AsJson
from catalog.cli.session import open_kms, open_state, settings_of
from policy.errors import LakewardenError

if TYPE_CHECKING:
    from catalog.service.services import Services
    from catalog.settings.catalog import Settings
    from catalog.settings.identity import IssuerSettings
    from catalog.settings.sections import TelemetrySettings, TlsSettings

_RENEW_WITHIN: Final = timedelta(days=14)
_COLUMNS: Final = ("part", "result", "finding", "what to do")


class Result(StrEnum):
    """What came of a check."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        part: the part of the catalog.
        result: what came of it.
        text: one sentence.
        hint: what to do; None if nothing is to be done.
    """

    part: str
    result: Result
    text: str
    hint: str | None = None


def doctor(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Try database, storage, KMS, clock, policies, certificates and providers, and say what to do.

    Exits with 1 if there is a problem. Warnings are for production.
    """
    settings = settings_of(ctx)
    with output.progress("Trying the parts of the catalog"):
        findings = list(_findings(settings))
    if as_json:
        output.document([_members(each) for each in findings])
    else:
        output.rows(_COLUMNS, [(each.part, each.result, each.text, each.hint) for each in findings])
    if any(each.result is Result.PROBLEM for each in findings):
        raise typer.Exit(1)


def _members(finding: Finding) -> dict[str, str | None]:
    return {
        "part": finding.part,
        "result": finding.result,
        "finding": finding.text,
        "what-to-do": finding.hint,
    }


def _findings(settings: Settings) -> Iterator[Finding]:
    yield from _of_settings(settings)
    yield from _of_address(settings)
    if settings.telemetry.traces or settings.telemetry.metrics:
        said = "It is set up. Whether the collector takes data, the log of the service says."
        yield _passed("telemetry", lambda: _set_up(settings.telemetry), said)
    for name, issuer in settings.identity.issuers.items():
        yield _of_provider(f"identity provider {name}", issuer)
    try:
        with open_state(settings):
            pass
    except LakewardenError as error:
        yield _problem("database", error)
        return
    yield from _of_catalog(settings)


def _of_settings(settings: Settings) -> Iterator[Finding]:
    """What the settings alone tell."""
    if settings.kms.kind == "local":
        yield Finding(
            "KMS",
            Result.WARNING,
            "The local KMS is not for production: its master keys are in reach of the catalog's process.",
            "Use another kms.kind; docs/kms.md says how keys move.",
        )
    if settings.database.url.get_secret_value().startswith("sqlite"):
        yield Finding(
            "database", Result.WARNING, "SQLite is for one host.", "Use PostgreSQL for several replicas."
        )
    if settings.audit.key_file is None:
        yield Finding(
            "audit log",
            Result.WARNING,
            "Nothing signs the checkpoints of the audit log.",
            "Set audit.key_file; `lakewarden init` makes the file.",
        )


def _of_address(settings: Settings) -> Iterator[Finding]:
    """Who can reach the service, and how."""
    from catalog.base.addresses import is_this_machine
    from catalog.http.server import reserve_descriptors

    connections = settings.http.max_connections
    yield _passed("connections", lambda: reserve_descriptors(connections), f"{connections} can be open.")
    if settings.http.tls is not None:
        tls = settings.http.tls
        yield _certificate(tls)
    elif is_this_machine(settings.http.host):
        yield Finding("TLS", Result.OK, f"The service listens on {settings.http.host} alone.")
    else:
        yield Finding(
            "TLS",
            Result.WARNING,
            f"The service speaks plain HTTP on {settings.http.host}; clients refuse to send tokens there.",
            "Set http.tls, or listen on loopback behind a proxy that terminates TLS.",
        )


def _certificate(tls: TlsSettings) -> Finding:
    from cryptography import x509

    from catalog.http.tls import Certificate

    try:
        Certificate(tls)
    except LakewardenError as error:
        return _problem("TLS", error)
    ends = x509.load_pem_x509_certificates(tls.certificate_file.read_bytes())[0].not_valid_after_utc
    said = f"The certificate is valid until {output.moment(ends)}."
    left = ends - datetime.now(UTC)
    if left > _RENEW_WITHIN:
        return Finding("TLS", Result.OK, said)
    result = Result.WARNING if left > timedelta(0) else Result.PROBLEM
    return Finding("TLS", result, said, "Renew the certificate of http.tls.")


def _set_up(telemetry: TelemetrySettings) -> None:
    """Set up what sends traces and metrics, as the service does at its start.

    Raises:
        RequestInvalid: it cannot be set up.
    """
    from catalog.http.telemetry import Telemetry

    Telemetry(telemetry, os.environ).close()


def _of_provider(part: str, issuer: IssuerSettings) -> Finding:
    from catalog.identity.provider import ProviderFailed, fetching_from

    try:
        keys = fetching_from(issuer)().keys
    except ProviderFailed as error:
        return Finding(part, Result.PROBLEM, f"Its keys cannot be fetched: {error}.", "Check its settings.")
    except LakewardenError as error:
        return _problem(part, error)
    return Finding(part, Result.OK, f"It publishes {len(keys)} usable keys.")


def _of_catalog(settings: Settings) -> Iterator[Finding]:
    """What has to be opened to be tried."""
    from catalog.service.services import Services

    try:
        kms = open_kms(settings.kms)
    except LakewardenError as error:
        yield _problem("KMS", error)
        return
    try:
        services = Services.open(settings, kms)
    except LakewardenError as error:
        yield _problem("catalog", error)
        return
    with services:
        master_key = settings.kms.default_master_key_id
        said = f"It wraps and unwraps keys by the master key {master_key}."
        yield _passed("KMS", lambda: _wrap(services, master_key), said)
        yield _passed("clock", services.clock.require, "It agrees with the database's.")
        yield from _of_readiness(services)
        yield from _of_policies(services)


def _wrap(services: Services, master_key: str) -> None:
    """Wrap a key and unwrap it again; no table gets it.

    Raises:
        LakewardenError: what the KMS answers.
    """
    from catalog.kms.interface import KeyContext

    context = KeyContext(services.catalog, UUID(int=0))
    created = services.kms.create_key(master_key, 16, context)
    created.key.wipe()
    services.kms.get_key(created.wrapped, context).wipe()


def _of_readiness(services: Services) -> Iterator[Finding]:
    from catalog.service.probes import ANSWER_S

    wait(services.readiness.begin(), ANSWER_S)
    for part, problem in services.readiness.parts():
        if problem is None:
            yield Finding(part, Result.OK, "It works.")
        else:
            lost = ", ".join(sorted(problem.lost))
            hint = f"Not available: {lost}. docs/operations.md, Health, says how it is checked."
            yield Finding(part, Result.PROBLEM, problem.text, hint)


def _of_policies(services: Services) -> Iterator[Finding]:
    try:
        policies = services.policies.in_force()
    except LakewardenError as error:
        yield _problem("policies", error)
        return
    revision = policies.stored.version.revision
    administrators = services.policy_changes.administrators(policies.policies)
    if administrators:
        names = ", ".join(sorted(each.name for each in administrators))
        yield Finding("policies", Result.OK, f"Revision {revision}. Administrators: {names}.")
    else:
        yield Finding(
            "policies",
            Result.WARNING,
            f"Revision {revision}. No current user can administer the catalog over HTTP.",
            "Grant `admin` on the service by `lakewarden policy put`, and issue a token.",
        )


def _passed(part: str, require: Callable[[], None], said: str) -> Finding:
    """Return what to say of a part that passes a check, or the error of the check."""
    try:
        require()
    except LakewardenError as error:
        return _problem(part, error)
    return Finding(part, Result.OK, said)


def _problem(part: str, error: LakewardenError) -> Finding:
    return Finding(part, Result.PROBLEM, error.message, error.hint)
