"""Decisions only: values in, decisions out; no I/O, no clock, no network.

The one question about a path::

    AllowList.of(["s3://lake/db/t1"]).decide("s3://lake/db/t10/f.parquet").allowed   # False

The one question about a right::

    request = AccessRequest(principal, Resource.table("db", "t"), "select")
    PolicySet.parse({"lake.json": text}).decide(request, now).allowed
"""

from policy.allowlist import AllowList
from policy.decision import Decision, Reason
from policy.encryption import EncryptionSpec
from policy.encryption_rules import EncryptionRules
from policy.errors import LakewardenError
from policy.location import Location
from policy.principal import Principal
from policy.ranger import PolicySet
from policy.requests import AccessRequest, Resource

__all__ = [
    "AccessRequest",
    "AllowList",
    "Decision",
    "EncryptionRules",
    "EncryptionSpec",
    "LakewardenError",
    "Location",
    "PolicySet",
    "Principal",
    "Reason",
    "Resource",
]
