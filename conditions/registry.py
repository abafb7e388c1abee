"""Which conditions there are. A new one is a file and one line here."""

from __future__ import annotations

from collections.abc import Sequence

from conditions.base import Condition
from conditions.full import Full
from conditions.oracle import Oracle
from conditions.progressive import Progressive
from conditions.state_aware import StateAware
from conditions.static import Static
from preregistration.protocol import ConditionRules, load_protocol
from schemarouter.catalog import Catalog
from schemarouter.errors import UsageError, unknown
from schemarouter.retrieval.base import Retriever

CONDITIONS: dict[str, type[Condition]] = {cls.name: cls for cls in (Static, Progressive, StateAware, Full, Oracle)}


def make_condition(
    name: str,
    retriever: Retriever,
    catalog: Catalog,
    rules: ConditionRules | None = None,
    *,
    required_routes: Sequence[str] = (),
) -> Condition:
    """A condition for one episode. `rules` are those of the preregistration unless given; ORACLE alone gets routes.

    Raises UsageError for an unknown name, and for ORACLE without routes.
    """
    if name not in CONDITIONS:
        raise UsageError(unknown("condition", name, CONDITIONS))
    numbers = rules if rules is not None else load_protocol().conditions
    if name == Oracle.name:
        if not required_routes:
            raise UsageError(
                "ORACLE shows the routes that a task requires, and none are given: pass required_routes=[…]; "
                "where they are not known, take another condition."
            )
        return Oracle(retriever, catalog, numbers, required_routes=required_routes)
    return CONDITIONS[name](retriever, catalog, numbers)
