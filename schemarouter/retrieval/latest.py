"""A bounded memory of what was computed of a text."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Latest(Generic[Value]):
    """Calls `make` once for a text while it is among the `limit` latest that were new."""

    def __init__(self, make: Callable[[str], Value], limit: int) -> None:
        self._make = make
        self._limit = limit
        self._known: OrderedDict[str, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, text: str) -> Value:
        """What `make` gives for a text."""
        if text not in self._known:
            self.put(text, self._make(text))
        return self._known[text]

    def __contains__(self, text: str) -> bool:
        return text in self._known

    def put(self, text: str, value: Value) -> None:
        """Remember what `make` would give for a text that is not known."""
        self._known[text] = value
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
