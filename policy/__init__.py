"""Decisions only: values in, decisions out; no I/O, no clock, no network.

The one question about a path::

    AllowList.of(["s3://lake/db/t1"]).decide("s3://lake/db/t10/f.parquet").allowed   # False

The one question about a right::

    request = AccessRequest(principal, Resource.table("db", "t"), "select")
    PolicySet.parse({"lake.json": text}).decide(request, now).allowed
"""

from policy.decision import Decision, Reason
from policy.encryption.specification import EncryptionSpec
from policy.encryption_rules import EncryptionRules
from policy.errors import LakewardenError
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet

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
