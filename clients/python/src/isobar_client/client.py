"""The client, and what reads its answers."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, Protocol, Self, TypeVar, cast
from uuid import UUID

import httpx

from ._http import Limits, PatientClient, Way
from ._session import KeyAuth, SessionAuth
from ._stream import AlarmItem, EventItem, resumed
from .errors import IsobarError
from .v2.api.events import device_event_create
from .v2.client import AuthenticatedClient
from .v2.models import ErrorBody, Meta
from .v2.types import UNSET

T = TypeVar("T")
P = ParamSpec("P")


class Page(Protocol[T]):
    """A page of a list."""

    data: list[T]
    meta: Meta


class Isobar(AuthenticatedClient):
    """Calls an Isobar server. Every function of `isobar_client.v2.api` takes it as its `client`, from any thread.

    A key, a device's token, or nothing: without, it makes only calls that need no credentials. `Isobar.login` makes one for
    a user with a password.
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
        """Makes a client for the server at this address, which has no path: `https://isobar.example`.

        Args:
            base_url: the address.
            api_key: the key of a user.
            device_token: the token of a device, which speaks for itself alone.
            limits: bounds of every call, such as its time-out.
            ca_file: a file of certificates in PEM that are trusted instead of the machine's: those of a private authority.
            proxy: the address of a proxy; without, the environment names it (`HTTPS_PROXY`, `NO_PROXY`).
            auth: what signs requests in place of a key or token.
        """
        self._auth = auth_of(base_url, api_key, device_token) or auth
        self._http = PatientClient(base_url, limits or Limits(), self._auth, Way(ca_file, proxy))
        # The secret is the auth's to know: this class shows its members.
        super().__init__(base_url=base_url, token="")
        self.set_httpx_client(self._http)

    @classmethod
    def login(
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
        auth = SessionAuth(base_url, limits or Limits(), Way(ca_file, proxy))
        made = cls(base_url, limits=limits, ca_file=ca_file, proxy=proxy, auth=auth)
        auth.login(username_or_email, password)
        return made

    def logout(self) -> None:
        """Ends the session of `login`, at the server too. Does nothing for keys and tokens, which hold until they are deleted."""
        if isinstance(self._auth, SessionAuth):
            self._auth.logout()

    def close(self) -> None:
        """Closes its connections. A session goes on at the server until it is logged out."""
        self._http.close()
        if isinstance(self._auth, SessionAuth):
            self._auth.close()

    def __exit__(self, *args: Any, **kwargs: Any) -> None:
        """Closes its connections."""
        self.close()

    def __repr__(self) -> str:
        """Shows the address alone."""
        return f"Isobar({str(self._http.base_url)!r})"

    def get_async_httpx_client(self) -> httpx.AsyncClient:
        """Refuses: this client is for threads."""
        raise TypeError("Isobar is for threads: AsyncIsobar is for programs with a loop")

    def post_event(
        self,
        element_name: str,
        payload: object,
        *,
        device_id: UUID | None = None,
        idempotency_key: str | None = None,
    ) -> UUID:
        """Posts an event of a device, whatever JSON it is made of, and returns its id once it is durable.

        It is stored once, however often it was sent: a key of its own goes with it unless one is given. A user names the
        device; a device speaks for itself.
        """
        posted = device_event_create.sync(
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
        stop: threading.Event | None = None,
        on_break: Callable[[IsobarError, float], None] | None = None,
    ) -> Iterator[EventItem | AlarmItem]:
        """Yields events and alarms as they are committed, and resumes behind the last event after a break.

        Args:
            device_id: the device to listen to.
            organization_id: the organization to listen to, with everything beneath it; without either, the caller's own.
            last_event_id: the id of the event that was had last, to go on behind it.
            stop: ends the stream when it is set, within 15 seconds.
            on_break: is told of each break, and of the pause in seconds until the next attempt.

        Raises:
            IsobarError: when the server refuses the stream; with status 400 and the field `header.Last-Event-ID` when it
                cannot be resumed.
        """
        given = scope_of(device_id, organization_id)
        return resumed(self._http, given, last_event_id, stop or threading.Event(), on_break)


def auth_of(base_url: str, api_key: str | None, device_token: str | None) -> httpx.Auth | None:
    """Checks what a client is made of, and returns what signs its requests, if that is a key or token."""
    url = httpx.URL(base_url)
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError("base_url must be an address that begins with http")
    if url.userinfo:
        raise ValueError("base_url must hold no credentials")
    if api_key is not None and device_token is not None:
        raise ValueError("give api_key or device_token, not both")
    if api_key is not None:
        return KeyAuth("Authorization", api_key)
    return None if device_token is None else KeyAuth("cloud", device_token)


def scope_of(device_id: UUID | str | None, organization_id: UUID | str | None) -> dict[str, str]:
    """Returns the parameters that name what a stream listens to."""
    scope = {"deviceId": device_id, "organizationId": organization_id}
    return {name: str(value) for name, value in scope.items() if value is not None}


def _behind(after: UUID) -> dict[str, Any]:
    """Returns the arguments of a page behind an item. The number, which goes along by default, must not."""
    return {"after": after, "page": UNSET}


class Pages:
    """Goes through the pages of a list: by `after` where the server names it, else by their numbers."""

    def __init__(self, named: dict[str, Any]) -> None:
        """Begins with the page that the arguments of a call name, the first by default."""
        self._named = {name: value for name, value in named.items() if name not in ("page", "after")}
        self._page = named.get("page", 1)
        where = _behind(named["after"]) if "after" in named else {"page": self._page}
        self.next: dict[str, Any] | None = {**self._named, **where}

    def turn(self, answer: Page[Any]) -> None:
        """Goes on to the page behind this one; `next` is None when it was the last."""
        after = answer.meta.after
        self._page += 1
        if after is None or not answer.meta.has_next_page or not answer.data:
            self.next = None
        else:
            self.next = {**self._named, **(_behind(after) if isinstance(after, UUID) else {"page": self._page})}


def done(answer: T | ErrorBody | None) -> T:
    """Returns the answer of a call that has one, with its type alone: errors are raised before they get here."""
    if answer is None:
        raise IsobarError(0, "the answer is empty")
    return cast(T, answer)


def items(operation: Callable[P, Page[T] | ErrorBody | None], *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
    """Yields every item of a list, page by page as they are asked for: `items(device_list.sync, client=isobar, limit=1000)`.

    A list that is sorted by createdAt is paged by `after`: what is made or deleted meanwhile shifts nothing.
    """
    call = cast(Callable[..., Page[T]], operation)
    pages = Pages(kwargs)
    while pages.next is not None:
        answer = done(call(*args, **pages.next))
        yield from answer.data
        pages.turn(answer)
