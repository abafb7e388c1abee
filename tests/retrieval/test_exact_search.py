"""The search in two precisions ranks as float64 alone does after rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemarouter.retrieval.dense import ExactSearch
from tests.strategies import LAWS


@LAWS
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(0, 60), kinds=st.integers(1, 60), k=st.integers(0, 70))
def test_the_best_rows_are_those_of_a_stable_sort_of_rounded_float64_products(
    seed: int, rows: int, kinds: int, k: int
) -> None:
    rng = np.random.default_rng(seed)
    # Few kinds of rows give many ties, and steps of 1e-7 give scores that float32 cannot tell apart.
    several = rng.standard_normal((kinds, 16)) + rng.integers(0, 3, size=(kinds, 1)) * 1e-7
    matrix = several[rng.integers(0, kinds, size=rows)].astype(np.float32)
    vector = rng.standard_normal(16)
    scores = np.round(matrix.astype(np.float64) @ vector, 6)
    expected = np.argsort(-scores, kind="stable")[:k]
    chosen, values = ExactSearch(matrix).search(vector, k)
    assert chosen.tolist() == expected.tolist()
    assert values.tolist() == scores[expected].tolist()


@pytest.mark.parametrize("k", [1, 7, 5000])
def test_neighbours_closer_than_float32_tells_apart_keep_the_order_of_float64(k: int) -> None:
    rng = np.random.default_rng(3)
    matrix = np.full((5000, 64), 0.125, dtype=np.float32)
    matrix[:, 0] += rng.integers(0, 200, size=5000).astype(np.float32) * np.float32(2**-20)
    vector = np.full(64, 0.125)
    scores = np.round(matrix.astype(np.float64) @ vector, 6)
    chosen, _ = ExactSearch(matrix).search(vector, k)
    assert chosen.tolist() == np.argsort(-scores, kind="stable")[:k].tolist()
