"""SR-PROGRESSIVE-STATIC: one ranking for the query, of which more and more is shown."""

from __future__ import annotations

from conditions.base import Condition, Exposure, display_order
from preregistration.names import PROGRESSIVE
from schemarouter.records import Cause
from schemarouter.retrieval.base import Ranking
from schemarouter.state import ExecutionState


class Progressive(Condition):
    """Widens by one stage after a failed turn or when the agent asks; never ranks again."""

    name = PROGRESSIVE

    def _first(self, query: str) -> Exposure:
        self._stage = 0
        self._ranking = self.opening_ranking(query)
        return self._at_stage(self._ranking, "open")

    def _at_stage(self, ranking: Ranking, cause: Cause) -> Exposure:
        size = self.rules.progressive_stages[self._stage]
        more = self._stage + 1 < len(self.rules.progressive_stages) and len(ranking.ids) > size
        routes = display_order(ranking.ids[:size])
        return Exposure(routes, ranking, cause, can_ask=more, can_turn=more)

    def _widened(self) -> Exposure:
        if not self.exposure.can_ask:
            return self.exposure
        self._stage += 1
        return self._at_stage(self._ranking, "widen")

    def _after_turn(self, before: ExecutionState, failed: bool) -> Exposure:
        return self._widened() if failed else self.exposure

    def _after_ask(self) -> Exposure:
        return self._widened()
