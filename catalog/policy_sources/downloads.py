"""Decides about downloads of Ranger: whether they can be put in force, and as which documents. No I/O.

Rules:
- A download is of the service that was requested, whole (no deltas), and of a version. One of an older
  version than the last is refused, unless an operator accepts it: a Ranger Admin that was restored, or a
  replica of it that is behind, would put back what was revoked.
- All parts of a source are put in force together, or none.
- What the import blocks is refused. Policies that it leaves out, which only grant, are refused too, unless
  the settings say otherwise.
- Documents and versions belong together: if the documents in the database are not those that were made from
  the last download by this release and these settings, everything is downloaded again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from catalog.policy_sources.ranger_admin import NO_VERSION, Part, SourceFailed
from catalog.policy_store.documents import digest_of
from catalog.policy_store.kinds import Kind
from catalog.policy_store.source_states import Download
from catalog.settings.ranger import RangerSettings
from policy import strict_json
from policy.errors import InvalidInput
from policy.ranger.importing import Imported, Line, import_ranger

_SHOWN: Final = 3
_VERSION: Final = {
    Part.POLICIES: "policyVersion",
    Part.ROLES: "roleVersion",
    Part.TAGS: "tagVersion",
    Part.USERS: "userStoreVersion",
}
#: Of which a download names the service.
_NAMES_SERVICE: Final = frozenset({Part.POLICIES, Part.TAGS})


@dataclass(frozen=True, slots=True)
class Known:
    """What is in force, and can be compared with what Ranger has.

    Attributes:
        versions: by part; empty if everything has to be downloaded.
        least: by part, the oldest version that is put in force.
        taken_ms: when it was put in force; 0 if it never was.
    """

    versions: Mapping[str, int]
    least: Mapping[str, int]
    taken_ms: int

    def version(self, part: Part) -> int:
        """Return the version of a part; `NO_VERSION` if it has to be downloaded."""
        return self.versions.get(part.value, NO_VERSION)


def parts_of(settings: RangerSettings) -> tuple[Part, ...]:
    """Return what is downloaded."""
    wanted = {Part.ROLES: settings.roles, Part.TAGS: settings.tags, Part.USERS: settings.users}
    return (Part.POLICIES, *(part for part, is_wanted in wanted.items() if is_wanted))


def known_of(
    download: Download | None, origin: str, made_from: str, *, accept_older: bool, everything: bool
) -> Known:
    """Return what can be compared.

    Args:
        download: what was put in force last.
        origin: see `origin_of`.
        made_from: `made_from_of` the documents that are in the database now.
        accept_older: whether an older version is put in force, too.
        everything: whether to download everything.
    """
    if download is None:
        return Known({}, {}, 0)
    is_comparable = download.origin == origin
    is_intact = is_comparable and download.made_from == made_from and not everything
    return Known(
        download.versions if is_intact else {},
        download.versions if is_comparable and not accept_older else {},
        download.taken_ms,
    )


def origin_of(settings: RangerSettings) -> str:
    """Return the digest of what versions are counted by."""
    return digest_of(f"{settings.url}\n{settings.service}".encode())


def made_from_of(settings: RangerSettings, release: str, documents: Mapping[Kind, str]) -> str:
    """Return the digest of documents, and of what made them.

    Args:
        settings: of the source.
        release: the release of Lakewarden.
        documents: SHA-256 of each document, by kind.
    """
    parts = " ".join(part.value for part in parts_of(settings))
    listed = "".join(f"{kind} {sha256}\n" for kind, sha256 in sorted(documents.items()))
    return digest_of(f"{release}\n{parts}\npartial {settings.partial}\n{listed}".encode())


def version_of(body: bytes, part: Part, service: str, least: int) -> int:
    """Return the version of a download.

    Raises:
        SourceFailed: it cannot be put in force.
    """
    try:
        document = strict_json.parse(body, what=f"The answer with {part.value}")
    except InvalidInput as error:
        raise SourceFailed(error.message) from None
    if not isinstance(document, dict):
        raise SourceFailed(f"The answer with {part.value} is not a JSON object.")
    if document.get("policyDeltas") or document.get("isDelta") or _zones_have_deltas(document):
        raise SourceFailed(f"Ranger sent {part.value} as deltas, which were not requested.")
    named = document.get("serviceName")
    if named != service and (part in _NAMES_SERVICE or named is not None):
        raise SourceFailed(f"The answer with {part.value} is not of the service {service!r}.")
    version = document.get(_VERSION[part])
    if not isinstance(version, int) or isinstance(version, bool) or version < 0:
        raise SourceFailed(f"The answer with {part.value} has no {_VERSION[part]}.")
    if version < least:
        raise SourceFailed(
            f"The version of {part.value} went back from {least} to {version}. If Ranger was restored, run "
            "`lakewarden policy sync --accept-older`."
        )
    return version


def documents_of(name: str, bodies: Mapping[Part, bytes], *, partial: bool) -> tuple[Imported, int]:
    """Return the strict documents of a source's downloads, and the number of policies in them.

    Raises:
        SourceFailed: something is blocked, or refused and `partial` is false.
    """
    documents = {f"{name} {part.value}": body for part, body in bodies.items()}
    imported = import_ranger(documents, roles_elsewhere=Part.ROLES not in bodies)
    if imported.blocked or Kind.RANGER not in imported.documents:
        raise SourceFailed(f"The policies cannot be put in force: {_shown(imported.blocked)}.")
    if imported.refused and not partial:
        raise SourceFailed(
            f"Policies are refused: {_shown(imported.refused)}. To put the others in force, set `partial`."
        )
    return imported, _policies_in(json.loads(imported.documents[Kind.RANGER]))


def _policies_in(value: object) -> int:
    """Return the number of policies in a document: its own, those on tags, and those of zones."""
    if not isinstance(value, dict):
        return 0
    own = value.get("policies")
    return (len(own) if isinstance(own, list) else 0) + sum(map(_policies_in, value.values()))


def _zones_have_deltas(document: Mapping[str, object]) -> bool:
    zones = document.get("securityZones")
    values = zones.values() if isinstance(zones, dict) else ()
    return any(isinstance(each, dict) and each.get("policyDeltas") for each in values)


def _shown(lines: Iterable[Line]) -> str:
    listed = list(lines)
    said = "; ".join(
        f"{each.what} {each.name!r} ({each.document} {each.place}): {' '.join(each.reasons).rstrip('.')}"
        for each in listed[:_SHOWN]
    )
    more = len(listed) - _SHOWN
    return said + (f"; and {more} more" if more > 0 else "")
