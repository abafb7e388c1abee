"""The conditions by name. A new one is a file and one line here; CONTRIBUTING says what a run needs besides."""

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


def ranks(name: str) -> bool:
    """Whether a condition is registered and ranks, so that recall and recovery are measured on it."""
    return name in CONDITIONS and CONDITIONS[name].ranks


def make_condition(
    name: str,
    retriever: Retriever,
    catalog: Catalog,
    rules: ConditionRules | None = None,
    *,
    required_routes: Sequence[str] = (),
) -> Condition:
    """Make a condition, for one episode at a time.

    Args:
        name: Name of the condition, such as ``SR-5-STATE-AWARE``; a key of `CONDITIONS`.
        retriever: Ranks the entries of `catalog`.
        catalog: Contracts of the tools that can be shown.
        rules: Numbers of the protocol; those of the preregistration unless given.
        required_routes: Route ids that the task requires; for ORACLE alone.

    Returns:
        The condition, before its first episode.

    Raises:
        UsageError: For an unknown name, for what is no retriever or no catalog, and for ORACLE without routes.

    Example:
        >>> from schemarouter.catalog import from_openai_tools
        >>> from schemarouter.retrieval.registry import build_retriever
        >>> tools = [{"name": "find_order"}, {"name": "refund_order"}]
        >>> catalog = from_openai_tools([{"type": "function", "function": tool} for tool in tools])
        >>> condition = make_condition("SR-5-STATIC", build_retriever("bm25", catalog), catalog)
        >>> condition.open("Refund the order").routes
        ('tools.find_order', 'tools.refund_order')

    """
    if name not in CONDITIONS:
        raise UsageError(unknown("condition", name, CONDITIONS))
    if not callable(getattr(retriever, "rank", None)) or not isinstance(catalog, Catalog):
        raise UsageError(
            f"a condition takes a retriever and a catalog, in this order, not {type(retriever).__name__} and "
            f"{type(catalog).__name__}; build_retriever(spec, catalog) makes a retriever, from_openai_tools(tools) a catalog."
        )
    numbers = rules if rules is not None else load_protocol().conditions
    if name == Oracle.name:
        if not required_routes:
            raise UsageError(
                "ORACLE shows the routes that a task requires, and none are given: pass required_routes=[…], "
                "or take another condition where they are unknown."
            )
        return Oracle(retriever, catalog, numbers, required_routes=required_routes)
    return CONDITIONS[name](retriever, catalog, numbers)
