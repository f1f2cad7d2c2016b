"""Sends requests: bounds, retries, and answers that are errors."""

import random
import re
import secrets
import time
from dataclasses import dataclass
from typing import Any

import httpx

from .errors import IsobarError, error_of

# First pause between two attempts and the longest, in seconds, where the server names none.
_BACKOFF = 0.25
_BACKOFF_MAX = 10.0
# The writes that the server does once for each key. It ignores the header everywhere else.
_KEYED = re.compile(r"/v2/events/(device|cloud)$")
# Reads that take what they return.
_TAKES = re.compile(r"/v2/events/cloud(/next)?$")


@dataclass(frozen=True)
class Limits:
    """Bounds of every call.

    Attributes:
        timeout: seconds for one attempt, its body included.
        retries: most attempts after the first; 0 switches retries off.
        retry_within: seconds for all attempts and the pauses between them; longer than a window of the rate limit.
        answer_bytes_max: largest answer; a page of the server holds at most 64 MiB of values.
    """

    timeout: float = 30.0
    retries: int = 4
    retry_within: float = 90.0
    answer_bytes_max: int = 128 * 1024 * 1024


def backoff(attempt: int) -> float:
    """Returns a pause that grows with each attempt and differs between clients: between half of the growing bound and all of it."""
    return float(min(_BACKOFF * 2 ** min(attempt, 10), _BACKOFF_MAX) * random.uniform(0.5, 1))


class Answer(httpx.Response):
    """An answer that was read as a whole."""

    def json(self, **kwargs: Any) -> Any:
        """Returns the body, read as JSON. The error does not quote what it could not read."""
        try:
            return super().json(**kwargs)
        except (ValueError, RecursionError):
            raise IsobarError(self.status_code, "the answer is no JSON", (), self.headers) from None


class PatientClient(httpx.Client):
    """Sends a request until it succeeds, is refused for good, or its bounds are reached.

    Reads are repeated, and of writes those that carry an `Idempotency-Key`, which stays the same. Nothing else is: a write
    that the server may have done is never sent twice. Every answer that is no success is raised as an `IsobarError`.
    """

    def __init__(self, base_url: str, limits: Limits, auth: httpx.Auth | None = None) -> None:
        """Makes a client for the server at this address."""
        self.limits = limits
        super().__init__(base_url=base_url, auth=auth, timeout=limits.timeout, follow_redirects=False)

    def send(self, request: httpx.Request, *, stream: bool = False, **kwargs: Any) -> httpx.Response:
        """Sends a request. With `stream` the body of a success is left to be read, and nothing is repeated."""
        path = request.url.path
        if request.method == "POST" and _KEYED.search(path):
            request.headers.setdefault("Idempotency-Key", secrets.token_hex(16))
        is_read = request.method in ("GET", "HEAD")
        is_keyed = bool(_KEYED.search(path)) and "Idempotency-Key" in request.headers
        # A body that comes from a file could be sent once only.
        request.read()
        end = time.monotonic() + self.limits.retry_within
        attempt = 0
        while True:
            outcome = self._attempt(request, stream, kwargs)
            if isinstance(outcome, httpx.Response):
                return outcome
            may_repeat = (is_read and not (outcome.status == 0 and _TAKES.search(path))) or is_keyed
            wait = max(outcome.retry_after or 0.0, backoff(attempt))
            is_last = stream or attempt >= self.limits.retries or time.monotonic() + wait > end
            if is_last or not may_repeat or not outcome.is_temporary:
                raise outcome
            time.sleep(wait)
            attempt += 1

    def _attempt(self, request: httpx.Request, stream: bool, kwargs: dict[str, Any]) -> httpx.Response | IsobarError:
        """Returns the answer, or the error that may be worth another attempt."""
        end = time.monotonic() + self.limits.timeout
        kwargs = {**kwargs, "follow_redirects": False}
        try:
            response = super().send(request, stream=True, **kwargs)
            if stream and response.is_success:
                return response
            try:
                answer = self._read(response, end)
            finally:
                response.close()
        except IsobarError as error:
            return error
        except httpx.TimeoutException:
            return IsobarError(0, f"no answer came within {self.limits.timeout} s")
        except (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL) as error:
            return IsobarError(0, f"no answer came: {type(error).__name__}: {error}")
        return answer if answer.is_success or answer.status_code == 304 else error_of(answer)

    def _read(self, response: httpx.Response, end: float) -> Answer:
        """Returns the whole answer, unless it is too large or takes too long."""
        pieces: list[bytes] = []
        size = 0
        for piece in response.iter_bytes():
            size += len(piece)
            if size > self.limits.answer_bytes_max:
                text = f"the answer is larger than {self.limits.answer_bytes_max} bytes"
                raise IsobarError(response.status_code, text, (), response.headers)
            if time.monotonic() > end:
                raise httpx.ReadTimeout("the answer took too long")
            pieces.append(piece)
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        return Answer(response.status_code, headers=headers, content=b"".join(pieces), request=response.request)
