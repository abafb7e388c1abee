"""A random ranking: the baseline that every retriever has to beat."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from schemarouter.retrieval.base import Entry, Ranking, Stage, by_id, empty_reason, ordered
from schemarouter.retrieval.spec import Declaration, Option

DECLARATION = Declaration(
    name="random",
    summary="uniformly random order, a pure function of seed, query and id",
    options={"seed": Option(int, "1")},
)


class Random:
    """Orders entries by a hash of seed, query and id: uniform, stateless, the same on every machine."""

    def __init__(self, entries: Sequence[Entry], *, seed: int) -> None:
        self._ids = [entry.id for entry in by_id(entries)]
        self._seed = seed

    def rank(self, query: str, *, k: int) -> Ranking:
        """Rank the entries in random order, with scores uniform in [0, 1): see `Retriever.rank`."""
        prefix = hashlib.sha256(f"{self._seed}\n{query}".encode("utf-8", "surrogatepass"))
        pairs = []
        for entry_id in self._ids:
            digest = prefix.copy()
            digest.update(b"\n" + entry_id.encode())
            pairs.append((entry_id, int.from_bytes(digest.digest()[:6], "big") / 2**48))
        items = ordered(pairs, k)
        return Ranking(items, (Stage("random", len(items), empty_reason(items, k, len(self._ids))),))


def build(entries: Sequence[Entry], values: dict[str, int | float | str], nested: Sequence[object]) -> Random:
    """Build from a spec's values."""
    return Random(entries, seed=int(values["seed"]))
