"""Iceberg REST: signatures of single requests to S3.

Source: Iceberg REST specification, `signRequest`, `X-Iceberg-Access-Delegation` and `LoadTableResult`; the
properties of Iceberg's S3FileIO and of PyIceberg.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, Response, Security

from catalog.base.identifiers import TableName
from catalog.http.auth import ENGINE_SCHEME, USER_SCHEME, CallerOf, ServicesOf
from catalog.http.bodies import LEVEL_SEPARATOR, table_from_path
from catalog.http.iceberg_models import SignedAnswer, SignRequest
from catalog.http.iceberg_namespaces import check_prefix
from catalog.http.operations import ERRORS
from catalog.http.routing import IcebergRoute
from catalog.http.screening import Bounds, screened
from catalog.http.screening import table as on_table
from catalog.settings.catalog import Settings
from policy.errors import NotSupportedYet

#: The mechanism, among those that a client can ask for.
SIGNING: Final = "remote-signing"
_PROVIDER: Final = "s3"

router = APIRouter(
    prefix="/v1/{prefix}/namespaces/{namespace}/tables/{table}",
    route_class=IcebergRoute,
    tags=["iceberg"],
    responses=ERRORS,
    dependencies=[Depends(check_prefix), Security(USER_SCHEME), Security(ENGINE_SCHEME)],
)


@router.post("/sign")
@screened(on_table("table.sign", bounds=Bounds.small))
def sign_request(
    namespace: str, table: str, body: SignRequest, caller: CallerOf, services: ServicesOf, answer: Response
) -> SignedAnswer:
    """Sign one request to S3: everything that loading the table needs; to write and delete, UPDATE on it.

    The answer has the headers to add. It is for this request alone: clients must not keep it.
    """
    if body.provider not in (None, _PROVIDER):
        raise NotSupportedYet(
            "Only requests to S3 are signed.", rule="s3-signing", hint="Leave provider out, or send s3."
        )
    assert services.signing is not None, "else the operation is not served"
    headers = services.signing.sign(caller, table_from_path(namespace, table), body.to_asked())
    # Iceberg's Java client keeps what comes with `private`.
    answer.headers["Cache-Control"] = "no-store"
    return SignedAnswer(uri=body.uri, headers={name: [value] for name, value in headers.items()})


def signing_config(settings: Settings, name: TableName, mechanisms: str | None) -> dict[str, str]:
    """Return what tells a client to let the catalog sign its requests; nothing if it is not to.

    Args:
        settings: where the store is, and whether signing is on.
        name: the table.
        mechanisms: what the client asks for, with commas between them.
    """
    asked = {each.strip() for each in (mechanisms or "").split(",")}
    if not settings.s3.signing or SIGNING not in asked:
        return {}
    levels = LEVEL_SEPARATOR.join(name.namespace)
    parts = ("v1", settings.catalog.name, "namespaces", levels, "tables", name.name, "sign")
    endpoint, region = "/".join(quote(each, safe="") for each in parts), settings.s3.region or ""
    return {
        "s3.remote-signing-enabled": "true",
        "signer.endpoint": endpoint,
        "s3.signer.endpoint": endpoint,
        "client.region": region,
        "s3.region": region,
        # PyIceberg signs with fsspec alone.
        "s3.signer": "S3V4RestSigner",
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
        **({} if settings.s3.endpoint is None else _own_store(settings.s3.endpoint)),
    }


def _own_store(endpoint: str) -> dict[str, str]:
    return {"s3.endpoint": endpoint, "s3.path-style-access": "true"}
