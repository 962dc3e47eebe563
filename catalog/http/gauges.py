"""Reads the states of an open catalog for `/metrics`.

Nothing is asked of a database, a KMS or storage: an outage stops no measurement.
"""

from __future__ import annotations

import platform
from collections import Counter
from functools import cache
from importlib.metadata import version
from typing import Final, cast

from sqlalchemy import Engine
from sqlalchemy.pool import QueuePool

from catalog.db.readers import readers_of
from catalog.http import metric_families as families
from catalog.http.series import Series
from catalog.kms.clients import KmsClients
from catalog.policy_store.in_force import PolicyStore
from catalog.policy_store.source_ages import SourceAges
from catalog.service.services import Services

_MANIFESTS: Final = (("cache", "manifests"),)


def gauges_of(services: Services) -> dict[Series, float]:
    """Return the states of a catalog in this process."""
    differences, clients = services.replicas.differences, services.kms_keys.clients.by_name.values()
    plain: dict[str, float] = {
        families.KMS_CIRCUIT: any(client.circuit_open for client in clients),
        families.CLOCK_OFF: services.clock.is_off,
        families.ARCHIVE_FAILING: services.archive_state.is_failing,
        families.AUDIT_QUEUE: services.audit.queued,
        families.DIFFERENT: len(differences),
        **policy_states(services.policies),
    }
    return {
        **{(name, ()): value for name, value in plain.items()},
        **{(families.DIFFERS, (("setting", each),)): 1 for each in differences},
        (families.CACHE_BYTES, _MANIFESTS): services.reader.cache.nbytes,
        **source_states(services.policies.sources),
        **_pool("writers", services.engine),
        **_pool("readers", readers_of(services.engine)),
        (families.BUILD, _build()): 1,
    }


def policy_states(policies: PolicyStore) -> dict[str, float]:
    """Return version and age of the policies in force."""
    return {
        families.OUTDATED: policies.problem is not None,
        families.POLICY_AGE: policies.age_s,
        families.CLOSED: policies.is_closed,
        families.REVISION: policies.last.stored.version.revision,
    }


def source_states(sources: SourceAges) -> dict[Series, float]:
    """Return the states of policy sources at the last look; the age is left out while it is not known."""
    found: dict[Series, float] = {}
    for each in sources.last:
        label = ("source", each.name)
        found[families.SOURCE_FAILING, (label,)] = each.problem is not None
        found[families.SOURCE_MAX_AGE, (label,)] = sources.max_age_s(each)
        if (age_s := sources.age_s(each)) is not None:
            found[families.SOURCE_AGE, (label,)] = age_s
        for part, number in ({} if each.download is None else each.download.versions).items():
            found[families.SOURCE_VERSION, (label, ("part", part))] = number
    return found


def kms_calls(clients: KmsClients) -> dict[Series, float]:
    """Return the number of calls to each KMS."""
    calls = Counter[Series]()
    for client in clients.by_name.values():
        for each, count in client.counts().items():
            labels = ("kms", each.kms), ("operation", each.operation), ("outcome", each.outcome)
            calls[families.KMS_CALLS, labels] += count
    return dict(calls)


def cache_lookups(services: Services) -> dict[Series, float]:
    """Return how often caches had what was looked for."""
    found = {"manifests": services.reader.cache.lookups.counts, "keys": services.peks.lookups.counts}
    return {
        (families.LOOKUPS, (("cache", name), ("result", result))): count
        for name, (hits, misses) in found.items()
        for result, count in (("hit", hits), ("miss", misses))
    }


def _pool(name: str, engine: Engine) -> dict[Series, float]:
    pool, labels = cast(QueuePool, engine.pool), (("pool", name),)
    return {
        (families.POOL, (*labels, ("state", "used"))): pool.checkedout(),
        (families.POOL, (*labels, ("state", "idle"))): pool.checkedin(),
        (families.POOL_MAX, labels): pool.size() + pool._max_overflow,
    }


@cache
def _build() -> tuple[tuple[str, str], ...]:
    return ("version", version("lakewarden")), ("python", platform.python_version())
