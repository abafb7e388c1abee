"""Bounded in-memory caches for the results of pure functions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Bounded(dict[Key, Value]):
    """A dict that empties itself before a new key would make it hold more than `limit` entries."""

    __slots__ = ("_limit",)

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: Key, value: Value) -> None:
        if len(self) >= self._limit and key not in self:
            self.clear()
        super().__setitem__(key, value)


class Latest(Generic[Value]):
    """Caches what `make` returns for a text; beyond `limit` texts the one added first is dropped."""

    def __init__(self, make: Callable[[str], Value], limit: int) -> None:
        self._make = make
        self._limit = limit
        self._known: OrderedDict[str, Value] = OrderedDict()

    def get(self, text: str) -> Value:
        """Return the value of a text, made unless it is cached."""
        if text not in self._known:
            self.put(text, self._make(text))
        return self._known[text]

    def __contains__(self, text: str) -> bool:
        return text in self._known

    def put(self, text: str, value: Value) -> None:
        """Add the value that `make` would return for a text."""
        self._known[text] = value
        if len(self._known) > self._limit:
            self._known.popitem(last=False)
