"""Reads forms: `application/x-www-form-urlencoded`, as browsers and identity providers send them.

Source: WHATWG URL Standard, section 5.1; OpenID Connect Back-Channel Logout 1.0, section 2.5.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

from starlette.datastructures import Headers

from catalog.http.errors import ContentTypeRefused
from policy.errors import RequestInvalid

FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 20


def fields_of(headers: Headers, body: bytes) -> list[tuple[str, str]]:
    """Return the fields of a form: names and values, in order.

    Raises:
        ContentTypeRefused: the body is not declared to be a form.
        RequestInvalid: it is none, or has too many fields.
    """
    types = headers.getlist("content-type")
    if len(types) != 1 or types[0].partition(";")[0].strip().lower() != FORM:
        raise ContentTypeRefused(
            f"The request has no `Content-Type: {FORM}`.",
            rule="content-type",
            hint=f"Send the fields as a form, with `Content-Type: {FORM}`.",
        )
    try:
        return parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        raise RequestInvalid(
            f"The body is not a form of at most {_MOST_FIELDS} fields, in UTF-8.",
            rule="form",
            hint="Send the form again.",
        ) from None


def single_fields(headers: Headers, body: bytes) -> dict[str, str]:
    """Return the fields of a form in which each is given once. Errors: `fields_of`.

    Raises:
        RequestInvalid: one is given twice: two readers could use different values.
    """
    found = fields_of(headers, body)
    fields = dict(found)
    if len(fields) != len(found):
        raise RequestInvalid("A field of the form is given twice.", rule="form", hint="Send each field once.")
    return fields
