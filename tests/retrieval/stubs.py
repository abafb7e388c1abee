"""Small worlds for retrievers: an encoder of eight dimensions, entries full of ties, and one builder a retriever."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from schemarouter.retrieval.base import Entry, Retriever
from schemarouter.retrieval.dense import Dense
from schemarouter.retrieval.fusion import ReciprocalRankFusion
from schemarouter.retrieval.registry import build_retriever
from schemarouter.retrieval.vectors import QueryVectors


class StubEncoder:
    """Unit vectors on a coarse lattice, a pure function of identity and text; remembers what it was asked."""

    dimensions = 8

    def __init__(self, name: str = "stub", identity: str = "1") -> None:
        self.name = name
        self._identity = identity
        self.asked: list[str] = []

    @property
    def identity(self) -> str:
        return self._identity

    def encode(self, texts: Sequence[str]) -> NDArray[np.float64]:
        self.asked += texts
        return np.stack([self._vector(text) for text in texts]) if texts else np.zeros((0, self.dimensions))

    def _vector(self, text: str) -> NDArray[np.float64]:
        given = f"{self.name}/{self._identity}/{text}".encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(given).digest()[: self.dimensions]
        raw = np.asarray([byte % 3 - 1 for byte in digest], dtype=np.float64)
        raw[0] = raw[0] or 1.0
        return np.asarray(raw / np.sqrt(np.sum(raw * raw)))


def dense(entries: Sequence[Entry], encoder: StubEncoder | None = None) -> Dense:
    """A dense retriever over the stub."""
    chosen = encoder or StubEncoder()
    return Dense(entries, encoder=chosen, queries=QueryVectors(chosen))


def fused(entries: Sequence[Entry]) -> ReciprocalRankFusion:
    """Lexical and dense, fused."""
    parts = [build_retriever("bm25", entries), dense(entries)]
    return ReciprocalRankFusion(parts, k=60, depth=len(entries))


BUILDERS: dict[str, Callable[[Sequence[Entry]], Retriever]] = {
    "bm25": lambda entries: build_retriever("bm25", entries),
    "dense": dense,
    "rrf": fused,
    "random": lambda entries: build_retriever("random(seed=7)", entries),
}

# Few words, so that documents meet in them, and scores meet too.
WORDS = ["invoice", "lease", "mass", "5 kg", "설비", "하중", "荷重", "センサー", "Gerät", "año", "T-17"]
texts = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
queries = texts | st.text(max_size=12)


@st.composite
def entries(draw: st.DrawFn, *, max_size: int = 9) -> list[Entry]:
    """Entries with unique ids in any order."""
    ids = draw(st.lists(st.text("abc.", min_size=1, max_size=3), unique=True, max_size=max_size))
    return [Entry(entry_id, draw(texts)) for entry_id in ids]
