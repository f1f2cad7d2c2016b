"""The client of Isobar. `Isobar` is where to begin; its calls are the functions of `isobar_client.v2.api`."""

from ._http import Limits
from ._stream import AlarmItem, EventItem
from .client import Isobar, Page, done, items
from .errors import FieldError, IsobarError

__all__ = ["AlarmItem", "EventItem", "FieldError", "Isobar", "IsobarError", "Limits", "Page", "done", "items"]
