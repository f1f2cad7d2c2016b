"""The client of Isobar. `Isobar` is where to begin, or `AsyncIsobar`; their calls are the functions of `isobar_client.v2.api`."""

from ._http import Limits
from ._stream import AlarmItem, EventItem
from .async_client import AsyncIsobar, items_async
from .client import Isobar, Page, done, items
from .errors import FieldError, IsobarError

__all__ = [
    "AlarmItem",
    "AsyncIsobar",
    "EventItem",
    "FieldError",
    "Isobar",
    "IsobarError",
    "Limits",
    "Page",
    "done",
    "items",
    "items_async",
]
