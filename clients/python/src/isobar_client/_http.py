"""Sends requests: bounds, retries, and answers that are errors."""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import ssl
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
# The write that is done once if each of its items has a key.
_BATCH = re.compile(r"/v2/events/device/batch$")
# Reads that take what they return.
_TAKES = re.compile(r"/v2/events/cloud(/next)?$")
# Failures of an attempt that are told as an error of this library.
_FAILURES = (IsobarError, httpx.HTTPError, httpx.StreamError, httpx.InvalidURL)


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


@dataclass(frozen=True)
class Way:
    """The way to the server.

    Attributes:
        ca_file: file of the certificates, in PEM, that are trusted instead of the machine's: those of a private authority.
        proxy: address of the proxy that calls go through; without, the environment names it (`HTTPS_PROXY`, `NO_PROXY`).
    """

    ca_file: str | None = None
    proxy: str | None = None

    def settings(self, limits: Limits) -> dict[str, Any]:
        """Returns the settings of a client that takes this way."""
        verify = ssl.create_default_context(cafile=self.ca_file) if self.ca_file else True
        return {"timeout": limits.timeout, "follow_redirects": False, "verify": verify, "proxy": self.proxy}


def _is_keyed_batch(body: bytes) -> bool:
    """Returns true if each item of a batch has a key: the server then stores none twice."""
    try:
        items = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(items, list) and all(isinstance(item, dict) and item.get("idempotencyKey") for item in items)


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


class Attempts:
    """Decides when a request is sent again.

    A call that the rate limit refused is repeated, for the server has done nothing. After other failures reads are, and of
    writes those that carry an `Idempotency-Key`, which stays the same, and batches whose items all have one. Nothing else
    is: a write that the server may have done is never sent twice.
    """

    def __init__(self, request: httpx.Request, limits: Limits, stream: bool) -> None:
        """Prepares a request whose body was read. One whose answer is streamed is sent once."""
        path = request.url.path
        if request.method == "POST" and _KEYED.search(path):
            request.headers.setdefault("Idempotency-Key", secrets.token_hex(16))
        is_keyed = bool(_KEYED.search(path)) and "Idempotency-Key" in request.headers
        self._is_keyed = is_keyed or (bool(_BATCH.search(path)) and _is_keyed_batch(request.content))
        self._is_read = request.method in ("GET", "HEAD")
        self._takes = bool(_TAKES.search(path))
        self._left = 0 if stream else limits.retries
        self._count = 0
        self._end = time.monotonic() + limits.retry_within

    def pause_after(self, error: IsobarError) -> float:
        """Returns the seconds until the next attempt. Raises the error when there is none."""
        may_repeat = self._is_keyed or error.status == 429
        may_repeat = may_repeat or (self._is_read and not (error.status == 0 and self._takes))
        wait = max(error.retry_after or 0.0, backoff(self._count))
        is_last = self._count >= self._left or time.monotonic() + wait > self._end
        if is_last or not may_repeat or not error.is_temporary:
            raise error
        self._count += 1
        return wait


class Reading:
    """Collects an answer, unless it is too large or takes too long."""

    def __init__(self, response: httpx.Response, limits: Limits, end: float) -> None:
        """Begins without a piece; the answer must be whole at `end`."""
        self._response, self._limits, self._end = response, limits, end
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Takes the next piece."""
        self._size += len(piece)
        if self._size > self._limits.answer_bytes_max:
            text = f"the answer is larger than {self._limits.answer_bytes_max} bytes"
            raise IsobarError(self._response.status_code, text, (), self._response.headers)
        if time.monotonic() > self._end:
            raise httpx.ReadTimeout("the answer took too long")
        self._pieces.append(piece)

    def answer(self) -> Answer | IsobarError:
        """Returns the whole answer, or the error that it tells of."""
        response = self._response
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        content = b"".join(self._pieces)
        answer = Answer(response.status_code, headers=headers, content=content, request=response.request)
        return answer if answer.is_success or answer.status_code == 304 else error_of(answer)


def failure_of(error: Exception, limits: Limits) -> IsobarError:
    """Returns what a failed attempt is to the caller."""
    if isinstance(error, IsobarError):
        return error
    if isinstance(error, httpx.TimeoutException):
        return IsobarError(0, f"no answer came within {limits.timeout} s")
    return IsobarError(0, f"no answer came: {type(error).__name__}: {error}")


class PatientClient(httpx.Client):
    """Sends a request until it succeeds, is refused for good, or its bounds are reached: see `Attempts`.

    Every answer that is no success is raised as an `IsobarError`.
    """

    def __init__(self, base_url: str, limits: Limits, auth: httpx.Auth | None = None, way: Way | None = None) -> None:
        """Makes a client for the server at this address."""
        self.limits = limits
        super().__init__(base_url=base_url, auth=auth, **(way or Way()).settings(limits))

    def send(self, request: httpx.Request, *, stream: bool = False, **kwargs: Any) -> httpx.Response:
        """Sends a request. With `stream` the body of a success is left to be read, and nothing is repeated."""
        # A body that comes from a file could be sent once only.
        request.read()
        attempts = Attempts(request, self.limits, stream)
        while True:
            outcome = self._attempt(request, stream, kwargs)
            if isinstance(outcome, httpx.Response):
                return outcome
            time.sleep(attempts.pause_after(outcome))

    def _attempt(self, request: httpx.Request, stream: bool, kwargs: dict[str, Any]) -> httpx.Response | IsobarError:
        """Returns the answer, or the error that may be worth another attempt."""
        end = time.monotonic() + self.limits.timeout
        kwargs = {**kwargs, "follow_redirects": False}
        try:
            response = super().send(request, stream=True, **kwargs)
            if stream and response.is_success:
                return response
            reading = Reading(response, self.limits, end)
            try:
                for piece in response.iter_bytes():
                    reading.add(piece)
            finally:
                response.close()
            return reading.answer()
        except _FAILURES as error:
            return failure_of(error, self.limits)


class AsyncPatientClient(httpx.AsyncClient):
    """Does for tasks of a loop what `PatientClient` does for threads."""

    def __init__(self, base_url: str, limits: Limits, auth: httpx.Auth | None = None, way: Way | None = None) -> None:
        """Makes a client for the server at this address."""
        self.limits = limits
        super().__init__(base_url=base_url, auth=auth, **(way or Way()).settings(limits))

    async def send(self, request: httpx.Request, *, stream: bool = False, **kwargs: Any) -> httpx.Response:
        """Sends a request. With `stream` the body of a success is left to be read, and nothing is repeated."""
        await request.aread()
        attempts = Attempts(request, self.limits, stream)
        while True:
            outcome = await self._attempt(request, stream, kwargs)
            if isinstance(outcome, httpx.Response):
                return outcome
            await asyncio.sleep(attempts.pause_after(outcome))

    async def _attempt(
        self, request: httpx.Request, stream: bool, kwargs: dict[str, Any]
    ) -> httpx.Response | IsobarError:
        """Returns the answer, or the error that may be worth another attempt."""
        end = time.monotonic() + self.limits.timeout
        kwargs = {**kwargs, "follow_redirects": False}
        try:
            response = await super().send(request, stream=True, **kwargs)
            if stream and response.is_success:
                return response
            reading = Reading(response, self.limits, end)
            try:
                async for piece in response.aiter_bytes():
                    reading.add(piece)
            finally:
                await response.aclose()
            return reading.answer()
        except _FAILURES as error:
            return failure_of(error, self.limits)
