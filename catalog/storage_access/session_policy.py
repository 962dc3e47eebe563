"""Writes the IAM session policy of a vended credential: which objects it opens, and for what.

- A prefix is a location: the object of that name, and every object below it, by whole segments.
- Objects below read prefixes can be read.
- Objects below write prefixes can be written, deleted and listed, except that the catalog alone writes
  metadata.json. A listing has to name a directory of its own.
- Names are literal. Of the characters that IAM gives a meaning, `*`, `?` and `$` are written as the policy
  variables `${*}`, `${?}` and `${$}`. A store that does not know these variables gets no policy with them.
- Prefixes of one bucket are never combined with another bucket.
- What cannot be expressed is refused, never widened.

Sources: AWS IAM User Guide, "IAM policy elements: Variables and tags"; AWS STS API Reference, AssumeRole
(`Policy` has at most 2,048 characters); Service Authorization Reference, "Amazon S3".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policy.errors import NotAuthorized
from policy.location.location import Location

MAX_POLICY_CHARACTERS: Final = 2048
RULE: Final = "credential-scope"
USE_SIGNING: Final = (
    "Use remote signing: send X-Iceberg-Access-Delegation: remote-signing (PyIceberg: set the catalog "
    "property header.X-Iceberg-Access-Delegation)."
)

_SPECIAL: Final = re.compile(r"[*?$]")
_READ: Final = "s3:GetObject"
_LIST: Final = "s3:ListBucket"
_PUT: Final = "s3:PutObject"
_DELETE: Final = "s3:DeleteObject"
_ABORT: Final = "s3:AbortMultipartUpload"


@dataclass(frozen=True, slots=True)
class Scope:
    """What a credential opens.

    Attributes:
        reads: locations below which every object can be read.
        writes: locations below which objects can be written, deleted and listed; empty to read alone.
    """

    reads: tuple[Location, ...]
    writes: tuple[Location, ...] = ()


def session_policy(scope: Scope, *, partition: str = "aws", variables: bool = True) -> str:
    """The policy document of a scope, as JSON in ASCII.

    Args:
        scope: what the credential opens.
        partition: the partition of ARNs: `aws`, `aws-cn`, `aws-us-gov`.
        variables: whether the store knows policy variables, which keep `*`, `?` and `$` literal.

    Raises:
        NotAuthorized: the scope is empty, not in S3, too long, or has a name that cannot be literal.
    """
    reads, writes = _outermost(scope.reads), _outermost(scope.writes)
    for each in (*reads, *writes):
        _require_expressible(each, variables)
    if not reads:
        raise _refused("No location of the table can be read.")
    objects = [f"arn:{partition}:s3:::{name}" for each in reads for name in _objects(each)]
    statements = [_allow([_READ], objects), *_listings(writes, partition)]
    if writes:
        below = [f"arn:{partition}:s3:::{_below(each)}" for each in writes]
        statements.append(_allow([_PUT, _ABORT, _DELETE], below))
        statements.append(_denial(partition))
    text = json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
    if len(text) > MAX_POLICY_CHARACTERS:
        raise _refused(
            f"The table's locations make a session policy of {len(text)} characters, and AWS STS takes at "
            f"most {MAX_POLICY_CHARACTERS}."
        )
    return text


def _allow(actions: Sequence[str], resources: Sequence[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": _one_or_all(actions), "Resource": _one_or_all(resources)}


def _denial(partition: str) -> dict[str, Any]:
    kept = f"arn:{partition}:s3:::*.metadata.json"
    return {"Effect": "Deny", "Action": [_PUT, _DELETE], "Resource": kept}


def _listings(locations: Sequence[Location], partition: str) -> Iterable[dict[str, Any]]:
    """One statement a bucket, so that no prefix is listed in another bucket."""
    for bucket in sorted({each.authority for each in locations}):
        statement = _allow([_LIST], [f"arn:{partition}:s3:::{bucket}"])
        keys = [_literal(_key(each)) for each in locations if each.authority == bucket]
        if "" not in keys:
            statement["Condition"] = {"StringLike": {"s3:prefix": _one_or_all([f"{key}/*" for key in keys])}}
        yield statement


def _objects(location: Location) -> list[str]:
    """The resources of a location: the object of its name, and the objects below it."""
    if not location.segments:
        return [_below(location)]
    return [f"{location.authority}/{_literal(_key(location))}", _below(location)]


def _below(location: Location) -> str:
    return "/".join((location.authority, *map(_literal, location.segments), "*"))


def _key(location: Location) -> str:
    return "/".join(location.segments)


def _literal(name: str) -> str:
    return _SPECIAL.sub(r"${\g<0>}", name)


def _one_or_all(texts: Sequence[str]) -> str | list[str]:
    return texts[0] if len(texts) == 1 else list(texts)


def _outermost(locations: Sequence[Location]) -> list[Location]:
    """The locations that no other one of them contains."""
    ordered = sorted(set(locations), key=lambda each: len(each.segments))
    found: list[Location] = []
    for each in ordered:
        if not any(outer.contains(each) for outer in found):
            found.append(each)
    return sorted(found, key=lambda each: each.canonical)


def _require_expressible(location: Location, variables: bool) -> None:
    if location.scheme != "s3":
        raise _refused("A location of the table is not in S3.", location)
    if not variables and _SPECIAL.search(_key(location)):
        raise _refused(
            "A location of the table has a wildcard or `$` in a name, and the store is not known to take it "
            "literally.",
            location,
        )


def _refused(message: str, location: Location | None = None) -> NotAuthorized:
    return NotAuthorized(
        f"No storage credential is issued. {message}",
        path=None if location is None else location.canonical,
        rule=RULE,
        hint=USE_SIGNING,
    )
