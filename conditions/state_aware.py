"""SR-5-STATE-AWARE: a fresh Top-5 from the observed state after each tool turn, within a budget."""

from __future__ import annotations

from conditions.base import Condition, Exposure, display_order
from conditions.budget import RefreshBudget
from preregistration.names import STATE_AWARE
from schemarouter.records import Cause
from schemarouter.retrieval.base import Ranking
from schemarouter.state import ExecutionState


class StateAware(Condition):
    """Each refresh replaces the tools shown.

    There is at most one a turn; a turn that leaves the state unchanged or ends the task spends no refresh.
    """

    name = STATE_AWARE

    def _first(self, query: str) -> Exposure:
        self.budget = RefreshBudget(self.rules.refresh_budget)
        return self._of(self.opening_ranking(query), "open")

    def _of(self, ranking: Ranking, cause: Cause) -> Exposure:
        routes = display_order(ranking.ids[: self.rules.top_k])
        can_turn = self.budget.left > 0
        return Exposure(routes, ranking, cause, can_turn=can_turn)

    def _after_turn(self, before: ExecutionState, failed: bool) -> Exposure:
        state = self.state
        if not state.task_incomplete_boolean or self.budget.left == 0:
            return self.exposure
        if state.canonical_json() == before.canonical_json():
            return self.exposure
        self.budget = self.budget.spend()
        return self._of(self.rank(state.retrieval_query(), self.rules.top_k), "refresh")
