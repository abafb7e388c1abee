"""ORACLE: the required routes, a diagnostic upper bound. The only condition that is handed them."""

from __future__ import annotations

from collections.abc import Sequence

from conditions.base import Condition, Exposure, display_order
from preregistration.names import ORACLE
from preregistration.protocol import ConditionRules
from schemarouter.catalog import Catalog
from schemarouter.retrieval.base import Retriever


class Oracle(Condition):
    """Shows the routes that the task requires."""

    name = ORACLE
    ranks = False

    def __init__(
        self, retriever: Retriever, catalog: Catalog, rules: ConditionRules, *, required_routes: Sequence[str]
    ) -> None:
        super().__init__(retriever, catalog, rules)
        self._required = display_order(required_routes)

    def _first(self, query: str) -> Exposure:
        return Exposure(self._required, None, "open")
