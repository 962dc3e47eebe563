"""Decisions only: values in, decisions out; no I/O, no clock, no network.

Whether a path lies below allowed locations (`policy.location.allow_list`)::

    AllowList.of(["s3://lake/db/t1"]).decide("s3://lake/db/t10/f.parquet").allowed   # False

Whether a user has a permission (`policy.ranger`)::

    request = AccessRequest(principal, Resource.table("db", "t"), "select")
    PolicySet.parse({"lake.json": text}).decide(request, now).allowed
"""
