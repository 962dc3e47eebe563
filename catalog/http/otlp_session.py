"""The HTTP session in which OpenTelemetry's exporters send to the collector.

- Of an answer only its head is read, so that a collector that sends an endless body costs neither memory nor
  the thread. Nothing in a body matters: the status says whether the data was taken.
- A redirect is a failure. The exporters would not follow it, and would count the data as sent.
- A connection serves one sending, since a body that was not read ends it.

Source: OpenTelemetry, "OTLP Specification", OTLP/HTTP response.
"""

from __future__ import annotations

from typing import Any

import requests


class OtlpSession(requests.Session):
    """A session that reads no body."""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request, and return the head of the answer.

        Raises:
            requests.RequestException: no answer, or a redirect.
        """
        answer = super().send(request, **{**options, "stream": True})
        answer.close()
        if answer.is_redirect:
            raise requests.TooManyRedirects("The collector redirects.", response=answer)
        return answer
