"""Streams of events that go on behind the last event after a break."""

import codecs
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx

from ._http import PatientClient, backoff
from .errors import IsobarError
from .v2.models import Alarm, Event

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
    """Takes a stream of server-sent events apart, however its text is cut. Lines end as the server ends them: by `\\n`."""

    rest: list[str] = field(default_factory=list)
    event: str = ""
    id: str = ""
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
                self.id = value
            elif name == "data":
                self.data.append(value)
            elif not line:
                event, data, self.event, self.data = self.event, self.data, "", []
                self.characters = len(rest)
                if data:
                    yield event, self.id, "\n".join(data)


def resumed(
    http: PatientClient,
    scope: dict[str, str],
    last_event_id: str,
    stop: threading.Event,
    on_break: Callable[[IsobarError, float], None] | None,
) -> Iterator[EventItem | AlarmItem]:
    """Yields what a stream carries until `stop` is set, and opens it again after each break."""
    reader = MessageReader(id=last_event_id)
    attempt = 0
    while not stop.is_set():
        broken = IsobarError(0, "the stream ended")
        begun = time.monotonic()
        reader = MessageReader(id=reader.id)
        try:
            for text in _texts(http, scope, reader.id):
                for event, name, data in reader.push(text):
                    item = _item_of(event, name, data)
                    if item is not None:
                        yield item
                if stop.is_set():
                    return
        except IsobarError as error:
            if not error.is_temporary and error.status < 500:
                raise
            broken = error
        except (httpx.HTTPError, httpx.StreamError) as error:
            broken = IsobarError(0, f"no answer came: {type(error).__name__}: {error}")
        attempt = 0 if time.monotonic() - begun > _SOUND else attempt
        wait = max(min(broken.retry_after or 0.0, _RETRY_AFTER_MAX), backoff(attempt))
        attempt += 1
        if on_break:
            on_break(broken, wait)
        stop.wait(wait)


def _texts(http: PatientClient, scope: dict[str, str], last_event_id: str) -> Iterator[str]:
    headers = {"Last-Event-ID": last_event_id} if last_event_id else {}
    timeout = httpx.Timeout(http.limits.timeout, read=_SILENCE)
    with http.stream("GET", "/v2/events/stream", params=scope, headers=headers, timeout=timeout) as response:
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            raise IsobarError(response.status_code, "the answer is no stream of events", (), response.headers)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for piece in response.iter_bytes():
            yield decoder.decode(piece)


def _item_of(event: str, name: str, data: str) -> EventItem | AlarmItem | None:
    """Returns what a message carries; nothing for kinds that this version does not know."""
    try:
        if event in ("deviceEvent", "cloudEvent"):
            return EventItem(name, Event.from_dict(json.loads(data)))
        return AlarmItem(Alarm.from_dict(json.loads(data))) if event == "alarm" else None
    except (KeyError, TypeError, ValueError, RecursionError):
        raise IsobarError(0, "a message of the stream cannot be read") from None
