"""SR-5-STATIC: the Top-5 for the query, never refreshed."""

from __future__ import annotations

from conditions.base import Condition, Exposure, display_order
from preregistration.names import STATIC


class Static(Condition):
    """Shows the Top-5 for the query throughout the episode."""

    name = STATIC

    def _first(self, query: str) -> Exposure:
        ranking = self.opening_ranking(query)
        return Exposure(display_order(ranking.ids[: self.rules.top_k]), ranking, "open")
