"""What a call fails with."""

import datetime
import email.utils
import json
from dataclasses import dataclass

import httpx

# Longest text of a message that an error carries, in characters.
_MESSAGE_CHARACTERS_MAX = 1_000


@dataclass(frozen=True)
class FieldError:
    """A field of the input that the server refused: its path, as `streetAddress.city` or `query.limit`, and why."""

    field: str
    message: str


class IsobarError(Exception):
    """Tells why a call failed: what the server answered, or that no usable answer came.

    It carries no request, so that no credential can reach a log by it.

    Attributes:
        status: the status of the answer; 0 where none came.
        message: what the server says, or what went wrong on the way.
        fields: every field that the server refused; empty where none is at fault.
        request_id: names the request in the server's log.
        retry_after: seconds after which the server wants to be asked again.
    """

    def __init__(
        self, status: int, message: str, fields: tuple[FieldError, ...] = (), headers: httpx.Headers | None = None
    ) -> None:
        """Makes an error of an answer's parts."""
        self.status = status
        self.message = message[:_MESSAGE_CHARACTERS_MAX]
        self.fields = fields
        self.request_id = headers.get("x-request-id") if headers else None
        self.retry_after = _seconds_of(headers.get("retry-after")) if headers else None
        super().__init__(f"{status}: {self.message}" if status else self.message)

    def field(self, name: str) -> str | None:
        """Returns what the server says of a field, if that is at fault."""
        return next((fault.message for fault in self.fields if fault.field == name), None)

    @property
    def is_temporary(self) -> bool:
        """Returns true if the same call may succeed later: no answer came, a rate limit, or a server that is overloaded."""
        return self.status in (0, 429, 503)


def error_of(response: httpx.Response) -> IsobarError:
    """Returns the error that an answer tells of, whatever its body holds. The body was read."""
    if response.is_redirect:
        # It could carry the credentials to another server.
        return IsobarError(response.status_code, "the server redirects, which is not followed", (), response.headers)
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        body = None
    members = body if isinstance(body, dict) else {}
    message, errors = members.get("message"), members.get("errors")
    text = message if isinstance(message, str) else f"the server answered {response.status_code}"
    faults = (_field_error(item) for item in errors) if isinstance(errors, list) else ()
    return IsobarError(response.status_code, text, tuple(fault for fault in faults if fault), response.headers)


def _field_error(item: object) -> FieldError | None:
    if not isinstance(item, dict):
        return None
    field, message = item.get("field"), item.get("message")
    return FieldError(field, message) if isinstance(field, str) and isinstance(message, str) else None


def _seconds_of(header: str | None) -> float | None:
    """Reads a number of seconds or a date, as RFC 9110 has both."""
    if header is None:
        return None
    if header.isascii() and header.isdigit():
        return float(header[:12])
    try:
        moment = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return max(0.0, (moment - datetime.datetime.now(datetime.UTC)).total_seconds())
