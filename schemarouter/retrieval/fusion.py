"""Reciprocal rank fusion (Cormack, Clarke & Buettcher 2009)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from schemarouter.retrieval.base import Entry, Ranking, Retriever, Stage, Usage, empty_reason, ordered
from schemarouter.retrieval.spec import Declaration, Option

# Ranks hardly matter beyond it; an unbounded integer cannot be converted to a float.
_MAX_K = 1e6
DECLARATION = Declaration(
    name="rrf",
    summary="reciprocal rank fusion of nested retrievers",
    options={"k": Option(int, "60", minimum=0, maximum=_MAX_K)},
    nested_min=2,
    nested_max=8,
)


def _key(ranking: Ranking, number: int, taken: Collection[str]) -> str:
    """The name of a ranking's last stage; with the ranking's number, from 1, where it has none or the name is taken."""
    name = ranking.stages[-1].name if ranking.stages else ""
    return name if name and name not in taken else f"{name}#{number}"


class ReciprocalRankFusion:
    """Scores an entry by the sum of ``1 / (k + rank)`` over the rankings that hold it, ranks counted from 1.

    The parts of a score are named after the last stages of the nested rankings; ``bm25#3`` is the third ranking, where an
    earlier one is called ``bm25`` as well.

    Args:
        retrievers: The nested retrievers.
        k: The constant of the formula.
        depth: How far each nested ranking is read; the number of entries for all of it.
    """

    def __init__(self, retrievers: Sequence[Retriever], *, k: int, depth: int) -> None:
        self._retrievers = retrievers
        self._k = k
        self._depth = depth

    def rank(self, query: str, *, k: int) -> Ranking:
        """Fuse the rankings of all nested retrievers, read to the same depth whatever `k` is: see `Retriever.rank`."""
        stages: list[Stage] = []
        parts: dict[str, dict[str, float]] = {}
        keys: list[str] = []
        usage = Usage()
        for number, retriever in enumerate(self._retrievers, start=1):
            ranking = retriever.rank(query, k=self._depth)
            stages += ranking.stages
            usage += ranking.usage
            keys.append(_key(ranking, number, keys))
            for rank, (entry_id, _) in enumerate(ranking.items, start=1):
                parts.setdefault(entry_id, {})[keys[-1]] = 1.0 / (self._k + rank)
        # Summed exactly: the order of the nested rankings decides nothing.
        items = ordered(((entry_id, math.fsum(gains.values())) for entry_id, gains in parts.items()), k)
        note = empty_reason(items, k, self._depth, "no nested retriever returned anything")
        chosen = {entry_id: parts[entry_id] for entry_id, _ in items}
        return Ranking(items, (*stages, Stage("rrf", len(items), note)), usage, chosen)


def build(
    entries: Sequence[Entry], values: dict[str, int | float | str], nested: Sequence[Retriever]
) -> ReciprocalRankFusion:
    """Build from a spec's values and the nested retrievers."""
    return ReciprocalRankFusion(nested, k=int(values["k"]), depth=len(entries))
