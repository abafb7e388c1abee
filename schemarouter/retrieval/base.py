"""The interface of a retriever: one method that returns a ranking in a total order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from schemarouter.catalog import Capability, Catalog
from schemarouter.errors import SchemaRouterError

# Decimals to which scores that come of a BLAS are rounded before they are ordered, so that no last bit decides a tie. Sums of
# lexical scores and of reciprocal ranks have one order and need no rounding.
SCORE_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that a retriever ranks.

    Attributes:
        id: Its id, unique among the entries.
        text: The text that it is found by.
        capability: Its contract, where it has one.
    """

    id: str
    text: str
    capability: Capability | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a ranking.

    Attributes:
        name: What it is, such as ``bm25``.
        kept: How many candidates it returned.
        note: What a reader should know, such as why nothing was returned; empty where there is nothing.
    """

    name: str
    kept: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a ranking used of models that are paid for; a local encoder uses nothing.

    It is a function of the query, as the ranking is.

    Attributes:
        model_tokens: Tokens that were charged for.
        calls: Calls of a model.
        cost: Their price in US dollars.
    """

    model_tokens: int = 0
    calls: int = 0
    cost: float = 0.0

    def __bool__(self) -> bool:
        return self != Usage()

    def __add__(self, other: Usage) -> Usage:
        """Return the sum of both."""
        return Usage(self.model_tokens + other.model_tokens, self.calls + other.calls, self.cost + other.cost)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Ids with scores, best first: score descending, then id ascending.

    Attributes:
        items: The ``(id, score)`` pairs.
        stages: How the ranking was made; a note says why nothing was returned.
        usage: What it used of models that are paid for.
        parts: What each kind of evidence added to the score of an id, by id and kind; empty where a retriever does not say.

    Example:
        >>> Ranking((("orders.find", 2.5), ("orders.list", 1.0))).ids
        ('orders.find', 'orders.list')
    """

    items: tuple[tuple[str, float], ...]
    stages: tuple[Stage, ...] = ()
    usage: Usage = Usage()
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids, best first."""
        return tuple(item[0] for item in self.items)


class Retriever(Protocol):
    """Ranks the entries that it was built over; a query never changes it, so equal queries give equal rankings."""

    def rank(self, query: str, *, k: int) -> Ranking:
        """Rank the entries for a query.

        Args:
            query: The user's request, or a rendered state (`schemarouter.state.ExecutionState.retrieval_query`).
            k: How many entries to return at most.

        Returns:
            The best entries first: score descending, then id ascending. A smaller `k` gives a prefix of a larger one's.
        """


class RetrieverError(SchemaRouterError):
    """Entries that cannot be ranked, or a ranking that is none."""


def by_id(entries: Sequence[Entry]) -> list[Entry]:
    """Sort entries by id. Raises RetrieverError for an id that occurs twice: it would be counted twice."""
    ranked = sorted(entries, key=lambda entry: entry.id)
    twice = sorted({one.id for one, other in pairwise(ranked) if one.id == other.id})
    if twice:
        shown = ", ".join(map(repr, twice[:3])) + (", …" if len(twice) > 3 else "")
        raise RetrieverError(
            f"{len(twice)} ids stand twice among {len(ranked)} entries: {shown}. Give each entry an id of its own."
        )
    return ranked


def ordered(pairs: Iterable[tuple[str, float]], k: int) -> tuple[tuple[str, float], ...]:
    """Order ``(id, score)`` pairs: score descending, then id ascending.

    Args:
        pairs: The pairs, in any order.
        k: How many to return at most.

    Returns:
        The best `k`.

    Raises:
        RetrieverError: For a score that is not a number: it has no place in any order.

    Example:
        >>> ordered([("b", 1.0), ("a", 1.0), ("c", 2.0)], 2)
        (('c', 2.0), ('a', 1.0))
    """
    pairs = list(pairs)
    lost = next((entry_id for entry_id, score in pairs if math.isnan(score)), None)
    if lost is not None:
        raise RetrieverError(
            f"the score of {lost!r} is not a number (NaN), so it cannot be ranked; see where it comes from."
        )
    return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[: max(k, 0)])


def empty_reason(items: Sequence[object], k: int, size: int, reason: str = "") -> str:
    """The note of a stage that returned `items` of `size` entries: why there are none (`reason` unless `size` or `k` is 0)."""
    if items:
        return ""
    if size == 0:
        return "there are no entries"
    return reason if k > 0 else f"{k} entries were asked for"


def describe(capability: Capability) -> str:
    """Return the text that a capability is found by: route, description, parameters, outputs, semantic ids, units."""
    parts = [capability.route_id, capability.description]
    for item in (*capability.parameters, *capability.outputs):
        parts += [item.name, item.description, item.semantic_id or "", item.unit or ""]
    return " ".join(part for part in parts if part)


def entries_of(catalog: Catalog) -> Sequence[Entry]:
    """Return the capabilities of a catalog as entries, by route id."""
    return [Entry(item.route_id, describe(item), item) for item in catalog.capabilities]
