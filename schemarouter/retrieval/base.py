"""What a retriever is: one method, one ranking, a total order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from schemarouter.catalog import Capability, Catalog
from schemarouter.errors import SchemaRouterError

# Scores are rounded to this many decimals before they are ordered, so that the last bits of a BLAS cannot reorder ties.
SCORE_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """Something to be found: its id, the text it is found by, and its contract where it has one."""

    id: str
    text: str
    capability: Capability | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a ranking: what it is, how many candidates it kept, what it has to say."""

    name: str
    kept: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a ranking cost with those who run a model: tokens and calls that are charged for, and `cost` in US dollars.

    A function of the query, as the ranking is. An encoder on this machine is charged by nobody, and often not asked, since
    vectors are kept: it uses nothing.
    """

    model_tokens: int = 0
    calls: int = 0
    cost: float = 0.0

    def __bool__(self) -> bool:
        return self != Usage()

    def __add__(self, other: Usage) -> Usage:
        """What both used."""
        return Usage(self.model_tokens + other.model_tokens, self.calls + other.calls, self.cost + other.cost)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Ids with scores, best first: score descending, then id ascending.

    `stages` says how it came about, and in a stage's note why nothing was returned; `usage` what it cost. `parts` holds, per
    id, what each kind of evidence gave to its score, where a retriever explains itself.
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
    """Ranks the entries it was built over; a query never changes it."""

    def rank(self, query: str, *, k: int) -> Ranking:
        """Return at most `k` entries, best first; a smaller `k` gives a prefix of a larger one's ranking."""


class RetrieverError(SchemaRouterError):
    """Entries that cannot be ranked, or a ranking that is none."""


def by_id(entries: Sequence[Entry]) -> list[Entry]:
    """Entries in the order of their ids. Raises RetrieverError for an id that stands twice: it would be counted twice."""
    ranked = sorted(entries, key=lambda entry: entry.id)
    twice = sorted({one.id for one, other in pairwise(ranked) if one.id == other.id})
    if twice:
        shown = ", ".join(map(repr, twice[:3])) + (", …" if len(twice) > 3 else "")
        raise RetrieverError(
            f"{len(twice)} ids stand twice among {len(ranked)} entries: {shown}. Give each entry an id of its own."
        )
    return ranked


def ordered(pairs: Iterable[tuple[str, float]], k: int) -> tuple[tuple[str, float], ...]:
    """The best `k` of ``(id, score)`` pairs in the total order: score descending, then id ascending.

    Raises RetrieverError for a score that is not a number: it has no place in any order.
    """
    pairs = list(pairs)
    lost = next((entry_id for entry_id, score in pairs if math.isnan(score)), None)
    if lost is not None:
        raise RetrieverError(
            f"the score of {lost!r} is not a number (NaN), so it cannot be ranked; see where it comes from."
        )
    return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[: max(k, 0)])


def empty_reason(items: Sequence[object], k: int, size: int, reason: str = "") -> str:
    """A stage's note: why nothing of `size` entries was returned, `reason` when neither entries nor `k` lacked; else empty."""
    if items:
        return ""
    if size == 0:
        return "there are no entries"
    return reason if k > 0 else f"{k} entries were asked for"


def describe(capability: Capability) -> str:
    """The text a capability is found by: name, description, parameters, output fields, semantic ids, units."""
    parts = [capability.route_id, capability.description]
    for item in (*capability.parameters, *capability.outputs):
        parts += [item.name, item.description, item.semantic_id or "", item.unit or ""]
    return " ".join(part for part in parts if part)


def entries_of(catalog: Catalog) -> Sequence[Entry]:
    """The capabilities of a catalog as entries, in route order."""
    return [Entry(item.route_id, describe(item), item) for item in catalog.capabilities]
