"""FULL: the whole catalog."""

from __future__ import annotations

from conditions.base import Condition, Exposure
from preregistration.names import FULL


class Full(Condition):
    """Shows every tool; nothing is ranked."""

    name = FULL
    ranks = False

    def _first(self, query: str) -> Exposure:
        return Exposure(self.catalog.route_ids, None, "open")
