"""Measures the validation of access tokens of an identity provider, beside a token of the catalog."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from bench.report import Figure, at_most, figure
from catalog.authorization.principals import principals_of
from catalog.authorization.tokens import TokenStore
from catalog.db.engine import open_database
from catalog.db.migrate import upgrade
from catalog.identity.access_tokens import AccessTokens
from catalog.identity.bearer import BearerTokens
from catalog.identity.key_sets import KeySet
from catalog.settings.identity import IdentitySettings, IssuerSettings
from policy.principal import Principal

_ISSUER = IssuerSettings(issuer="https://login.example", audience=("lake",), groups_claim=("groups",))
_BUDGET_MS = 0.3


def measure(runs: int) -> list[Figure]:
    """Validate tokens of a user in twenty groups, whom the database knows already."""
    keys = {
        "RS256": RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"}),
        "ES256": ECKey.generate_key("P-256", {"kid": "ec", "use": "sig"}),
    }
    published = {"keys": [each.as_dict(private=False) for each in keys.values()]}
    with tempfile.TemporaryDirectory() as directory:
        engine = open_database(f"sqlite:///{Path(directory)}/lakewarden.db")
        upgrade(engine)
        try:
            tokens = TokenStore(engine)
            own = tokens.issue(Principal("ann"), "user", None).text
            accepted = _accepted(KeySet.parse(json.dumps(published).encode()))
            users = principals_of(engine, IdentitySettings(issuers={"corp": _ISSUER}))
            bearer = BearerTokens(tokens, users, accepted, lambda: None)
            figures = [_measured("a token of the catalog", runs, lambda: bearer.user(own))]
            for algorithm, key in keys.items():
                text = jwt.encode({"alg": algorithm, "kid": key.kid}, _claims(), key)
                alone, whole = partial(accepted.verify, text), partial(bearer.user, text)
                figures += [
                    at_most(_BUDGET_MS, _measured(f"an access token, {algorithm}", runs, alone)),
                    _measured(f"the same, with what is known of its user, {algorithm}", runs, whole),
                ]
            return figures
        finally:
            engine.dispose()


def _accepted(keys: KeySet) -> AccessTokens:
    """Return the issuer, of which the keys were fetched."""
    return AccessTokens({"corp": _ISSUER}, time.time, time.monotonic, lambda _: lambda: keys)


def _claims() -> dict[str, object]:
    now = int(time.time())
    groups = [f"group-{number}" for number in range(20)]
    return {
        "iss": _ISSUER.issuer,
        "aud": "lake",
        "sub": "ann",
        "iat": now,
        "exp": now + 3600,
        "groups": groups,
    }


def _measured(name: str, runs: int, validate: Callable[[], object]) -> Figure:
    validate()
    taken = []
    for _ in range(runs):
        start = time.process_time()
        for _ in range(200):
            validate()
        taken.append((time.process_time() - start) * 5)
    return figure(name, taken, "ms")
