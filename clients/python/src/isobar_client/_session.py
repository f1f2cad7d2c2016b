"""Who calls: the credentials of each request, and the session that renews itself."""

import asyncio
import base64
import json
import re
import threading
import time
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import Future

import httpx

from ._http import AsyncPatientClient, Limits, PatientClient, Way
from .errors import IsobarError

# Renewed so long before its end, in seconds, that no call meets the end on its way.
_RENEWED_BEFORE = 30.0
# So long a token holds of which it cannot be read how long, in seconds.
_LIFE_UNKNOWN = 60.0
_PRINTABLE = re.compile(r"[\x21-\x7e]+")


class KeyAuth(httpx.Auth):
    """Sends a key or token in a header of its own."""

    def __init__(self, header: str, secret: str) -> None:
        """Takes what is sent. A secret of other characters is refused here, where no complaint quotes it."""
        if not _PRINTABLE.fullmatch(secret):
            raise ValueError("a key or token has other characters")
        self._header = header
        self._secret = secret

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Adds the header."""
        request.headers[self._header] = self._secret
        yield request


class SessionAuth(httpx.Auth):
    """Keeps a user signed in: it holds the access token in memory and renews it by the refresh cookie, for all threads once."""

    def __init__(self, base_url: str, limits: Limits, way: Way) -> None:
        """Makes a session that nobody has signed in to yet."""
        # It has the cookie, and sends it to the paths that the server names with it.
        self._http = PatientClient(base_url, limits, way=way)
        self._lock = threading.Lock()
        self._token: str | None = None
        self._end = 0.0
        self._renewal: Future[str | None] | None = None

    def login(self, username_or_email: str, password: str) -> None:
        """Signs in. Raises IsobarError with status 401 for a wrong name or password."""
        asked = time.monotonic()
        body = {"usernameOrEmail": username_or_email, "password": password}
        self._take(self._http.post("/v2/auth/login", json=body), asked)

    def logout(self) -> None:
        """Ends the session at the server and here."""
        token = self._current(None)
        if token is not None:
            self._http.post("/v2/auth/logout", headers={"Authorization": f"Bearer {token}"})
        self._http.cookies.clear()
        self._token = None

    def close(self) -> None:
        """Closes the connections of the session, which goes on at the server."""
        self._http.close()

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Sends a request with the session's token. Answered 401, it is sent once more with a new one."""
        token = self._current(None)
        if token is None:
            raise IsobarError(401, "the session has ended")
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code != 401:
            return
        other = self._current(token)
        if other is not None:
            request.headers["Authorization"] = f"Bearer {other}"
            yield request

    def _current(self, refused: str | None) -> str | None:
        """Returns a token that holds, other than `refused`; None when there is no session. One thread renews, others wait for it."""
        with self._lock:
            if self._token is not None and self._token != refused and self._end - time.monotonic() > _RENEWED_BEFORE:
                return self._token
            renewal, is_mine = self._renewal, self._renewal is None
            if renewal is None:
                renewal = self._renewal = Future()
        if is_mine:
            try:
                renewal.set_result(self._renew())
            except BaseException as error:
                renewal.set_exception(error)
            finally:
                with self._lock:
                    self._renewal = None
        return renewal.result()

    def _renew(self) -> str | None:
        """Returns a new token; None when the server refuses the cookie."""
        asked = time.monotonic()
        try:
            return self._take(self._http.get("/v2/auth/refreshToken"), asked)
        except IsobarError as error:
            if error.status != 401:
                raise
            self._token = None
            return None

    def _take(self, response: httpx.Response, asked: float) -> str:
        token = _token_in(response)
        with self._lock:
            self._token, self._end = token, asked + _life_of(token)
        return token


class AsyncSessionAuth(httpx.Auth):
    """Does for tasks of a loop what `SessionAuth` does for threads."""

    def __init__(self, base_url: str, limits: Limits, way: Way) -> None:
        """Makes a session that nobody has signed in to yet."""
        self._http = AsyncPatientClient(base_url, limits, way=way)
        self._lock = asyncio.Lock()
        self._token: str | None = None
        self._end = 0.0

    async def login(self, username_or_email: str, password: str) -> None:
        """Signs in. Raises IsobarError with status 401 for a wrong name or password."""
        asked = time.monotonic()
        body = {"usernameOrEmail": username_or_email, "password": password}
        self._take(await self._http.post("/v2/auth/login", json=body), asked)

    async def logout(self) -> None:
        """Ends the session at the server and here."""
        token = await self._current(None)
        if token is not None:
            await self._http.post("/v2/auth/logout", headers={"Authorization": f"Bearer {token}"})
        self._http.cookies.clear()
        self._token = None

    async def close(self) -> None:
        """Closes the connections of the session, which goes on at the server."""
        await self._http.aclose()

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Sends a request with the session's token. Answered 401, it is sent once more with a new one."""
        token = await self._current(None)
        if token is None:
            raise IsobarError(401, "the session has ended")
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code != 401:
            return
        other = await self._current(token)
        if other is not None:
            request.headers["Authorization"] = f"Bearer {other}"
            yield request

    async def _current(self, refused: str | None) -> str | None:
        """Returns a token that holds, other than `refused`; None when there is no session. One task renews, others wait for it."""
        async with self._lock:
            if self._token is not None and self._token != refused and self._end - time.monotonic() > _RENEWED_BEFORE:
                return self._token
            asked = time.monotonic()
            try:
                return self._take(await self._http.get("/v2/auth/refreshToken"), asked)
            except IsobarError as error:
                if error.status != 401:
                    raise
                self._token = None
                return None

    def _take(self, response: httpx.Response, asked: float) -> str:
        self._token = _token_in(response)
        self._end = asked + _life_of(self._token)
        return self._token


def _token_in(response: httpx.Response) -> str:
    """Returns the token of an answer."""
    answer = response.json()
    token = answer.get("jwtToken") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not _PRINTABLE.fullmatch(token):
        raise IsobarError(response.status_code, "the answer holds no token", (), response.headers)
    return token


def _life_of(token: str) -> float:
    """Returns how long a token holds from when it was made, in seconds, by the server's clock alone. The server has signed it."""
    try:
        text = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return float(claims["exp"] - claims["iat"])
    except (IndexError, KeyError, TypeError, ValueError):
        return _LIFE_UNKNOWN
