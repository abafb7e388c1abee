"""The random retriever: a pure function of seed, query and id, uniform, the same in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.random import Random
from tests.strategies import LAWS

ENTRIES = [Entry(f"route.{index}", "") for index in range(20)]
SCRIPT = """
from schemarouter.retrieval.base import Entry
from schemarouter.retrieval.registry import build_retriever
entries = [Entry(i, t) for i, t in (("a", "x y"), ("b", "y z"), ("c", "z x x"), ("d", "x"))]
for spec in ("random", "random(seed=2)", "bm25", "rrf(bm25,random)"):
    print(spec, build_retriever(spec, entries).rank("x y 설비", k=4))
"""


def test_seed_and_query_decide_the_order() -> None:
    orders = {Random(ENTRIES, seed=seed).rank(query, k=20).ids for seed in range(5) for query in ("a", "b", "", "설비")}
    assert len(orders) == 20


@LAWS
@given(seed=st.integers(-(2**70), 2**70), query=st.text(st.characters(exclude_categories=()), max_size=9))
@example(seed=1, query="a\ud800b")
def test_everything_is_ranked_with_scores_in_the_unit_interval(seed: int, query: str) -> None:
    items = Random(ENTRIES, seed=seed).rank(query, k=20).items
    assert {entry_id for entry_id, _ in items} == {entry.id for entry in ENTRIES}
    assert all(0 <= score < 1 for _, score in items)


@LAWS
@given(seed=st.integers(0, 99), query=st.text(max_size=9), chosen=st.sets(st.sampled_from(range(20)), min_size=1))
def test_the_score_of_an_entry_does_not_depend_on_the_others(seed: int, query: str, chosen: set[int]) -> None:
    everything = dict(Random(ENTRIES, seed=seed).rank(query, k=20).items)
    some = Random([ENTRIES[at] for at in chosen], seed=seed).rank(query, k=20)
    assert all(everything[entry_id] == score for entry_id, score in some.items)


def test_every_order_comes_about_equally_often() -> None:
    retriever = Random(ENTRIES[:3], seed=1)
    counts = Counter(retriever.rank(f"query {index}", k=3).ids for index in range(1200))
    assert set(counts) == set(permutations(entry.id for entry in ENTRIES[:3]))
    # Six orders, 200 expected of each, a standard deviation of 13.
    assert all(140 < count < 260 for count in counts.values())


@pytest.mark.slow
def test_rankings_do_not_depend_on_the_hash_seed() -> None:
    answers = set()
    for hash_seed in ("0", "1", "4242"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            encoding="utf-8",
        )
        answers.add(done.stdout)
    assert len(answers) == 1
    assert answers.pop().count("Ranking(items=((") == 4


def test_a_known_order_stays_as_it_is() -> None:
    items = Random(ENTRIES[:4], seed=1).rank("find the invoice", k=4).items
    assert items == (
        ("route.1", 0.9965741564123896),
        ("route.2", 0.7328380279312725),
        ("route.3", 0.6349509939888947),
        ("route.0", 0.021404843673280993),
    )
