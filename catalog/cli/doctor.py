"""`lakewarden doctor`: tries the parts of a catalog on its host, and says what to do.

- A part that cannot be opened ends the checks that need it. All others are made.
- What works, but is not for production, is a warning.
- The same functions check a part here and in the service, so that both say the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
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
    from catalog.settings.ranger import RangerSettings
    from catalog.settings.sections import TelemetrySettings, TlsSettings

_RENEW_WITHIN: Final = timedelta(days=14)
#: What to do about a part that is not ready. Its problem names no host, since strangers see it, too.
_WHAT_TO_CHECK: Final = {
    "database": "Check the server of `database.url`, its disk and permissions, and the other findings.",
    "storage": "Check `warehouse`: its disk, its owner, and with `s3` the address, credentials and bucket.",
    "KMS": "Check the address and credentials of each KMS in the settings, and the network.",
}
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
    """Try database, storage, KMS, clock, policies, certificates, providers, Ranger and the audit log's files.

    Says what to do about each problem.

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
    for name, ranger in settings.ranger.items():
        yield _of_ranger(f"policy source {name}", ranger)
    yield from _of_audit_files(settings)
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
    # Clients refuse a chain in which any certificate is out of its time.
    chain = x509.load_pem_x509_certificates(tls.certificate_file.read_bytes())
    begins = max(each.not_valid_before_utc for each in chain)
    ends = min(each.not_valid_after_utc for each in chain)
    now, renew = datetime.now(UTC), "Renew the certificate of http.tls."
    if now >= ends:
        return Finding("TLS", Result.PROBLEM, f"The certificate expired at {output.moment(ends)}.", renew)
    if now < begins:
        said = f"The certificate is not valid before {output.moment(begins)}."
        return Finding("TLS", Result.PROBLEM, said, "Check the clock of this host, and the certificate.")
    said = f"The certificate is valid until {output.moment(ends)}."
    if ends - now > _RENEW_WITHIN:
        return Finding("TLS", Result.OK, said)
    return Finding("TLS", Result.WARNING, said, renew)


def _set_up(telemetry: TelemetrySettings) -> None:
    """Set up what sends traces and metrics, as the service does at its start.

    Raises:
        RequestInvalid: it cannot be set up.
    """
    from catalog.http.telemetry import Telemetry

    Telemetry(telemetry, os.environ).close()


def _of_provider(part: str, issuer: IssuerSettings) -> Finding:
    from catalog.identity.provider import ProviderFailed
    from catalog.identity.provider_keys import fetching_from

    try:
        keys = fetching_from(issuer)().keys
    except ProviderFailed as error:
        return Finding(
            part,
            Result.PROBLEM,
            f"Its keys cannot be fetched: {error}.",
            f"Check the address {issuer.issuer}, its certificate, and the network.",
        )
    except LakewardenError as error:
        return _problem(part, error)
    return Finding(part, Result.OK, f"It publishes {len(keys)} usable keys.")


def _of_ranger(part: str, ranger: RangerSettings) -> Finding:
    """Download policies, and put none in force."""
    from catalog.policy_sources.ranger_admin import NO_VERSION, Part, RangerAdmin

    try:
        with closing(RangerAdmin(ranger)) as client:
            client.download(Part.POLICIES, NO_VERSION, 0)
    except LakewardenError as error:
        return Finding(
            part, Result.PROBLEM, error.message, f"Check `ranger` in the settings, and {ranger.url}."
        )
    return Finding(part, Result.OK, f"Policies of {ranger.service} can be downloaded.")


def _of_audit_files(settings: Settings) -> Iterator[Finding]:
    """Whether the files can be appended to. They are not created: that is for the user of the service."""
    for file in (settings.audit.stream_file, settings.audit.checkpoint_file):
        if file is None:
            continue
        if os.access(file, os.W_OK) if file.exists() else _takes_files(file.parent):
            yield Finding("audit log", Result.OK, f"{file} can be written.")
        else:
            yield Finding(
                "audit log",
                Result.PROBLEM,
                f"{file} cannot be written. Its records stay in the database.",
                "Create its directory, and grant the user of the service write permission.",
            )


def _takes_files(directory: Path) -> bool:
    return directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)


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
        yield from _of_archive(services)
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


def _of_archive(services: Services) -> Iterator[Finding]:
    """Whether old records of the audit log can be moved to where the settings say. Nothing is created."""
    from catalog.base.disk_space import existing
    from catalog.service.audit_archive import archive_of

    archive = archive_of(services.settings, services.storage)
    if archive is None:
        return
    location = archive.location
    try:
        # A directory is made with the first records, a bucket is not.
        works = (
            _takes_files(existing(Path("/", *location.segments)))
            if location.scheme == "file"
            else not services.storage.is_gone(location)
        )
    except LakewardenError:
        works = False
    if works:
        yield Finding("audit archive", Result.OK, f"{location.canonical} answers.")
    else:
        yield Finding(
            "audit archive",
            Result.PROBLEM,
            f"{location.canonical} cannot be written. Old records stay in the database.",
            "Check `audit.archive`: its disk, its owner, and with `s3` the address, credentials and bucket.",
        )


def _of_readiness(services: Services) -> Iterator[Finding]:
    from catalog.service.probes import ANSWER_S

    wait(services.readiness.begin(), ANSWER_S)
    for part, problem in services.readiness.parts():
        if problem is None:
            yield Finding(part, Result.OK, "It works.")
        else:
            lost = ", ".join(sorted(problem.lost))
            hint = f"{_WHAT_TO_CHECK[part]} Not available: {lost}."
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
