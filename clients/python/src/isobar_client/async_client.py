"""The client for programs with a loop."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ParamSpec, Self, TypeVar, cast
from uuid import UUID

import httpx

from ._http import AsyncPatientClient, Limits, Way
from ._session import AsyncSessionAuth
from ._stream import AlarmItem, EventItem, resumed_async
from .client import Page, Pages, auth_of, done, scope_of
from .errors import IsobarError
from .v2.api.events import device_event_create
from .v2.client import AuthenticatedClient
from .v2.models import ErrorBody
from .v2.types import UNSET

T = TypeVar("T")
P = ParamSpec("P")


class AsyncIsobar(AuthenticatedClient):
    """Calls an Isobar server from a loop. Every `asyncio` function of `isobar_client.v2.api` takes it as its `client`.

    A key, a device's token, or nothing: without, it makes only calls that need no credentials. `AsyncIsobar.login` makes
    one for a user with a password. It belongs to the loop in which it is first used, and is closed by `async with`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        device_token: str | None = None,
        limits: Limits | None = None,
        ca_file: str | None = None,
        proxy: str | None = None,
        auth: httpx.Auth | None = None,
    ) -> None:
        """Makes a client for the server at this address. The arguments are those of `Isobar`."""
        self._auth = auth_of(base_url, api_key, device_token) or auth
        self._http = AsyncPatientClient(base_url, limits or Limits(), self._auth, Way(ca_file, proxy))
        # The secret is the auth's to know: this class shows its members.
        super().__init__(base_url=base_url, token="")
        self.set_async_httpx_client(self._http)

    @classmethod
    async def login(
        cls,
        base_url: str,
        username_or_email: str,
        password: str,
        *,
        limits: Limits | None = None,
        ca_file: str | None = None,
        proxy: str | None = None,
    ) -> Self:
        """Signs a user in; the session renews itself for 14 days. Raises IsobarError with status 401 for a wrong name or password."""
        auth = AsyncSessionAuth(base_url, limits or Limits(), Way(ca_file, proxy))
        made = cls(base_url, limits=limits, ca_file=ca_file, proxy=proxy, auth=auth)
        try:
            await auth.login(username_or_email, password)
        except BaseException:
            await made.close()
            raise
        return made

    async def logout(self) -> None:
        """Ends the session of `login`, at the server too. Does nothing for keys and tokens, which hold until they are deleted."""
        if isinstance(self._auth, AsyncSessionAuth):
            await self._auth.logout()

    async def close(self) -> None:
        """Closes its connections. A session goes on at the server until it is logged out."""
        await self._http.aclose()
        if isinstance(self._auth, AsyncSessionAuth):
            await self._auth.close()

    async def __aexit__(self, *args: Any, **kwargs: Any) -> None:
        """Closes its connections."""
        await self.close()

    def __repr__(self) -> str:
        """Shows the address alone."""
        return f"AsyncIsobar({str(self._http.base_url)!r})"

    def get_httpx_client(self) -> httpx.Client:
        """Refuses: this client is for a loop."""
        raise TypeError("AsyncIsobar is for a loop: Isobar is for threads")

    async def post_event(
        self,
        element_name: str,
        payload: object,
        *,
        device_id: UUID | None = None,
        idempotency_key: str | None = None,
    ) -> UUID:
        """Posts an event of a device, and returns its id once it is durable: see `Isobar.post_event`."""
        posted = await device_event_create.asyncio(
            client=self,
            element_name=element_name,
            body=cast(Any, payload),
            device_id=device_id or UNSET,
            idempotency_key=idempotency_key or UNSET,
        )
        return done(posted).id

    def stream(
        self,
        *,
        device_id: UUID | str | None = None,
        organization_id: UUID | str | None = None,
        last_event_id: str = "",
        on_break: Callable[[IsobarError, float], None] | None = None,
    ) -> AsyncIterator[EventItem | AlarmItem]:
        """Yields events and alarms as they are committed, and resumes after a break: see `Isobar.stream`. A cancelled task ends it."""
        return resumed_async(self._http, scope_of(device_id, organization_id), last_event_id, on_break)


async def items_async(
    operation: Callable[P, Awaitable[Page[T] | ErrorBody | None]], *args: P.args, **kwargs: P.kwargs
) -> AsyncIterator[T]:
    """Yields every item of a list, as `items` does: `items_async(device_list.asyncio, client=isobar, limit=1000)`."""
    call = cast(Callable[..., Awaitable[Page[T]]], operation)
    pages = Pages(kwargs)
    while pages.next is not None:
        answer = done(await call(*args, **pages.next))
        for item in answer.data:
            yield item
        pages.turn(answer)
