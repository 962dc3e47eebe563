"""The authorization matrix: the policies that the catalog keeps itself."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx

from tests.authorization.rows import Row, Try
from tests.support.lake import policy

_URL: Final = "/admin/v1/policies"
_DOCUMENT: Final = f"{_URL}/documents/{{kind}}/{{name}}"
_ADMINS: Final = "admin steward"
_DELEGATES: Final = "admin delegate steward"


def _about(key: str, attempt: Try) -> dict[str, Any]:
    """A document with one policy, on a master key."""
    return {"policies": [policy(attempt.world.new("p"), {"key": [key]}, {"dave": ["use"]})]}


def _url(name: str, kind: str = "ranger") -> str:
    return f"{_URL}/documents/{kind}/{name}"


def _there(attempt: Try) -> str:
    """A document that is there, about what is delegated; one of its own where it is going to be changed."""
    if not attempt.allowed:
        return attempt.world.standing_document(_about("delegated", attempt))
    return attempt.world.new_document(_about("delegated", attempt))


def _look(attempt: Try, more: str = "") -> httpx.Response:
    url = _url(attempt.world.standing_document(_about("delegated", attempt))) + more
    return attempt.http.get(url)


def _put(attempt: Try, key: str) -> httpx.Response:
    url, document = _url(attempt.world.new("d")), _about(key, attempt)
    return attempt.http.put(url, json=document)


def _replace(attempt: Try) -> httpx.Response:
    url, document = _url(_there(attempt)), _about("delegated", attempt)
    return attempt.http.put(url, json=document, headers={"If-Match": attempt.world.tag_of(url)})


def _put_rules(attempt: Try) -> httpx.Response:
    url = _url(attempt.world.new("e"), "encryption")
    rules = [
        {"name": attempt.world.new("rule"), "databases": ["nowhere"], "tables": ["*"], "mustEncrypt": True}
    ]
    return attempt.http.put(url, json={"rules": rules}, params={"dry-run": "true"})


def _remove(attempt: Try) -> httpx.Response:
    url = _url(_there(attempt))
    return attempt.http.delete(url, headers={"If-Match": attempt.world.tag_of(url)})


def _change(attempt: Try, key: str) -> httpx.Response:
    name, document = attempt.world.new("d"), _about(key, attempt)
    edit = {"kind": "ranger", "name": name, "content": json.dumps(document), "expected-revision": None}
    return attempt.http.post(f"{_URL}/changes", json={"changes": [edit]})


ROWS: Final = (
    Row(
        f"GET {_URL}/documents",
        "look",
        ("admin",),
        _ADMINS,
        lambda attempt: attempt.http.get(f"{_URL}/documents"),
    ),
    Row(
        f"GET {_URL}/history",
        "look",
        ("admin",),
        _ADMINS,
        lambda attempt: attempt.http.get(f"{_URL}/history"),
    ),
    Row(f"GET {_DOCUMENT}", "look", ("admin|delegate",), _DELEGATES, _look),
    Row(
        f"GET {_DOCUMENT}/history",
        "look",
        ("admin",),
        _ADMINS,
        lambda attempt: _look(attempt, "/history"),
    ),
    Row(
        f"PUT {_DOCUMENT}",
        "a new one about what is delegated",
        ("admin|delegate",),
        _DELEGATES,
        lambda attempt: _put(attempt, "delegated"),
    ),
    Row(
        f"PUT {_DOCUMENT}",
        "a new one about something else",
        ("admin",),
        _ADMINS,
        lambda attempt: _put(attempt, "lakewarden"),
    ),
    Row(
        f"PUT {_DOCUMENT}",
        "in place of one about what is delegated",
        ("admin|delegate",),
        _DELEGATES,
        _replace,
    ),
    Row(f"PUT {_DOCUMENT}", "rules for encryption", ("admin",), _ADMINS, _put_rules),
    Row(f"DELETE {_DOCUMENT}", "remove", ("admin|delegate",), _DELEGATES, _remove),
    Row(
        f"POST {_URL}/changes",
        "what is delegated",
        ("admin|delegate",),
        _DELEGATES,
        lambda attempt: _change(attempt, "delegated"),
    ),
    Row(
        f"POST {_URL}/changes",
        "something else",
        ("admin",),
        _ADMINS,
        lambda attempt: _change(attempt, "lakewarden"),
    ),
    Row(
        "GET /admin/v1/encryption-report",
        "look",
        ("admin",),
        _ADMINS,
        lambda attempt: attempt.http.get("/admin/v1/encryption-report?limit=1"),
    ),
    Row(
        "POST /admin/v1/encryption-report",
        "look",
        ("admin",),
        _ADMINS,
        lambda attempt: attempt.http.post("/admin/v1/encryption-report?limit=1", json={"rules": []}),
    ),
)
