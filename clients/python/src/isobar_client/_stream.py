"""Streams of events that go on behind the last event after a break."""

import asyncio
import codecs
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from ._http import AsyncPatientClient, Limits, PatientClient, backoff
from .errors import IsobarError
from .v2.models import Alarm, Event

_PATH = "/v2/events/stream"
# The server says something every 15 seconds: a stream that is silent for longer has lost its connection unheard.
_SILENCE = 45.0
# A stream that was open for so long has not failed at its start: the next attempt comes soon.
_SOUND = 10.0
# Longest Retry-After that is honoured, in seconds.
_RETRY_AFTER_MAX = 120.0
# Longest message, in characters: the server's are far shorter.
_MESSAGE_CHARACTERS_MAX = 16 * 1024 * 1024


@dataclass(frozen=True)
class EventItem:
    """An event of a device, as it was committed. `id` is what a stream resumes behind."""

    id: str
    event: Event


@dataclass(frozen=True)
class AlarmItem:
    """An alarm that has come or changed."""

    alarm: Alarm


@dataclass
class MessageReader:
    """Takes a stream of server-sent events apart, however its text is cut. Lines end as the server ends them: by `\\n`.

    `id` is that of the last whole message: a stream that breaks within the next one resumes before that.
    """

    rest: list[str] = field(default_factory=list)
    event: str = ""
    id: str = ""
    next_id: str = ""
    data: list[str] = field(default_factory=list)
    characters: int = 0

    def push(self, text: str) -> Iterator[tuple[str, str, str]]:
        """Yields kind, id and data of each message that is whole with this piece of text."""
        self.characters += len(text)
        self.rest.append(text)
        if self.characters > _MESSAGE_CHARACTERS_MAX:
            raise IsobarError(0, "a message of the stream is too long")
        if "\n" not in text:
            return
        *lines, rest = "".join(self.rest).split("\n")
        self.rest = [rest]
        for line in lines:
            line = line.removesuffix("\r")
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "event":
                self.event = value
            elif name == "id":
                self.next_id = value
            elif name == "data":
                self.data.append(value)
            elif not line:
                event, data, self.event, self.data = self.event, self.data, "", []
                self.characters = len(rest)
                self.id = self.next_id or self.id
                if data:
                    yield event, self.id, "\n".join(data)


class Breaks:
    """Decides when a stream that broke is opened again."""

    def __init__(self, on_break: Callable[[IsobarError, float], None] | None) -> None:
        """Begins before the first attempt."""
        self._on_break = on_break
        self._attempt = 0
        self._begun = 0.0

    def begin(self) -> None:
        """Notes that an attempt begins."""
        self._begun = time.monotonic()

    def pause_after(self, error: Exception) -> float:
        """Returns the seconds until the next attempt. Raises the error if the stream was refused."""
        if isinstance(error, IsobarError):
            if not error.is_temporary and error.status < 500:
                raise error
            broken = error
        else:
            broken = IsobarError(0, f"no answer came: {type(error).__name__}: {error}")
        self._attempt = 0 if time.monotonic() - self._begun > _SOUND else self._attempt
        wait = max(min(broken.retry_after or 0.0, _RETRY_AFTER_MAX), backoff(self._attempt))
        self._attempt += 1
        if self._on_break:
            self._on_break(broken, wait)
        return wait


def resumed(
    http: PatientClient,
    scope: dict[str, str],
    last_event_id: str,
    stop: threading.Event,
    on_break: Callable[[IsobarError, float], None] | None,
) -> Iterator[EventItem | AlarmItem]:
    """Yields what a stream carries until `stop` is set, and opens it again after each break."""
    reader = MessageReader(id=last_event_id)
    breaks = Breaks(on_break)
    while not stop.is_set():
        broken: Exception = IsobarError(0, "the stream ended")
        breaks.begin()
        reader = MessageReader(id=reader.id)
        try:
            for text in _texts(http, scope, reader.id):
                yield from _items_of(reader, text)
                if stop.is_set():
                    return
        except (IsobarError, httpx.HTTPError, httpx.StreamError) as error:
            broken = error
        stop.wait(breaks.pause_after(broken))


async def resumed_async(
    http: AsyncPatientClient,
    scope: dict[str, str],
    last_event_id: str,
    on_break: Callable[[IsobarError, float], None] | None,
) -> AsyncIterator[EventItem | AlarmItem]:
    """Yields what a stream carries until its task is cancelled or leaves it, and opens it again after each break."""
    reader = MessageReader(id=last_event_id)
    breaks = Breaks(on_break)
    while True:
        broken: Exception = IsobarError(0, "the stream ended")
        breaks.begin()
        reader = MessageReader(id=reader.id)
        try:
            async with http.stream("GET", _PATH, **_asked(http.limits, scope, reader.id)) as response:
                decoder = _decoder_of(response)
                async for piece in response.aiter_bytes():
                    for item in _items_of(reader, decoder.decode(piece)):
                        yield item
        except (IsobarError, httpx.HTTPError, httpx.StreamError) as error:
            broken = error
        await asyncio.sleep(breaks.pause_after(broken))


def _texts(http: PatientClient, scope: dict[str, str], last_event_id: str) -> Iterator[str]:
    with http.stream("GET", _PATH, **_asked(http.limits, scope, last_event_id)) as response:
        decoder = _decoder_of(response)
        for piece in response.iter_bytes():
            yield decoder.decode(piece)


def _asked(limits: Limits, scope: dict[str, str], last_event_id: str) -> dict[str, Any]:
    """Returns how a stream is asked for."""
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    return {"params": scope, "headers": headers, "timeout": httpx.Timeout(limits.timeout, read=_SILENCE)}


def _decoder_of(response: httpx.Response) -> codecs.IncrementalDecoder:
    """Returns what reads the text of a stream."""
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        raise IsobarError(response.status_code, "the answer is no stream of events", (), response.headers)
    return codecs.getincrementaldecoder("utf-8")("replace")


def _items_of(reader: MessageReader, text: str) -> Iterator[EventItem | AlarmItem]:
    """Yields what the messages carry that are whole with this piece of text."""
    for event, name, data in reader.push(text):
        item = _item_of(event, name, data)
        if item is not None:
            yield item


def _item_of(event: str, name: str, data: str) -> EventItem | AlarmItem | None:
    """Returns what a message carries; nothing for kinds that this version does not know."""
    try:
        if event in ("deviceEvent", "cloudEvent"):
            return EventItem(name, Event.from_dict(json.loads(data)))
        return AlarmItem(Alarm.from_dict(json.loads(data))) if event == "alarm" else None
    except (KeyError, TypeError, ValueError, RecursionError):
        raise IsobarError(0, "a message of the stream cannot be read") from None
