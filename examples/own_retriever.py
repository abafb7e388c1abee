"""A retriever in one file: runs of letters, which forgive a slip of the finger, held against bm25 and fused with it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from schemarouter.retrieval.base import Entry, Ranking, Stage, empty_reason, ordered
from schemarouter.retrieval.registry import RETRIEVERS, build_retriever
from schemarouter.retrieval.spec import Declaration, Option
from surface.loader import load_catalogs, load_surface

DECLARATION = Declaration("ngrams", "runs of letters, the rarer the heavier", {"n": Option(int, "5", minimum=1)})


class Ngrams:
    """Sums the inverse document frequencies of the n-grams that query and entry share."""

    def __init__(self, entries: Sequence[Entry], *, n: int) -> None:
        self._n = n
        self._entries = [(entry.id, self._ngrams(entry.text)) for entry in entries]
        counts = Counter(ngram for _, ngrams in self._entries for ngram in ngrams)
        self._weights = {ngram: math.log(1 + len(entries) / count) for ngram, count in counts.items()}

    def rank(self, query: str, *, k: int) -> Ranking:
        """Return at most `k` entries, best first; such as share nothing with the query are left out."""
        asked = self._ngrams(query)
        scores = [(name, math.fsum(map(self._weights.__getitem__, asked & ngrams))) for name, ngrams in self._entries]
        items = ordered((pair for pair in scores if pair[1] > 0), k)
        note = empty_reason(items, k, len(self._entries), "no entry shares a run of letters with the query")
        return Ranking(items, (Stage("ngrams", len(items), note),))

    def _ngrams(self, text: str) -> frozenset[str]:
        lower = text.casefold()
        return frozenset(lower[at : at + self._n] for at in range(len(lower) - self._n + 1))


def build(entries: Sequence[Entry], values: Mapping[str, int | float | str], nested: Sequence[object]) -> Ngrams:
    """Build from a spec's values."""
    return Ngrams(entries, n=int(values["n"]))


def misspelt(query: str) -> str:
    """A query whose longer words have each lost their third letter."""
    return " ".join(word[:2] + word[3:] if len(word) > 4 else word for word in query.split())


def main() -> None:
    """Print how often each retriever has the first required route of a task in its Top-5."""
    RETRIEVERS["ngrams"] = __name__  # In the package: one line of schemarouter/retrieval/registry.py.
    catalog = load_catalogs([100])[100]
    tasks = [task for task in load_surface("development").tasks if task.prompt.language == "en"]
    spellings: dict[str, Callable[[str], str]] = {"as written": str, "misspelt": misspelt}
    print(f"First required route in the Top-5, {len(tasks)} development tasks, {catalog.name} endpoints")
    for spec in ("bm25", "ngrams", "rrf(bm25,ngrams)"):
        retriever = build_retriever(spec, catalog)
        for name, spelt in spellings.items():
            found = [task.key.steps[0].route in retriever.rank(spelt(task.prompt.query), k=5).ids for task in tasks]
            print(f"{spec:18}{name:12}{sum(found):2d}/{len(tasks)}")


if __name__ == "__main__":
    main()
